"""Reduction of angles to an eighth of a turn around a multiple of pi / 2, as functions in LLVM IR.

This is the one part of vector math with control flow. Nearly all angles are small and cost a few instructions; a vector
with an angle beyond 2**20 pi / 2 also runs the algorithm of M. Payne and R. Hanek ("Radian reduction for trigonometric
functions", 1983) on each of its lanes. So it is a private function, which the straight-line code calls.
"""

import math
from functools import cache
from itertools import pairwise
from typing import NamedTuple

from tilewright.backend.cpu.vecmath.exact import Pair, exact_sum, ordered_sum, product
from tilewright.backend.cpu.vecmath.notation import Format, Int, Mask, Real, Unit
from tilewright.backend.cpu.vecmath.tables import HALF_PI, HALF_PI_LOW, HALF_PI_PARTS, TWO_OVER_PI_WORDS
from tilewright.base.dtypes import DType, f32, f64


class Reduced(NamedTuple):
    """An angle as ``quadrant * pi / 2 + high + low``, where ``|high|`` is at most pi / 4 (or a little more).

    Only the low two bits of the quadrant count. For f32, low is 0. NaN and infinity have a ``high`` of NaN.
    """

    quadrant: Int
    high: Real
    low: Real


class _Body:
    """Collects the instructions of a function (an ``Emitter``)."""

    def __init__(self) -> None:
        self.declared: dict[str, None] = {}
        self._lines: list[str] = []
        self._count = 0

    def emit(self, text: str) -> str:
        self._count += 1
        self._lines.append(f"  %t{self._count} = {text}")
        return f"%t{self._count}"

    def declare(self, text: str) -> None:
        self.declared[text] = None

    def take(self) -> str:
        """The lines since the last call."""
        text = "\n".join(self._lines)
        self._lines.clear()
        return text


class _Field(NamedTuple):
    """A part of the result: its name in the functions, its type for the shape and for one lane."""

    name: str
    type: str
    scalar: str


def _fields(unit: Unit) -> list[_Field]:
    """The returned parts: quadrant and high, for f64 also low."""
    integer = _Field("quadrant", unit.int_type, unit.format.integer)
    reals = [_Field(name, unit.real_type, unit.format.real) for name in ("high", "low")]
    return [integer, *(reals if unit.dtype == f64 else reals[:1])]


def _struct(types: list[str]) -> str:
    return f"{{ {', '.join(types)} }}"


def reduce_angle(x: Real) -> Reduced:
    """Reduce ``x >= 0``, by a call of the function for this shape, which is added to the module."""
    unit = x.unit
    for text in _module_texts(unit.dtype, unit.lanes):
        unit.emitter.declare(text)
    result = _struct([field.type for field in _fields(unit)])
    call = unit.emit(f"call {result} {_name(unit)}({unit.real_type} {x.name})")
    quadrant, high, *low = (unit.emit(f"extractvalue {result} {call}, {i}") for i in range(len(_fields(unit))))
    return Reduced(Int(unit, quadrant), Real(unit, high), Real(unit, low[0]) if low else unit.constant(0.0))


def _name(unit: Unit) -> str:
    return f"@tw_reduce_angle_{unit.format.suffix}x{unit.lanes}"


@cache
def _module_texts(dtype: DType, lanes: int) -> tuple[str, ...]:
    """The module-level parts that the function of a shape needs, and the function itself."""
    words = ", ".join(f"i32 {word}" for word in TWO_OVER_PI_WORDS)
    table = f"@tw_two_over_pi = private unnamed_addr constant [{len(TWO_OVER_PI_WORDS)} x i32] [{words}]"
    body = _Body()
    function = _function(body, Unit(body, dtype, lanes))
    return (*body.declared, table, _large_angle_function(dtype), function)


# ---------------------------------------------------------------------------------------------------------------------
# Any angles
# ---------------------------------------------------------------------------------------------------------------------

_LARGE = 2.0**20 * HALF_PI
"""From here on, the quadrant times a part of pi / 2 is not exact any more."""


