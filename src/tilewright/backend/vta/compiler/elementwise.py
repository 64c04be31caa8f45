"""Expressions on accumulators as operations of ALU, one after another, in place.

``min(max(sums >> 8, -128), 127)`` starts from ``sums`` and has three operations with an immediate. The second operand
of an operation may be another accumulator, but no expression: that is a stage of its own. Casts that keep the number
are free, as accumulators hold 32 bits of everything. ``shift`` is SHR by counts that are data, of either sign.
"""

from dataclasses import dataclass
from typing import TypeAlias

from tilewright.backend.vta.config import ACCUMULATOR_BITS, Config
from tilewright.backend.vta.instructions import AluOperation
from tilewright.base import dtypes
from tilewright.base.dtypes import DType
from tilewright.base.errors import Unsupported
from tilewright.symbolic.expr import TRUE, Binary, Cast, Const, Expr, Read, Select, select
from tilewright.symbolic.operations import BinaryOp
from tilewright.tensor.reducers import max_value, min_value

_HALF = 16
"""Bits of an immediate."""
_IMMEDIATES = range(-(1 << (_HALF - 1)), 1 << (_HALF - 1))
_BYTES = frozenset(range(-128, 128))
_OPERATIONS = {
    BinaryOp.MIN: AluOperation.MIN,
    BinaryOp.MAX: AluOperation.MAX,
    BinaryOp.ADD: AluOperation.ADD,
    BinaryOp.SHR: AluOperation.SHR,
    BinaryOp.MUL: AluOperation.MUL,
}
_COMMUTATIVE = frozenset({BinaryOp.MIN, BinaryOp.MAX, BinaryOp.ADD, BinaryOp.MUL})
_ORDERED = frozenset({BinaryOp.MIN, BinaryOp.MAX, BinaryOp.SHR})
"""Operations that are the same in fewer bits than an accumulator has."""

Operand: TypeAlias = Read | int


@dataclass(frozen=True, slots=True)
class Operation:
    """An operation with the accumulators so far, and another one or an immediate."""

    operation: AluOperation
    operand: Operand


@dataclass(frozen=True, slots=True)
class Chain:
    """Operations on the value of ``start``: an accumulator, or a number. ``where``: elsewhere nothing changes."""

    start: Operand
    operations: tuple[Operation, ...] = ()
    where: Expr = TRUE

    def then(self, operation: AluOperation, operand: Operand, where: Expr = TRUE) -> "Chain":
        """The chain with one more operation."""
        if isinstance(operand, int) and operand not in _IMMEDIATES:
            raise Unsupported(f"{operation.name} takes immediates of 16 bits, and {operand} is none")
        return Chain(self.start, (*self.operations, Operation(operation, operand)), where)


def number(value: int) -> tuple[Operation, ...]:
    """The operations that make a number of 32 bits of 0: one, or the upper half and the lower one."""
    if value in _IMMEDIATES:
        return (Operation(AluOperation.ADD, value),) if value else ()
    low = _signed(value)
    upper = Operation(AluOperation.ADD, _signed((value - low) >> _HALF)), Operation(AluOperation.SHR, -_HALF)
    return (*upper, Operation(AluOperation.ADD, low)) if low else upper


def _signed(value: int) -> int:
    """The number of 16 bits that has the low bits of ``value``."""
    return (value + (1 << (_HALF - 1))) % (1 << _HALF) - (1 << (_HALF - 1))


def shift(value: Expr, count: Expr) -> Expr:
    """``value >> count``; for a negative count, to the left: what SHR computes, so ``count`` may be an accumulator."""
    return select(count >= 0, value >> count, value << (0 - count))


def chain_of(value: Expr, config: Config) -> Chain:
    """The operations that compute ``value``. Raises ``Unsupported``, with the part that ALU can't compute."""
    match value:
        case Const(value=number) if value.dtype.is_int:
            return Chain(int(number))
        case Read():
            return Chain(value)
        case Cast(a, dtype) if _keeps(a, dtype):
            return chain_of(a, config)
        case Binary(op, a, b):
            return _binary(op, a, b, config)
        case Select(a=Binary(BinaryOp.SHR, a, Read() as count)) if a.dtype == dtypes.i32 and value == shift(a, count):
            return chain_of(a, config).then(AluOperation.SHR, count)
        case _:
            raise Unsupported(f"ALU can't compute `{value}`")


