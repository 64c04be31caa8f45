"""sin, cos, tan and their inverses."""

import math

from tilewright.backend.cpu.vecmath import tables
from tilewright.backend.cpu.vecmath.notation import Int, Mask, Real, polynomial, select
from tilewright.backend.cpu.vecmath.reduction import Reduced, reduce_angle
from tilewright.backend.cpu.vecmath.tables import HALF_PI, HALF_PI_LOW
from tilewright.base.dtypes import f32


def sin(x: Real) -> Real:
    """The sine, of any angle. f32 within 1.6 ulp, f64 within 1 ulp."""
    reduced = reduce_angle(abs(x))
    sine, cosine = _sine_and_cosine(reduced)
    value = select(_is_even(reduced.quadrant), sine, cosine)
    return _negated(value, _sign(x) ^ _sign_of_bit(reduced.quadrant, 1))


def cos(x: Real) -> Real:
    """The cosine, of any angle. f32 within 1.6 ulp, f64 within 1 ulp."""
    reduced = reduce_angle(abs(x))
    sine, cosine = _sine_and_cosine(reduced)
    value = select(_is_even(reduced.quadrant), cosine, sine)
    return _negated(value, _sign_of_bit(reduced.quadrant + 1, 1))


def tan(x: Real) -> Real:
    """The tangent, of any angle. f32 within 3 ulp, f64 within 2.5 ulp."""
    reduced = reduce_angle(abs(x))
    even = _is_even(reduced.quadrant)
    if x.unit.dtype == f32:
        z = reduced.high * reduced.high
        tangent = polynomial(z, tables.TAN_F32).fma(z * reduced.high, reduced.high)
        quotient = select(even, tangent, 1.0) / select(even, 1.0, tangent)
    else:
        sine, cosine = _sine_and_cosine(reduced)
        quotient = select(even, sine, cosine) / select(even, cosine, sine)
    return _negated(quotient, _sign(x) ^ _sign_of_bit(reduced.quadrant, 0))


def _is_even(quadrant: Int) -> Mask:
    return (quadrant & 1).equal(0)


def _sign(x: Real) -> Int:
    bits = x.unit.format.bits
    return x.bits() & (1 << (bits - 1))


def _sign_of_bit(number: Int, bit: int) -> Int:
    """The bit, moved to where a float has its sign."""
    bits = number.unit.format.bits
    return (number << (bits - 1 - bit)) & (1 << (bits - 1))


def _negated(x: Real, sign: Int) -> Real:
    return (x.bits() ^ sign).as_real()


def _sine_and_cosine(angle: Reduced) -> tuple[Real, Real]:
    """Of ``high + low``, which is at most an eighth of a turn."""
    dtype = angle.high.unit.dtype
    r, low = angle.high, angle.low
    z = r * r
    cubic, quartic = polynomial(z, tables.SIN[dtype]), polynomial(z, tables.COS[dtype])
    if dtype == f32:
        return cubic.fma(z * r, r), quartic.fma(z, -0.5).fma(z, 1.0)
    half_square = z * 0.5
    # d sin = cos * low, d cos = -sin * low; the rounding error of 1 - z / 2 is added as well.
    sine = r + cubic.fma(z * r, low - low * half_square)
    most = 1.0 - half_square
    return sine, most + (((1.0 - most) - half_square) + quartic.fma(z * z, -(r * low)))


# ---------------------------------------------------------------------------------------------------------------------
# Inverse functions
# ---------------------------------------------------------------------------------------------------------------------


def atan(x: Real) -> Real:
    """The inverse tangent. f32 and f64 within 2.5 ulp."""
    return _angle_of_quotient(abs(x), x.unit.constant(1.0)).with_sign_of(x)


def atan2(y: Real, x: Real) -> Real:
    """The angle of the point (x, y), in [-pi, pi], as in C. f32 and f64 within 2.5 ulp."""
    a, b = abs(y), abs(x)
    infinite = a.equal(math.inf) & b.equal(math.inf)
    scale = 2.0 ** (x.unit.format.bias - 2)
    shrink = select((a > scale) | (b > scale), 0.25, 1.0)  # so that a + b is finite
    a, b = select(infinite, 1.0, a * shrink), select(infinite, 1.0, b * shrink)
    angle = _angle_of_quotient(a, select(a.equal(0.0) & b.equal(0.0), 1.0, b))
    left = HALF_PI - (angle - HALF_PI - 2.0 * HALF_PI_LOW[x.unit.dtype])
    return select(_sign(x).equal(0), angle, left).with_sign_of(y)


def _angle_of_quotient(a: Real, b: Real) -> Real:
    """``arctan(a / b)`` for ``a >= 0`` and ``b >= 0``, not both 0 or infinite.

    It is ``arctan t`` plus 0, pi / 4 or pi / 2 with t = a / b, (a - b) / (a + b) or -b / a, so ``|t| <= tan(pi / 8)``.
    """
    unit = a.unit
    low = HALF_PI_LOW[unit.dtype]
    middle, steep = a > b * math.tan(math.pi / 8), a > b * math.tan(3 * math.pi / 8)

    def choose(flat: Real, diagonal: Real, upright: Real) -> Real:
        return select(steep, upright, select(middle, diagonal, flat))

    t = choose(a, a - b, -b) / choose(b, a + b, a)
    base = choose(*(unit.constant(v) for v in (0.0, HALF_PI / 2, HALF_PI)))
    rest = choose(*(unit.constant(v) for v in (0.0, low / 2, low)))
    z = t * t
    return base + (t + polynomial(z, tables.ATAN[unit.dtype]).fma(z * t, rest))


def _arcsine_parts(x: Real) -> tuple[Mask, Real, Real]:
    """``(far, s, rest)``; where ``|x| <= 1/2``, ``s + rest`` is ``arcsin |x|`` (and s is ``|x|``).

    Elsewhere it is ``arcsin(sqrt((1 - |x|) / 2))``, which is half of ``arccos |x|``.
    """
    y = abs(x)
    far = y > 0.5
    z = select(far, 0.5 - y * 0.5, y * y)
    s = select(far, z.sqrt(), y)
    return far, s, polynomial(z, tables.ASIN[x.unit.dtype]) * (z * s)


def asin(x: Real) -> Real:
    """The inverse sine. f32 and f64 within 2.5 ulp."""
    far, s, rest = _arcsine_parts(x)
    from_half_pi = (HALF_PI - (s + s)) - (rest + rest - HALF_PI_LOW[x.unit.dtype])
    return select(far, from_half_pi, s + rest).with_sign_of(x)


def acos(x: Real) -> Real:
    """The inverse cosine. f32 and f64 within 1.5 ulp."""
    far, s, rest = _arcsine_parts(x)
    half = s + rest
    from_half_pi = HALF_PI - (select(far, half, half.with_sign_of(x)) - HALF_PI_LOW[x.unit.dtype])
    doubled = select(x < 0.0, from_half_pi, half)
    return select(far, doubled + doubled, from_half_pi)
