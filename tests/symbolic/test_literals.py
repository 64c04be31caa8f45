"""Literals are equal, as expressions and as keys, only if they have the same bits."""

from math import copysign, isnan, nan

import pytest

from tilewright.base import dtypes
from tilewright.base.dtypes import DType, f32, f64, i32
from tilewright.base.exact import float_bits, from_float_bits
from tilewright.symbolic.expr import Const, Expr, Var, const, maximum

FLOATS = [dtype for dtype in dtypes.ALL if dtype.is_float]
OTHER_NAN = from_float_bits(float_bits(nan) + (1 << 30))


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("first", [0.0, -0.0])
def test_zeros_keep_their_sign_whichever_comes_first(dtype: DType, first: float) -> None:
    for value in (first, -first, first):
        literal = const(value, dtype).value
        assert copysign(1.0, float(literal)) == copysign(1.0, value)


@pytest.mark.parametrize(("a", "b"), [(0.0, -0.0), (nan, -nan), (nan, OTHER_NAN)])
def test_other_bits_are_other_expressions(a: float, b: float) -> None:
    x = Var("x", f32)

    def both(value: float) -> list[Expr]:
        return [Const(value, f32), const(value, f32), x * const(value, f32), maximum(x, value)]

    for one, other in zip(both(a), both(b), strict=True):
        assert one != other
        assert len({one, other}) == 2
        assert str(one) != str(other)


def test_a_nan_is_equal_to_itself() -> None:
    assert const(float("nan"), f64) == const(float("nan"), f64)
    assert isnan(float(const(OTHER_NAN, f64).value))


def test_numbers_of_other_types_are_other_literals() -> None:
    one = [const(True, dtypes.boolean), const(1), const(1.0, i32), const(1, f32), const(True, f64)]
    assert len(set(one)) == len(one)
    assert [type(literal.value) for literal in one] == [bool, int, int, float, float]
