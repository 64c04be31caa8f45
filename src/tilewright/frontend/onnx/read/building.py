"""The graph of a model as it is built: what rules add to it, and what is computed at once.

``Building`` has the services for rules (``rules.rule.Importer``), and for bodies that run as graphs of their own
(``run_time_bodies.Encloser``). It knows nothing of ONNX's nodes: ``importer`` visits these.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from tilewright.base import dtypes
from tilewright.base.dtypes import DType
from tilewright.base.errors import BadProgram, InvalidModel, OutOfBounds, Unsupported, UnsupportedModel
from tilewright.base.memory import Budget
from tilewright.frontend.onnx.read import protos
from tilewright.frontend.onnx.read.foreign import found
from tilewright.frontend.onnx.read.late_sizes import LateSizes
from tilewright.frontend.onnx.read.narrow import Narrow
from tilewright.frontend.onnx.read.rules.aligning import broadcast
from tilewright.frontend.onnx.read.run_time_bodies import body_of, leaving
from tilewright.frontend.onnx.read.symbolic_values import SymbolicValues
from tilewright.graph import Array, Graph, Node, Value, evaluate_node, make_node
from tilewright.ops import Attribute, Operator, Trait
from tilewright.ops.hosted import HostOperator
from tilewright.ops.shapes import static
from tilewright.symbolic.expr import Const, Expr, const
from tilewright.tensor.elements import Elements

SHAPE_ELEMENTS = 1 << 12
"""Integer results of constants up to this number of elements are computed here: axes, shapes, bounds."""
FLOAT_ELEMENTS = 1 << 5
"""The same for floats, through which exporters compute sizes and padding."""


@dataclass(slots=True)
class Building:
    """Nodes and constants so far. ``reserved``: the names of the model's own values, which no other value gets."""

    symbolic: SymbolicValues
    budget: Budget
    reserved: frozenset[str]
    constants: dict[Value, Array] = field(init=False, default_factory=dict[Value, Array])
    nodes: list[Node] = field(init=False, default_factory=list[Node])
    late: LateSizes = field(init=False)
    """Sizes that are read off data."""
    narrow_types: dict[Value, Narrow] = field(init=False, default_factory=dict[Value, Narrow])
    """The types of values that native code has as codes."""
    fresh_values: set[Value] = field(init=False, default_factory=set[Value])
    """Constants and symbolic values created for the current node."""
    _made: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        self.late = LateSizes(self.symbolic, self.constants, self.nodes, self.fresh_name)

    def add(
        self,
        op: str | Operator,
        inputs: Sequence[Value | None],
        attributes: Mapping[str, Attribute],
        outputs: int,
        place: str,
    ) -> tuple[Value, ...]:
        """See ``rules.rule.Importer``. Small integer results of constants are computed here."""
        try:
            node = self._node(found(op, place), inputs, attributes, outputs, place)
        except BadProgram as error:
            raise self.late.misfit(str(error), inputs) from error
        except Unsupported as error:
            is_open = any(value is not None and static(value.shape) is None for value in inputs)
            remedy = f"; give it by {self.symbolic.by_shapes}" if is_open else ""
            raise UnsupportedModel(f"{place}: {error}{remedy}") from error
        followed = self.symbolic.results(node, self.constants)
        if followed is not None:
            pairs = zip(followed.outputs, node.outputs, strict=True)
            return tuple(self.symbolic_value(e, static(v.shape) or (), v.dtype, place) for e, v in pairs)
        if not self._is_shape_computation(node):
            self.nodes += (*self.symbolic.missing(node, place), node)
            return tuple(self.late.shortened(value, place) for value in node.outputs)
        try:
            results = evaluate_node(node, self.constants)
        except OutOfBounds as error:
            raise InvalidModel(f"{place}: {error}") from error
        return tuple(self.constant(array, place) for array in results)

    def _node(
        self,
        op: Operator,
        inputs: Sequence[Value | None],
        attributes: Mapping[str, Attribute],
        outputs: int,
        place: str,
    ) -> Node:
        """A node; its operands may first be declared to have equal extents."""
        names = [self.fresh_name() for _ in range(outputs)]
        try:
            return make_node(op, inputs, names, attributes, place)
        except BadProgram:
            given = broadcast(self, inputs, place) if op.has(Trait.ELEMENTWISE) else [*inputs]
            if given == [*inputs]:
                raise
            return make_node(op, given, names, attributes, place)

    def known(self, value: Value) -> Array | None:
        """See ``rules.rule.Importer``."""
        return self.constants.get(value)

    def constant(self, array: Array, place: str) -> Value:
        """See ``rules.rule.Importer``."""
        protos.check_size(array.shape, place)
        self.budget.take(array.nbytes, place)
        return self.counted_constant(array)

    def counted_constant(self, array: Array) -> Value:
        """See ``bodies.Visitor``."""
        value = Value(self.fresh_name(), dtypes.from_numpy(array.dtype), tuple(map(const, array.shape)))
        self.constants[value] = array
        self.fresh_values.add(value)
        return value

    def narrow(self, value: Value) -> Narrow | None:
        """See ``rules.rule.Importer``."""
        return self.narrow_types.get(value)

    def note_narrow(self, value: Value, narrow: Narrow) -> None:
        """See ``rules.rule.Importer``."""
        self.narrow_types[value] = narrow

    def elements(self, value: Value) -> Elements | None:
        """See ``rules.rule.Importer``."""
        return self.late.elements(value)

    def sizes(self, value: Value, place: str) -> Elements:
        """See ``rules.rule.Importer``."""
        return self.late.sizes(value, place)

    def enclosed(self, run: Callable[[], Sequence[Value]], given: Sequence[Value], place: str) -> Graph:
        """See ``run_time_bodies.Encloser``."""
        start = len(self.nodes)
        try:
            with self.symbolic.inside() as limits:
                results = run()
                self._check_leaving(results, place)
                outputs = leaving(results, self.late, start, place)
            return body_of(place, given, outputs, self.nodes[start:], self.constants, tuple(limits))
        finally:
            del self.nodes[start:]

    def _check_leaving(self, results: Sequence[Value], place: str) -> None:
        narrow = next((self.narrow_types[value] for value in results if value in self.narrow_types), None)
        if narrow is not None:
            raise UnsupportedModel(
                f"{place}: a result of a body that is decided at run time has the type {narrow.name}; convert it by a "
                "Cast in the body"
            )

    def between(self, op: HostOperator, inputs: Sequence[Value], outputs: int, place: str) -> tuple[Value, ...]:
        """See ``run_time_bodies.Encloser``."""
        node = make_node(op, inputs, [self.fresh_name() for _ in range(outputs)], {}, place)
        self.nodes += (*self.symbolic.missing(node, place), node)
        return node.outputs

    def fresh(self, dtype: DType, shape: Sequence[Expr]) -> Value:
        """See ``run_time_bodies.Encloser``."""
        return Value(self.fresh_name(), dtype, tuple(shape))

    def symbolic_value(self, elements: Elements, shape: Sequence[int], dtype: DType, place: str) -> Value:
        """See ``rules.rule.Importer``."""
        if all(isinstance(element, Const) for element in elements):
            numbers = [element.value for element in elements if isinstance(element, Const)]
            return self.constant(np.array(numbers, dtype.numpy).reshape(shape), place)
        value = Value(self.fresh_name(), dtype, tuple(map(const, shape)))
        self.symbolic.define(value, elements)
        self.fresh_values.add(value)
        return value

    def rename(self, names: Mapping[Value, Value], start: int) -> None:
        """Put other values in the place of some that were made for the current node, from node ``start`` on."""
        self.nodes[start:] = [renamed_node(node, names) for node in self.nodes[start:]]
        self.symbolic.follow(names)
        for value in self.fresh_values & names.keys():
            if value in self.symbolic:
                self.symbolic.rename(value, names[value])
            else:
                self.constants[names[value]] = self.constants.pop(value)
        self.narrow_types.update(
            {new: self.narrow_types[old] for old, new in names.items() if old in self.narrow_types}
        )
        self.fresh_values.clear()

    def fresh_name(self) -> str:
        """A name for values unnamed in the model. ONNX's names are arbitrary, so none can be reserved."""
        self._made += 1
        while (name := f"_{self._made}") in self.reserved:
            self._made += 1
        return name

    def _is_shape_computation(self, node: Node) -> bool:
        known = all(value is None or value in self.constants for value in node.inputs)
        stays = bool(node.dims) or node.op.has(Trait.WIDENS)
        return known and not stays and all(_is_small(value) for value in node.outputs)


def _is_small(value: Value) -> bool:
    extents = static(value.shape)
    most = FLOAT_ELEMENTS if value.dtype.is_float else SHAPE_ELEMENTS
    return extents is not None and np.prod(extents, dtype=object) <= most


def renamed_node(node: Node, names: Mapping[Value, Value]) -> Node:
    """``node`` with the values in ``names`` replaced."""
    if not names:
        return node
    inputs = tuple(value if value is None else names.get(value, value) for value in node.inputs)
    return replace(node, inputs=inputs, outputs=tuple(names.get(value, value) for value in node.outputs))
