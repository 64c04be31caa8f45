"""Keys tell apart whatever has other bits."""

from itertools import combinations
from math import inf, nan

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilewright.base.exact import Exact, float_bits, from_float_bits

OTHER_NAN = from_float_bits(float_bits(nan) + 1)
APART: list[object] = [
    0,
    0.0,
    -0.0,
    False,
    1,
    1.0,
    True,
    -1,
    nan,
    -nan,
    OTHER_NAN,
    inf,
    "1",
    None,
    (1,),
    (1.0,),
    ((1,),),
]


@pytest.mark.parametrize(("a", "b"), list(combinations(APART, 2)), ids=repr)
def test_apart(a: object, b: object) -> None:
    assert Exact(a) != Exact(b)
    assert len({Exact(("x", (2, a))), Exact(("x", (2, b)))}) == 2


@pytest.mark.parametrize("value", APART, ids=repr)
def test_alike(value: object) -> None:
    assert len({Exact(value), Exact(value)}) == 1
    assert Exact(value) != value


def test_a_nan_is_itself() -> None:
    assert Exact((float("nan"),)) == Exact((float("nan"),))


@given(st.integers(0, 2**64 - 1))
def test_bits_make_the_number(bits: int) -> None:
    assert float_bits(from_float_bits(bits)) == bits
