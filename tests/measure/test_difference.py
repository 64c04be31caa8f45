"""The two measures of a difference, against the formulas as they are written."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from tilewright.measure.difference import Reference, difference

NUMBERS = st.sampled_from([0.0, -0.0, 1.0, -1.5, 3.0, 1e-3, float("inf"), float("-inf"), float("nan")])
PAIRS = st.lists(st.tuples(NUMBERS, NUMBERS), max_size=4)


def ratio(error: float, scale: float) -> float:
    return error / scale if scale else (np.inf if error else 0.0)


def measures(ours: NDArray[np.float64], reference: NDArray[np.float64]) -> tuple[float, float]:
    """|y - r|_2 / |r|_2 and max|y - r| / max|r| of the elements that are finite in both; infinite if others differ."""
    finite = np.isfinite(reference)
    if not np.array_equal(ours[~finite], reference[~finite], equal_nan=True) or not np.isfinite(ours[finite]).all():
        return np.inf, np.inf
    y, r = ours[finite], reference[finite]
    euclidean = ratio(float(np.sqrt(np.sum((y - r) ** 2))), float(np.sqrt(np.sum(r**2))))
    return euclidean, ratio(float(np.max(np.abs(y - r), initial=0.0)), float(np.max(np.abs(r), initial=0.0)))


@given(PAIRS)
def test_the_measures_are_what_they_are_called(pairs: list[tuple[float, float]]) -> None:
    ours, reference = (np.array([pair[side] for pair in pairs], np.float64) for side in (0, 1))
    found = difference(ours, reference)
    assert (found.euclidean, found.largest) == pytest.approx(measures(ours, reference), rel=1e-12)
    assert found.worst == max(found.euclidean, found.largest)


def test_one_reference_serves_many_and_keeps_what_it_was() -> None:
    array = np.array([1.0, -4.0], np.float32)
    reference = Reference.of(array)
    near = np.array([1.0, -3.0], np.float32)
    first = reference.difference(near)
    array[:] = 7
    assert reference.difference(near) == first
    assert first.largest == 0.25
    assert reference.difference(np.array([1.0, -4.0], np.float32)).worst == 0
    assert reference.difference(np.zeros((2, 1), np.float32)).worst == float("inf")
    assert near.tolist() == [1.0, -3.0]
