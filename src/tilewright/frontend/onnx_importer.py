"""ONNX models to graphs.

Every node becomes operators of ``ops`` by the rule of its type (``rules``). Nothing is guessed: what has no rule is
``UnsupportedModel``, and the text names the node, its operator and the nearest that is known.
"""

import difflib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import onnx

from tilewright.base import dtypes
from tilewright.base.errors import BadProgram, InvalidModel, OutOfBounds, Unsupported, UnsupportedModel
from tilewright.frontend import onnx_proto
from tilewright.frontend.onnx_shapes import GivenShapes, input_shapes
from tilewright.frontend.rules import RULES, Request
from tilewright.graph import Array, Graph, Node, Value, evaluate_node, make_node
from tilewright.ops import Attribute, Operator, find
from tilewright.ops.shapes import static
from tilewright.symbolic.expr import const

SHAPE_ELEMENTS = 1 << 12
"""Integer results of constants up to this size are computed here: axes, shapes and bounds that other nodes need."""


def load(source: str | os.PathLike[str] | onnx.ModelProto, shapes: GivenShapes | None = None) -> Graph:
    """The graph of an ONNX model: a path or a ``ModelProto``.

    ``shapes`` gives the shapes of inputs by name; a str names a dimension that is known at run time only. Raises
    ``InvalidModel`` if the file is missing or malformed, ``UnsupportedModel`` for what can't be compiled,
    ``ResourceLimit`` for a tensor that no machine can hold.
    """
    model = source if isinstance(source, onnx.ModelProto) else onnx_proto.read_model(Path(source))
    return _Importer(model.graph, onnx_proto.opset_of(model.opset_import)).graph(shapes or {})


