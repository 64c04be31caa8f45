"""Symbolic values: integer tensors of a model that depend on run-time extents only, such as shapes.

``Shape`` of a tensor with run-time extents gives such a value; nodes that read only constants and such values give
others, by evaluation of the te programs of their operators over expressions (``tensor.elements``). If one is an
operator's parameter (the target of a Reshape), its expressions are used directly. If it is data, a node of the graph
computes it from the extents.

Elements that are data may become extents, too (``read_off``): the model is cut where they are read (``passes.parts``).
"""

from collections.abc import Generator, Iterable, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np

from tilewright.base.dtypes import boolean, index
from tilewright.base.names import fresh_name
from tilewright.base.remedies import by_shapes
from tilewright.graph import Array, Node, Value
from tilewright.graph.ir import as_placeholder, extents_of
from tilewright.ops.operator import require
from tilewright.ops.shapes import static
from tilewright.symbolic.bounds import Bounds, interval
from tilewright.symbolic.expr import ONE, ZERO, Binary, Const, Expr, Extent, const, minimum
from tilewright.symbolic.operations import BinaryOp
from tilewright.symbolic.simplify import linear_form, simplify
from tilewright.symbolic.traversal import walk
from tilewright.tensor.elements import MOST, Elements, Known, Limit, elements_of

_OF_EXTENTS = frozenset(
    {BinaryOp.ADD, BinaryOp.SUB, BinaryOp.MUL, BinaryOp.FLOORDIV, BinaryOp.MOD, BinaryOp.MIN, BinaryOp.MAX}
)


def can_be_extent(element: Expr) -> bool:
    """Whether the runtime can compute ``element`` (``runtime.manifest``), so that it may be part of a shape."""
    return all(
        isinstance(node, Const | Extent) or (isinstance(node, Binary) and node.op in _OF_EXTENTS)
        for node in walk(element)
    )


@dataclass(frozen=True, slots=True)
class Assumed:
    """What is assumed of run-time extents (``attempts``)."""

    least: Mapping[str, int] = field(default_factory=dict[str, int])
    """Their least values by name, where that is not 0."""
    aligned: bool = False
    """Whether extents that must be equal are."""


@dataclass(frozen=True, slots=True)
class _Found:
    """What is known at one place of a model."""

    limits: dict[Limit, None]
    bounds: Bounds
    known: dict[Value, Elements]
    made: set[Value]
    named: dict[Expr, Extent]


