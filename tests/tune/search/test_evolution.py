"""Evolution: what is bred, and what is not if a part of the search is switched off."""

import numpy as np
import pytest

from tests.tune.search.spaces import Numbers, best_after, peaks
from tilewright.space.space import Digits
from tilewright.tune.search.evolution import Breeding, EvolutionSearch
from tilewright.tune.search.searcher import FloatArray


class Watched(Numbers):
    """Counts what is asked of it."""

    varied: int = 0
    crossed: int = 0

    def vary(self, digits: Digits, random: np.random.Generator) -> Digits:
        type(self).varied += 1
        return super().vary(digits, random)

    def cross(self, first: Digits, second: Digits, random: np.random.Generator) -> Digits:
        type(self).crossed += 1
        return super().cross(first, second, random)


@pytest.mark.parametrize(
    ("breeding", "varies", "crosses", "generations"),
    [
        (Breeding(population=40), True, True, 5),
        (Breeding(population=40, mutation=1.0), True, False, 5),
        (Breeding(population=40, mutation=0.0), False, True, 5),
        (Breeding(population=40, generations=0, measured=0.0), False, False, 1),
    ],
    ids=["full", "without crossover", "without mutation", "without evolution"],
)
def test_parts_are_switched_off(breeding: Breeding, *, varies: bool, crosses: bool, generations: int) -> None:
    rated: list[int] = []

    def score(digits: Digits) -> FloatArray:
        rated.append(len(digits))
        return peaks(digits)

    searcher = EvolutionSearch(breeding).searcher(Watched((12,) * 6), score, 0)  # type: ignore[arg-type]
    first = searcher.propose(8)
    searcher.learn(first, peaks(first))
    Watched.varied = Watched.crossed = 0
    rated.clear()
    assert len(searcher.propose(8)) == 8
    assert (Watched.varied > 0, Watched.crossed > 0) == (varies, crosses)
    assert rated == [40] * generations


def test_evolution_finds_more_of_a_score_than_as_many_random_candidates() -> None:
    """As many candidates are rated by a perfect model."""

    def found(breeding: Breeding, seed: int) -> float:
        search = EvolutionSearch(breeding).searcher(Numbers((12,) * 6), peaks, seed)  # type: ignore[arg-type]
        return best_after(search, peaks, 60, batch=20)

    full = [found(Breeding(population=50), seed) for seed in range(5)]
    alone = [found(Breeding(population=250, generations=0, measured=0.0), seed) for seed in range(5)]
    assert np.median(full) > 1.1 * np.median(alone)