@dataclass(slots=True)
class _Importer:
    """Walks one graph, and keeps what each name stands for."""

    proto: onnx.GraphProto
    opset: int | None
    values: dict[str, Value] = field(default_factory=dict[str, Value])
    constants: dict[Value, Array] = field(default_factory=dict[Value, Array])
    nodes: list[Node] = field(default_factory=list[Node])
    _fresh_constants: set[Value] = field(default_factory=set[Value])
    _reserved: frozenset[str] = frozenset()
    _made: int = 0

    def graph(self, shapes: GivenShapes) -> Graph:
        if self.proto.sparse_initializer:
            raise UnsupportedModel("the model has sparse constants; convert them to dense ones")
        self._reserved = frozenset(name for node in self.proto.node for name in (*node.input, *node.output))
        for tensor in self.proto.initializer:
            place = f"constant {tensor.name}"
            self._constant(tensor.name, onnx_proto.array_of(tensor, place), place)
        inputs = self._inputs(shapes)
        for position, node in enumerate(self.proto.node):
            self._node(node, f"node {node.name or position} ({node.op_type})")
        outputs = self._outputs()
        return Graph(self.proto.name or "main", inputs, outputs, tuple(self.nodes), self.constants)

    # Values

    def _inputs(self, given: GivenShapes) -> tuple[Value, ...]:
        """The inputs that are no constants (old models list those as well)."""
        infos = [info for info in self.proto.input if info.name not in self.values]
        shapes = input_shapes(infos, given)
        for info in infos:
            dtype = onnx_proto.dtype_of(info.type.tensor_type.elem_type, f"input {info.name}")
            self._define(info.name, Value(info.name, dtype, shapes[info.name]), f"input {info.name}")
        return tuple(self.values[info.name] for info in infos)

    def _outputs(self) -> tuple[Value, ...]:
        """What leaves the graph; what no node makes is copied, so that it has a place of its own."""
        names = [info.name for info in self.proto.output]
        if not names:
            raise InvalidModel("the model has no outputs")
        if len(set(names)) != len(names):
            raise InvalidModel(f"the outputs {', '.join(names)} repeat one")
        made = {value for node in self.nodes for value in node.outputs}
        values = {name: self._value(name, "the graph's outputs") for name in names}
        return tuple(v if v in made and v.name == name else self._copied(name) for name, v in values.items())

    def _copied(self, name: str) -> Value:
        """A copy of what the output ``name`` stands for, with that name unless an input has it."""
        source = self.values[name]
        if source in self.constants and source.name == name:
            source = Value(self._fresh_name(), source.dtype, source.shape)
            self.constants[source] = self.constants.pop(self.values[name])
            self.nodes = [_renamed(node, {self.values[name]: source}) for node in self.nodes]
        own = f"{name}.copy" if source.name == name else name
        copy = make_node(_operator("Identity"), [source], [own], {}, f"output {name}")
        self.nodes.append(copy)
        return copy.outputs[0]

    def _define(self, name: str, value: Value, place: str) -> None:
        if name in self.values:
            raise InvalidModel(f"{place} makes `{name}`, which exists already")
        self.values[name] = value

    def _constant(self, name: str, array: Array, place: str) -> None:
        value = Value(name, dtypes.from_numpy(array.dtype), tuple(map(const, array.shape)))
        self._define(name, value, place)
        self.constants[value] = array

    def _value(self, name: str, place: str) -> Value:
        known = self.values.get(name)
        if known is None:
            raise InvalidModel(
                f"{place} uses `{name}`, which nothing before it makes; nodes must be in topological order"
            )
        return known

    # Nodes

    def _node(self, node: onnx.NodeProto, place: str) -> None:
        is_own = node.domain in onnx_proto.OWN_DOMAIN
        if not is_own or (node.op_type not in RULES and node.op_type != "Constant"):
            raise UnsupportedModel(_unsupported(node, place))
        if self.opset is None:
            raise InvalidModel(f"{place}: the model does not say which ONNX opset it uses; add it to opset_import")
        onnx_proto.check_node(node, self.opset, place)
        if node.op_type == "Constant":
            self._constant(node.output[0], onnx_proto.constant_of(node, place), place)
            return
        names = list(node.output)
        while names and not names[-1]:
            names.pop()
        request = Request(
            node.op_type,
            place,
            self.opset,
            tuple(self._value(name, place) if name else None for name in node.input),
            {a.name: onnx_proto.attribute_of(a, place) for a in node.attribute},
            len(names),
            self,
        )
        start = len(self.nodes)
        self._bind(names, RULES[node.op_type](request), start, place)

    def _bind(self, names: Sequence[str], results: Sequence[Value], start: int, place: str) -> None:
        """Let the model's names stand for ``results``; values that were made for this node get those names."""
        renamed: dict[Value, Value] = {}
        fresh = {value for node in self.nodes[start:] for value in node.outputs} | self._fresh_constants
        for name, value in zip(names, results, strict=True):
            if not name:
                continue
            if value in fresh and value not in renamed:
                renamed[value] = Value(name, value.dtype, value.shape)
            self._define(name, renamed.get(value, value), place)
        self.nodes[start:] = [_renamed(node, renamed) for node in self.nodes[start:]]
        for value in (value for node in self.nodes[start:] for value in node.outputs):
            onnx_proto.check_size(static(value.shape) or (), f"{place}: its result {value.name}")
        for value in self._fresh_constants & renamed.keys():
            self.constants[renamed[value]] = self.constants.pop(value)
        self._fresh_constants.clear()

    # What rules ask for

    def add(
        self, op: str, inputs: Sequence[Value | None], attributes: Mapping[str, Attribute], outputs: int, place: str
    ) -> tuple[Value, ...]:
        """See ``rules.rule.Importer``. Small integer results of constants are computed here."""
        try:
            node = make_node(_operator(op), inputs, [self._fresh_name() for _ in range(outputs)], attributes, place)
        except BadProgram as error:
            raise InvalidModel(str(error)) from error
        except Unsupported as error:
            raise UnsupportedModel(f"{place}: {error}") from error
        if not self._is_shape_computation(node):
            self.nodes.append(node)
            return node.outputs
        try:
            results = evaluate_node(node, self.constants)
        except OutOfBounds as error:
            raise InvalidModel(f"{place}: {error}") from error
        return tuple(self.constant(array, place) for array in results)

    def known(self, value: Value) -> Array | None:
        """See ``rules.rule.Importer``."""
        return self.constants.get(value)

    def constant(self, array: Array, place: str) -> Value:
        """See ``rules.rule.Importer``."""
        onnx_proto.check_size(array.shape, place)
        value = Value(self._fresh_name(), dtypes.from_numpy(array.dtype), tuple(map(const, array.shape)))
        self.constants[value] = array
        self._fresh_constants.add(value)
        return value

    def _fresh_name(self) -> str:
        """A name for what the model does not name. ONNX's names may be anything, so none is reserved for us."""
        self._made += 1
        while (name := f"_{self._made}") in self._reserved:
            self._made += 1
        return name

    def _is_shape_computation(self, node: Node) -> bool:
        known = all(value is None or value in self.constants for value in node.inputs)
        return known and all(
            not value.dtype.is_float and np.prod(static(value.shape) or (), dtype=object) <= SHAPE_ELEMENTS
            for value in node.outputs
        )


def _operator(name: str) -> Operator:
    found = find(name)
    assert found is not None, f"the rules name {name}, which is no operator"
    return found


def _renamed(node: Node, names: Mapping[Value, Value]) -> Node:
    """``node`` with other values in the place of those in ``names``."""
    if not names:
        return node
    inputs = tuple(value if value is None else names.get(value, value) for value in node.inputs)
    return replace(node, inputs=inputs, outputs=tuple(names.get(value, value) for value in node.outputs))


def _unsupported(node: onnx.NodeProto, place: str) -> str:
    if node.domain not in onnx_proto.OWN_DOMAIN:
        return f"{place}: operators of the domain {node.domain} are not supported; export with ONNX's own operators"
    near = difflib.get_close_matches(node.op_type, RULES, n=3) or sorted(RULES)
    return f"{place}: operator {node.op_type} is not supported; the nearest known: {', '.join(near)}"
