"""Elementwise operators, with NumPy's broadcasting."""

from collections.abc import Callable
from enum import Enum
from functools import reduce
from typing import overload

from tilewright.base.dtypes import DType, boolean, f32, f64, i64, u64
from tilewright.base.errors import BadProgram
from tilewright.ops.build import Index, accumulator, choice, tensor
from tilewright.ops.operator import FusionKind, Trait, operator
from tilewright.ops.shapes import broadcast, element
from tilewright.symbolic.expr import (
    FALSE,
    Expr,
    binary,
    cast,
    const,
    equal,
    maximum,
    minimum,
    select,
    unary,
)
from tilewright.symbolic.operations import BinaryOp, UnaryOp
from tilewright.tensor.ir import Tensor


@overload
def elementwise(body: Callable[[Expr], Expr], a: Tensor, /) -> Tensor: ...
@overload
def elementwise(body: Callable[[Expr, Expr], Expr], a: Tensor, b: Tensor, /) -> Tensor: ...
@overload
def elementwise(body: Callable[[Expr, Expr, Expr], Expr], a: Tensor, b: Tensor, c: Tensor, /) -> Tensor: ...
def elementwise(body: Callable[..., Expr], /, *inputs: Tensor) -> Tensor:
    """``body`` of the inputs' elements, broadcast."""
    return tensor(broadcast(*(t.shape for t in inputs)), lambda index: body(*(element(t, index) for t in inputs)))


_UNARY = {
    "Abs": UnaryOp.ABS,
    "Acos": UnaryOp.ACOS,
    "Acosh": UnaryOp.ACOSH,
    "Asin": UnaryOp.ASIN,
    "Asinh": UnaryOp.ASINH,
    "Atan": UnaryOp.ATAN,
    "Atanh": UnaryOp.ATANH,
    "BitwiseNot": UnaryOp.NOT,
    "Ceil": UnaryOp.CEIL,
    "Cos": UnaryOp.COS,
    "Cosh": UnaryOp.COSH,
    "Erf": UnaryOp.ERF,
    "Exp": UnaryOp.EXP,
    "Floor": UnaryOp.FLOOR,
    "IsNaN": UnaryOp.ISNAN,
    "Log": UnaryOp.LOG,
    "Neg": UnaryOp.NEG,
    "Not": UnaryOp.NOT,
    "Round": UnaryOp.ROUND,
    "Sigmoid": UnaryOp.SIGMOID,
    "Sin": UnaryOp.SIN,
    "Sinh": UnaryOp.SINH,
    "Sqrt": UnaryOp.SQRT,
    "Tan": UnaryOp.TAN,
    "Tanh": UnaryOp.TANH,
}
_BINARY = {
    "Add": BinaryOp.ADD,
    "And": BinaryOp.AND,
    "BitwiseAnd": BinaryOp.AND,
    "BitwiseOr": BinaryOp.OR,
    "BitwiseXor": BinaryOp.XOR,
    "Equal": BinaryOp.EQ,
    "Greater": BinaryOp.GT,
    "GreaterOrEqual": BinaryOp.GE,
    "Less": BinaryOp.LT,
    "LessOrEqual": BinaryOp.LE,
    "Mul": BinaryOp.MUL,
    "Or": BinaryOp.OR,
    "Sub": BinaryOp.SUB,
    "Xor": BinaryOp.XOR,
}
_VARIADIC = {"Max": BinaryOp.MAX, "Min": BinaryOp.MIN, "Sum": BinaryOp.ADD}
_COMMUTING = frozenset({BinaryOp.ADD, BinaryOp.AND, BinaryOp.EQ, BinaryOp.MUL, BinaryOp.OR, BinaryOp.XOR})
"""Associative even with rounding, for two operands."""


def _enter_unary(name: str, op: UnaryOp) -> None:
    def function(x: Tensor) -> Tensor:
        return elementwise(lambda v: unary(op, v), x)

    operator(name, FusionKind.INJECTIVE, Trait.ELEMENTWISE)(function)


def _enter_binary(name: str, op: BinaryOp) -> None:
    def function(a: Tensor, b: Tensor) -> Tensor:
        return elementwise(lambda x, y: binary(op, x, y), a, b)

    traits = Trait.COMMUTATIVE if op in _COMMUTING else Trait.NONE
    operator(name, FusionKind.INJECTIVE, Trait.ELEMENTWISE | traits)(function)


