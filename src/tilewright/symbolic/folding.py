"""What operations give of operands that are known: of literals, and where one operand is neutral or decides.

Values are Python's; ``expr`` has their meaning, and makes literals of them.
"""

from collections.abc import Callable, Mapping
from enum import Enum
from typing import TypeAlias

import numpy as np

from tilewright.base import dtypes
from tilewright.base.dtypes import DType
from tilewright.base.errors import BadProgram
from tilewright.symbolic.operations import BinaryOp

Scalar: TypeAlias = bool | int | float


class Operand(Enum):
    """One that a result is."""

    FIRST = "first"
    SECOND = "second"


_ARITHMETIC: Mapping[BinaryOp, Callable[[int, int], int]] = {
    BinaryOp.ADD: lambda a, b: a + b,
    BinaryOp.SUB: lambda a, b: a - b,
    BinaryOp.MUL: lambda a, b: a * b,
    BinaryOp.FLOORDIV: lambda a, b: a // b if b else 0,
    BinaryOp.MOD: lambda a, b: a % b if b else 0,
    BinaryOp.MIN: min,
    BinaryOp.MAX: max,
}
_COMPARISONS: Mapping[BinaryOp, Callable[[float, float], bool]] = {
    BinaryOp.LT: lambda a, b: a < b,
    BinaryOp.LE: lambda a, b: a <= b,
    BinaryOp.GT: lambda a, b: a > b,
    BinaryOp.GE: lambda a, b: a >= b,
    BinaryOp.EQ: lambda a, b: a == b,
    BinaryOp.NE: lambda a, b: a != b,
}
INTEGER_FOLDS: Mapping[BinaryOp, Callable[[int, int], int]] = {**_ARITHMETIC, **_COMPARISONS}
"""What operations on known integers give, before wrapping."""


def wrap(value: int, dtype: DType) -> int:
    """``value`` modulo 2**bits, in the range of ``dtype``."""
    value &= (1 << dtype.bits) - 1
    return value - (1 << dtype.bits) if dtype.is_signed and value >> (dtype.bits - 1) else value


def folded(op: BinaryOp, x: Scalar | None, y: Scalar | None, dtype: DType) -> Scalar | Operand | None:
    """``x op y`` of operands of ``dtype``, of which None is not known; None if nothing follows.

    Raises ``BadProgram`` for an index that is none: extents and positions are counted, and do not wrap around.
    """
    if dtype.is_float:
        if x is None or y is None or op not in _COMPARISONS:
            return None
        with np.errstate(over="ignore"):  # beyond the largest number of a type is infinity
            return _COMPARISONS[op](float(np.asarray(x, dtype.numpy)), float(np.asarray(y, dtype.numpy)))
    if x is not None and y is not None:
        if op in _COMPARISONS:
            return _COMPARISONS[op](x, y)
        if op in _ARITHMETIC and dtype.is_int:
            return _integer_result(op, int(x), int(y), dtype)
    if dtype.is_bool:
        return _of_booleans(op, x, y)
    if op is BinaryOp.ADD:
        return Operand.SECOND if x == 0 else Operand.FIRST if y == 0 else None
    if op is BinaryOp.MUL:
        return Operand.SECOND if x == 1 else Operand.FIRST if y == 1 else 0 if 0 in (x, y) else None
    if (op is BinaryOp.SUB and y == 0) or (op is BinaryOp.FLOORDIV and y == 1):
        return Operand.FIRST
    return 0 if op is BinaryOp.MOD and y == 1 else None


def _integer_result(op: BinaryOp, x: int, y: int, dtype: DType) -> int:
    exact = _ARITHMETIC[op](x, y)
    if dtype is not dtypes.index and dtype != dtypes.index:
        return wrap(exact, dtype)
    if not _LEAST_INDEX <= exact <= _LARGEST_INDEX:
        raise BadProgram(f"`{x} {op.value} {y}` is {exact}, which is beyond {dtype}: no extent is that large")
    return exact


_LEAST_INDEX, _LARGEST_INDEX = dtypes.index.min, dtypes.index.max


def _of_booleans(op: BinaryOp, x: Scalar | None, y: Scalar | None) -> bool | Operand | None:
    if op is BinaryOp.AND or op is BinaryOp.OR:
        neutral = op is BinaryOp.AND
        return Operand.SECOND if x == neutral else Operand.FIRST if y == neutral else not neutral
    return None
