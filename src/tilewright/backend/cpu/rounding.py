"""Quantization to bytes, in fewer instructions than rounding, adding and saturating take one after the other.

``round(x) + zero``, saturated, is ``round`` of what is saturated to the limits less ``zero``. That is so small that an
addition rounds it to even: beside 1.5 * 2^23, numbers of f32 are 1 apart, and the integer is in the last bits.
"""

from dataclasses import dataclass

from tilewright.backend.cpu.arithmetic import ArithmeticEmitter
from tilewright.backend.cpu.packs import is_packed, packed_bytes
from tilewright.backend.cpu.values import Value, literal
from tilewright.base import dtypes
from tilewright.base.dtypes import DType
from tilewright.symbolic.expr import Binary, Cast, Const, Expr, Unary
from tilewright.symbolic.operations import BinaryOp, UnaryOp

_ROUNDING = 1.5 * 2.0**23


def rounded_sum(expr: Expr, dtype: DType) -> tuple[Expr, Expr] | None:
    """What is rounded to even in ``expr`` (f32), and the byte of ``dtype`` that is added; None for other sums."""
    match expr:
        case Binary(BinaryOp.ADD, Unary(UnaryOp.ROUND, value), Cast(zero, dtypes.f32)) if zero.dtype == dtype:
            return value, zero
        case Unary(UnaryOp.ROUND, value) if value.dtype == dtypes.f32:
            return value, Const(0, dtype)
        case _:
            return None


def dequantized_sum(expr: Expr) -> tuple[Expr, Expr] | None:
    """What is rounded in ``expr``, and the byte that is added to it and, after saturating, subtracted again, in f32."""
    match expr:
        case Cast(Binary(BinaryOp.SUB, Cast(Cast(total, dtypes.u8 | dtypes.i8 as dtype)), Cast(zero)), dtypes.f32):
            parts = rounded_sum(total, dtype)
            return parts if parts is not None and parts[1] == zero else None
        case Cast(Cast(Unary(UnaryOp.ROUND, value), dtypes.u8 | dtypes.i8 as dtype), dtypes.f32):
            return (value, Const(0, dtype)) if value.dtype == dtypes.f32 else None
        case _:
            return None


def rounded_to_byte(ops: ArithmeticEmitter, value: Value, zero: Value, divisor: Value | None = None) -> Value:
    """``value`` (f32), divided by ``divisor``, rounded to even, plus ``zero``, saturated to the dtype of ``zero``; NaN
    becomes 0."""
    if is_packed(ops, value):
        return packed_bytes(ops, _quotient(ops, value, zero, divisor, has_least=False), zero)
    return ops.binary(BinaryOp.ADD, ops.cast(ops.bits(_beside(ops, value, zero, divisor)), zero.dtype), zero)


def rounded_to_steps(ops: ArithmeticEmitter, value: Value, zero: Value, divisor: Value | None = None) -> Value:
    """The same less ``zero``, as f32."""
    return ops.binary(BinaryOp.SUB, _beside(ops, value, zero, divisor), literal(_ROUNDING, dtypes.f32))


def _beside(ops: ArithmeticEmitter, value: Value, zero: Value, divisor: Value | None) -> Value:
    """``value``, divided and saturated to what gives bytes, and added to the large number."""
    quotient = _quotient(ops, value, zero, divisor, has_least=True)
    return ops.binary(BinaryOp.ADD, quotient, literal(_ROUNDING, dtypes.f32))


def _quotient(ops: ArithmeticEmitter, value: Value, zero: Value, divisor: Value | None, *, has_least: bool) -> Value:
    """``value``, divided, and saturated to what gives bytes: to the least, too, if it ``has_least``; then NaN becomes
    the least unsigned byte, too.

    Operands of a division are saturated before it: at the limits times the divisor, quotients are so near to the limits
    that they are rounded to them.
    """
    dtype, shift = zero.dtype, ops.cast(zero, dtypes.f32)
    least, most = (ops.binary(BinaryOp.SUB, literal(float(end), dtypes.f32), shift) for end in (dtype.min, dtype.max))
    neutral = ops.unary(UnaryOp.NEG, shift)
    quotient = None
    if divisor is not None:
        quotient = _Quotient.by(ops, divisor)
        value = ops.binary(BinaryOp.MUL, value, quotient.factor)
        least, most, neutral = (ops.binary(BinaryOp.MUL, end, quotient.divisor) for end in (least, most, neutral))
    if dtype.is_signed:
        value = ops.select(ops.unary(UnaryOp.ISNAN, value), neutral, value)
    if has_least:
        value = ops.select(ops.binary(BinaryOp.GT, value, least), value, least)
    value = ops.select(ops.binary(BinaryOp.LT, most, value), most, value)
    return value if quotient is None else quotient.of(ops, value)


_EXPONENT = 0xFF << 23


@dataclass(frozen=True, slots=True)
class _Quotient:
    """Division of many numbers of f32 by one: ``a / b = a f / (b f)`` for a power of two ``f`` by which ``b f`` is
    neither large nor small. What depends on ``b`` alone is computed once."""

    factor: Value
    """``f``, with the sign of ``b``."""
    divisor: Value
    """``b f``."""

    @staticmethod
    def by(ops: ArithmeticEmitter, b: Value) -> "_Quotient":
        """The divisor is from 2**-22 to 4. By 0, infinity and NaN, it is 1, and the factor is what gives their
        quotients."""
        bits, one = ops.bits(b), literal(1.0, dtypes.f32)
        exponent = ops.binary(BinaryOp.AND, bits, literal(_EXPONENT, dtypes.i32))
        power = ops.binary(BinaryOp.SUB, literal(0xFE << 23, dtypes.i32), exponent)
        power = ops.binary(BinaryOp.MAX, power, literal(1 << 23, dtypes.i32))
        sign = ops.binary(BinaryOp.AND, bits, literal(-(1 << 31), dtypes.i32))
        factor = ops.real(ops.binary(BinaryOp.OR, power, sign))
        is_plain = ops.binary(BinaryOp.NE, exponent, literal(_EXPONENT, dtypes.i32))
        is_plain = ops.binary(BinaryOp.AND, is_plain, ops.binary(BinaryOp.NE, b, literal(0.0, dtypes.f32)))
        own, divisor = ops.binary(BinaryOp.DIV, one, b), ops.binary(BinaryOp.MUL, b, factor)
        return _Quotient(ops.select(is_plain, factor, own), ops.select(is_plain, divisor, one))

    def of(self, ops: ArithmeticEmitter, scaled: Value) -> Value:
        """``scaled`` (times the factor, and of moderate size), divided.

        The product with the reciprocal in two numbers is one of both neighbours of the quotient. Corrected by the
        remainder, which a fused multiply-add computes exactly, it is rounded correctly (Markstein, "Computation of
        elementary functions on the IBM RISC System/6000 processor", 1990).
        """
        one, opposite = literal(1.0, dtypes.f32), ops.unary(UnaryOp.NEG, self.divisor)
        reciprocal = ops.binary(BinaryOp.DIV, one, self.divisor)
        rest = ops.binary(BinaryOp.MUL, ops.fused(opposite, reciprocal, one), reciprocal)
        quotient = ops.fused(scaled, reciprocal, ops.binary(BinaryOp.MUL, scaled, rest))
        return ops.fused(ops.fused(opposite, quotient, scaled), reciprocal, quotient)
