"""Packed constants, against the index map read point by point."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from tilewright.base.errors import BadInput
from tilewright.kernels.packing import pack, unpack
from tilewright.schedule.index_map import IndexMap
from tilewright.symbolic.expr import const

MAPS = (
    "k, j -> j // 32, k, j % 32",
    "o, i, y -> o // 4, i // 2, y, i % 2, o % 4",
    "o, i -> i // 4 % 2, o, i // 8, i % 4",
    "a, b -> b, a",
    "a, b -> a // 3, b * 3 + a % 3",
    "a -> a",
)


@st.composite
def cases(draw: st.DrawFn) -> tuple[IndexMap, NDArray[np.int32]]:
    index_map = IndexMap.parse(draw(st.sampled_from(MAPS)))
    shape = tuple(draw(st.integers(0, 19)) for _ in index_map.variables)
    return index_map, np.arange(1, 1 + np.prod(shape), dtype=np.int32).reshape(shape)


@given(cases(), st.booleans())
def test_every_element_is_at_its_place(case: tuple[IndexMap, NDArray[np.int32]], transposed: bool) -> None:
    index_map, array = case
    if transposed:
        array = np.asfortranarray(array)
    stored = pack(array, index_map)
    expected = np.zeros_like(stored)
    for point in np.ndindex(*array.shape):
        expected[tuple(int(str(i)) for i in index_map.apply(tuple(map(const, point))))] = array[point]
    assert stored.shape == tuple(int(str(e)) for e in index_map.shape(tuple(map(const, array.shape))))
    assert stored.dtype == array.dtype
    np.testing.assert_array_equal(stored, expected)
    np.testing.assert_array_equal(unpack(stored, index_map, array.shape), array)


def test_elements_at_one_place_are_refused() -> None:
    with pytest.raises(BadInput, match="does not keep apart all values of b"):
        pack(np.ones((4, 64)), IndexMap.parse("a, b -> a, b % 32"))
