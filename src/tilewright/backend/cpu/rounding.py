"""Quantization to bytes, in fewer instructions than rounding, adding and saturating take one after the other.

``round(x) + zero``, saturated, is ``round`` of what is saturated to the limits less ``zero``. That is so small that an
addition rounds it to even: beside 1.5 * 2^23, numbers of f32 are 1 apart, and the integer is in the last bits.
"""

from tilewright.backend.cpu.arithmetic import ArithmeticEmitter
from tilewright.backend.cpu.values import Value, literal, type_name
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


def rounded_to_byte(ops: ArithmeticEmitter, value: Value, zero: Value) -> Value:
    """``value`` (f32) rounded to even, plus ``zero``, saturated to the dtype of ``zero``; NaN becomes 0."""
    moved = _beside(ops, value, zero)
    words = f"bitcast {moved.typed} to {type_name(dtypes.i32, moved.lanes)}"
    bits = Value(ops.text.pure(words, moved.depth), dtypes.i32, moved.lanes, moved.depth)
    return ops.binary(BinaryOp.ADD, ops.cast(bits, zero.dtype), zero)


def rounded_to_steps(ops: ArithmeticEmitter, value: Value, zero: Value) -> Value:
    """The same less ``zero``, as f32."""
    return ops.binary(BinaryOp.SUB, _beside(ops, value, zero), literal(_ROUNDING, dtypes.f32))


def _beside(ops: ArithmeticEmitter, value: Value, zero: Value) -> Value:
    """``value`` saturated to what gives bytes, and added to the large number."""
    dtype, shift = zero.dtype, ops.cast(zero, dtypes.f32)
    least, most = (ops.binary(BinaryOp.SUB, literal(float(end), dtypes.f32), shift) for end in (dtype.min, dtype.max))
    if dtype.is_signed:
        value = ops.select(ops.unary(UnaryOp.ISNAN, value), ops.unary(UnaryOp.NEG, shift), value)
    value = ops.select(ops.binary(BinaryOp.GT, value, least), value, least)  # NaN becomes the least
    value = ops.select(ops.binary(BinaryOp.LT, value, most), value, most)
    return ops.binary(BinaryOp.ADD, value, literal(_ROUNDING, dtypes.f32))
