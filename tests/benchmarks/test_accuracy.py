"""The two error measures."""

import math

import numpy as np
import pytest

from benchmarks.accuracy import Accuracy, Compared, accuracy, together


def test_measures_take_the_worst_output() -> None:
    references = [np.array([3.0, 4.0]), np.array([[10.0, -20.0]])]
    outputs = [np.array([3.0, 4.5], np.float32), np.array([[10.0, -19.0]], np.float32)]
    result = accuracy(outputs, references)
    assert result.norm == pytest.approx(0.5 / 5)
    assert result.element == pytest.approx(0.5 / 4)


def test_zero_reference() -> None:
    assert accuracy([np.zeros(2)], [np.zeros(2)]) == Accuracy(0.0, 0.0)
    assert accuracy([np.ones(2)], [np.zeros(2)]) == Accuracy(math.inf, math.inf)


def test_nan_is_not_hidden() -> None:
    result = accuracy([np.ones(2), np.array([np.nan, 1.0])], [np.ones(2), np.ones(2)])
    assert math.isnan(result.norm)
    assert math.isnan(result.element)


def test_shapes_must_match() -> None:
    with pytest.raises(ValueError, match="can't be compared"):
        accuracy([np.ones(2)], [np.ones(3)])


def test_samples_together_and_their_ratio() -> None:
    both = together([Accuracy(3.0, 0.0), Accuracy(4.0, 2.0)])
    assert both.norm == pytest.approx(12.5**0.5)
    assert both.element == pytest.approx(2.0**0.5)
    assert Compared("n", Accuracy(0.1, 0.1), Accuracy(0.2, 0.3)).ratio == pytest.approx(2.0)
    assert Compared("n", Accuracy(1e-6, 1e-6), Accuracy(0.2, 0.3)).ratio is None
