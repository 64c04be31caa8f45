"""Spaces and objectives for the tests of searchers: plain numbers, and no program behind them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np

from tilewright.space.space import Digits, Mask
from tilewright.tune.search.annealing import AnnealingSearcher
from tilewright.tune.search.beam import BeamSearcher
from tilewright.tune.search.evolution import EvolutionSearcher
from tilewright.tune.search.genetic import GeneticSearcher
from tilewright.tune.search.grid import GridSearcher
from tilewright.tune.search.random import RandomSearcher
from tilewright.tune.search.searcher import FloatArray, Searcher


def everything(digits: Digits) -> Mask:
    return np.ones(len(digits), np.bool_)


def a_tenth(digits: Digits) -> Mask:
    """Every tenth candidate, scattered over the space."""
    weights = 7 ** np.arange(digits.shape[1], dtype=np.int64)
    return (digits * weights).sum(axis=1) % 10 == 3


@dataclass(frozen=True)
class Numbers:
    """A space of digits; ``allowed`` is asked for whole populations only."""

    radices: tuple[int, ...]
    rule: Callable[[Digits], Mask] = everything

    def allowed(self, digits: Digits) -> Mask:
        assert digits.ndim == 2
        return self.rule(digits)

    def sample(self, count: int, random: np.random.Generator) -> Digits:
        return random.integers(0, np.array(self.radices, np.int64), (count, len(self.radices)))

    def vary(self, digits: Digits, random: np.random.Generator) -> Digits:
        """One digit is another."""
        result = digits.copy()
        if not len(digits):
            return result
        place = random.integers(0, len(digits))
        result[place] = (result[place] + random.integers(1, max(self.radices[place], 2))) % self.radices[place]
        return result

    def completed(self, digits: Digits, decided: int) -> Digits:
        """All others are 0."""
        return np.where(np.arange(len(self.radices)) < decided, digits, 0)

    def cross(self, first: Digits, second: Digits, random: np.random.Generator) -> Digits:
        """Each digit is that of one of them."""
        return np.where(random.random(len(first)) < 0.5, first, second)


def brute_force(space: Numbers) -> list[tuple[int, ...]]:
    """All allowed candidates, in the order of their indices."""
    found = (digits[::-1] for digits in product(*map(range, reversed(space.radices))))
    return [digits for digits in found if space.allowed(np.array([digits], np.int64))[0]]


def constant(digits: Digits) -> FloatArray:
    return np.zeros(len(digits))


MAKERS: dict[str, Callable[[Numbers, int], Searcher]] = {
    "random": RandomSearcher,
    "grid": lambda space, seed: GridSearcher(space),
    "genetic": GeneticSearcher,
    "evolution": lambda space, seed: EvolutionSearcher(space, peaks, seed),  # type: ignore[arg-type]
    "beam": lambda space, seed: BeamSearcher(space, peaks, seed),  # type: ignore[arg-type]
    "annealing": lambda space, seed: AnnealingSearcher(space, peaks, seed),
    "annealing without a model": lambda space, seed: AnnealingSearcher(space, constant, seed),
}


def bowl(digits: Digits) -> FloatArray:
    """Separable: every knob has a best value of its own, 5, whatever the others are. 1 at best."""
    return np.exp(-0.05 * ((digits - 5) ** 2).sum(axis=1))


def peaks(digits: Digits) -> FloatArray:
    """Not separable: neighbouring knobs have to agree, the first and the last tell on what; many local optima."""
    apart = np.abs(np.diff(digits, axis=1)).sum(axis=1)
    waves = 0.3 * (digits % 3).sum(axis=1)
    ends = digits[:, :1].sum(axis=1) + digits[:, -1:].sum(axis=1)  # of no knobs, too
    return np.exp(-0.15 * (apart + waves + np.abs(ends - 12)))


def best_after(searcher: Searcher, objective: Callable[[Digits], FloatArray], trials: int, batch: int = 50) -> float:
    """The best that is found in so many trials."""
    found = 0.0
    for _ in range(trials // batch):
        digits = searcher.propose(batch)
        throughputs = objective(digits)
        searcher.learn(digits, throughputs)
        found = max(found, float(throughputs.max(initial=0.0)))
    return found


def rows(digits: Digits) -> list[tuple[int, ...]]:
    return [tuple(int(digit) for digit in row) for row in digits]


def table(candidates: Sequence[tuple[int, ...]]) -> Digits:
    return np.array(candidates, np.int64)
