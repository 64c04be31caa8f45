"""Evaluates scalar expressions on a box of index points as NumPy arrays.

Every result broadcasts to the box: axes on which the value does not depend have extent 1. A read along axes with
constant strides is a view of its source; only an index that depends on data or on several axes gathers.

Inactive parts (the other side of a ``Select``, the right side of a false ``&``) are evaluated with clamped indices, and
their values discarded; an index out of range at an active point raises.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from tilewright.base import dtypes
from tilewright.base.arrays import Array
from tilewright.base.errors import BadProgram, OutOfBounds
from tilewright.symbolic.check import Check
from tilewright.symbolic.evaluate import evaluate_binary, evaluate_cast, evaluate_unary
from tilewright.symbolic.expr import Binary, Cast, Const, Expr, Read, Select, Source, Unary, Var
from tilewright.symbolic.operations import BinaryOp
from tilewright.symbolic.traversal import free_vars

Ranges: TypeAlias = Mapping[Var, range]
"""The axes of a box, in order, with their ranges."""


@dataclass(frozen=True, slots=True)
class _Stride:
    """The index ``start + step * axis``; without an axis, ``start``."""

    axis: Var | None
    start: int
    step: int


class Grid:
    """Evaluates expressions over the axes of ``ranges`` and over the scalars of ``values``.

    ``source_of`` gives the array behind a tensor or buffer. Shared subexpressions are evaluated once.
    """

    def __init__(self, ranges: Ranges, values: Mapping[Var, int], source_of: Callable[[Source], Array]) -> None:
        self._ranges = ranges
        self._position = {axis: position for position, axis in enumerate(ranges)}
        self._values = values
        self._source_of = source_of
        self._active: list[Array] = []
        self._known: dict[tuple[int | None, Expr], Array] = {}

    @property
    def shape(self) -> tuple[int, ...]:
        """The extents of the box."""
        return tuple(map(len, self._ranges.values()))

    def evaluate(self, expr: Expr, active: Array | None = None) -> Array:
        """``expr`` at all points; ``active``: the points at which the value is used (None: all).

        The result has the rank of the box. Raises ``OutOfBounds`` for a read outside its source at an active point, and
        ``BadProgram`` for an unknown variable.
        """
        if active is not None and not any(active is known for known in self._active):
            self._active.append(active)  # kept alive, so that its id is not reused
        key = (None if active is None else id(active), expr)
        found = self._known.get(key)
        if found is None:
            found = np.asarray(self._evaluate(expr, active))
            if found.ndim != len(self._ranges):
                found = found.reshape((1,) * len(self._ranges))
            self._known[key] = found
        return found

    def _evaluate(self, expr: Expr, active: Array | None) -> Array:
        match expr:
            case Const(value, dtype):
                return np.asarray(value, dtype.numpy)
            case Var():
                return self._variable(expr)
            case Unary(op, a):
                return evaluate_unary(op, self.evaluate(a, active))
            case Binary(BinaryOp.AND | BinaryOp.OR, a, b) if a.dtype.is_bool:
                return self._short_circuit(expr.op, a, b, active)
            case Binary(op, a, b):
                return evaluate_binary(op, self.evaluate(a, active), self.evaluate(b, active), a.dtype)
            case Cast(a, dtype):
                return evaluate_cast(self.evaluate(a, active), dtype)
            case Select(condition, a, b):
                return self._select(condition, a, b, active)
            case Read():
                return self._read(expr, active)
            case Check(index, extent):
                return self._check(expr, self.evaluate(index, active), self.evaluate(extent, active), active)
            case _:
                raise BadProgram(f"{expr} has no value at an index point")

    def _variable(self, variable: Var) -> Array:
        if variable in self._values:
            return np.asarray(self._values[variable], variable.dtype.numpy)
        if variable not in self._position:
            raise BadProgram(f"variable {variable} is neither an axis nor a known extent; give it by dims=")
        run = self._ranges[variable]
        return self._placed(np.arange(run.start, run.stop, dtype=variable.dtype.numpy), [self._position[variable]])

    def _short_circuit(self, op: BinaryOp, a: Expr, b: Expr, active: Array | None) -> Array:
        left = self.evaluate(a, active)
        undecided = left if op is BinaryOp.AND else np.logical_not(left)
        return evaluate_binary(op, left, self.evaluate(b, _both(active, undecided)), dtypes.boolean)

    def _select(self, condition: Expr, a: Expr, b: Expr, active: Array | None) -> Array:
        chosen = self.evaluate(condition, active)
        if chosen.size == 1:
            return self.evaluate(a if chosen.item() else b, active)
        other = np.logical_not(chosen)
        return np.where(chosen, self.evaluate(a, _both(active, chosen)), self.evaluate(b, _both(active, other)))

    def _check(self, check: Check, index: Array, extent: Array, active: Array | None) -> Array:
        """The positions that ``index`` denotes; at inactive points, any valid ones."""
        index, extent = np.broadcast_arrays(index, extent)
        place = np.where(np.less(index, 0), np.add(index, extent), index) if check.from_end else index
        outside = np.less(place, 0) | np.greater_equal(place, extent)
        wrong = outside if active is None else np.logical_and(outside, active)
        if wrong.any():
            check.place(*(int(np.broadcast_to(each, wrong.shape)[wrong][0]) for each in (index, extent)))
        return np.where(outside, index.dtype.type(0), place)

    # Reads

    def _read(self, read: Read, active: Array | None) -> Array:
        """A view along the dimensions read with a constant stride; the others are gathered."""
        array = self._source_of(read.source)
        views = self._view_dimensions(read, array.shape)
        gathered = [dim for dim in range(array.ndim) if dim not in views]
        key = tuple(self._slice(views[dim]) if dim in views else slice(None) for dim in range(array.ndim))
        axes = [stride.axis for stride in views.values() if stride.axis is not None]
        view = array[key]
        kept = [dim for dim in range(array.ndim) if dim in gathered or views[dim].axis is not None]
        order = [kept.index(dim) for dim in (*gathered, *(d for d, s in views.items() if s.axis is not None))]
        view = view.transpose(order)
        positions = [self._position[axis] for axis in axes]
        if not gathered:
            return self._placed(view, positions)
        indices = [self._index(read, dim, array.shape[dim], active) for dim in gathered]
        return self._placed(*self._gather(view, indices, positions))

    def _view_dimensions(self, read: Read, shape: Sequence[int]) -> dict[int, _Stride]:
        """The dimensions that are read along one axis of their own, or at one index, within the source."""
        found: dict[int, _Stride] = {}
        for dim, index in enumerate(read.indices):
            stride = self._stride(index)
            if stride is not None and self._within(stride, shape[dim]):
                taken = stride.axis is not None and any(stride.axis == other.axis for other in found.values())
                found.update({} if taken else {dim: stride})
        return self._without_clashes(read, found)

    def _without_clashes(self, read: Read, found: dict[int, _Stride]) -> dict[int, _Stride]:
        """An axis on which a gathered index also depends is gathered as well."""
        gathered = {v for dim, index in enumerate(read.indices) if dim not in found for v in free_vars(index)}
        kept = {dim: stride for dim, stride in found.items() if stride.axis not in gathered}
        return kept if len(kept) == len(found) else self._without_clashes(read, kept)

    def _stride(self, index: Expr) -> _Stride | None:
        match index:
            case Const(value):
                return _Stride(None, int(value), 0)
            case Var() if index in self._values:
                return _Stride(None, self._values[index], 0)
            case Var() if index in self._position:
                return _Stride(index, 0, 1)
            case Binary(BinaryOp.ADD, a, Const(value)):
                return _moved(self._stride(a), int(value), 1)
            case Binary(BinaryOp.SUB, a, Const(value)):
                return _moved(self._stride(a), -int(value), 1)
            case Binary(BinaryOp.MUL, a, Const(value)):
                return _moved(self._stride(a), 0, int(value))
            case _:
                return None

    def _ends(self, stride: _Stride) -> tuple[int, int, int]:
        """The first and the last index, and their number."""
        run = range(1) if stride.axis is None else self._ranges[stride.axis]
        return stride.start + stride.step * run.start, stride.start + stride.step * (run.stop - 1), len(run)

    def _within(self, stride: _Stride, extent: int) -> bool:
        first, last, count = self._ends(stride)
        return (stride.axis is None or stride.step != 0) and (
            count == 0 or 0 <= min(first, last) <= max(first, last) < extent
        )

    def _slice(self, stride: _Stride) -> slice | int:
        if stride.axis is None:
            return stride.start
        first, last, count = self._ends(stride)
        if count == 0:
            return slice(0, 0)
        end = last + (1 if stride.step > 0 else -1)
        return slice(first, None if end < 0 else end, stride.step)

    def _index(self, read: Read, dim: int, extent: int, active: Array | None) -> NDArray[np.int64]:
        """The index of a gathered dimension, clamped to its range."""
        index = self.evaluate(read.indices[dim], active).astype(np.int64, copy=False)
        outside = np.less(index, 0) | np.greater_equal(index, extent)
        if not outside.any():
            return index
        wrong = outside if active is None else np.logical_and(outside, active)
        if wrong.any():
            value = np.broadcast_to(index, wrong.shape)[wrong][0]
            raise OutOfBounds(f"{read}: index {value} of dimension {dim} is outside of 0 .. {extent - 1}")
        return np.clip(index, 0, max(0, extent - 1))

    def _gather(
        self, view: Array, indices: Sequence[NDArray[np.int64]], positions: Sequence[int]
    ) -> tuple[Array, list[int]]:
        """``view`` (gathered dimensions first, the others along ``positions``) at ``indices``; where its axes lie."""
        free = [position for position in range(len(self._ranges)) if position not in positions]
        shaped = [index.squeeze(tuple(positions)) for index in indices]
        if 0 in view.shape[: len(indices)]:  # the source is empty: no active point reads it
            shape = np.broadcast_shapes(*(index.shape for index in shaped))
            return np.zeros((*shape, *view.shape[len(indices) :]), view.dtype), [*free, *positions]
        return view[tuple(shaped)], [*free, *positions]

    def _placed(self, array: Array, positions: Sequence[int]) -> Array:
        """``array`` with its dimensions at ``positions`` of the box, and extent 1 at all others."""
        ordered = array.transpose([positions.index(p) for p in sorted(positions)])
        return ordered[tuple(slice(None) if p in positions else None for p in range(len(self._ranges)))]


def _moved(stride: _Stride | None, offset: int, factor: int) -> _Stride | None:
    if stride is None:
        return None
    return _Stride(stride.axis, stride.start * factor + offset, stride.step * factor)


def _both(active: Array | None, condition: Array) -> Array:
    return condition if active is None else np.logical_and(active, condition)
