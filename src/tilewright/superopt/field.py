"""Operators and terms evaluated on many samples at once, over a domain of scalars.

The te program that an operator returns for given shapes is compiled once to a list of array functions; indices become
gathers whose places are known when it is compiled. Arrays have the shape of a tensor and, last, an axis of samples:
so what is gathered are whole rows of samples, and constants broadcast along it.

    evaluator = Evaluator(Modular(seed=0))
    x = evaluator.domain.random((2, 4, 1000), seed=1)      # 1000 matrices of 2 rows and 4 columns
    (y,) = evaluator.function(require("Transpose"), {"perm": (1, 0)}, [(2, 4)])([x])

Tensors are floats: rules are about numbers that are added and multiplied. Integer and boolean expressions (indices,
conditions) are evaluated as what they are.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
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
from tilewright.superopt.places import work
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
_Values: TypeAlias = dict[tuple[Operation, int], Array]
"""What is known of a program: flat arrays ``[elements, samples]``."""
_Step: TypeAlias = Callable[[_Values, int], Array]
"""The value of an expression at one point of the reduction: ``[*spatial, samples]``, or extents of 1."""


@dataclass(slots=True)
class Evaluator:
    """Functions of operators over one domain; what is compiled is kept."""

    domain: Domain
    _functions: dict[tuple[Operator, Exact[tuple[tuple[str, Attribute], ...]], tuple[Shape, ...]], "Compiled"] = field(
        default_factory=dict["tuple[Operator, Exact[tuple[tuple[str, Attribute], ...]], tuple[Shape, ...]]", "Compiled"]
    )

    def function(self, op: Operator, attributes: Mapping[str, Attribute], shapes: Sequence[Shape]) -> "Compiled":
        """``op`` on inputs of ``shapes``.

        Raises ``BadProgram`` if they do not fit the operator, ``Unsupported`` for a program that has no value over a
        domain: bodies in loop IR, recurrences, indices that depend on data, arithmetic on infinities.
        """
        key = (op, Exact(tuple(sorted(attributes.items()))), tuple(shapes))
        if key not in self._functions:
            self._functions[key] = Compiled(*_program(*key), self.domain)
        return self._functions[key]

    def apply(self, op: Operator, attributes: Mapping[str, Attribute], arrays: Sequence[Array]) -> list[Array]:
        """The results of ``op``. Raises as ``function`` does."""
        found = work(op, attributes, [array.shape[:-1] for array in arrays])
        if found is None:
            return self._whole(op, attributes, arrays)
        samples = max(array.shape[-1] for array in arrays)
        results = self._whole(op, found.attributes, [found.inside(array, samples) for array in arrays])
        return [found.outside(result) for result in results]

    def _whole(self, op: Operator, attributes: Mapping[str, Attribute], arrays: Sequence[Array]) -> list[Array]:
        return self.function(op, attributes, [array.shape[:-1] for array in arrays])(arrays)

    def term(self, term: Term, bindings: "Bindings", known: dict[Term, Array] | None = None) -> Array:
        """The value of a term; ``known`` holds the values of its parts, and is extended.

        Raises as ``function`` does, and ``BadProgram`` for what ``bindings`` does not know.
        """
        values = {} if known is None else known
        if term not in values:
            with np.errstate(all="ignore"):
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


@lru_cache(maxsize=1024)
def _program(
    op: Operator, attributes: Exact[tuple[tuple[str, Attribute], ...]], shapes: tuple[Shape, ...]
) -> tuple[list[Tensor], Sequence[Tensor]]:
    """Inputs and results of ``op``; several domains compile them."""
    inputs = [placeholder(shape, dtypes.f64, f"x{i}") for i, shape in enumerate(shapes)]
    return inputs, op.apply(inputs, dict(attributes.value))


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
        if isinstance(value, Var) and value in self.symbols:  # mostly it is one
            return self.symbols[value]
        given = {symbol: const(self.symbols[symbol]) for symbol in value.variables if symbol in self.symbols}
        known = simplified(substitute(value, given))
        if not isinstance(known, Const):
            raise BadProgram(f"{value} has a symbol that is not bound")
        return int(known.value)


class Compiled:
    """A te program as a function of arrays, ``[*shape, samples]`` each."""

    def __init__(self, inputs: Sequence[Tensor], outputs: Sequence[Tensor], domain: Domain) -> None:
        self.shapes = tuple(_extents(tensor) for tensor in outputs)
        """Of the results."""
        self._inputs = tuple(inputs)
        self._outputs = tuple(outputs)
        with np.errstate(all="ignore"):
            self._stages = [_Stage(op, domain) for op in topological_order(outputs) if not isinstance(op, Placeholder)]

    def __call__(self, arrays: Sequence[Array]) -> list[Array]:
        values: _Values = {
            (tensor.op, tensor.output): array.reshape(-1, array.shape[-1])
            for tensor, array in zip(self._inputs, arrays, strict=True)
        }
        with np.errstate(all="ignore"):
            for stage in self._stages:
                stage.run(values)
        flat = [values[tensor.op, tensor.output] for tensor in self._outputs]
        return [array.reshape(*shape, array.shape[-1]) for array, shape in zip(flat, self.shapes, strict=True)]


def _extents(tensor: Tensor) -> Shape:
    extents = static(tensor.shape)
    if extents is None:
        raise BadProgram(f"{tensor!r} has no concrete shape")
    return extents


class _Stage:
    """One operation: what it makes of what is known."""

    def __init__(self, op: Operation, domain: Domain) -> None:
        if not isinstance(op, Compute):
            raise Unsupported(f"{op.name} has no value over a domain: it is a recurrence, or has a body in loop IR")
        self._op = op
        self._domain = domain
        self._shape = tuple(_integer(axis.extent) for axis in op.axes)
        reduction = op.reduction
        if reduction is None:
            lowering = _Lowering(op.axes, (), domain)
            self._bodies = [lowering.step(body) for body in op.bodies]
        else:
            self._bodies = [_reduced(op, reduction, domain)]

    def run(self, values: _Values) -> None:
        """Add the results to ``values``."""
        for output, body in enumerate(self._bodies):
            result = body(values, 0)
            full = (*self._shape, result.shape[-1])
            whole = result if result.shape == full else np.broadcast_to(result, full)
            values[self._op, output] = whole.reshape(prod(self._shape), full[-1])


def _integer(extent: Expr) -> int:
    known = simplified(extent)
    if not isinstance(known, Const):
        raise BadProgram(f"the extent {extent} is not known")
    return int(known.value)


# Reductions


def _reduced(op: Compute, reduction: Reduction, domain: Domain) -> _Step:
    """The reduction over all its points, one after the other: samples fill the arrays."""
    if len(reduction.sources) != 1:
        raise Unsupported(f"{op.name} reduces several values together, which has no value over a domain")
    lowering = _Lowering(op.axes, reduction.axes, domain)
    points = range(lowering.points)
    identity = _identity(reduction.reducer, domain)
    condition = None if reduction.condition == TRUE else lowering.known(reduction.condition)
    source = reduction.sources[0]
    if not points:
        return lambda _values, _point: identity
    match _operation(reduction.reducer), source:
        case BinaryOp.ADD, Binary(BinaryOp.MUL, a, b) if condition is None:
            left, right = lowering.step(a), lowering.step(b)
            return lambda values, _: domain.total_of_products((left(values, p), right(values, p)) for p in points)
        case operation, _:
            value = _where(condition, lowering.step(source), identity)
            if operation is BinaryOp.ADD:
                return lambda values, _: domain.total(value(values, p) for p in points)
            return _combined(op.name, domain, operation, value, points)


def _operation(reducer: Reducer) -> BinaryOp:
    """The operation that combines two partial results."""
    match reducer.results:
        case (Binary(op, a, b),) if {a, b} == {*reducer.left, *reducer.right}:
            return op
        case _:
            raise Unsupported(f"the reducer {reducer.name} has no value over a domain: it is no single operation")


def _identity(reducer: Reducer, domain: Domain) -> Array:
    match reducer.identities[0]:
        case Const(value, dtype) if dtype.is_float:
            return domain.constant(float(value)).reshape(1)
        case other:
            raise Unsupported(f"the reducer {reducer.name} starts from {other}, which is no number of a domain")


def _where(condition: Array | None, value: _Step, otherwise: Array) -> _Step:
    if condition is None:
        return value
    return lambda values, p: np.where(_at(condition, p), value(values, p), otherwise)


def _combined(name: str, domain: Domain, operation: BinaryOp, value: _Step, points: range) -> _Step:
    def run(values: _Values, _: int) -> Array:
        result = value(values, 0)
        for p in points[1:]:
            result = domain.binary(operation, result, value(values, p))
        if not domain.is_finite(result):
            raise Unsupported(f"{name} is infinite where nothing is reduced, which no domain computes with")
        return result

    return run


# Scalars


class _Lowering:
    """Expressions over a box, compiled to steps; equal ones once.

    What reads nothing is known: an array ``[points or 1, *spatial or 1, 1]``, in the domain if it is a float.
    """

    def __init__(self, spatial: Sequence[IterVar], reduced: Sequence[IterVar], domain: Domain) -> None:
        runs = {axis.var: range(_integer(axis.extent)) for axis in (*reduced, *spatial)}
        self.points = prod(len(runs[axis.var]) for axis in reduced)
        self._inner = tuple(len(runs[axis.var]) for axis in reduced)
        self._grid = Grid(runs, {}, _no_source)
        self._domain = domain

    def step(self, expr: Expr, active: Array | None = None) -> _Step:
        """``expr`` as a function; ``active`` says where its value counts, as far as that is known."""
        if not expr.has_reads:
            known = self.known(expr)
            return lambda _values, p: _at(known, p)
        match expr:
            case Read():
                return self._read(expr, active)
            case Cast(a, dtype):
                return self._cast(self.step(a, active), a.dtype, dtype, expr)
            case Unary(op, a):
                operand = self.step(a, active)
                if a.dtype.is_float:
                    return lambda values, p: self._domain.unary(op, operand(values, p))
                return lambda values, p: evaluate_unary(op, operand(values, p))
            case Binary(BinaryOp.DIV, a, b) if not b.has_reads:
                inverse = self._domain.binary(BinaryOp.DIV, self._domain.constant(1.0), self.known(b))
                return self._binary(BinaryOp.MUL, self.step(a, active), lambda _values, p: _at(inverse, p), a)
            case Binary(op, a, b):
                return self._binary(op, self.step(a, active), self.step(b, active), a)
            case Select(condition, a, b):
                return self._select(condition, a, b, active)
            case _:
                raise Unsupported(f"{expr} has no value over a domain")

    def known(self, expr: Expr) -> Array:
        """The value of what reads nothing."""
        if expr.has_reads:
            raise Unsupported(f"{expr} depends on data, but must be known")
        if not expr.dtype.is_float:
            return self._placed(self._grid.evaluate(expr))
        match expr:
            case Const(value):
                return self._placed(self._domain.constant(float(value)))
            case Cast(a, _) if a.dtype.is_float:
                return self.known(a)
            case Cast(a, _):
                return self._domain.integers(self.known(a))
            case Unary(op, a):
                return self._domain.unary(op, self.known(a))
            case Binary(op, a, b):
                return self._domain.binary(op, self.known(a), self.known(b))
            case Select(condition, a, b):
                return np.where(self.known(condition), self.known(a), self.known(b))
            case _:
                raise Unsupported(f"{expr} has no value over a domain")

    def _placed(self, array: Array) -> Array:
        """``[*reduced, *spatial]`` with extents of 1 where it does not vary, as ``[points or 1, *spatial or 1, 1]``."""
        rank = len(self._inner)
        shaped = array.reshape((1,) * len(self._grid.shape)) if array.ndim == 0 else array
        varies = any(extent > 1 for extent in shaped.shape[:rank])
        outer = self._inner if varies else (1,) * rank
        return np.broadcast_to(shaped, (*outer, *shaped.shape[rank:])).reshape(prod(outer), *shaped.shape[rank:], 1)

    def _cast(self, value: _Step, source: dtypes.DType, target: dtypes.DType, expr: Expr) -> _Step:
        if source.is_float and target.is_float:
            return value
        if not source.is_float and target.is_float:
            return lambda values, p: self._domain.integers(value(values, p))
        if source == target:
            return value
        raise Unsupported(f"{expr} makes {target} of data, which has no value over a domain")

    def _binary(self, op: BinaryOp, left: _Step, right: _Step, a: Expr) -> _Step:
        if a.dtype.is_float:
            return lambda values, p: self._domain.binary(op, left(values, p), right(values, p))
        return lambda values, p: evaluate_binary(op, left(values, p), right(values, p), a.dtype)

    def _select(self, condition: Expr, a: Expr, b: Expr, active: Array | None) -> _Step:
        if condition.has_reads:
            chosen, first, second = self.step(condition, active), self.step(a, active), self.step(b, active)
            return lambda values, p: np.where(chosen(values, p), first(values, p), second(values, p))
        where = self.known(condition)
        if where.all() or not where.any():
            return self.step(a if where.all() else b, active)
        counts = np.ones_like(where) if active is None else active
        first = self.step(a, np.logical_and(counts, where))
        second = self.step(b, np.logical_and(counts, np.logical_not(where)))
        return lambda values, p: np.where(_at(where, p), first(values, p), second(values, p))

    def _read(self, read: Read, active: Array | None) -> _Step:
        tensor = read.source
        if not isinstance(tensor, Tensor) or not tensor.dtype.is_float:
            raise Unsupported(f"{read} is no float, which has no value over a domain")
        if any(index.has_reads for index in read.indices):
            raise Unsupported(f"{read} is read at a place that depends on data")
        key, extents = (tensor.op, tensor.output), _extents(tensor)
        places = self._places(read, extents, active)
        if len(places) == 1 and np.array_equal(places[0].reshape(-1), np.arange(prod(extents))):
            shape = places.shape[1:]
            return lambda values, _: values[key].reshape(*shape, -1)
        several = len(places) > 1
        return lambda values, p: values[key][places[p if several else 0]]

    def _places(self, read: Read, extents: Shape, active: Array | None) -> NDArray[np.intp]:
        """The row-major number of the element that is read at each point: ``[points or 1, *spatial or 1]``."""
        flat = np.zeros((1,) * (1 + len(self._grid.shape) - len(self._inner)), np.intp)
        for index, extent in zip(read.indices, extents, strict=True):
            place = self.known(index)[..., 0].astype(np.intp)
            outside = np.less(place, 0) | np.greater_equal(place, extent)
            if outside.any():
                if active is None or np.logical_and(outside, active[..., 0]).any():
                    raise OutOfBounds(f"{read}: {index} is outside of 0 .. {extent - 1}")
                place = np.clip(place, 0, max(0, extent - 1))
            flat = flat * extent + place
        return flat


def _at(array: Array, point: int) -> Array:
    """``array`` at one point of the reduction."""
    return array[point if len(array) > 1 else 0]


def _no_source(source: object) -> Array:
    raise BadProgram(f"{source} is read where nothing may be")
