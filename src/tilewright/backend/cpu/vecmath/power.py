"""x**y, as ``exp(y log |x|)`` with enough bits in the logarithm, and the special cases of C99 (annex F)."""

import math

from tilewright.backend.cpu.vecmath import tables
from tilewright.backend.cpu.vecmath.exact import Pair, exact_product, ordered_sum, product
from tilewright.backend.cpu.vecmath.exponential import exp_for_f32, exp_of_sum
from tilewright.backend.cpu.vecmath.logarithm import log_of_parts_for_f32, ordered_bits, split, with_special_cases
from tilewright.backend.cpu.vecmath.notation import Mask, Real, polynomial, select
from tilewright.backend.cpu.vecmath.tables import LN2_HIGH, LN2_LOW
from tilewright.base.dtypes import f32, f64


def pow(x: Real, y: Real) -> Real:
    """x**y. f32 (computed in f64) within 0.6 ulp, f64 within 1.2 ulp.

    As in C: ``x**0`` and ``1**y`` are 1, even for NaN; a negative finite x needs an integer y, else the result is NaN.
    """
    unit = x.unit
    wide = unit.with_dtype(f64)
    magnitude = _of_magnitude(abs(x).converted(wide), y.converted(wide), short=unit.dtype == f32).converted(unit)
    integer = _is_integer(y)
    odd = integer & ~_is_integer(y * 0.5)
    signed = select(odd, magnitude.with_sign_of(x), magnitude)
    result = select((x < 0.0) & (x > -math.inf) & ~integer, math.nan, signed)
    return select(x.equal(1.0) | y.equal(0.0), 1.0, result)


def _is_integer(y: Real) -> Mask:
    """True also of infinity, false of NaN."""
    y = abs(y)
    whole = 2.0**y.unit.format.mantissa  # from here on all numbers are integers
    return (y >= whole) | ((y + whole) - whole).equal(y)


def _of_magnitude(x: Real, y: Real, short: bool) -> Real:
    """x**y for ``x >= 0`` in f64; with ``short``, for f32 numbers and to about 2**-30."""
    # Beyond 2**70, any power of any x but 1 overflows or underflows; infinity times log 1 would be NaN.
    y = y.at_least(-(2.0**70)).at_most(2.0**70)
    if short:
        n, f = split(x.bits())
        log = with_special_cases(log_of_parts_for_f32(n.to_real(), f), x)
        return exp_for_f32(y * log)
    n, f = split(ordered_bits(x))
    log = _log_of_parts(n.to_real(), f)
    high, low = exact_product(y, with_special_cases(log.high, x))
    # An infinite logarithm has no low part.
    return exp_of_sum(high, select(abs(high) < 2000.0, y.fma(log.low, low), 0.0))


def _log_of_parts(n: Real, f: Real) -> Pair:
    """``n ln 2 + ln(1 + f)`` with an error of about 2**-65 of it.

    ``ln(1 + f) = 2 artanh(s) = s (2 + z (2/3 + z Q(z)))`` with ``s = f / (2 + f)`` and ``z = s**2``. All but ``z Q`` is
    computed in pairs of doubles.
    """
    constant = f.unit.constant
    s = _quotient(f, ordered_sum(constant(2.0), f))
    z = product(s, s)
    tail = z.low.fma(tables.ARTANH_LONG[0], z.high * polynomial(z.high, tables.ARTANH_LONG))
    bracket = ordered_sum(constant(tables.TWO_THIRDS[0]), tail)
    cubic = product(z, Pair(bracket.high, bracket.low + tables.TWO_THIRDS[1]))
    factor = ordered_sum(constant(2.0), cubic.high)
    log1p = product(s, Pair(factor.high, factor.low + cubic.low))
    total = ordered_sum(n * LN2_HIGH[f64], log1p.high)
    return ordered_sum(total.high, total.low + n.fma(LN2_LOW[f64], log1p.low))


def _quotient(a: Real, b: Pair) -> Pair:
    """``a / b`` with an error of about 2**-104 of it."""
    high = a / b.high
    back = exact_product(high, b.high)
    return Pair(high, (((a - back.high) - back.low) - high * b.low) / b.high)
