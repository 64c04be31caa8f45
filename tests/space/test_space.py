"""Indices and digits are two names of one candidate."""

from math import prod

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilewright.space.space import digits_of, index_of

RADICES = st.lists(st.integers(1, 1000), max_size=12).map(tuple)


@st.composite
def spaces_and_indices(draw: st.DrawFn) -> tuple[tuple[int, ...], int]:
    radices = draw(RADICES)
    return radices, draw(st.integers(0, prod(radices) - 1))


@given(spaces_and_indices())
def test_index_to_digits_and_back(given_index: tuple[tuple[int, ...], int]) -> None:
    radices, index = given_index
    digits = digits_of(index, radices)
    assert all(0 <= digit < radix for digit, radix in zip(digits, radices, strict=True))
    assert index_of(digits, radices) == index


@given(
    RADICES.flatmap(lambda radices: st.tuples(st.just(radices), st.tuples(*(st.integers(0, r - 1) for r in radices))))
)
def test_digits_to_index_and_back(given_digits: tuple[tuple[int, ...], tuple[int, ...]]) -> None:
    radices, digits = given_digits
    assert digits_of(index_of(digits, radices), radices) == digits


def test_the_first_knob_is_least_significant() -> None:
    assert digits_of(7, (4, 3)) == (3, 1)
    assert index_of((3, 1), (4, 3)) == 7


@given(spaces_and_indices())
def test_no_digits_beyond_the_space(given_index: tuple[tuple[int, ...], int]) -> None:
    radices, index = given_index
    for outside in (prod(radices) + index, -1 - index):
        with pytest.raises(IndexError):
            digits_of(outside, radices)
