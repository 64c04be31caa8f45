"""What a processor does with floats of 16 bits (f16), and conversions on the bits where it has none.

LLVM calls ``__extendhfsf2`` and ``__truncsfhf2`` of the compiler's own library there, lane by lane, which an image does
not have.
"""

from enum import Enum, auto

from tilewright.backend.cpu.vecmath.notation import Int, Real, select_int
from tilewright.base.processors import Architecture
from tilewright.target.target import Target


class Halves(Enum):
    """What a processor does with f16 by instructions."""

    NONE = auto()
    CONVERTED = auto()
    """Conversions from and to f32."""
    COMPUTED = auto()
    """Conversions, and arithmetic."""


_CONVERTING = ("f16c", "zfhmin")


def halves_of(target: Target) -> Halves:
    """What ``target`` does with f16."""
    if target.has("avx512fp16") or target.has("fullfp16"):
        return Halves.COMPUTED
    converts = target.arch is Architecture.AARCH64 or any(map(target.has, _CONVERTING))
    return Halves.CONVERTED if converts else Halves.NONE


_EXPONENTS = 127 - 15
"""How much larger the exponent of a number is in f32 than in f16: its bias."""
_LOST = 23 - 10
"""Digits of f32 that f16 has not."""
_INFINITY, _SMALLEST, _MAGNITUDE, _SIGN = 0x7C00, 0x0400, 0x7FFF, 0x8000


def half_bits(x: Real) -> Int:
    """``x`` (f32) rounded to even in f16, in the low 16 bits; NaN becomes quiet."""
    bits = x.bits()
    magnitude = bits & 0x7FFFFFFF
    size = magnitude.as_real()
    odd = magnitude.logical_shift_right(_LOST) & 1
    rounded = magnitude + odd + ((1 << _LOST - 1) - 1 - (_EXPONENTS << 23))
    result = rounded.logical_shift_right(_LOST)
    tiny = (size + 0.5).bits() - x.unit.constant_bits(0.5)  # the last digit of 0.5 is that of the smallest numbers
    result = select_int(size < 2.0**-14, tiny, result)
    result = select_int(size >= 65536.0, _INFINITY, result)
    kept = magnitude.logical_shift_right(_LOST) & 0x3FF
    result = select_int(size.compare("uno", size), kept | 0x7E00, result)
    return result | bits.logical_shift_right(16) & _SIGN


def half_value(bits: Int) -> Real:
    """The number of f16 with these ``bits`` (0 above the low 16), as f32."""
    magnitude = bits & _MAGNITUDE
    moved = magnitude << _LOST
    tiny = ((magnitude | bits.unit.constant_bits(0.5)).as_real() - 0.5).bits()
    result = select_int(magnitude.below(_SMALLEST), tiny, moved + (_EXPONENTS << 23))
    result = select_int(magnitude.below(_INFINITY), result, moved + (2 * _EXPONENTS << 23))
    sign = (bits & _SIGN) << 16
    return (result | sign).as_real()
