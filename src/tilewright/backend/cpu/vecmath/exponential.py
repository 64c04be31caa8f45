"""exp, exp2, expm1, sinh, cosh, tanh, the logistic function and erf.

All of them write x as ``n ln 2 + r`` with ``|r| <= ln(2) / 2``, take a polynomial in r, and put ``2**n`` together
from its bits. No conversion is needed for n: adding 1.5 * 2**23 (f64: 2**52) rounds to an integer and leaves it in the
low bits of the sum, from where a shift moves it to the exponent; and the exponent's bias is added on the way for free.
"""

from tilewright.backend.cpu.vecmath import tables
from tilewright.backend.cpu.vecmath.notation import Int, Real, polynomial, select
from tilewright.backend.cpu.vecmath.tables import LN2, LN2_HIGH, LN2_LOW, LOG2E
from tilewright.base.dtypes import f32, f64


def _rounded(x: Real, factor: float, offset: int) -> tuple[Real, Int]:
    """``round(x * factor)``, and integers whose low bits are that number plus ``offset``."""
    shift = x.unit.format.rounder + offset
    shifted = x.fma(factor, shift)
    return shifted - shift, shifted.bits()


def _power_of_two(biased: Int) -> Real:
    """2**(low bits - bias)."""
    return (biased << biased.unit.format.mantissa).as_real()


def _remainder(x: Real, n: Real) -> Real:
    """``x - n ln 2`` for any n that is an exponent."""
    dtype = x.unit.dtype
    return n.fma(-LN2_LOW[dtype], n.fma(-LN2_HIGH[dtype], x))


def _expm1_near_zero(r: Real) -> Real:
    """``e**r - 1`` for ``|r| <= ln(2) / 2``."""
    square = r * r
    return polynomial(r, tables.EXPM1[r.unit.dtype], square).fma(square, r)


def scaled_by_power_of_two(p: Real, biased: Int) -> Real:
    """``p * 2**n`` for ``biased = n + 2 * bias``: in two steps, as neither 2**n nor the product need be normal.

    The first product is exact, so a subnormal result is rounded once.
    """
    half = biased.logical_shift_right(1)
    return p * _power_of_two(half) * _power_of_two(biased - half)


def exp(x: Real) -> Real:
    """e**x. f32 within 1.1 ulp (all of them tried), f64 within 1.1 ulp; subnormal results too."""
    unit = x.unit
    x = x.at_least(-104.0).at_most(89.0) if unit.dtype == f32 else x.at_least(-746.0).at_most(710.0)
    n, biased = _rounded(x, LOG2E, 2 * unit.format.bias)
    return scaled_by_power_of_two(_expm1_near_zero(_remainder(x, n)) + 1.0, biased)


LEAST_WEIGHT = {f32: -87.0, f64: -708.0}
"""Powers of e that are normal numbers."""
_NOTHING = 2.0**-60
"""e to its power is 1 in both types. With 0 as the limit, LLVM makes two instructions of one."""


def exp_up_to_one(x: Real) -> Real:
    """``e**min(x, 0)``, in fewer instructions than ``exp``. f32 and f64 within 1.1 ulp; subnormal results too.

    Results do not reach far in one direction, so 2**(n + guard) is a normal number for all of them.
    """
    unit = x.unit
    single = unit.dtype == f32
    x = x.at_most(_NOTHING).at_least(-104.0 if single else -746.0)
    guard = 64 if single else 512
    n, biased = _rounded(x, LOG2E, unit.format.bias + guard)
    scale = _power_of_two(biased)
    return _expm1_near_zero(_remainder(x, n)).fma(scale, scale) * 2.0**-guard


def exp_of_weight(x: Real) -> Real:
    """``e**x`` with ``x`` from ``LEAST_WEIGHT`` to 0, or the nearest of these: all results are normal numbers. f32 and
    f64 within 1.1 ulp."""
    unit = x.unit
    x = x.at_most(_NOTHING).at_least(LEAST_WEIGHT[unit.dtype])
    n, biased = _rounded(x, LOG2E, unit.format.bias)
    scale = _power_of_two(biased)
    return _expm1_near_zero(_remainder(x, n)).fma(scale, scale)


def exp_of_sum(x: Real, low: Real) -> Real:
    """e**(x + low) in f64, where low is a rounding error of x."""
    x = x.at_least(-746.0).at_most(710.0)
    n, biased = _rounded(x, LOG2E, 2 * x.unit.format.bias)
    return scaled_by_power_of_two(_expm1_near_zero(_remainder(x, n) + low) + 1.0, biased)


def exp_for_f32(x: Real) -> Real:
    """e**x in f64 arithmetic, to 2**-34 of it; beyond the range of f32, only beyond that range."""
    x = x.at_least(-110.0).at_most(90.0)
    n, biased = _rounded(x, LOG2E, x.unit.format.bias)
    r = n.fma(-LN2, x)
    square = r * r
    return (polynomial(r, tables.EXPM1_SHORT, square).fma(square, r) + 1.0) * _power_of_two(biased)


def exp2(x: Real) -> Real:
    """2**x. f32 and f64 within 1.2 ulp; exact for integers."""
    unit = x.unit
    x = x.at_least(-151.0).at_most(129.0) if unit.dtype == f32 else x.at_least(-1076.0).at_most(1025.0)
    n, biased = _rounded(x, 1.0, 2 * unit.format.bias)
    return scaled_by_power_of_two(_expm1_near_zero((x - n) * LN2) + 1.0, biased)