def _binary(op: BinaryOp, a: Expr, b: Expr, config: Config) -> Chain:
    if isinstance(b, Select):
        return _guarded(op, a, b)
    limits = _limits(a, b) if op is BinaryOp.MIN and config.alu_operations > AluOperation.CLIP else None
    if limits is not None:
        inner, low, high = limits
        return chain_of(inner, config).then(AluOperation.CLIP, (low << 8) | (high & 0xFF))
    if op in _COMMUTATIVE and _operand(b) is None:
        a, b = b, a
    operand = _operand(b)
    if operand is None:
        raise Unsupported(f"the second operand of `{op.value}` is `{b}`: compute it as a stage of its own")
    _require_bits(op, a, b)
    chain = chain_of(a, config)
    if op in _OPERATIONS and (op is not BinaryOp.MUL or (_is_narrow(a, config) and _is_narrow(b, config))):
        return chain.then(_OPERATIONS[op], operand)
    match op, operand:
        case BinaryOp.SUB, int():
            return chain.then(AluOperation.ADD, -operand)
        case BinaryOp.SHL, int() if 0 <= operand < ACCUMULATOR_BITS:
            return chain.then(AluOperation.SHR, -operand)
        case BinaryOp.FLOORDIV, int() if operand > 0 and not operand & (operand - 1):
            return chain.then(AluOperation.SHR, operand.bit_length() - 1)
        case BinaryOp.MUL, int() if operand > 0 and not operand & (operand - 1):
            return chain.then(AluOperation.SHR, 1 - operand.bit_length())
        case _:
            raise Unsupported(f"ALU has no operation for `{op.value}` with `{b}`")


def _limits(a: Expr, b: Expr) -> tuple[Expr, int, int] | None:
    """``min(max(value, low), high)`` with limits of bytes: the value, and both."""
    match a, b:
        case Binary(BinaryOp.MAX, value, Const(value=low)), Const(value=high) if low in _BYTES and high in _BYTES:
            return value, int(low), int(high)
        case _:
            return None


def _guarded(op: BinaryOp, a: Expr, b: Select) -> Chain:
    """A term of a reduction that counts only where a condition holds."""
    identities = {BinaryOp.ADD: Const(0, b.dtype), BinaryOp.MAX: min_value(b.dtype), BinaryOp.MIN: max_value(b.dtype)}
    operand = _operand(b.a)
    if op not in identities or b.b != identities[op] or not isinstance(operand, Read) or not isinstance(a, Read):
        raise Unsupported(f"ALU has no conditions: `{b}` is no term of a reduction that is left out")
    _require_bits(op, a, b)
    return Chain(a).then(_OPERATIONS[op], operand, b.condition)


def _operand(value: Expr) -> Operand | None:
    """What can be a second operand; None for an expression."""
    match value:
        case Const(value=number) if value.dtype.is_int:
            return int(number)
        case Read():
            return value
        case Cast(a, dtype) if _keeps(a, dtype):
            return _operand(a)
        case _:
            return None


def _keeps(a: Expr, dtype: DType) -> bool:
    """Whether a cast keeps every value: to more bits, or of a number that was clipped."""
    if not a.dtype.is_int or not dtype.is_int:
        return False
    least, most = _range(a)
    return dtype.min <= least and most <= dtype.max


def _range(value: Expr) -> tuple[int, int]:
    """Between which numbers an integer is."""
    match value:
        case Const(value=number):
            return int(number), int(number)
        case Binary(BinaryOp.MIN | BinaryOp.MAX as op, a, b):
            pick = min if op is BinaryOp.MIN else max
            (low, high), (least, most) = _range(a), _range(b)
            return pick(low, least), pick(high, most)
        case Cast(a, dtype) if _keeps(a, dtype):
            return _range(a)
        case _:
            return int(value.dtype.min), int(value.dtype.max)


def _require_bits(op: BinaryOp, a: Expr, b: Expr) -> None:
    """Raises ``Unsupported`` where the accumulators' 32 bits differ from the expression's type, or ALU's own bits."""
    if a.dtype != dtypes.i32 and op not in _ORDERED:
        raise Unsupported(f"`{op.value}` of {a.dtype}: ALU computes in 32 bits; cast to i32 before")
    if op is BinaryOp.SHR and isinstance(b, Const) and int(b.value) < 0:
        raise Unsupported(f"`>>` by {b.value}: the accelerator would shift to the left")
    if op is BinaryOp.SHR and not isinstance(b, Const):
        raise Unsupported(f"`>>` by `{b}`: the accelerator would shift to the left by a negative number; use vta.shift")


def _is_narrow(value: Expr, config: Config) -> bool:
    """Whether it fits the bits that MUL multiplies."""
    if isinstance(value, Const):
        return -(1 << (config.out_bits - 1)) <= int(value.value) < 1 << (config.out_bits - 1)
    inner = value.a if isinstance(value, Cast) else value
    return inner.dtype.is_int and inner.dtype.is_signed and inner.dtype.bits <= config.out_bits
