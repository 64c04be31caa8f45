import numpy as np
import pytest

from tilewright.base.errors import BadInput
from tilewright.space.space import Digits
from tilewright.space.tables import knob_features, one_hot, table

TABLES = (table([(1, 8), (2, 4), (8, 1)]), table([(0, 1, 2), (2, 1, 0)]), one_hot(3), table([(64,), (512,)]))


def test_rows_of_tables_side_by_side() -> None:
    features = knob_features(TABLES, np.array([[0, 0, 0, 0], [2, 1, 1, 1]]))
    assert features.dtype == np.float64
    assert features.tolist() == [[1, 8, 0, 1, 2, 1, 0, 0, 64], [8, 1, 2, 1, 0, 0, 1, 0, 512]]


def test_no_knobs() -> None:
    assert knob_features((), np.zeros((3, 0), np.int64)).shape == (3, 0)
    assert knob_features(TABLES, np.zeros((0, 4), np.int64)).shape == (0, 9)


@pytest.mark.parametrize(
    "digits", [np.zeros((2, 3), np.int64), np.zeros(4, np.int64), np.array([[3, 0, 0, 0]]), np.array([[0, 0, -1, 0]])]
)
def test_digits_of_other_spaces_are_refused(digits: Digits) -> None:
    with pytest.raises(BadInput):
        knob_features(TABLES, digits)


@pytest.mark.parametrize("values", [(), ((1, 2), (1,))])
def test_tables_are_rectangular(values: tuple[tuple[int, ...], ...]) -> None:
    with pytest.raises(BadInput):
        table(values)
