"""Evaluates tensor expressions with NumPy: for constant folding, and as the reference of compiled code.

    (y,) = evaluate([relu], {x: np.array([-1, 2], np.float32)})

Operations run one after the other. Large ones run in chunks, so that index arrays and intermediate values stay small;
``grid.py`` has the values at the points of a chunk, ``array_reduction.py`` the reductions.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from math import prod
from typing import TypeAlias

import numpy as np

from tilewright.base import dtypes
from tilewright.base.arrays import Array
from tilewright.base.dtypes import DType
from tilewright.base.errors import BadFeed, BadProgram, Unsupported
from tilewright.symbolic.domain import IterVar
from tilewright.symbolic.expr import Expr, Source, Var
from tilewright.symbolic.traversal import free_vars
from tilewright.tensor.array_reduction import combined, combiner, factors, identities, product
from tilewright.tensor.grid import Grid
from tilewright.tensor.ir import (
    Compute,
    Extern,
    Operation,
    Placeholder,
    Reduction,
    Scan,
    Tensor,
    inputs_of,
    topological_order,
)
from tilewright.tensor.scan import recurrent_operations

ExternInterpreter: TypeAlias = Callable[[Extern, Sequence[Array]], Sequence[Array]]
"""Interprets an extern's body on the arrays of its inputs: passed in, as loop IR is one layer up."""

_Key: TypeAlias = tuple[Operation, int]
_Box: TypeAlias = dict[Var, range]

CHUNK = 1 << 20
"""Maximum elements of an intermediate value: a few megabytes, as many of them live at once."""
OPERAND = 1 << 24
"""Maximum elements of an operand of a matrix product; larger, as it is usually a view."""


def evaluate(
    outputs: Sequence[Tensor],
    feeds: Mapping[Tensor, Array],
    dims: Mapping[Var, int] | None = None,
    extern: ExternInterpreter | None = None,
) -> list[Array]:
    """The values of ``outputs`` where the tensors in ``feeds`` have the given values.

    Any tensor may be fed, an input or an intermediate one. ``dims`` gives run-time extents; those in the shape of a fed
    tensor are inferred. Raises ``BadFeed`` if a feed is missing or does not fit its tensor, ``BadProgram`` if an extent
    is unknown, ``OutOfBounds`` for a read outside its tensor, and ``Unsupported`` for an extern without an interpreter.
    """
    evaluation = _Evaluation(dict(dims or {}), extern)
    for tensor, array in feeds.items():
        evaluation.feed(tensor, array)
    with np.errstate(all="ignore"):
        for op in _needed(outputs, evaluation.arrays):
            evaluation.run(op)
    return [evaluation.arrays[tensor.op, tensor.output] for tensor in outputs]


def _needed(outputs: Sequence[Tensor], known: Mapping[_Key, Array]) -> list[Operation]:
    """The operations to run, producers first, for tensors that are not ``known``."""
    wanted = {t.op for t in outputs if (t.op, t.output) not in known}
    order: list[Operation] = []
    for op in reversed(topological_order(outputs)):
        if op in wanted:
            order.append(op)
            wanted.update(t.op for t in _prerequisites(op) if (t.op, t.output) not in known)
    return order[::-1]


def _prerequisites(op: Operation) -> Iterable[Tensor]:
    """The operands that must be known before ``op`` runs; a scan computes its states and their dependents itself."""
    if not isinstance(op, Scan):
        return inputs_of(op)
    inside = recurrent_operations(op)
    own = {*inside, *(state.op for state in op.state)}
    return [t for t in (*inputs_of(op), *(t for step in inside for t in inputs_of(step))) if t.op not in own]


