"""Operators and terms evaluated on many samples at once, over a domain of scalars.

The te program that an operator returns for given shapes is compiled once to a list of array functions; indices become
gathers whose places are known when it is compiled. Arrays have the shape of a tensor and, last, an axis of samples (or
several, which broadcast): so what is gathered are whole rows of samples, and constants broadcast along it.

    evaluator = Evaluator(Modular(seed=0))
    x = evaluator.domain.random((2, 4, 1000), seed=1)      # 1000 matrices of 2 rows and 4 columns
    (y,) = evaluator.function(require("Transpose"), {"perm": (1, 0)}, [(2, 4)])([x])

Tensors are floats: rules are about numbers that are added and multiplied. Integer and boolean expressions (indices,
conditions) are evaluated as what they are.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial
from math import prod
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from tilewright.base import dtypes
from tilewright.base.arrays import Array
from tilewright.base.errors import BadProgram, OutOfBounds, Unsupported
from tilewright.base.exact import Exact
from tilewright.ops import Attribute, Operator
from tilewright.ops.operator import map_expressions
from tilewright.ops.shapes import simplified, static
from tilewright.passes.rules.terms import Apply, Number, Term, Variable
from tilewright.superopt.domains import Domain
from tilewright.superopt.places import Work, work
from tilewright.symbolic.check import Check, clamped
from tilewright.symbolic.domain import IterVar
from tilewright.symbolic.evaluate import evaluate_binary, evaluate_unary
from tilewright.symbolic.expr import TRUE, Binary, Cast, Const, Expr, Read, Select, Unary, Var, const
from tilewright.symbolic.operations import BinaryOp
from tilewright.symbolic.traversal import substitute
from tilewright.tensor.build import placeholder
from tilewright.tensor.grid import Grid
from tilewright.tensor.ir import Compute, Operation, Placeholder, Reducer, Reduction, Tensor, topological_order

Shape: TypeAlias = tuple[int, ...]
Function: TypeAlias = Callable[[Sequence[Array]], list[Array]]
"""From one array for each input, ``[*shape, samples]``, to one for each result."""
_Key: TypeAlias = tuple[Operator, Exact[tuple[tuple[str, Attribute], ...]], tuple[Shape, ...]]
_Step: TypeAlias = Callable[["_Run", slice], Array]
"""The value of an expression at some points of the reduction: ``[points, *spatial, *samples]``, or extents of 1."""
_Body: TypeAlias = Callable[["_Run"], Array]
"""The value of an operation: ``[*spatial, *samples]``, or extents of 1."""
_ONLY = slice(0, 1)
"""The points where nothing is reduced."""
_AT_ONCE = 1 << 13
"""Points of a reduction are taken together up to so many elements: more of them fill arrays by themselves."""
_DOMAINS = 8
"""Over so many domains, the constants of a program are kept."""


@dataclass(frozen=True, slots=True)
class Evaluator:
    """Operators and terms over one domain."""

    domain: Domain

    def function(self, op: Operator, attributes: Mapping[str, Attribute], shapes: Sequence[Shape]) -> Function:
        """``op`` on inputs of ``shapes``.

        Raises ``BadProgram`` if they do not fit the operator, ``Unsupported`` for a program that has no value over a
        domain: bodies in loop IR, recurrences, indices that depend on data, arithmetic on infinities; some of these
        only when it is called.
        """
        compiled = _compiled(*_key(op, attributes, shapes))
        return lambda arrays: compiled(arrays, self.domain)

    def apply(self, op: Operator, attributes: Mapping[str, Attribute], arrays: Sequence[Array]) -> list[Array]:
        """The results of ``op``. Raises as ``function`` does."""
        found, compiled = _prepared(*_key(op, attributes, [array.shape[:-1] for array in arrays]))
        if found is None:
            return compiled(arrays, self.domain)
        inside = [view.of(array) for view, array in zip(found.inside, arrays, strict=True)]
        return [found.outside.of(result) for result in compiled(inside, self.domain)]

    def term(self, term: Term, bindings: "Bindings", known: dict[Term, Array] | None = None) -> Array:
        """The value of a term; ``known`` holds the values of its parts, and is extended.

        Raises as ``function`` does, and ``BadProgram`` for what ``bindings`` does not know.
        """
        values = {} if known is None else known
        if term not in values:
            values[term] = self._value(term, bindings, values)
        return values[term]

    def _value(self, term: Term, bindings: "Bindings", known: dict[Term, Array]) -> Array:
        match term:
            case Number(value):
                return self.domain.constant(value).reshape(1)
            case Variable(name):
                if name not in bindings.values:
                    raise BadProgram(f"no value is given for the variable {name}")
                return bindings.values[name]
            case Apply(op, operands, _, _, output):
                arrays = [self.term(operand, bindings, known) for operand in operands]
                results = self.apply(op, bindings.attributes(term), arrays)
                if output >= len(results):
                    raise BadProgram(f"{op} has {len(results)} results; there is no .{output}")
                return results[output]


def _key(op: Operator, attributes: Mapping[str, Attribute], shapes: Sequence[Shape]) -> _Key:
    return op, Exact(tuple(sorted(attributes.items()))) if attributes else _NONE, tuple(shapes)


_NONE: Exact[tuple[tuple[str, Attribute], ...]] = Exact(())


@lru_cache(maxsize=4096)
def _prepared(
    op: Operator, attributes: Exact[tuple[tuple[str, Attribute], ...]], shapes: tuple[Shape, ...]
) -> "tuple[Work | None, Compiled]":
    """Where ``op`` works, and its program there."""
    found = work(op, dict(attributes.value), shapes)
    if found is None:
        return None, _compiled(op, attributes, shapes)
    return found, _compiled(*_key(op, found.attributes, found.shapes))


@lru_cache(maxsize=1024)
def _compiled(
    op: Operator, attributes: Exact[tuple[tuple[str, Attribute], ...]], shapes: tuple[Shape, ...]
) -> "Compiled":
    inputs = [placeholder(shape, dtypes.f64, f"x{i}") for i, shape in enumerate(shapes)]
    return Compiled(inputs, op.apply(inputs, dict(attributes.value)))


@dataclass(frozen=True, slots=True)
class Bindings:
    """What the names in a rule stand for."""

    values: Mapping[str, Array]
    """Of variables, ``[*shape, samples]``."""
    symbols: Mapping[Var, int] = field(default_factory=dict[Var, int])
    rests: Mapping[str, Mapping[str, Attribute]] = field(default_factory=dict[str, Mapping[str, Attribute]])
    """The attributes that ``**name`` stands for."""

    def attributes(self, term: Apply) -> dict[str, Attribute]:
        """Those of ``term``, with integers for symbols. Raises ``BadProgram`` for a name that is not bound."""
        if term.rest is not None and term.rest not in self.rests:
            raise BadProgram(f"no attributes are given for **{term.rest}")
        written = {name: map_expressions(value, self.integer) for name, value in term.attributes}
        return written if term.rest is None else {**self.rests[term.rest], **written}

    def integer(self, value: Expr) -> int:
        """An expression over symbols. Raises ``BadProgram`` for one that is not bound."""
        known = self.symbols.get(value) if isinstance(value, Var) else None
        if known is not None:  # mostly it is one
            return known
        given = {symbol: const(self.symbols[symbol]) for symbol in value.variables if symbol in self.symbols}
        number = simplified(substitute(value, given))
        if not isinstance(number, Const):
            raise BadProgram(f"{value} has a symbol that is not bound")
        return int(number.value)


class Compiled:
    """A te program as a function of arrays, ``[*shape, *samples]`` each, over any domain."""

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
        flat = [(run.values[place], extents) for place, extents in self._outputs]
        return [array.reshape(*extents, *array.shape[1:]) for array, extents in flat]


@dataclass(slots=True)
class _Run:
    """A program while it is run."""

    domain: Domain
    samples: Shape = ()
    """Of all inputs together."""
    values: dict[tuple[Operation, int], Array] = field(default_factory=dict[tuple[Operation, int], Array])
    """What is known: flat arrays ``[elements, *samples]``."""

    def at(self, known: Array, points: slice) -> Array:
        """``known``, ``[points or 1, *spatial or 1]``, at some points of the reduction, for all samples."""
        here = known[points] if len(known) > 1 else known
        return here.reshape(*here.shape, *(1 for _ in self.samples))

    def parts(self, points: int, elements: int) -> Iterator[slice]:
        """The points of a reduction whose result has ``elements`` of each sample, a few at a time."""
        step = max(1, _AT_ONCE // max(1, elements * prod(self.samples)))
        return (slice(start, min(start + step, points)) for start in range(0, points, step))


def _extents(tensor: Tensor) -> Shape:
    extents = static(tensor.shape)
    if extents is None:
        raise BadProgram(f"{tensor!r} has no concrete shape")
    return extents


class _Stage:
    """One operation: what it makes of what is known."""

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
    known = simplified(extent)
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
    match _operation(reduction.reducer), source:
        case BinaryOp.ADD, Binary(BinaryOp.MUL, a, b) if condition is None:
            left, right = _at_each(lowering.step(a)), lowering.step(b)
            return lambda run: run.domain.total_of_products(
                (left(run, part), right(run, part)) for part in run.parts(points, elements)
            )
        case operation, _:
            value = _at_each(_where(condition, lowering.step(source), identity))
            if operation is BinaryOp.ADD:
                return lambda run: run.domain.total(value(run, part) for part in run.parts(points, elements))
            return lambda run: _combined(
                name, operation, run.domain, (value(run, part) for part in run.parts(points, elements))
            )


def _at_each(step: _Step) -> _Step:
    """Also what is the same at all points, once for each."""

    def at_each(run: _Run, points: slice) -> Array:
        value, count = step(run, points), points.stop - points.start
        return value if len(value) == count else np.broadcast_to(value, (count, *value.shape[1:]))

    return at_each


def _operation(reducer: Reducer) -> BinaryOp:
    """The operation that combines two partial results."""
    match reducer.results:
        case (Binary(op, a, b),) if {a, b} == {*reducer.left, *reducer.right}:
            return op
        case _:
            raise Unsupported(f"the reducer {reducer.name} has no value over a domain: it is no single operation")


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
    """Halves with halves: as many operations as a number has binary digits."""
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

    What reads nothing is known: an array ``[points or 1, *spatial or 1]``; of a float, over a domain.
    """

    def __init__(self, spatial: Sequence[IterVar], reduced: Sequence[IterVar]) -> None:
        runs = {axis.var: range(_integer(axis.extent)) for axis in (*reduced, *spatial)}
        self.points = prod(len(runs[axis.var]) for axis in reduced)
        self.elements = prod(len(runs[axis.var]) for axis in spatial)
        self._inner = tuple(len(runs[axis.var]) for axis in reduced)
        self._grid = Grid(runs, {}, _no_source)

    def step(self, expr: Expr, active: Array | None = None) -> _Step:
        """``expr`` as a function; ``active`` says where its value counts, as far as that is known."""
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
            case Check():  # random data are rarely in range: where they are not, any value serves as well as another
                return self.step(clamped(expr), active)
            case _:
                raise Unsupported(f"{expr} has no value over a domain")

    def integers(self, expr: Expr) -> Array:
        """The value of an integer or a condition that reads nothing."""
        if expr.has_reads:
            raise Unsupported(f"{expr} depends on data, but must be known")
        return self._placed(self._grid.evaluate(expr))

    def _known(self, expr: Expr, domain: Domain) -> Array:
        """The value of what reads nothing."""
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
        """``[*reduced, *spatial]`` with extents of 1 where it does not vary, as what is known."""
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
        """The row-major number of the element that is read at each point: ``[points or 1, *spatial or 1]``."""
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
