"""A small notation for straight-line vector code: Python operators on values append LLVM IR instructions.

``Unit`` fixes a shape (``float``, ``<16 x double>`` ...) and writes its types, constants and intrinsic calls. ``Real``,
``Int`` and ``Mask`` are SSA values of that shape: floats, integers of the same width, and booleans::

    unit = Unit(emitter, f32, 16)
    x = unit.real("%x")
    y = select(x < 0.0, x * x, x.fma(2.0, 1.0))  # fma: x * 2 + 1

- Instructions are target-independent and carry no fast-math flags.
- Python numbers as operands are constants, rounded to the type of the unit.
- Comparisons are ordered (false where an operand is NaN). So ``x.at_most(c)`` is ``c < x ? c : x`` and keeps a NaN in
  ``x``; it is one instruction on machines whose minimum returns its second operand for NaN.
- ``fma`` is ``llvm.fmuladd``: one rounding where the machine has the instruction, two where it would be a library call.
  Algorithms written in this notation must be right either way.
"""

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from tilewright.base.dtypes import DType, f32, f64
from tilewright.base.exact import float_bits


class Emitter(Protocol):
    """The interface of the code generator for vector math."""

    def emit(self, text: str) -> str:
        """Append the instruction ``%tN = {text}``, which has no effects and may be hoisted; return ``%tN``."""
        ...

    def declare(self, text: str) -> None:
        """Add ``text`` to the module, once: a ``declare`` line, or a whole private constant or function."""
        ...


@dataclass(frozen=True)
class Format:
    """The layout of an IEEE 754 binary format, and LLVM's names for it."""

    dtype: DType
    real: str
    integer: str
    suffix: str
    bits: int
    mantissa: int
    """Explicit bits of the significand."""

    @property
    def bias(self) -> int:
        """The exponent bias."""
        return (1 << (self.bits - self.mantissa - 2)) - 1

    @property
    def rounder(self) -> float:
        """Adding this number to a small ``x`` leaves ``round(x)`` in the low bits of the sum."""
        return 1.5 * 2.0**self.mantissa


FORMATS = {
    f32: Format(f32, "float", "i32", "f32", 32, 23),
    f64: Format(f64, "double", "i64", "f64", 64, 52),
}


def _float_literal(value: float, dtype: DType) -> str:
    """``value`` rounded to ``dtype``, as LLVM spells it: the bits of a double, for either type."""
    rounded: float = struct.unpack("<f", struct.pack("<f", value))[0] if dtype == f32 else value
    return f"0x{float_bits(rounded):016X}"


class Unit:
    """A number of lanes of one float type, and the instructions on them."""

    def __init__(self, emitter: Emitter, dtype: DType, lanes: int) -> None:
        self.emitter = emitter
        self.dtype = dtype
        self.lanes = lanes
        self.format = FORMATS[dtype]
        self.real_type = self._shaped(self.format.real)
        self.int_type = self._shaped(self.format.integer)
        self.mask_type = self._shaped("i1")

    def _shaped(self, scalar: str) -> str:
        return scalar if self.lanes == 1 else f"<{self.lanes} x {scalar}>"

    def _splat(self, scalar: str, text: str) -> str:
        return text if self.lanes == 1 else f"splat ({scalar} {text})"

    def with_dtype(self, dtype: DType) -> "Unit":
        """As many lanes of another float type."""
        return Unit(self.emitter, dtype, self.lanes)

    def real(self, text: str) -> "Real":
        """An operand of the caller's."""
        return Real(self, text)

    def constant(self, value: float) -> "Real":
        """``value`` in all lanes."""
        return Real(self, self._splat(self.format.real, _float_literal(value, self.dtype)))

    def integer(self, value: int) -> "Int":
        """``value``, modulo the width, in all lanes."""
        wrapped = value & ((1 << self.format.bits) - 1)
        signed = wrapped - (1 << self.format.bits) if wrapped >> (self.format.bits - 1) else wrapped
        return Int(self, self._splat(self.format.integer, str(signed)))

    def mask_of(self, value: bool) -> "Mask":
        """``value`` in all lanes."""
        return Mask(self, self._splat("i1", "true" if value else "false"))

    def constant_bits(self, value: float) -> "Int":
        """The bits of ``value``, rounded to the float type, in all lanes."""
        packed = struct.pack("<f", value) if self.dtype == f32 else struct.pack("<d", value)
        return self.integer(int.from_bytes(packed, "little"))

    def emit(self, text: str) -> str:
        """Append an instruction; its name."""
        return self.emitter.emit(text)

    def intrinsic(self, name: str, *operands: "Real") -> "Real":
        """``llvm.{name}`` on operands of this unit."""
        shape = "" if self.lanes == 1 else f"v{self.lanes}"
        symbol = f"@llvm.{name}.{shape}{self.format.suffix}"
        types = ", ".join([self.real_type] * len(operands))
        self.emitter.declare(f"declare {self.real_type} {symbol}({types})")
        args = ", ".join(f"{self.real_type} {operand.name}" for operand in operands)
        return Real(self, self.emit(f"call {self.real_type} {symbol}({args})"))


