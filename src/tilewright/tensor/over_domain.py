"""Evaluates te programs over a domain of scalars, on many samples at once, to compare programs.

A te program for given shapes is compiled once to a list of array functions; indices become gathers with positions known
at compile time. Arrays have the shape of a tensor and, last, an axis of samples (or several, which broadcast): so a
gather moves whole rows of samples, and constants broadcast along them.

    program = DomainProgram([x], [y])
    (values,) = program([Modular(seed=0).random((2, 4, 1000), seed=1)], Modular(seed=0))   # of 1000 values of x

Elements of tensors are scalars of the domain. Integer and boolean expressions (indices, conditions) are evaluated as
integers and booleans.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial
from math import prod
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from tilewright.base import dtypes
from tilewright.base.arrays import Array
from tilewright.base.errors import BadProgram, OutOfBounds, Unsupported
from tilewright.symbolic.bounds import Bounds
from tilewright.symbolic.check import Check, clamped
from tilewright.symbolic.domain import IterVar
from tilewright.symbolic.evaluate import evaluate_binary, evaluate_unary
from tilewright.symbolic.expr import TRUE, Binary, Cast, Const, Expr, Read, Select, Unary
from tilewright.symbolic.operations import BinaryOp
from tilewright.symbolic.simplify import simplify
from tilewright.tensor.array_reduction import operation
from tilewright.tensor.domains import Domain
from tilewright.tensor.grid import Grid
from tilewright.tensor.ir import Compute, Operation, Placeholder, Reducer, Reduction, Tensor, topological_order

Shape: TypeAlias = tuple[int, ...]
_Step: TypeAlias = Callable[["_Run", slice], Array]
"""The value of an expression at some points of the reduction: ``[points, *spatial, *samples]``, or extents of 1."""
_Body: TypeAlias = Callable[["_Run"], Array]
"""The value of an operation: ``[*spatial, *samples]``, or extents of 1."""
_ONLY = slice(0, 1)
"""The points of an operation without a reduction."""
_AT_ONCE = 1 << 13
"""Maximum elements of the reduction points evaluated together: larger arrays bring no speed."""
_DOMAINS = 8
"""Number of domains for which a program's constants are cached."""


class DomainProgram:
    """A te program as a function of arrays, ``[*shape, *samples]`` each, over any domain.

    Raises ``BadProgram`` for unknown extents, ``Unsupported`` for a program without a value over a domain: bodies in
    loop IR, recurrences, indices that depend on data, arithmetic on infinities; some only when it is called. Raises
    ``OutOfBounds`` for a read outside of its tensor.
    """

    def __init__(self, inputs: Sequence[Tensor], outputs: Sequence[Tensor]) -> None:
        self._inputs = tuple(inputs)
        self._outputs = [((tensor.op, tensor.output), _extents(tensor)) for tensor in outputs]
        self._stages = [_Stage(op) for op in topological_order(outputs) if not isinstance(op, Placeholder)]

    def __call__(self, arrays: Sequence[Array], domain: Domain) -> list[Array]:
        run = _Run(domain)
        for tensor, array in zip(self._inputs, arrays, strict=True):
            samples = array.shape[tensor.ndim :]
            run.samples = tuple(map(max, samples, run.samples or samples))
            run.values[tensor.op, tensor.output] = np.ascontiguousarray(array.reshape(-1, *samples))
        with np.errstate(all="ignore"):
            for stage in self._stages:
                stage.run(run)
        return [run.whole(run.values[place], extents) for place, extents in self._outputs]


