"""A genetic algorithm: crossover and mutation of fast candidates. The baseline of Chen et al., NeurIPS 2018.

A generation is a fixed number of successive measured candidates. Children have two parents from the last complete
generation and the elites, the best of all earlier ones, with probabilities proportional to throughputs. Proposals
depend only on learned data.
"""

from dataclasses import dataclass

import numpy as np

from tilewright.space.space import Digits, Searchable
from tilewright.tune.search.ledger import Ledger
from tilewright.tune.search.searcher import FloatArray

_NUDGES = 32
"""Number of retries, each with one more changed knob, for children that are taken or not allowed."""
_HARDLY = 1e-8
"""The fitness of a failure, relative to the best: it can be a parent if there are no others."""


@dataclass(frozen=True, slots=True)
class Evolution:
    """Parameters of the algorithm."""

    population: int = 100
    """Candidates of a generation."""
    elites: int = 3
    mutation: float = 0.1
    """Mutation probability for each knob of a child."""


class GeneticSearcher:
    """Starts with a generation of random candidates, then children (``Searcher``)."""

    def __init__(self, space: Searchable, seed: int = 0, evolution: Evolution | None = None) -> None:
        self._ledger = Ledger(space, seed)
        self._evolution = evolution or Evolution()
        self._digits = np.empty((0, len(space.radices)), np.int64)
        self._throughputs = np.empty(0, np.float64)

    def propose(self, count: int) -> Digits:
        """Children of fast candidates, and random candidates in place of known children."""
        random = self._ledger.generator()
        parents = self._parents()
        if len(parents) < 2:
            return self._ledger.propose(self._ledger.draw(count, random))
        children = self._ledger.propose(self._new(self._children(parents, count, random), random))
        others = self._ledger.propose(self._ledger.draw(count - len(children), random))
        return np.concatenate([children, others])

    def learn(self, digits: Digits, throughputs: FloatArray) -> None:
        """Record potential parents."""
        self._ledger.learn(digits)
        self._digits = np.concatenate([self._digits, digits])
        self._throughputs = np.concatenate([self._throughputs, throughputs])

    def _parents(self) -> "_Parents":
        """The last complete generation, and the best of all before."""
        size = self._evolution.population
        end = len(self._digits) // size * size
        begin = max(end - size, 0)
        best = np.argsort(-self._throughputs[:begin], kind="stable")[: self._evolution.elites]
        chosen = np.concatenate([np.arange(begin, end), best])
        return _Parents(self._digits[chosen], self._throughputs[chosen])

    def _children(self, parents: "_Parents", count: int, random: np.random.Generator) -> Digits:
        first, second = parents.pairs(count, random)
        knobs = len(self._ledger.radices)
        points = random.integers(0, max(knobs, 1), (count, 1))
        children = np.where(np.arange(knobs) < points, first, second)
        mutated = random.random(children.shape) < self._evolution.mutation
        return np.where(mutated, random.integers(0, self._ledger.radices, children.shape), children)

    def _new(self, children: Digits, random: np.random.Generator) -> Digits:
        """The children that may be proposed, and neighbours in place of the others."""
        found = self._ledger.available(children)
        for _ in range(_NUDGES):
            missing = len(children) - len(found)
            if not missing or not children.shape[1]:
                break
            nudged = children[random.integers(0, len(children), missing)]
            knobs = random.integers(0, children.shape[1], missing)
            nudged[np.arange(missing), knobs] = random.integers(0, self._ledger.radices[knobs])
            found = self._ledger.available(np.concatenate([found, nudged]))
        return found


@dataclass(frozen=True, slots=True)
class _Parents:
    digits: Digits
    throughputs: FloatArray

    def __len__(self) -> int:
        return len(self.digits)

    def pairs(self, count: int, random: np.random.Generator) -> tuple[Digits, Digits]:
        """``count`` pairs of different parents, drawn in proportion to fitness.

        The two largest of ``log(fitness)`` plus Gumbel noise are two draws without replacement (Vieira, 2014).
        """
        best = self.throughputs.max()
        fitness = self.throughputs / best + _HARDLY if best > 0 else np.ones(len(self))
        keys = np.log(fitness) + random.gumbel(size=(count, len(self)))
        pairs = np.argpartition(-keys, 1, axis=1)[:, :2]  # in this order: the largest, the second largest
        return self.digits[pairs[:, 0]], self.digits[pairs[:, 1]]
