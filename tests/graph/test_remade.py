"""Constants that are made again when one is read."""

import numpy as np
import pytest

from tilewright.base import dtypes as dt
from tilewright.base.arrays import Array
from tilewright.base.errors import BadInput
from tilewright.graph.ir import Value
from tilewright.graph.remade import KEPT_BYTES, Remade
from tilewright.symbolic.expr import const

SMALL = np.arange(3, dtype=np.float32)
LARGE = np.zeros(KEPT_BYTES // 4 + 1, np.float32)


def value(name: str, array: Array) -> Value:
    return Value(name, dt.f32, tuple(const(extent) for extent in array.shape))


def test_large_ones_are_made_when_one_is_read() -> None:
    constants = {value("small", SMALL): SMALL, value("large", LARGE): LARGE}
    made: list[int] = []

    def make() -> dict[Value, Array]:
        made.append(1)
        return {known: array + 0 for known, array in constants.items()}

    remade = Remade(constants, make)
    assert list(remade) == list(constants)
    assert len(remade) == 2
    assert value("large", LARGE) in remade
    assert remade[value("small", SMALL)] is SMALL
    assert not made
    np.testing.assert_array_equal(remade[value("large", LARGE)], LARGE)
    assert remade[value("large", LARGE)] is not LARGE
    assert len(made) == 1
    with pytest.raises(KeyError):
        _ = remade[value("other", SMALL)]


def test_what_is_not_made_this_time() -> None:
    remade = Remade({value("large", LARGE): LARGE}, dict)
    with pytest.raises(BadInput, match=r"large.*compile the model again"):
        _ = remade[value("large", LARGE)]
