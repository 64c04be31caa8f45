"""Evaluates expressions for many threads at once, as functions of arrays with one value per thread.

Values equal for all threads stay numbers. Where threads diverge (a condition, a selection), each side runs for its own
threads only, so that no other element is read.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tilewright.base.arrays import Array
from tilewright.base.dtypes import DType, boolean, index
from tilewright.base.errors import BadProgram
from tilewright.symbolic.check import Check
from tilewright.symbolic.evaluate import evaluate_binary, evaluate_cast, evaluate_unary
from tilewright.symbolic.expr import Binary, Cast, Const, Expr, Read, Select, Source, Unary, Var
from tilewright.symbolic.operations import BinaryOp

Numbers: TypeAlias = NDArray[np.int64]
Mask: TypeAlias = NDArray[np.bool_]
Indices: TypeAlias = "tuple[int | Numbers, ...]"

OWN = "@"
"""Prefix of names that are not variables of the program; they are visible in blocks, too."""


@dataclass(slots=True)
class Lanes:
    """Threads that run the same statement: their number, their indices in the block, and the values of variables."""

    size: int
    thread: Numbers
    values: "dict[str, int | Numbers]"

    def only(self, mask: Mask) -> "Lanes":
        """The lanes where ``mask`` holds."""
        values = {name: value if isinstance(value, int) else value[mask] for name, value in self.values.items()}
        return Lanes(int(np.count_nonzero(mask)), self.thread[mask], values)

    def split(self, variable: str, extent: int, stride: int) -> "Lanes":
        """Each lane repeated by a loop over threads, whose iterations are ``stride`` apart."""
        each = np.tile(np.arange(extent, dtype=np.int64), self.size)
        values = {n: v if isinstance(v, int) else np.repeat(v, extent) for n, v in self.values.items()}
        thread = np.repeat(self.thread, extent) + each * stride
        return Lanes(self.size * extent, thread, {**values, variable: each})


Value: TypeAlias = "int | Array"
Evaluator: TypeAlias = Callable[[Lanes], Value]


class Memories(Protocol):
    """Executes loads, and counts operations."""

    operations: int

    def load(self, source: Source, at: Indices, lanes: Lanes, statement: int) -> Array:
        """One element per lane."""
        ...


def evaluator(expr: Expr, memories: Memories, statement: int) -> Evaluator:
    """The function that computes ``expr``, in the numbered ``statement``, for some lanes."""

    def inner(part: Expr) -> Evaluator:
        return evaluator(part, memories, statement)

    match expr:
        case Const(value, dtype):
            literal = int(value) if dtype == index else np.asarray(value, dtype.numpy)
            return lambda lanes: literal
        case Var():
            return _variable(expr)
        case Read(source, indices):
            at = tuple(map(inner, indices))
            return lambda lanes: memories.load(source, tuple(as_index(i(lanes)) for i in at), lanes, statement)
        case Select(condition, a, b):
            return _select(inner(condition), inner(a), inner(b), expr.dtype)
        case Cast(a, dtype):
            value, before = inner(a), a.dtype
            return lambda lanes: _plain(evaluate_cast(_array(value(lanes), before), dtype), dtype)
        case Unary(op, a):
            value, before, counts = inner(a), a.dtype, _counts(expr)

            def unary(lanes: Lanes) -> Value:
                memories.operations += lanes.size * counts
                return _plain(evaluate_unary(op, _array(value(lanes), before)), expr.dtype)

            return unary
        case Binary(BinaryOp.AND, a, b) if a.dtype == boolean:
            return _select(inner(a), inner(b), lambda lanes: np.asarray(False), boolean)
        case Binary(BinaryOp.OR, a, b) if a.dtype == boolean:
            return _select(inner(a), lambda lanes: np.asarray(True), inner(b), boolean)
        case Binary(op, a, b):
            left, right, before, counts = inner(a), inner(b), a.dtype, _counts(expr)

            def binary(lanes: Lanes) -> Value:
                memories.operations += lanes.size * counts
                x, y = _array(left(lanes), before), _array(right(lanes), before)
                return _plain(evaluate_binary(op, x, y, before), expr.dtype)

            if before != index:
                return binary
            if op in (BinaryOp.FLOORDIV, BinaryOp.MOD) and not (isinstance(b, Const) and b.value):
                return binary
            return _on_indices(op, left, right, binary)
        case Check(position, size):
            at, extent = inner(position), inner(size)
            place = np.vectorize(expr.place, otypes=[np.int64])
            return lambda lanes: _plain(place(at(lanes), extent(lanes)), index)
        case _:
            raise BadProgram(f"{expr!r} is no scalar expression")


_DIRECT: "dict[BinaryOp, Callable[[int | Numbers, int | Numbers], int | Numbers]]" = {
    BinaryOp.ADD: lambda a, b: a + b,
    BinaryOp.SUB: lambda a, b: a - b,
    BinaryOp.MUL: lambda a, b: a * b,
    BinaryOp.FLOORDIV: lambda a, b: a // b,
    BinaryOp.MOD: lambda a, b: a % b,
}


def _on_indices(op: BinaryOp, left: Evaluator, right: Evaluator, general: Evaluator) -> Evaluator:
    """Sums and products of loop variables do not overflow in practice; they have a fast path."""
    direct = _DIRECT.get(op)
    return general if direct is None else lambda lanes: direct(as_index(left(lanes)), as_index(right(lanes)))


def _counts(expr: Expr) -> int:
    return int(expr.dtype not in (index, boolean))


def _variable(variable: Var) -> Evaluator:
    name = variable.unique

    def get(lanes: Lanes) -> Value:
        found = lanes.values.get(name)
        if found is None:
            raise BadProgram(f"variable {variable} has no value here")
        return found

    return get


def _select(condition: Evaluator, a: Evaluator, b: Evaluator, dtype: DType) -> Evaluator:
    def get(lanes: Lanes) -> Value:
        holds = as_mask(condition(lanes), lanes)
        if holds.all():
            return a(lanes)
        if not holds.any():
            return b(lanes)
        result = np.empty(lanes.size, dtype.numpy)
        result[holds] = a(lanes.only(holds))
        result[~holds] = b(lanes.only(~holds))
        return result

    return get


def as_mask(value: Value, lanes: Lanes) -> Mask:
    """A condition, for each lane."""
    return np.broadcast_to(np.asarray(value, np.bool_), (lanes.size,))


def as_index(value: Value) -> int | Numbers:
    """A number if it is equal for all lanes, else an array."""
    if isinstance(value, int):
        return value
    return value.astype(np.int64) if value.ndim else int(value)


def _array(value: Value, dtype: DType) -> Array:
    return np.asarray(value, dtype.numpy)


def _plain(value: Array, dtype: DType) -> Value:
    return int(value) if dtype == index and not value.ndim else value