def _enter_variadic(name: str, op: BinaryOp) -> None:
    def function(first: Tensor, *others: Tensor) -> Tensor:
        inputs = (first, *others)

        def body(index: Index) -> Expr:
            return reduce(lambda x, y: binary(op, x, y), [element(t, index) for t in inputs])

        return tensor(broadcast(*(t.shape for t in inputs)), body)

    traits = Trait.NONE if op is BinaryOp.ADD else Trait.COMMUTATIVE  # three operands are summed in another order
    operator(name, FusionKind.INJECTIVE, Trait.ELEMENTWISE | traits)(function)


for _name, _unary in _UNARY.items():
    _enter_unary(_name, _unary)
for _name, _binary in _BINARY.items():
    _enter_binary(_name, _binary)
for _name, _binary in _VARIADIC.items():
    _enter_variadic(_name, _binary)


@operator("Pow", FusionKind.INJECTIVE, Trait.ELEMENTWISE)
def power(base: Tensor, exponent: Tensor) -> Tensor:
    """``base ** exponent`` in the dtype of ``base``.

    For two different dtypes, not both integers, computed in f64, and truncated if ``base`` is an integer. Integers wrap
    around; a negative exponent gives ``1 / base ** -exponent`` truncated, and 0 where ``base`` is 0.
    """
    if base.dtype.is_int and exponent.dtype.is_int:
        return elementwise(_integer_power, base, exponent)
    wide = base.dtype if base.dtype == exponent.dtype else f64

    def body(x: Expr, y: Expr) -> Expr:
        return cast(binary(BinaryOp.POW, cast(x, wide), cast(y, wide)), base.dtype)

    return elementwise(body, base, exponent)


def _integer_power(x: Expr, y: Expr) -> Expr:
    """Powers modulo ``2**64`` determine powers modulo smaller ones: convert both to the wider dtype, and back."""
    if x.dtype == y.dtype:
        return binary(BinaryOp.POW, x, y)
    if not y.dtype.is_signed:
        return cast(binary(BinaryOp.POW, cast(x, u64), cast(y, u64)), x.dtype)
    if x.dtype != u64:
        return cast(binary(BinaryOp.POW, cast(x, i64), cast(y, i64)), x.dtype)
    one, zero = const(1, u64), const(0, u64)
    raised = binary(BinaryOp.POW, x, cast(y, u64))
    return select(y < 0, select(equal(x, one), one, zero), raised)


@operator("IntegerPower", FusionKind.INJECTIVE, Trait.ELEMENTWISE)
def integer_power(base: Tensor, *, exponent: int) -> Tensor:
    """``base ** exponent`` for a small ``exponent >= 0``, by squaring; 16-bit floats in f32."""
    wide = f32 if base.dtype.is_float and base.dtype.bits == 16 else base.dtype

    def body(x: Expr) -> Expr:
        result, square, left = None, cast(x, wide), exponent
        while left:
            if left & 1:
                result = square if result is None else result * square
            square, left = square * square, left >> 1
        return cast(const(1, wide) if result is None else result, base.dtype)

    return elementwise(body, base)


@operator("Mod", FusionKind.INJECTIVE, Trait.ELEMENTWISE | Trait.DIVIDES)
def modulo(a: Tensor, b: Tensor, *, fmod: bool = False) -> Tensor:
    """The remainder with the sign of ``b``; with ``fmod``, as in C, with that of ``a``. Of integers by 0: 0."""
    return elementwise(lambda x, y: binary(BinaryOp.TRUNCMOD if fmod else BinaryOp.MOD, x, y), a, b)


@operator("Div", FusionKind.INJECTIVE, Trait.ELEMENTWISE | Trait.DIVIDES)
def div(a: Tensor, b: Tensor) -> Tensor:
    """Quotient; of integers, truncated towards zero."""
    op = BinaryOp.DIV if a.dtype.is_float else BinaryOp.TRUNCDIV
    return elementwise(lambda x, y: binary(op, x, y), a, b)


class Direction(Enum):
    """Directions of shifts."""

    LEFT = "LEFT"
    RIGHT = "RIGHT"


