"""Random search: uniform sampling, the baseline of all other searchers."""

from tilewright.space.space import Digits, Searchable
from tilewright.tune.search.ledger import Ledger
from tilewright.tune.search.searcher import FloatArray


class RandomSearcher:
    """Uniform, without repeats (``Searcher``)."""

    def __init__(self, space: Searchable, seed: int = 0) -> None:
        self._ledger = Ledger(space, seed)

    def propose(self, count: int) -> Digits:
        """Random candidates."""
        return self._ledger.propose(self._ledger.draw(count, self._ledger.generator()))

    def learn(self, digits: Digits, throughputs: FloatArray) -> None:
        """Marks them as measured."""
        self._ledger.learn(digits)
