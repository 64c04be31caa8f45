"""Evolution on a cost model: the search of Zheng et al., "Ansor" (OSDI 2020), section 5.1.

Each batch is bred anew: from random candidates and the fastest ones that were measured, over a few generations in which
the parents are those that the cost model prefers. What is proposed follows from what was learned alone.
"""

from dataclasses import dataclass, field

import numpy as np

from tilewright.space.space import Candidates, Digits
from tilewright.tune.search.ledger import Ledger, keys_of
from tilewright.tune.search.searcher import FloatArray, Score


@dataclass(frozen=True, slots=True)
class Breeding:
    """How a batch is bred."""

    population: int = 512
    generations: int = 4
    measured: float = 0.2
    """The part of the first generation that may be candidates that were measured."""
    mutation: float = 0.85
    """The probability with which a child has one parent, and one decision changed; else it has two parents."""
    random: float = 0.05
    """The part of a batch that is random (epsilon)."""


@dataclass(frozen=True, slots=True)
class EvolutionSearch:
    """A ``Searching``: evolution that breeds in another way, such as without crossover or without generations."""

    breeding: Breeding = field(default_factory=Breeding)
    asks_a_model: bool = True

    def searcher(self, space: Candidates, score: Score, seed: int) -> "EvolutionSearcher":
        """See ``Searching``."""
        return EvolutionSearcher(space, score, seed, self.breeding)


class EvolutionSearcher:
    """What ``score`` says is good among descendants (``Searcher``)."""

    def __init__(self, space: Candidates, score: Score, seed: int = 0, breeding: Breeding | None = None) -> None:
        self._space = space
        self._ledger = Ledger(space, seed)
        self._score = score
        self._breeding = breeding or Breeding()
        self._digits = np.empty((0, len(space.radices)), np.int64)
        self._throughputs = np.empty(0, np.float64)

    def propose(self, count: int) -> Digits:
        """The best of all generations, and some random ones."""
        random = self._ledger.generator()
        planned = count - int(random.binomial(count, self._breeding.random))
        chosen = self._ledger.propose(self._bred(planned, random))
        others = self._ledger.propose(self._ledger.draw(count - len(chosen), random))
        return np.concatenate([chosen, others])

    def learn(self, digits: Digits, throughputs: FloatArray) -> None:
        """Remember who may be a parent."""
        self._ledger.learn(digits)
        self._digits = np.concatenate([self._digits, digits])
        self._throughputs = np.concatenate([self._throughputs, throughputs])

    def _bred(self, count: int, random: np.random.Generator) -> Digits:
        """Up to ``count`` candidates that may be proposed, best first; none while nothing tells candidates apart."""
        best = _Best(count, len(self._ledger.radices))
        if 0 in self._space.radices:
            return best.digits
        population = self._first(random)
        for generation in range(self._breeding.generations + 1):
            population = population[self._space.allowed(population)]
            if not len(population):
                break
            scores = self._score(population)
            if not self._throughputs.any() and not np.ptp(scores):
                break
            is_new = self._ledger.untaken(population)
            best.add(population[is_new], scores[is_new])
            if generation < self._breeding.generations:
                population = self._children(population, scores, random)
        return best.digits

    def _first(self, random: np.random.Generator) -> Digits:
        """The fastest ones that were measured, and random candidates."""
        size = self._breeding.population
        fastest = np.argsort(-self._throughputs, kind="stable")[: int(self._breeding.measured * size)]
        fastest = fastest[self._throughputs[fastest] > 0]
        return np.concatenate([self._digits[fastest], self._space.sample(size - len(fastest), random)])

    def _children(self, parents: Digits, scores: FloatArray, random: np.random.Generator) -> Digits:
        """A generation; parents are drawn with odds of their scores, in units of how much these differ."""
        spread = float(scores.std()) or 1.0
        odds = np.exp((scores - scores.max()) / spread)
        drawn = random.choice(len(parents), (self._breeding.population, 2), p=odds / odds.sum())
        alone = random.random(len(drawn)) < self._breeding.mutation
        return np.stack(
            [
                self._space.vary(parents[first], random)
                if is_alone
                else self._space.cross(parents[first], parents[second], random)
                for (first, second), is_alone in zip(drawn, alone, strict=True)
            ]
        )


class _Best:
    """The best of all candidates that were added, each once."""

    def __init__(self, count: int, knobs: int) -> None:
        self._count = count
        self._none: Digits = np.empty((0, knobs), np.int64)
        self._known: dict[bytes, tuple[float, Digits]] = {}

    def add(self, digits: Digits, scores: FloatArray) -> None:
        """More candidates."""
        found = zip(keys_of(digits), scores.tolist(), digits, strict=True)
        self._known.update((key, (score, one)) for key, score, one in found)
        kept = sorted(self._known.items(), key=lambda item: -item[1][0])[: self._count]
        self._known = dict(kept)

    @property
    def digits(self) -> Digits:
        """(candidates, knobs), best first."""
        found = [one for _, one in self._known.values()]
        return np.stack(found) if found else self._none