@dataclass(slots=True)
class _Run:
    """The state of a running program."""

    domain: Domain
    samples: Shape = ()
    """The sample axes of all inputs, broadcast together."""
    values: dict[tuple[Operation, int], Array] = field(default_factory=dict[tuple[Operation, int], Array])
    """Known values: flat arrays ``[elements, *samples]``."""

    def at(self, known: Array, points: slice) -> Array:
        """``known``, ``[points or 1, *spatial or 1]``, at some points of the reduction, for all samples."""
        here = known[points] if len(known) > 1 else known
        return here.reshape(*here.shape, *(1 for _ in self.samples))

    def whole(self, flat: Array, extents: Shape) -> Array:
        """A flat array in its shape, for all samples, also if it is the same for all: of what reads padding only."""
        return np.broadcast_to(flat.reshape(*extents, *flat.shape[1:]), (*extents, *(self.samples or flat.shape[1:])))

    def parts(self, points: int, elements: int) -> Iterator[slice]:
        """The points of a reduction whose result has ``elements`` elements per sample, in chunks."""
        step = max(1, _AT_ONCE // max(1, elements * prod(self.samples)))
        return (slice(start, min(start + step, points)) for start in range(0, points, step))


def _extents(tensor: Tensor) -> Shape:
    return tuple(map(_integer, tensor.shape))


class _Stage:
    """One operation: computes its outputs from known values."""

    def __init__(self, op: Operation) -> None:
        if not isinstance(op, Compute):
            raise Unsupported(f"{op.name} has no value over a domain: it is a recurrence, or has a body in loop IR")
        self._op = op
        self._shape = tuple(_integer(axis.extent) for axis in op.axes)
        lowering = _Lowering(op.axes, () if op.reduction is None else op.reduction.axes)
        if op.reduction is None:
            self._bodies = [_alone(lowering.step(body)) for body in op.bodies]
        else:
            self._bodies = [_reduced(op.name, op.reduction, lowering)]

    def run(self, run: _Run) -> None:
        """Add the results to what is known."""
        for output, body in enumerate(self._bodies):
            result = body(run)
            samples = result.shape[len(self._shape) :]
            full = (*self._shape, *samples)
            whole = result if result.shape == full else np.broadcast_to(result, full)
            run.values[self._op, output] = whole.reshape(prod(self._shape), *samples)


def _integer(extent: Expr) -> int:
    known = simplify(extent, Bounds({}))
    if not isinstance(known, Const):
        raise BadProgram(f"the extent {extent} is not known")
    return int(known.value)


# Reductions


def _alone(step: _Step) -> _Body:
    return lambda run: step(run, _ONLY)[0]


def _reduced(name: str, reduction: Reduction, lowering: "_Lowering") -> _Body:
    """The reduction over all its points."""
    if len(reduction.sources) != 1:
        raise Unsupported(f"{name} reduces several values together, which has no value over a domain")
    points, elements = lowering.points, lowering.elements
    identity = lowering.step(_identity(reduction.reducer))
    condition = None if reduction.condition == TRUE else lowering.integers(reduction.condition)
    source = reduction.sources[0]
    if not points:
        return _alone(identity)
    match operation(reduction.reducer), source:
        case None, _:
            raise Unsupported(
                f"the reducer {reduction.reducer.name} has no value over a domain: it is no single operation"
            )
        case BinaryOp.ADD, Binary(BinaryOp.MUL, a, b) if condition is None:
            left, right = _at_each(lowering.step(a)), lowering.step(b)
            return lambda run: run.domain.total_of_products(
                (left(run, part), right(run, part)) for part in run.parts(points, elements)
            )
        case combining, _:
            value = _at_each(_where(condition, lowering.step(source), identity))
            if combining is BinaryOp.ADD:
                return lambda run: run.domain.total(value(run, part) for part in run.parts(points, elements))
            return lambda run: _combined(
                name, combining, run.domain, (value(run, part) for part in run.parts(points, elements))
            )


def _at_each(step: _Step) -> _Step:
    """Values that are equal at all points are combined once per point, too."""

    def at_each(run: _Run, points: slice) -> Array:
        value, count = step(run, points), points.stop - points.start
        return value if len(value) == count else np.broadcast_to(value, (count, *value.shape[1:]))

    return at_each


def _identity(reducer: Reducer) -> Expr:
    match reducer.identities[0]:
        case Const(_, dtype) as number if dtype.is_float:
            return number
        case other:
            raise Unsupported(f"the reducer {reducer.name} starts from {other}, which is no number of a domain")


def _where(condition: Array | None, value: _Step, otherwise: _Step) -> _Step:
    if condition is None:
        return value
    return lambda run, p: np.where(run.at(condition, p), value(run, p), otherwise(run, p))


def _combined(name: str, operation: BinaryOp, domain: Domain, values: Iterable[Array]) -> Array:
    """Combine halves with halves: a logarithmic number of operations."""
    whole: Array | None = None
    for value in values:
        left = value if whole is None else np.concatenate([whole, value])
        while len(left) > 1:
            half = len(left) // 2
            combined = domain.binary(operation, left[:half], left[half : 2 * half])
            left = np.concatenate([combined, left[2 * half :]]) if len(left) % 2 else combined
        whole = left
    assert whole is not None, "there is at least one point"
    if not domain.is_finite(whole):
        raise Unsupported(f"{name} is infinite where nothing is reduced, which no domain computes with")
    return whole[0]


# Scalars


class _Lowering:
    """Expressions over a box, compiled to steps.

    An expression without reads is a constant array ``[points or 1, *spatial or 1]``; a float is one of a domain.
    """

    def __init__(self, spatial: Sequence[IterVar], reduced: Sequence[IterVar]) -> None:
        runs = {axis.var: range(_integer(axis.extent)) for axis in (*reduced, *spatial)}
        self.points = prod(len(runs[axis.var]) for axis in reduced)
        self.elements = prod(len(runs[axis.var]) for axis in spatial)
        self._inner = tuple(len(runs[axis.var]) for axis in reduced)
        self._grid = Grid(runs, {}, _no_source)

    def step(self, expr: Expr, active: Array | None = None) -> _Step:
        """``expr`` as a function; ``active`` says where its value is used, as far as known."""
        if not expr.has_reads:
            return self._constant(expr)
        match expr:
            case Read():
                return self._read(expr, active)
            case Cast(a, dtype):
                return self._cast(self.step(a, active), a.dtype, dtype, expr)
            case Unary(op, a):
                operand = self.step(a, active)
                if a.dtype.is_float:
                    return lambda run, p: run.domain.unary(op, operand(run, p))
                return lambda run, p: evaluate_unary(op, operand(run, p))
            case Binary(BinaryOp.DIV, a, b) if not b.has_reads:
                return self._binary(BinaryOp.MUL, self.step(a, active), self._inverse(b), a)
            case Binary(op, a, b):
                return self._binary(op, self.step(a, active), self.step(b, active), a)
            case Select(condition, a, b):
                return self._select(condition, a, b, active)
            case Check():  # random data are rarely in range; out of range, any value serves
                return self.step(clamped(expr), active)
            case _:
                raise Unsupported(f"{expr} has no value over a domain")

    def integers(self, expr: Expr) -> Array:
        """The value of an integer or a condition without reads."""
        if expr.has_reads:
            raise Unsupported(f"{expr} depends on data, but must be known")
        return self._placed(self._grid.evaluate(expr))

    def _known(self, expr: Expr, domain: Domain) -> Array:
        """The value of an expression without reads."""
        if not expr.dtype.is_float:
            return self.integers(expr)
        match expr:
            case Const(value):
                return self._placed(domain.constant(float(value)))
            case Cast(a, _) if a.dtype.is_float:
                return self._known(a, domain)
            case Cast(a, _):
                return domain.integers(self.integers(a))
            case Unary(op, a):
                return domain.unary(op, self._known(a, domain))
            case Binary(op, a, b):
                return domain.binary(op, self._known(a, domain), self._known(b, domain))
            case Select(condition, a, b):
                return np.where(self.integers(condition), self._known(a, domain), self._known(b, domain))
            case _:
                raise Unsupported(f"{expr} has no value over a domain")

    def _constant(self, expr: Expr) -> _Step:
        known = lru_cache(_DOMAINS)(partial(self._known, expr))
        return lambda run, p: run.at(known(run.domain), p)

    def _inverse(self, expr: Expr) -> _Step:
        @lru_cache(_DOMAINS)
        def known(domain: Domain) -> Array:
            return domain.binary(BinaryOp.DIV, domain.constant(1.0), self._known(expr, domain))

        return lambda run, p: run.at(known(run.domain), p)

    def _placed(self, array: Array) -> Array:
        """``[*reduced, *spatial]``, with extent 1 along axes on which it does not depend, in the layout of known
        values."""
        rank = len(self._inner)
        shaped = array.reshape((1,) * len(self._grid.shape)) if array.ndim == 0 else array
        varies = any(extent > 1 for extent in shaped.shape[:rank])
        outer = self._inner if varies else (1,) * rank
        return np.broadcast_to(shaped, (*outer, *shaped.shape[rank:])).reshape(prod(outer), *shaped.shape[rank:])

    def _cast(self, value: _Step, source: dtypes.DType, target: dtypes.DType, expr: Expr) -> _Step:
        if source.is_float and target.is_float:
            return value
        if not source.is_float and target.is_float:
            return lambda run, p: run.domain.integers(value(run, p))
        if source == target:
            return value
        raise Unsupported(f"{expr} makes {target} of data, which has no value over a domain")

    def _binary(self, op: BinaryOp, left: _Step, right: _Step, a: Expr) -> _Step:
        if a.dtype.is_float:
            return lambda run, p: run.domain.binary(op, left(run, p), right(run, p))
        return lambda run, p: evaluate_binary(op, left(run, p), right(run, p), a.dtype)

    def _select(self, condition: Expr, a: Expr, b: Expr, active: Array | None) -> _Step:
        if condition.has_reads:
            chosen, first, second = self.step(condition, active), self.step(a, active), self.step(b, active)
            return lambda run, p: np.where(chosen(run, p), first(run, p), second(run, p))
        where = self.integers(condition)
        if where.all() or not where.any():
            return self.step(a if where.all() else b, active)
        counts = np.ones_like(where) if active is None else active
        first = self.step(a, np.logical_and(counts, where))
        second = self.step(b, np.logical_and(counts, np.logical_not(where)))
        return lambda run, p: np.where(run.at(where, p), first(run, p), second(run, p))

    def _read(self, read: Read, active: Array | None) -> _Step:
        tensor = read.source
        if not isinstance(tensor, Tensor) or not tensor.dtype.is_float:
            raise Unsupported(f"{read} is no float, which has no value over a domain")
        if any(index.has_reads for index in read.indices):
            raise Unsupported(f"{read} is read at a place that depends on data")
        key, extents = (tensor.op, tensor.output), _extents(tensor)
        places = self._places(read, extents, active)
        if len(places) == 1 and np.array_equal(places[0].reshape(-1), np.arange(prod(extents))):
            return lambda run, _: run.values[key].reshape(*places.shape, *run.values[key].shape[1:])
        if len(places) == 1:
            return lambda run, _: run.values[key].take(places, 0)
        return lambda run, p: run.values[key].take(places[p], 0)

    def _places(self, read: Read, extents: Shape, active: Array | None) -> NDArray[np.intp]:
        """The row-major offset of the element read at each point: ``[points or 1, *spatial or 1]``."""
        flat = np.zeros((1,) * (1 + len(self._grid.shape) - len(self._inner)), np.intp)
        for index, extent in zip(read.indices, extents, strict=True):
            place = self.integers(index).astype(np.intp)
            outside = np.less(place, 0) | np.greater_equal(place, extent)
            if outside.any():
                if active is None or np.logical_and(outside, active).any():
                    raise OutOfBounds(f"{read}: {index} is outside of 0 .. {extent - 1}")
                place = np.clip(place, 0, max(0, extent - 1))
            flat = flat * extent + place
        return flat


def _no_source(source: object) -> Array:
    raise BadProgram(f"{source} is read where nothing may be")