class _Evaluation:
    """Known values, by operation and output."""

    def __init__(self, dims: dict[Var, int], extern: ExternInterpreter | None) -> None:
        self.arrays: dict[_Key, Array] = {}
        self._dims = dims
        self._extern = extern

    def feed(self, tensor: Tensor, array: Array) -> None:
        if dtypes.from_numpy(array.dtype) != tensor.dtype or array.ndim != tensor.ndim:
            raise BadFeed(f"{tensor!r} can't be {array.dtype}{list(array.shape)}")
        for extent, size in zip(tensor.shape, array.shape, strict=True):
            known = self._dims.setdefault(extent, size) if isinstance(extent, Var) else self._extent(extent)
            if known != size:
                raise BadFeed(f"{tensor!r} can't have the shape {list(array.shape)}: {extent} is {known}")
        self.arrays[tensor.op, tensor.output] = array

    def run(self, op: Operation) -> None:
        """Compute the outputs of ``op``, whose inputs are known."""
        match op:
            case Placeholder():
                raise BadFeed(f"no value is given for the input {op.name}")
            case Compute():
                self._keep(op, self._compute(op, self._box(op.axes)))
            case Scan():
                self._keep(op, self._scan(op))
            case Extern():
                if self._extern is None:
                    raise Unsupported(f"{op.name} has a body in loop IR; evaluate it with extern=")
                self._keep(op, self._extern(op, [self._array(t) for t in op.inputs]))

    def _keep(self, op: Operation, results: Sequence[Array]) -> None:
        self.arrays.update(((op, output), result) for output, result in enumerate(results))

    def _array(self, source: Source) -> Array:
        if not isinstance(source, Tensor):
            raise BadProgram(f"{source.name} is a buffer; a tensor expression reads tensors")
        return self.arrays[source.op, source.output]

    def _extent(self, extent: Expr) -> int:
        return int(self._grid({}).evaluate(extent).item())

    def _grid(self, box: _Box) -> Grid:
        return Grid(box, self._dims, self._array)

    def _box(self, axes: Sequence[IterVar]) -> _Box:
        return {axis.var: range(self._extent(axis.extent)) for axis in axes}

    # Computations

    def _compute(self, op: Compute, box: _Box) -> list[Array]:
        """All outputs of ``op`` at the points of ``box``."""
        if op.reduction is not None:
            return self._reduce(op.reduction, box)
        results = [np.empty([len(run) for run in box.values()], body.dtype.numpy) for body in op.bodies]
        for chunk in _chunks(box, [frozenset(box)], CHUNK):
            grid = self._grid(chunk)
            for result, body in zip(results, op.bodies, strict=True):
                result[_place(chunk, box)] = grid.evaluate(body)
        return results

    def _reduce(self, reduction: Reduction, spatial: _Box) -> list[Array]:
        rank, pair = len(spatial), factors(reduction)
        combine = combiner(reduction.reducer)
        shape = [len(run) for run in spatial.values()]
        results = [np.full(shape, neutral) for neutral in identities(reduction.reducer)]
        for chunk in _reduction_chunks(spatial | self._box(reduction.axes), reduction, pair):
            grid = self._grid(chunk)
            partial = combined(grid, reduction, rank) if pair is None else [product(grid, *pair, rank)]
            where = _place(chunk, spatial)
            for result, value in zip(results, combine(*(r[where] for r in results), *partial), strict=True):
                result[where] = value
        return results

    # Recurrences

    def _scan(self, op: Scan) -> list[Array]:
        """Row by row: a step computes one row of all operations that depend on the state."""
        inside = recurrent_operations(op)
        for tensor in op.state:
            self.arrays[tensor.op, tensor.output] = self._zeros(tensor.shape, tensor.dtype)
        states = [self._array(tensor) for tensor in op.state]
        for state, init in zip(states, op.init, strict=True):
            state[: len(self._array(init))] = self._array(init)
        for row in range(len(self._array(op.init[0])), len(states[0])):
            for step in inside:
                self._step(step, row)
            for state, update in zip(states, op.update, strict=True):
                state[row] = self._array(update)[row]
        return states

    def _step(self, op: Compute, row: int) -> None:
        time, *rest = op.axes
        for output, value in enumerate(self._compute(op, {time.var: range(row, row + 1), **self._box(rest)})):
            if (op, output) not in self.arrays:
                self.arrays[op, output] = self._zeros([axis.extent for axis in op.axes], op.values[output].dtype)
            self.arrays[op, output][row] = value[0]

    def _zeros(self, shape: Sequence[Expr], dtype: DType) -> Array:
        return np.zeros([self._extent(extent) for extent in shape], dtype.numpy)


def _reduction_chunks(box: _Box, reduction: Reduction, pair: tuple[Expr, Expr] | None) -> Iterator[_Box]:
    """Parts of ``box`` in which the reduced value, or the operands of the product, are not too large."""
    if pair is not None:
        return _chunks(box, [free_vars(factor) for factor in pair], OPERAND)
    used = (free_vars(e) for e in (*reduction.sources, reduction.condition))
    return _chunks(box, [frozenset[Var]().union(*used)], CHUNK)


def _chunks(box: _Box, used: Sequence[frozenset[Var]], limit: int) -> Iterator[_Box]:
    """Parts of ``box`` in which no value over the axes ``used`` has more than ``limit`` elements."""
    sizes = [prod(len(run) for axis, run in box.items() if axis in axes) for axes in used]
    largest = max(range(len(sizes)), key=lambda position: sizes[position], default=None)
    if largest is None or sizes[largest] <= limit:
        yield box
        return
    axis = next(axis for axis, run in box.items() if axis in used[largest] and len(run) > 1)
    run = box[axis]
    step = max(1, limit * len(run) // sizes[largest])
    for start in range(run.start, run.stop, step):
        yield from _chunks(box | {axis: range(start, min(start + step, run.stop))}, used, limit)


def _place(chunk: _Box, box: _Box) -> tuple[slice, ...]:
    """The slices of the part ``chunk`` in an array over ``box``."""
    return tuple(slice(chunk[axis].start - run.start, chunk[axis].stop - run.start) for axis, run in box.items())
