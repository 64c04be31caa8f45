"""log, log1p, asinh, acosh and atanh.

All of them write a positive number as ``2**n (1 + f)`` with ``sqrt(1/2) <= 1 + f < sqrt(2)``; its logarithm is
``n ln 2 + ln(1 + f)``.
"""

import math

from tilewright.backend.cpu.vecmath import tables
from tilewright.backend.cpu.vecmath.notation import Int, Real, Unit, polynomial, select, select_int
from tilewright.backend.cpu.vecmath.tables import LN2, LN2_HIGH, LN2_LOW
from tilewright.base.dtypes import f32


def _largest(unit: Unit) -> float:
    return (2.0 - 2.0**-unit.format.mantissa) * 2.0**unit.format.bias


def ordered_bits(x: Real) -> Int:
    """The bits of ``x``, with subnormal numbers normalized to an unbounded exponent."""
    unit = x.unit
    mantissa = unit.format.mantissa
    normalized = (x * 2.0**mantissa).bits() - (mantissa << mantissa)
    return select_int(x < 2.0 ** (1 - unit.format.bias), normalized, x.bits())


def split(bits: Int) -> tuple[Int, Real]:
    """``(n, f)`` for a positive number in ``ordered_bits`` form; undefined for others."""
    mantissa = bits.unit.format.mantissa
    root = bits.unit.constant_bits(math.sqrt(0.5))
    n = (bits - root) >> mantissa
    return n, (bits - (n << mantissa)).as_real() - 1.0


def log_of_parts(n: Real, f: Real) -> Real:
    """``n ln 2 + ln(1 + f)``."""
    dtype = f.unit.dtype
    square = f * f
    if dtype == f32:
        tail = polynomial(f, tables.LOG1P_F32, square).fma(square, n.fma(LN2_LOW[dtype], f))
        return n.fma(LN2_HIGH[dtype], tail)
    # ln(1 + f) = 2 artanh(s) = 2 s + s R(s**2), and 2 s = f - s f; then with h = f**2 / 2 it is f - (h - s (h + R)).
    s = f / (f + 2.0)
    z = s * s
    half_square = square * 0.5
    tail = s.fma(polynomial(z, tables.ARTANH).fma(z, half_square), n.fma(LN2_LOW[dtype], -half_square))
    return n.fma(LN2_HIGH[dtype], f + tail)


def log_of_parts_for_f32(n: Real, f: Real) -> Real:
    """``n ln 2 + ln(1 + f)`` in f64 arithmetic, to 2**-37 of it."""
    s = f / (f + 2.0)
    z = s * s
    return n.fma(LN2, s * polynomial(z, tables.ARTANH_SHORT).fma(z, 2.0))


def with_special_cases(result: Real, x: Real) -> Real:
    """``result``, corrected for x infinite, NaN, zero or negative."""
    # Far below any logarithm, except where x is infinite or NaN; the comparison then keeps x.
    beyond = x - _largest(x.unit)
    result = select(beyond < result, result, beyond)
    return select(x <= 0.0, select(x < 0.0, math.nan, -math.inf), result)


def log(x: Real) -> Real:
    """The natural logarithm. f32 within 1 ulp (all of them tried), f64 within 1 ulp."""
    n, f = split(ordered_bits(x))
    return with_special_cases(log_of_parts(n.to_real(), f), x)


def log1p(x: Real) -> Real:
    """``ln(1 + x)``. f32 within 1.6 ulp, f64 within 1 ulp.

    The rounding error of ``1 + x`` is computed exactly and added to f.
    """
    unit = x.unit
    total = x + 1.0
    part = total - 1.0
    error = (x - part) + (1.0 - (total - part))
    n, f = split(total.bits())
    # Where n is larger the error is 0, and 2**-n must stay a number.
    down = (unit.integer(unit.format.bias) - n.at_most(unit.format.bias - 1)) << unit.format.mantissa
    result = log_of_parts(n.to_real(), error.fma(down.as_real(), f))
    return with_special_cases(result, total).with_sign_of(x)


def asinh(x: Real) -> Real:
    """The inverse hyperbolic sine. f32 and f64 within 2.5 ulp."""
    y = abs(x)
    large = y > _large(x.unit)
    square = y * y
    small = y + square / ((square + 1.0).sqrt() + 1.0)
    result = log1p(select(large, y, small)) + select(large, LN2, 0.0)
    return result.with_sign_of(x)


def acosh(x: Real) -> Real:
    """The inverse hyperbolic cosine. f32 and f64 within 2.5 ulp."""
    large = x > _large(x.unit)
    y = x - 1.0
    small = y + y.fma(y, y + y).sqrt()
    result = log1p(select(large, x, small)) + select(large, LN2, 0.0)
    return select(x < 1.0, math.nan, result)


def atanh(x: Real) -> Real:
    """The inverse hyperbolic tangent. f32 and f64 within 2.5 ulp."""
    y = abs(x)
    half = log1p((y + y) / (1.0 - y)) * 0.5
    return half.with_sign_of(x)


def _large(unit: Unit) -> float:
    """Above it, ``x**2 + 1`` and ``x**2 - 1`` are ``x**2`` to the precision of the unit, and x - 1 is x in ln(2 x)."""
    return 2.0 ** (unit.format.mantissa + 2)
