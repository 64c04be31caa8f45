"""The search of Chen et al., NeurIPS 2018: annealing on a cost model, a diverse batch of the best, some random ones.

The annealing chains continue from batch to batch. So a search is resumed by the same calls of ``propose`` *and*
``learn`` with the same scores (from records, nothing needs to be measured again), not by ``learn`` alone.
"""

from dataclasses import dataclass, field

import numpy as np

from tilewright.space.space import Digits, Searchable
from tilewright.tune.search.chains import Annealing, Chains
from tilewright.tune.search.diversity import select_diverse
from tilewright.tune.search.ledger import Ledger
from tilewright.tune.search.searcher import FloatArray, Score


@dataclass(frozen=True, slots=True)
class Plan:
    """Parameters of a batch."""

    annealing: Annealing = field(default_factory=Annealing)
    pool: int = 2
    """The batch is chosen from this many times as many candidates (the paper's lambda)."""
    diversity: float = 0.02
    """The diversity bonus of a knob's value that no other candidate of the batch has, in units of the score (alpha)."""
    random: float = 0.05
    """The probability with which a candidate is a random one (epsilon)."""


class AnnealingSearcher:
    """Maximizes ``score`` (``Searcher``).

    ``score`` may change between proposals; its owner fits it to the measurements. While it is constant, batches are
    random and diverse.
    """

    def __init__(self, space: Searchable, score: Score, seed: int = 0, plan: Plan | None = None) -> None:
        self._ledger = Ledger(space, seed)
        self._score = score
        self._plan = plan or Plan()
        self._chains = Chains(self._ledger, self._plan.annealing)

    def propose(self, count: int) -> Digits:
        """The best and diverse candidates by score; then random ones, which also replace missing ones of the chains."""
        random = self._ledger.generator()
        planned = count - int(random.binomial(count, self._plan.random))
        best = self._chains.search(self._score, self._plan.pool * count, random)
        chosen = select_diverse(best.digits, best.scores, planned, self._plan.diversity)
        self._ledger.propose(chosen)
        others = self._ledger.propose(self._ledger.draw(count - len(chosen), random))
        return np.concatenate([chosen, others])

    def learn(self, digits: Digits, throughputs: FloatArray) -> None:
        """Marks them as measured: throughputs come back through ``score``."""
        self._ledger.learn(digits)