@operator("BitShift", FusionKind.INJECTIVE, Trait.ELEMENTWISE)
def bit_shift(a: Tensor, b: Tensor, *, direction: str) -> Tensor:
    """``a`` shifted by ``b`` bits, ``direction`` is LEFT or RIGHT; by its width or more, 0."""
    left = choice(Direction, direction, "BitShift: the direction") is Direction.LEFT
    op = BinaryOp.SHL if left else BinaryOp.SHR
    return elementwise(lambda x, y: binary(op, x, y), a, b)


@operator("Mean", FusionKind.INJECTIVE, Trait.ELEMENTWISE)
def mean(first: Tensor, *others: Tensor) -> Tensor:
    """The arithmetic mean of floats; 16-bit ones in f32."""
    inputs = (first, *others)
    wide = accumulator(first.dtype)

    def body(index: Index) -> Expr:
        total = reduce(lambda x, y: x + y, [cast(element(t, index), wide) for t in inputs])
        return cast(binary(BinaryOp.DIV, total, const(len(inputs), wide)), first.dtype)

    return tensor(broadcast(*(t.shape for t in inputs)), body)


@operator("Sign", FusionKind.INJECTIVE, Trait.ELEMENTWISE)
def sign(x: Tensor) -> Tensor:
    """-1, 0 or 1; NaN for NaN."""
    zero, one = const(0, x.dtype), const(1, x.dtype)

    def body(v: Expr) -> Expr:
        beyond = select(v > zero, one, select(equal(v, zero), zero, v))
        return beyond if not x.dtype.is_float and not x.dtype.is_signed else select(v < zero, -one, beyond)

    return elementwise(body, x)


@operator("IsInf", FusionKind.INJECTIVE, Trait.ELEMENTWISE)
def is_infinite(x: Tensor, *, detect_negative: bool = True, detect_positive: bool = True) -> Tensor:
    """Whether an element is an infinity of one of the selected signs."""

    def body(v: Expr) -> Expr:
        infinite = unary(UnaryOp.ISINF, v)
        if detect_negative and detect_positive:
            return infinite
        if not detect_negative and not detect_positive:
            return FALSE
        return infinite & (v < 0.0 if detect_negative else v > 0.0)

    return elementwise(body, x)


@operator("Relu", FusionKind.INJECTIVE, Trait.ELEMENTWISE)
def relu(x: Tensor) -> Tensor:
    """``max(x, 0)``."""
    return elementwise(lambda v: maximum(v, const(0, x.dtype)), x)


@operator("Reciprocal", FusionKind.INJECTIVE, Trait.ELEMENTWISE)
def reciprocal(x: Tensor) -> Tensor:
    """``1 / x``."""
    return elementwise(lambda v: binary(BinaryOp.DIV, const(1.0, x.dtype), v), x)


@operator("Clip", FusionKind.INJECTIVE, Trait.ELEMENTWISE | Trait.LIKE_FIRST)
def clip(x: Tensor, low: Tensor | None = None, high: Tensor | None = None) -> Tensor:
    """``min(max(x, low), high)``; without a missing limit."""
    for limit in (low, high):
        if limit is not None and limit.ndim:
            raise BadProgram(f"Clip: the limit {limit} is no scalar")
    result = x
    if low is not None:
        result = elementwise(maximum, result, low)
    return result if high is None else elementwise(minimum, result, high)


@operator("Where", FusionKind.INJECTIVE, Trait.ELEMENTWISE)
def where(condition: Tensor, a: Tensor, b: Tensor) -> Tensor:
    """``a`` where ``condition`` holds, else ``b``."""
    if condition.dtype != boolean:
        raise BadProgram(f"Where: the condition is {condition.dtype}, not bool")
    return elementwise(select, condition, a, b)


@operator("Cast", FusionKind.INJECTIVE, Trait.ELEMENTWISE | Trait.NEUTRAL)
def cast_to(x: Tensor, *, to: DType) -> Tensor:
    """``x`` converted to ``to``; floats saturate when they become integers."""
    return elementwise(lambda v: cast(v, to), x)


@operator("Identity", FusionKind.INJECTIVE, Trait.ELEMENTWISE | Trait.MOVES | Trait.NEUTRAL)
def identity(x: Tensor) -> Tensor:
    """``x``."""
    return elementwise(lambda v: v, x)