_Other = TypeVar("_Other", contravariant=True)
_Value = TypeVar("_Value", covariant=True)


class _Operand(Protocol[_Other, _Value]):
    """A value that instructions take."""

    def binary(self, instruction: str, other: _Other) -> _Value: ...


def _operator(instruction: str) -> Callable[[_Operand[_Other, _Value], _Other], _Value]:
    return lambda a, b: a.binary(instruction, b)


def _reflected(instruction: str) -> "Callable[[Real, float], Real]":
    return lambda b, a: b.unit.constant(a).binary(instruction, b)


def _comparison(condition: str) -> "Callable[[Real, Real | float], Mask]":
    return lambda a, b: a.compare(condition, b)


@dataclass(frozen=True, slots=True)
class Real:
    """Floats."""

    unit: Unit
    name: str

    def _operand(self, other: "Real | float") -> "Real":
        return other if isinstance(other, Real) else self.unit.constant(other)

    def binary(self, instruction: str, other: "Real | float") -> "Real":
        """``instruction`` on this and ``other``."""
        right = self._operand(other)
        return Real(self.unit, self.unit.emit(f"{instruction} {self.unit.real_type} {self.name}, {right.name}"))

    __add__ = _operator("fadd")
    __radd__ = _reflected("fadd")
    __sub__ = _operator("fsub")
    __rsub__ = _reflected("fsub")
    __mul__ = _operator("fmul")
    __rmul__ = _reflected("fmul")
    __truediv__ = _operator("fdiv")
    __rtruediv__ = _reflected("fdiv")

    def __neg__(self) -> "Real":
        return Real(self.unit, self.unit.emit(f"fneg {self.unit.real_type} {self.name}"))

    def __abs__(self) -> "Real":
        return self.unit.intrinsic("fabs", self)

    def fma(self, factor: "Real | float", addend: "Real | float") -> "Real":
        """``self * factor + addend``."""
        return self.unit.intrinsic("fmuladd", self, self._operand(factor), self._operand(addend))

    def with_sign_of(self, other: "Real") -> "Real":
        """The magnitude of this with the sign of ``other``."""
        return self.unit.intrinsic("copysign", self, other)

    def sqrt(self) -> "Real":
        """The square root, correctly rounded."""
        return self.unit.intrinsic("sqrt", self)

    def compare(self, condition: str, other: "Real | float") -> "Mask":
        """Where ``condition`` holds of this and ``other``."""
        unit, right = self.unit, self._operand(other)
        return Mask(unit, unit.emit(f"fcmp {condition} {unit.real_type} {self.name}, {right.name}"))

    __lt__ = _comparison("olt")
    __le__ = _comparison("ole")
    __gt__ = _comparison("ogt")
    __ge__ = _comparison("oge")

    def equal(self, other: "Real | float") -> "Mask":
        """``self == other``, false for NaN."""
        return self.compare("oeq", other)

    def at_most(self, limit: float) -> "Real":
        """The smaller one; NaN stays NaN."""
        bound = self.unit.constant(limit)
        return select(bound < self, bound, self)

    def at_least(self, limit: float) -> "Real":
        """The larger one; NaN stays NaN."""
        bound = self.unit.constant(limit)
        return select(bound > self, bound, self)

    def bits(self) -> "Int":
        """The same bits as integers."""
        unit = self.unit
        return Int(unit, unit.emit(f"bitcast {unit.real_type} {self.name} to {unit.int_type}"))

    def converted(self, unit: Unit) -> "Real":
        """The nearest values of the float type of ``unit``."""
        if unit.dtype == self.unit.dtype:
            return self
        instruction = "fpext" if unit.format.bits > self.unit.format.bits else "fptrunc"
        return Real(unit, self.unit.emit(f"{instruction} {self.unit.real_type} {self.name} to {unit.real_type}"))


