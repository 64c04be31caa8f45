"""Sums and products with their rounding errors, and numbers as unevaluated sums of two doubles.

The algorithms are Dekker's, Knuth's and Veltkamp's (T. J. Dekker, "A floating-point technique for extending the
available precision", 1971). None of them needs a fused multiply-add, which would be a library call on some targets.
"""

from typing import NamedTuple

from tilewright.backend.cpu.vecmath.notation import Real


class Pair(NamedTuple):
    """``high + low``, where low is at most half a unit in the last place of high (or nearly so)."""

    high: Real
    low: Real


def ordered_sum(a: Real, b: Real) -> Pair:
    """``a + b`` exactly, where ``|a| >= |b|`` or a is 0."""
    high = a + b
    return Pair(high, b - (high - a))


def exact_sum(a: Real, b: Real) -> Pair:
    """``a + b`` exactly."""
    high = a + b
    part = high - a
    return Pair(high, (a - (high - part)) + (b - part))


def exact_product(a: Real, b: Real) -> Pair:
    """``a * b`` for f64, exact but for an error of 2**-106 of it (and where it overflows or its error underflows)."""
    high = a * b
    a_high, a_low = _halves(a)
    b_high, b_low = _halves(b)
    low = ((a_high * b_high - high) + a_high * b_low + a_low * b_high) + a_low * b_low
    return Pair(high, low)


def product(a: Pair, b: Pair) -> Pair:
    """``a * b`` with an error of about 2**-104 of it."""
    high, low = exact_product(a.high, b.high)
    return ordered_sum(high, low + (a.high * b.low + a.low * b.high))


def _halves(a: Real) -> Pair:
    """The leading 26 bits of the significand and the rest."""
    high = (a.bits() & ~0x7FFFFFF).as_real()
    return Pair(high, a - high)