_TINY = 2.0**-60
"""Below it, expm1 and sinh are the identity in both types; computing with half of x would round subnormals."""


def expm1(x: Real) -> Real:
    """``e**x - 1``. f32 and f64 within 2 ulp."""
    unit = x.unit
    y = x.at_least(-20.0).at_most(89.0) if unit.dtype == f32 else x.at_least(-40.0).at_most(710.0)
    n, biased = _rounded(y, LOG2E, unit.format.bias - 1)
    half_scale = _power_of_two(biased)  # 2**(n - 1): 2**n can be too large
    half = _expm1_near_zero(_remainder(y, n)).fma(half_scale, half_scale - 0.5)
    return select(abs(x) < _TINY, x, half + half)


def _hyperbolic_parts(x: Real) -> tuple[Real, Real, Real, Real]:
    """``(c, s, d, t)`` with ``cosh x = 2 (t + c t + s d)`` and ``sinh x = 2 (d + c d + s t)`` for ``x >= 0``.

    With x = n ln 2 + r, they are ``cosh r - 1``, ``sinh r``, and half the hyperbolic sine and cosine of ``n ln 2``.
    """
    unit = x.unit
    x = x.at_most(89.6 if unit.dtype == f32 else 710.6)
    n, biased = _rounded(x, LOG2E, unit.format.bias - 2)
    r = _remainder(x, n)
    square = r * r
    coshm1 = polynomial(square, tables.COSH[unit.dtype]) * square
    sinh_r = polynomial(square, tables.SINH[unit.dtype]).fma(square * r, r)
    # A quarter of 2**n and of 2**-n; the latter does not matter where n is large, and must stay a number.
    mantissa = unit.format.mantissa
    n_bits = (biased << mantissa).logical_shift_right(mantissa) - (unit.format.bias - 2)
    up, down = _power_of_two(biased), _power_of_two(unit.integer(unit.format.bias - 2) - n_bits.at_most(100))
    return coshm1, sinh_r, up - down, up + down


def sinh(x: Real) -> Real:
    """The hyperbolic sine. f32 within 2 ulp, f64 within 2.5 ulp."""
    coshm1, sinh_r, difference, total = _hyperbolic_parts(abs(x))
    half = difference + sinh_r.fma(total, coshm1 * difference)
    return select(abs(x) < _TINY, x, (half + half).with_sign_of(x))


def cosh(x: Real) -> Real:
    """The hyperbolic cosine. f32 and f64 within 2.5 ulp."""
    coshm1, sinh_r, difference, total = _hyperbolic_parts(abs(x))
    half = total + sinh_r.fma(difference, coshm1 * total)
    return half + half


def _exponential_pair(x: Real) -> tuple[Real, Real]:
    """``(q, 2**n)`` with ``e**x = 2**n q + 2**n``, for ``-40 < x <= 0``.

    Callers subtract 1 from the sum or add it, which hides the error that one constant for ln 2 leaves.
    """
    n, biased = _rounded(x, LOG2E, x.unit.format.bias)
    return _expm1_near_zero(n.fma(-LN2, x)), _power_of_two(biased)


def tanh(x: Real) -> Real:
    """The hyperbolic tangent. f32 within 2 ulp (all of them tried), f64 within 2.5 ulp.

    ``(1 - e) / (1 + e)`` with ``e = exp(-2 |x|)``, numerator and denominator rounded once. With ``exp(2 |x|)`` the
    numerator would often start a binade where the result ends one, and its rounding count twice.
    """
    minus = -abs(x)
    q, scale = _exponential_pair((minus + minus).at_least(-18.1 if x.unit.dtype == f32 else -38.2))
    return (q.fma(scale, scale - 1.0) / q.fma(scale, scale + 1.0)).with_sign_of(x)


def erf(x: Real) -> Real:
    """The error function. f32 within 2.3 ulp (all of them tried; with FMA, 2), f64 within 2.5 ulp.

    ``1 - e**-g`` with ``g(x) = -ln(erfc |x|)``. Near 0, g is small and the difference loses nothing (it is expm1); far
    from 0, an error of g hardly matters, and so one polynomial of low degree serves the whole range.
    """
    y = abs(x).at_most(4.0 if x.unit.dtype == f32 else 5.95)
    minus_g = polynomial(y, [-c for c in tables.ERF[x.unit.dtype]]).fma(y, -y)
    q, scale = _exponential_pair(minus_g)
    return q.fma(scale, scale - 1.0).with_sign_of(x)


def sigmoid(x: Real) -> Real:
    """The logistic function ``1 / (1 + e**-x)``. f32 within 1.9 ulp (all of them tried), f64 within 2.5 ulp.

    With ``e = exp(-|x|)`` and ``w = e / (1 + e)`` it is ``1 - w``, or for negative x ``e - e w``.
    """
    unit = x.unit
    single = unit.dtype == f32
    y = (-abs(x)).at_least(-104.0 if single else -746.0)
    # 2**n may be subnormal, 2**(n + guard) is not; the last factor then rounds the result once.
    guard = 64 if single else 512
    n, biased = _rounded(y, LOG2E, unit.format.bias + guard)
    e = (_expm1_near_zero(_remainder(y, n)) + 1.0) * _power_of_two(biased) * 2.0**-guard
    numerator = select(x < 0.0, e, 1.0)
    return (-numerator).fma(e / (e + 1.0), numerator)
