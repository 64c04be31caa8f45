"""Floats of 4 and 8 bits (Micikevicius et al., 2022; OCP MX 1.0): their codes from numbers, and numbers from codes.

A code is a sign, an exponent and a mantissa, from high to low; native code has it as u8. All arithmetic is exact: what
is scaled is scaled by powers of two, and rounded once.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import reduce

from tilewright.base import dtypes
from tilewright.base.dtypes import DType, f32, i32, u8
from tilewright.base.errors import BadProgram
from tilewright.ops.build import Index, tensor
from tilewright.ops.elementwise import elementwise
from tilewright.ops.operator import FusionKind, Trait, operator
from tilewright.ops.power_codes import PowerRounding, code_of, number_of
from tilewright.ops.quantization import parameter_of
from tilewright.symbolic.expr import Expr, binary, cast, const, equal, minimum, select, unary
from tilewright.symbolic.operations import BinaryOp, UnaryOp
from tilewright.tensor.ir import Tensor


@dataclass(frozen=True, slots=True)
class _Format:
    """A type: the bits of its parts, and its codes of the largest number and beyond."""

    exponent: int
    mantissa: int
    bias: int
    largest: int
    nan: int
    """What NaN becomes."""
    infinity: int | None = None
    has_nan: bool = True
    has_negative_zero: bool = True
    """Else the code of a sign alone is NaN, the only one."""

    @property
    def sign(self) -> int:
        return 1 << (self.exponent + self.mantissa)

    @property
    def implied(self) -> int:
        """What the leading bit of a mantissa is worth, in units of the last one."""
        return 1 << self.mantissa

    @property
    def unit(self) -> float:
        """The smallest number above 0."""
        return 2.0 ** (1 - self.bias - self.mantissa)


_FORMATS: Mapping[DType, _Format] = {
    dtypes.f8e4m3fn: _Format(4, 3, 7, largest=0x7E, nan=0x7F),
    dtypes.f8e4m3fnuz: _Format(4, 3, 8, largest=0x7F, nan=0x80, has_negative_zero=False),
    dtypes.f8e5m2: _Format(5, 2, 15, largest=0x7B, nan=0x7E, infinity=0x7C),
    dtypes.f8e5m2fnuz: _Format(5, 2, 16, largest=0x7F, nan=0x80, has_negative_zero=False),
    dtypes.f4e2m1fn: _Format(2, 1, 1, largest=0x7, nan=0x8, has_nan=False),
}


def _format(dtype: DType) -> _Format:
    found = _FORMATS.get(dtype)
    if found is None:
        raise BadProgram(
            f"{dtype} is no float of 4 or 8 bits; there are {', '.join(map(str, (*_FORMATS, dtypes.f8e8m0fnu)))}"
        )
    return found


@operator("DecodeFloat", FusionKind.INJECTIVE, Trait.ELEMENTWISE)
def decode_float(x: Tensor, *, of: DType) -> Tensor:
    """The numbers (f32) whose codes in the type ``of`` are ``x`` (u8)."""
    if x.dtype != u8:
        raise BadProgram(f"DecodeFloat of {x}: codes are u8")
    if of == dtypes.f8e8m0fnu:
        return elementwise(lambda code: number_of(cast(code, i32)), x)
    form = _format(of)
    return elementwise(lambda code: _number(cast(code, i32), form), x)


def _number(code: Expr, form: _Format) -> Expr:
    size, exponent = code & (form.sign - 1), (code >> form.mantissa) & ((1 << form.exponent) - 1)
    is_normal = cast(exponent > 0, i32)
    mantissa = (code & (form.implied - 1)) + is_normal * form.implied
    value = cast(mantissa, f32) * form.unit * _power_of_two(exponent - is_normal, form)
    if form.infinity is not None:
        value = select(equal(size, form.infinity), const(float("inf"), f32), value)
    if form.has_negative_zero and form.has_nan:
        value = select(size > (form.infinity or form.largest), const(float("nan"), f32), value)
    signed = select((code & form.sign) > 0, unary(UnaryOp.NEG, value), value)
    return signed if form.has_negative_zero else select(equal(code, form.sign), const(float("nan"), f32), signed)


def _power_of_two(exponent: Expr, form: _Format) -> Expr:
    """``2 ** exponent`` for the exponents that a code can have: a factor for each of its bits."""
    bits = [(exponent & (1 << at)) > 0 for at in range(form.exponent)]
    return _product(select(bit, const(2.0 ** (1 << at), f32), const(1.0, f32)) for at, bit in enumerate(bits))


def _product(factors: Iterable[Expr]) -> Expr:
    return reduce(lambda a, b: a * b, factors)


@operator("EncodeFloat", FusionKind.INJECTIVE, Trait.ELEMENTWISE)
def encode_float(x: Tensor, *, to: DType, saturate: bool = True, rounding: str = PowerRounding.UP.value) -> Tensor:
    """The codes (u8) of the numbers of the type ``to`` that are nearest to ``x`` (f32); ties go to even codes.

    Larger numbers and infinities become the largest number, or, not to ``saturate``, infinity or NaN. ``rounding``, a
    ``PowerRounding``: of f8e8m0fnu, which ``power_codes`` has.
    """
    if x.dtype != f32:
        raise BadProgram(f"EncodeFloat of {x}: numbers are f32")
    if to == dtypes.f8e8m0fnu:
        return elementwise(lambda value: code_of(value, PowerRounding(rounding), saturate), x)
    form = _format(to)
    return elementwise(lambda value: _code(value, form, saturate), x)


def _code(value: Expr, form: _Format, saturate: bool) -> Expr:
    beyond = form.largest if saturate or not form.has_nan else form.infinity or form.nan
    size = _code_of_size(minimum(unary(UnaryOp.ABS, value), _end(form)), form)
    size = select(size > form.largest, const(beyond, i32), size)
    if form.has_negative_zero:
        is_negative = (value < 0.0) | (binary(BinaryOp.DIV, 1.0, value) < 0.0)
    else:
        is_negative = (value < 0.0) & (size > 0) & (size < form.sign)
    code = size + cast(is_negative, i32) * form.sign
    return cast(select(unary(UnaryOp.ISNAN, value), const(form.nan, i32), code), u8)


def _end(form: _Format) -> float:
    """A power of two above all numbers."""
    return 2.0 ** ((1 << form.exponent) - form.bias)


def _code_of_size(size: Expr, form: _Format) -> Expr:
    """The code of a number that is not negative, as if there were larger exponents.

    Numbers with the same exponent are multiples of one unit; codes count units, from exponent to exponent.
    """
    limits = (2.0 ** (2 - form.bias + at) for at in range((1 << form.exponent) - 1))
    steps = [size >= limit for limit in limits]
    scale = _product([const(1 / form.unit, f32), *(select(step, const(0.5, f32), const(1.0, f32)) for step in steps)])
    units = cast(unary(UnaryOp.ROUND, size * scale), i32)
    return reduce(lambda a, step: a + cast(step, i32) * form.implied, steps, units)


@operator("Scaled", FusionKind.INJECTIVE)
def scaled(
    x: Tensor,
    scale: Tensor,
    zero: Tensor | None = None,
    *,
    axis: int = 1,
    block_size: int = 0,
    divide: bool = False,
    precision: DType = f32,
    dtype: DType = f32,
) -> Tensor:
    """``(x - zero) * scale``, or, to ``divide``, ``x / scale + zero``: of the position along ``axis``, or of its block.

    Products and quotients are rounded to ``precision``, results to ``dtype``.
    """
    scale_at = parameter_of(x, scale, axis, block_size)
    zero_at = None if zero is None else parameter_of(x, zero, axis, block_size)

    def body(index: Index) -> Expr:
        factor, shift = cast(scale_at(index), precision), None if zero_at is None else zero_at(index)
        if divide:
            quotient = cast(binary(BinaryOp.DIV, cast(x[index], precision), factor), dtype)
            return quotient if shift is None else quotient + cast(shift, dtype)
        value = x[index] if shift is None else x[index] - cast(shift, x.dtype)
        return cast(cast(value, precision) * factor, dtype)

    return tensor(x.shape, body)


@operator("LowBits", FusionKind.INJECTIVE, Trait.ELEMENTWISE)
def low_bits(x: Tensor, *, bits: int) -> Tensor:
    """The last ``bits`` of integers, as integers of as many bits: with a sign, if the dtype has one."""
    if not x.dtype.is_int or not 0 < bits <= x.dtype.bits:
        raise BadProgram(f"LowBits of {x}: there are no {bits} bits of integers in it")
    distance = const(x.dtype.bits - bits, x.dtype)
    return elementwise(lambda value: (value << distance) >> distance, x)
