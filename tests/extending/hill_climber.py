"""A searcher in one file, as ``docs/extending.md`` shows it: steps from the best candidate to its neighbours."""

import numpy as np

from tilewright.space.space import Digits, Floats, Searchable
from tilewright.tune.search.chains import neighbours
from tilewright.tune.search.ledger import Ledger
from tilewright.tune.search.searcher import Score, Searcher


class HillClimber:
    """Neighbours of the best candidate so far; what nobody has seen yet, where there is none left."""

    def __init__(self, space: Searchable, seed: int) -> None:
        self._ledger = Ledger(space, seed)  # what is taken, and random numbers that follow from it
        self._best: Digits | None = None
        self._most = 0.0

    def propose(self, count: int) -> Digits:
        """Up to ``count`` candidates that were never proposed before."""
        random = self._ledger.generator()
        found = np.empty((0, len(self._ledger.radices)), np.int64)
        if self._best is not None:
            around = neighbours(np.repeat(self._best[None], 4 * count, axis=0), self._ledger.radices, random)
            found = self._ledger.propose(self._ledger.available(around)[:count])
        others = self._ledger.propose(self._ledger.draw(count - len(found), random))
        return np.concatenate([found, others])

    def learn(self, digits: Digits, throughputs: Floats) -> None:
        """What was measured: runs per second, 0 for failures."""
        self._ledger.learn(digits)
        if throughputs.max(initial=0.0) > self._most:
            self._best, self._most = digits[int(np.argmax(throughputs))], float(throughputs.max())


class HillClimbing:
    """Makes one for each kernel."""

    asks_a_model = False

    def searcher(self, space: Searchable, score: Score, seed: int) -> Searcher:
        """``score`` would rate candidates, if ``asks_a_model``."""
        return HillClimber(space, seed)


HILL_CLIMBING = HillClimbing()
