"""The greedy choice of a batch against brute force."""

from itertools import combinations
from math import e

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from tests.tune.search.spaces import rows, table
from tilewright.space.space import Digits
from tilewright.tune.search.diversity import select_diverse
from tilewright.tune.search.searcher import FloatArray

POOL = table([(0, 0), (0, 1), (1, 0), (2, 3), (2, 2)])


@st.composite
def pools(draw: st.DrawFn) -> tuple[Digits, FloatArray]:
    """Different candidates with scores that are not negative."""
    found = draw(st.lists(st.tuples(*[st.integers(0, 3)] * 3), min_size=1, max_size=9, unique=True))
    scores = draw(arrays.arrays(np.float64, len(found), elements=st.floats(0, 4)))
    return table(found), scores


def worth_of(digits: Digits, scores: FloatArray, diversity: float) -> float:
    """The sum of the scores, and ``diversity`` for each different value of each knob."""
    return float(scores.sum()) + diversity * sum(len(set(column)) for column in digits.T.tolist())


@settings(max_examples=200)
@given(pools(), st.integers(1, 5), st.sampled_from([0.0, 0.1, 1.0, 10.0]))
def test_not_far_from_the_best_batch(pool: tuple[Digits, FloatArray], count: int, diversity: float) -> None:
    digits, scores = pool
    size = min(count, len(digits))
    chosen = select_diverse(digits, scores, count, diversity)
    assert len(set(rows(chosen))) == size
    rated = dict(zip(rows(digits), scores.tolist(), strict=True))
    worth = worth_of(chosen, np.array([rated[row] for row in rows(chosen)]), diversity)
    best = max(
        worth_of(digits[list(some)], scores[list(some)], diversity) for some in combinations(range(len(digits)), size)
    )
    assert worth >= (1 - 1 / e) * best - 1e-9
    assert diversity > 0 or worth >= best - 1e-9  # without diversity it is a sort


@given(pools(), st.integers(1, 5), st.integers(-100, 100))
def test_a_constant_in_the_scores_changes_nothing(pool: tuple[Digits, FloatArray], count: int, constant: int) -> None:
    digits, scores = pool[0], np.round(pool[1])  # whole numbers: adding is exact
    wanted = rows(select_diverse(digits, scores, count, 1.0))
    assert rows(select_diverse(digits, scores + constant, count, 1.0)) == wanted


def test_scores_count() -> None:
    scores = np.array([5.0, 4.0, 3.0, 2.0, 1.0])
    assert rows(select_diverse(POOL, scores, 2, 0.1)) == [(0, 0), (0, 1)]
    assert rows(select_diverse(POOL, scores[::-1], 2, 0.1)) == [(2, 2), (2, 3)]


def test_diversity_counts() -> None:
    """(0, 1) brings one new value, (2, 3) two."""
    scores = np.array([5.0, 4.0, 3.0, 2.5, 1.0])
    assert rows(select_diverse(POOL, scores, 2, 1.0)) == [(0, 0), (0, 1)]
    assert rows(select_diverse(POOL, scores, 2, 2.0)) == [(0, 0), (2, 3)]


def test_all_of_a_small_pool_and_none_of_an_empty_one() -> None:
    assert sorted(rows(select_diverse(POOL, np.zeros(5), 9, 1.0))) == sorted(rows(POOL))
    assert select_diverse(np.empty((0, 3), np.int64), np.empty(0), 4, 1.0).shape == (0, 3)
    assert select_diverse(np.empty((1, 0), np.int64), np.zeros(1), 4, 1.0).shape == (1, 0)