def _function(body: _Body, unit: Unit) -> str:
    x = unit.real("%x")
    large = (x >= _LARGE) & (x < math.inf)
    any_large = _any(large)
    small = [value.name for value in _small_angle(x)]
    entry = body.take()
    fields = _fields(unit)
    result = _struct([field.type for field in fields])
    mixed: list[str] = []
    either: list[str] = []
    for (name, type, _), value in zip(fields, small, strict=False):
        mixed.append(f"  %{name}.mixed = select {unit.mask_type} {large.name}, {type} %{name}.large, {type} {value}")
        either.append(f"  %{name} = phi {type} [ {value}, %entry ], [ %{name}.mixed, %mix ]")
    returned = _assembled(result, [f"{field.type} %{field.name}" for field in fields], body)
    lines = [
        f"define internal {result} {_name(unit)}({unit.real_type} %x) nounwind memory(none) {{",
        "entry:",
        entry,
        f"  br i1 {any_large}, label %large, label %done",
        "large:",
        *_all_lanes_large(unit),
        "mix:",
        *mixed,
        "  br label %done",
        "done:",
        *either,
        body.take(),
        f"  ret {result} {returned}",
        "}",
    ]
    return "\n".join(lines)


def _assembled(type: str, operands: list[str], body: _Body) -> str:
    result = "poison"
    for i, operand in enumerate(operands):
        result = body.emit(f"insertvalue {type} {result}, {operand}, {i}")
    return result


def _any(mask: Mask) -> str:
    unit = mask.unit
    if unit.lanes == 1:
        return mask.name
    symbol = f"@llvm.vector.reduce.or.v{unit.lanes}i1"
    unit.emitter.declare(f"declare i1 {symbol}({unit.mask_type})")
    return unit.emit(f"call i1 {symbol}({unit.mask_type} {mask.name})")


def _all_lanes_large(unit: Unit) -> list[str]:
    """The lines from label ``large`` to the jump to ``mix``: each ``%{field}.large``, lane by lane."""
    fields = _fields(unit)
    result = _struct([field.scalar for field in fields])
    call = f"  %one = call {result} {_large_angle_name(unit.format)}({unit.format.real}"
    if unit.lanes == 1:
        parts = [f"  %{field.name}.large = extractvalue {result} %one, {i}" for i, field in enumerate(fields)]
        return [f"{call} %x)", *parts, "  br label %mix"]
    lines = ["  br label %lanes", "lanes:", "  %lane = phi i32 [ 0, %large ], [ %next, %lanes ]"]
    for name, type, _ in fields:
        lines.append(f"  %{name}.part = phi {type} [ poison, %large ], [ %{name}.large, %lanes ]")
    lines.append(f"  %angle = extractelement {unit.real_type} %x, i32 %lane")
    lines.append(f"{call} %angle)")
    for i, (name, type, scalar) in enumerate(fields):
        lines.append(f"  %{name}.one = extractvalue {result} %one, {i}")
        lines.append(f"  %{name}.large = insertelement {type} %{name}.part, {scalar} %{name}.one, i32 %lane")
    lines.append("  %next = add i32 %lane, 1")
    lines.append(f"  %more = icmp ult i32 %next, {unit.lanes}")
    return [*lines, "  br i1 %more, label %lanes, label %mix"]


def _small_angle(x: Real) -> Reduced:
    """For ``0 <= x < _LARGE``: in f64, to 2**-66 if x is f32, else to 2**-120 or so.

    The method of W. Cody and W. Waite: pi / 2 is cut in parts of 33 bits, whose products with the 20-bit quadrant are
    exact, and so is the first difference.
    """
    unit = x.unit
    wide = unit.with_dtype(f64)
    first, second, third, fourth = HALF_PI_PARTS
    angle = x.converted(wide)
    shifted = angle.fma(1.0 / HALF_PI, wide.format.rounder)
    n = shifted - wide.format.rounder
    quadrant = shifted.bits().converted(unit)
    near = n.fma(-first, angle)
    if unit.dtype == f32:
        return Reduced(quadrant, n.fma(-(second + third), near).converted(unit), unit.constant(0.0))
    nearer = exact_sum(near, n * -second)
    nearest = exact_sum(nearer.high, n * -third)
    high, low = ordered_sum(nearest.high, n.fma(-fourth, nearer.low + nearest.low))
    return Reduced(quadrant, high, low)


# ---------------------------------------------------------------------------------------------------------------------
# One large angle
# ---------------------------------------------------------------------------------------------------------------------

_WORD = 0xFFFFFFFF


def _large_angle_name(format: Format) -> str:
    return f"@tw_reduce_large_angle_{format.suffix}"