@dataclass(frozen=True, slots=True)
class Int:
    """Integers as wide as the floats of the unit; arithmetic wraps."""

    unit: Unit
    name: str

    def binary(self, instruction: str, other: "Int | int") -> "Int":
        """``instruction`` on this and ``other``."""
        right = other if isinstance(other, Int) else self.unit.integer(other)
        return Int(self.unit, self.unit.emit(f"{instruction} {self.unit.int_type} {self.name}, {right.name}"))

    __add__ = _operator("add")
    __sub__ = _operator("sub")
    __mul__ = _operator("mul")
    __and__ = _operator("and")
    __or__ = _operator("or")
    __xor__ = _operator("xor")
    __lshift__ = _operator("shl")
    __rshift__ = _operator("ashr")

    def logical_shift_right(self, bits: int) -> "Int":
        """The shift that brings in zeros (``>>`` brings in the sign)."""
        return self.binary("lshr", bits)

    def _compare(self, condition: str, other: "Int | int") -> "Mask":
        right = other if isinstance(other, Int) else self.unit.integer(other)
        return Mask(self.unit, self.unit.emit(f"icmp {condition} {self.unit.int_type} {self.name}, {right.name}"))

    def equal(self, other: "Int | int") -> "Mask":
        """``self == other``."""
        return self._compare("eq", other)

    def below(self, limit: int) -> "Mask":
        """``self < limit``, of signed numbers."""
        return self._compare("slt", limit)

    def at_most(self, limit: int) -> "Int":
        """The smaller one, of signed numbers."""
        return select_int(self.below(limit), self, limit)

    def at_least(self, limit: int) -> "Int":
        """The larger one, of signed numbers."""
        return select_int(self._compare("sgt", limit), self, limit)

    def as_real(self) -> Real:
        """The same bits as floats."""
        unit = self.unit
        return Real(unit, unit.emit(f"bitcast {unit.int_type} {self.name} to {unit.real_type}"))

    def to_real(self) -> Real:
        """The equal floats, of integers of at most 22 (f32) or 51 (f64) bits."""
        unit = self.unit
        if unit.dtype == f32:
            return Real(unit, unit.emit(f"sitofp {unit.int_type} {self.name} to {unit.real_type}"))
        # Many machines have no vector conversion from i64.
        return (self + float_bits(unit.format.rounder)).as_real() - unit.format.rounder

    def converted(self, unit: Unit) -> "Int":
        """The low bits, as integers of a narrower (or the same) unit."""
        if unit.dtype == self.unit.dtype:
            return self
        return Int(unit, unit.emit(f"trunc {self.unit.int_type} {self.name} to {unit.int_type}"))


@dataclass(frozen=True, slots=True)
class Mask:
    """Booleans."""

    unit: Unit
    name: str

    def binary(self, instruction: str, other: "Mask") -> "Mask":
        """``instruction`` on this and ``other``."""
        return Mask(self.unit, self.unit.emit(f"{instruction} {self.unit.mask_type} {self.name}, {other.name}"))

    __and__ = _operator("and")
    __or__ = _operator("or")

    def __invert__(self) -> "Mask":
        return self.binary("xor", self.unit.mask_of(True))


def select(mask: Mask, a: Real | float, b: Real | float) -> Real:
    """``a`` where ``mask`` is true, else ``b``."""
    unit = mask.unit
    left, right = (v if isinstance(v, Real) else unit.constant(v) for v in (a, b))
    operands = f"{unit.mask_type} {mask.name}, {unit.real_type} {left.name}, {unit.real_type} {right.name}"
    return Real(unit, unit.emit(f"select {operands}"))


def select_int(mask: Mask, a: Int | int, b: Int | int) -> Int:
    """``a`` where ``mask`` is true, else ``b``."""
    unit = mask.unit
    left, right = (v if isinstance(v, Int) else unit.integer(v) for v in (a, b))
    operands = f"{unit.mask_type} {mask.name}, {unit.int_type} {left.name}, {unit.int_type} {right.name}"
    return Int(unit, unit.emit(f"select {operands}"))


def polynomial(x: Real, coefficients: Sequence[float], square: Real | None = None) -> Real:
    """``c[0] + c[1] x + c[2] x**2 + ...``; ``square`` is ``x * x``, where the caller has it.

    Horner's rule in x**2 on pairs of coefficients (in x**4 on groups of four, from eleven on): one multiplication more
    than Horner's rule in x and half (a quarter) of its latency, which out-of-order cores can't hide in full.
    """
    if len(coefficients) <= 3:
        return _horner(x, [x.unit.constant(c) for c in coefficients])
    if square is None:
        square = x * x
    pairs = [_horner(x, [x.unit.constant(c) for c in coefficients[i : i + 2]]) for i in range(0, len(coefficients), 2)]
    if len(coefficients) <= 10:
        return _horner(square, pairs)
    return _horner(square * square, [_horner(square, pairs[i : i + 2]) for i in range(0, len(pairs), 2)])


def _horner(x: Real, terms: Sequence[Real]) -> Real:
    result = terms[-1]
    for term in reversed(terms[:-1]):
        result = result.fma(x, term)
    return result
