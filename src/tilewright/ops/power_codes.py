"""E8M0, the type of scales in OCP MX 1.0: powers of two, each as the code of its exponent, and NaN.

The code c from 0 to 254 is 2^(c - 127); 255 is NaN. There is no sign, no zero and no infinity. All is computed in f64,
in which every power, and whatever numbers of f32 are multiplied by, is exact, and none is subnormal.
"""

from collections.abc import Iterable
from enum import Enum
from functools import reduce

from tilewright.base.dtypes import f32, f64, i32, u8
from tilewright.symbolic.expr import Expr, cast, const, equal, select, unary
from tilewright.symbolic.operations import UnaryOp

_BIAS, _LARGEST, _NAN = 127, 254, 255
_STEP = 16
"""Codes are counted in two steps: so many at once, and one by one."""


class PowerRounding(Enum):
    """Which power a number between two of them becomes; ONNX's names."""

    UP = "up"
    DOWN = "down"
    NEAREST = "nearest"
    """Of what is halfway, the upper one."""


def number_of(code: Expr) -> Expr:
    """The number (f32) of a code (i32): a factor for each of its bits."""
    factors = (
        select((code & (1 << at)) > 0, const(2.0 ** (1 << at), f64), const(1.0, f64))
        for at in range(_LARGEST.bit_length())
    )
    value = cast(_product([const(2.0**-_BIAS, f64), *factors]), f32)
    return select(equal(code, _NAN), const(float("nan"), f32), value)


def code_of(value: Expr, rounding: PowerRounding, saturate: bool) -> Expr:
    """The code (u8) of a number (f32), of which the sign does not count.

    What is beyond the range, infinities included, becomes the power at its end, or, not to ``saturate``, NaN.
    """
    size = unary(UnaryOp.ABS, cast(value, f64)) * 2.0**_BIAS
    found = _count(size, rounding)
    if saturate:
        code = select(found > _LARGEST, const(_LARGEST, i32), found)
    else:
        code = select((size < 1.0) | (found > _LARGEST), const(_NAN, i32), found)
    return cast(select(unary(UnaryOp.ISNAN, value), const(_NAN, i32), code), u8)


def _count(size: Expr, rounding: PowerRounding) -> Expr:
    """How many powers from 2^0 on are too small for ``size``, whose code that is."""
    coarse = [_is_above(size, 2.0**at, rounding) for at in range(_STEP, 256, _STEP)]
    rest = size * _product(select(step, const(2.0**-_STEP, f64), const(1.0, f64)) for step in coarse)
    fine = [_is_above(rest, 2.0**at, rounding) for at in range(_STEP)]
    return _sum([*(cast(step, i32) * _STEP for step in coarse), *(cast(step, i32) for step in fine)])


def _is_above(size: Expr, power: float, rounding: PowerRounding) -> Expr:
    """Whether ``size`` becomes a larger power than this one."""
    match rounding:
        case PowerRounding.UP:
            return size > power
        case PowerRounding.NEAREST:
            return size >= 1.5 * power
        case PowerRounding.DOWN:
            return size >= 2 * power


def _product(factors: Iterable[Expr]) -> Expr:
    return reduce(lambda a, b: a * b, factors)


def _sum(terms: Iterable[Expr]) -> Expr:
    return reduce(lambda a, b: a + b, terms)