@cache
def _large_angle_function(dtype: DType) -> str:
    """Reduce one finite angle ``x >= 2**20``, in integers.

    With ``x = m 2**e``, the bits of 2 / pi above 2**(2 - e) contribute multiples of 4 quadrants. The 192 bits below
    (f32: 128), times m modulo 2**192, are the quadrant modulo 4 (two bits) and its fraction, to 2**-137 (f32: 2**-102).
    No number is nearer than 2**-62 (f32: 2**-33) to a multiple of pi / 2. Words of 32 bits suit any target.
    """
    body = _Body()
    unit, wide = Unit(body, dtype, 1), Unit(body, f64, 1)
    single = dtype == f32
    bits = unit.real("%x").bits()
    mantissa = unit.format.mantissa
    significand = _widened((bits & ((1 << mantissa) - 1)) | (1 << mantissa), wide)
    exponent = _widened(bits.logical_shift_right(mantissa), wide) - (unit.format.bias + mantissa)
    words = _times(significand, 1 if single else 2, _two_over_pi_from(exponent, 4 if single else 6))
    # The quadrant is the first two bits, and the rest its fraction; rounded to nearest, that has a sign.
    parts = [((a << 2) | b.logical_shift_right(30)) & _WORD for a, b in pairwise(words)]
    sign = parts[0].logical_shift_right(31)
    quadrant = words[0].logical_shift_right(30) + sign
    parts[0] = parts[0] - (sign << 32)
    numbers = [part.to_real() * 2.0 ** (-32 * (i + 1)) for i, part in enumerate(parts)]
    if single:
        reals = [(numbers[0] + numbers[1] + numbers[2]) * HALF_PI]
    else:
        reals = [*product(_total(numbers), Pair(wide.constant(HALF_PI), wide.constant(HALF_PI_LOW[f64])))]
    values = [quadrant.converted(unit).name, *(real.converted(unit).name for real in reals)]
    fields = _fields(unit)
    result = _struct([field.scalar for field in fields])
    returned = _assembled(result, [f"{f.scalar} {value}" for f, value in zip(fields, values, strict=True)], body)
    head = f"define internal {result} {_large_angle_name(unit.format)}({unit.format.real} %x) nounwind memory(none) {{"
    return "\n".join([head, body.take(), f"  ret {result} {returned}", "}"])


def _widened(number: Int, unit: Unit) -> Int:
    if number.unit.dtype == unit.dtype:
        return number
    return Int(unit, unit.emit(f"zext {number.unit.int_type} {number.name} to {unit.int_type}"))


def _two_over_pi_from(exponent: Int, count: int) -> list[Int]:
    """Words of 2 / pi, most significant first, from the bit that is worth 2 when multiplied by 2**exponent."""
    # Smaller angles in the same vector give nonsense, but must stay within the table (it starts with 64 zeros).
    start = exponent.at_least(-62) + 62
    word, shift = start.logical_shift_right(5), start & 31
    loaded = [_load_word(word + i) for i in range(count + 1)]
    return [(((a << 32) | b) << shift).logical_shift_right(32) for a, b in pairwise(loaded)]


def _load_word(index: Int) -> Int:
    unit = index.unit
    at = unit.emit(f"getelementptr i32, ptr @tw_two_over_pi, i64 {index.name}")
    word = unit.emit(f"load i32, ptr {at}")
    return Int(unit, unit.emit(f"zext i32 {word} to i64"))


def _times(factor: Int, factor_words: int, words: list[Int]) -> list[Int]:
    """``factor * words``, modulo the width of the words, which are most significant first."""
    result = [factor.unit.integer(0)] * len(words)
    for shift in range(factor_words):
        digit = factor & _WORD if shift == 0 else factor.logical_shift_right(32)
        carry = factor.unit.integer(0)
        for i in range(shift, len(words)):
            total = digit * words[-1 - (i - shift)] + result[i] + carry
            result[i], carry = total & _WORD, total.logical_shift_right(32)
    return result[::-1]


def _total(terms: list[Real]) -> Pair:
    """The sum of five numbers of falling size, the last of which may be rounded."""
    total, *rest, last = terms
    error = last
    for term in rest:
        total, lost = exact_sum(total, term)
        error = error + lost
    return ordered_sum(total, error)