class SymbolicValues:
    """The symbolic values of one model, and the limits of its run-time extents found on the way."""

    def __init__(self, most: Mapping[str, int], assumed: Assumed) -> None:
        """``most``: upper bounds of run-time extents, by the names that users give them."""
        self.assumed = assumed
        self.limits: dict[Limit, None] = {}
        """Conditions under which the elements are valid."""
        self.caps: dict[Extent, int] = {}
        """Bounds of extents under which slices need not be clipped at the end of their input."""
        self.bounds = Bounds()
        self.named: dict[Expr, Extent] = {}
        """Extents that have been read in the place of longer ones."""
        self._most = most
        self._inputs: tuple[Value, ...] = ()
        self._known: dict[Value, Elements] = {}
        self._floats: dict[Value, Elements] = {}
        """Elements of values that nodes of the graph compute, from which integers may be computed again."""
        self._made: set[Value] = set()
        self._late = 0

    def declare(self, inputs: Iterable[Value]) -> None:
        """Record the run-time extents of the model's inputs."""
        self._inputs = tuple(inputs)
        self.bounds = Bounds(dims={extent: self._most.get(extent.given) for extent in extents_of(self._inputs)})

    @property
    def has_late(self) -> bool:
        """Whether some extents are known only when a part of the model has run."""
        return self._late > 0

    def late_extent(self, label: str) -> Extent:
        """A new extent that is known only when a part of the model has run."""
        taken = {extent.given for extent in self.bounds.dims if isinstance(extent, Extent)}
        extent = Extent(f"m{self._late}", label=fresh_name(label, taken))
        self._late += 1
        self.bounds = Bounds(dims={**self.bounds.dims, extent: None})
        return extent

    def read_off(self, value: Value, label: str) -> tuple[Extent, ...]:
        """The elements of ``value``, which something computes, as new extents: they are not negative."""
        count = int(np.prod(static(value.shape) or (), dtype=np.int64))
        extents = tuple(self.late_extent(label if count == 1 else f"{label}[{at}]") for at in range(count))
        self._known[value] = extents
        self._made.add(value)
        return extents

    def is_late(self, extent: Expr) -> bool:
        """Whether ``extent`` is known only when a part of the model has run."""
        return bool(extent.variables.difference(extents_of(self._inputs)))

    def knows(self, extent: Expr) -> bool:
        """Whether all extents in ``extent`` are known here: not only inside of some body."""
        return all(variable in self.bounds.dims for variable in extent.variables)

    @contextmanager
    def inside(self) -> Generator[dict[Limit, None]]:
        """A context for a body that is decided at run time. What is found out in it does not hold around it: the limits
        are in the result, when it ends."""
        around, found = self.snapshot(), dict[Limit, None]()
        self.limits = {}
        try:
            yield found
        finally:
            found.update(self.limits)
            self.restore(around)

    def snapshot(self) -> "_Found":
        """All that is known now."""
        return _Found(dict(self.limits), self.bounds, dict(self._known), set(self._made), dict(self.named))

    def restore(self, found: "_Found") -> None:
        """Forget what was found out since ``snapshot`` returned ``found``."""
        self.limits, self.bounds, self.named = found.limits, found.bounds, found.named
        self._known, self._made = found.known, found.made

    @property
    def by_shapes(self) -> str:
        """The argument of ``compile`` that makes all sizes known, as an example for messages."""
        return by_shapes({value.name: tuple(map(_given, value.shape)) for value in self._inputs})

    def why_unknown(self, value: Value) -> str:
        """Why the elements of ``value`` are not known when the model is compiled, and what helps."""
        if value in self._inputs:
            return "is an input of the model: make it an initializer in the file"
        return f"is computed at run time; if it depends on shapes only, give these by {self.by_shapes}"

    def require(self, extent: Expr) -> None:
        """Let the runtime refuse inputs for which ``extent`` is negative, if that is possible."""
        low = interval(extent, self.bounds).lo
        if low is None or low < 0:
            self.limits[Limit(extent)] = None

    def differ(self, a: Expr, b: Expr) -> bool:
        """Whether two extents are known to differ, for all inputs."""
        low, high = interval(simplify(a - b, self.bounds), self.bounds)
        return (low is not None and low > 0) or (high is not None and high < 0)

    def equate(self, a: Expr, b: Expr) -> None:
        """Let the runtime refuse inputs for which two extents differ."""
        difference = simplify(a - b, self.bounds)
        self.limits[Limit(difference)] = None
        self.limits[Limit(simplify(-difference, self.bounds))] = None

    def least(self) -> dict[str, int]:
        """Least values of run-time extents by name, which follow from the limits found so far."""
        bounds = Bounds(dims=self.bounds.dims, facts=tuple(limit.value >= ZERO for limit in self.limits))
        lows = ((extent, bounds.low(extent)) for extent in extents_of(self._inputs))
        return {extent.given: low for extent, low in lows if low}

    def __contains__(self, value: object) -> bool:
        return value in self._known

    def define(self, value: Value, elements: Elements) -> None:
        """Set the elements of ``value``."""
        self._known[value] = elements

    def define_made(self, values: Iterable[Value], elements: Iterable[Elements]) -> None:
        """Set the elements of ``values``, which nodes of the graph compute."""
        for value, own in zip(values, elements, strict=False):
            self._known[value] = own
            self._made.add(value)

    def rename(self, old: Value, new: Value) -> None:
        """Let ``new`` have the elements of ``old``."""
        self._known[new] = self._known.pop(old)
        if old in self._made:
            self._made.add(new)

    def follow(self, renamed: Mapping[Value, Value]) -> None:
        """Let values that nodes compute have other names."""
        self._floats.update((renamed[old], self._floats.pop(old)) for old in renamed.keys() & self._floats.keys())

    def elements(self, value: Value, constants: Mapping[Value, Array]) -> Elements | None:
        """The elements of ``value``, if it is symbolic or a small constant without fractions."""
        if value in self._known or value not in constants:
            return self._known.get(value)
        array = constants[value]
        if value.dtype.is_float or array.size > MOST or (array.size and array.max() > index.max):
            return None
        dtype = boolean if value.dtype.is_bool else index
        return tuple(const(element, dtype) for element in np.ravel(array).tolist())

    def results(self, node: Node, constants: Mapping[Value, Array]) -> Known | None:
        """The elements of the results of ``node``, if they depend on run-time extents only, and on at least one.

        Floats are remembered only: a node computes them.
        """
        inputs = {value: as_placeholder(value) for value in node.inputs if value is not None}
        if not (node.dims or any(value in self._known or value in self._floats for value in inputs)):
            return None
        if any(static(value.shape) is None for value in node.outputs):
            return None
        feeds = {tensor: self._operand(value, constants) for value, tensor in inputs.items()}
        known = {tensor: elements for tensor, elements in feeds.items() if elements is not None}
        if len(known) < len(feeds):
            return None
        operands = [None if value is None else inputs[value] for value in node.inputs]
        results = node.op.apply(operands, dict(node.attributes))[: len(node.outputs)]
        found = elements_of(results, known, self.bounds)
        if found is None:
            return None
        self.limits.update(dict.fromkeys(found.limits))
        if not any(value.dtype.is_float for value in node.outputs):
            return found
        self._floats.update(zip(node.outputs, found.outputs, strict=True))
        return None

    def _operand(self, value: Value, constants: Mapping[Value, Array]) -> Elements | None:
        """As ``elements``, and floats."""
        array = constants.get(value)
        if array is not None and value.dtype.is_float and array.size <= MOST:
            return tuple(const(element, value.dtype) for element in np.ravel(array).tolist())
        return self._floats.get(value) or self.elements(value, constants)

    def missing(self, node: Node, place: str) -> list[Node]:
        """Nodes for those inputs of ``node`` that are symbolic and have no producer yet."""
        inputs = dict.fromkeys(value for value in node.inputs if value is not None)
        return [self.node(value, place) for value in inputs if self.is_missing(value)]

    def is_missing(self, value: Value) -> bool:
        """Whether ``value`` is symbolic, without a producer."""
        return value in self._known and value not in self._made

    def node(self, value: Value, place: str) -> Node:
        """A node that computes ``value``."""
        self._made.add(value)
        attributes = (("values", self._known[value]), ("shape", static(value.shape)), ("dtype", value.dtype))
        return Node(require("Elements"), (), (value,), attributes, place)

    def at_most(self, bound: Expr, extent: Expr) -> Expr:
        """The minimum of the two, if it is ``bound`` unless a slice is clipped at the end of its input."""
        smaller = simplify(minimum(bound, extent), self.bounds)
        form = linear_form(bound, self.bounds)
        if smaller != bound and isinstance(extent, Const) and len(form.terms) == 1:
            ((atom, factor),) = form.terms
            if isinstance(atom, Extent) and factor > 0 and not self.is_late(atom):
                cap = (int(extent.value) - form.constant) // factor
                self.caps[atom] = min(cap, self.caps.get(atom, cap))
        return smaller

    def sign(self, element: Expr) -> int | None:
        """1 if ``element`` is known not to be negative, -1 if it is known to be, None otherwise."""
        return _sign(element, self.bounds)

    def depends_on_emptiness(self, element: Expr) -> bool:
        """Whether the sign of ``element`` is known but for extents that are 0."""
        return _sign(element, self.bounds.assuming(*(extent >= ONE for extent in element.variables))) is not None


def _sign(element: Expr, bounds: Bounds) -> int | None:
    low, high = interval(element, bounds)
    if low is not None and low >= 0:
        return 1
    return -1 if high is not None and high < 0 else None


def _given(extent: Expr) -> int | str:
    return int(extent.value) if isinstance(extent, Const) else str(extent)
