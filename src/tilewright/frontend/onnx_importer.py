"""ONNX models to graphs.

Every node becomes an operator of ``ops``: the table ``onnx_rules.RULES`` says which ONNX inputs become attributes (they
must then be known at compile time) and how attributes are named. Nothing is guessed: what has no entry is
``UnsupportedModel``, and the text names the node, its operator and the nearest that is known.
"""

import difflib
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import onnx

from tilewright.base import dtypes
from tilewright.base.errors import BadModel, BadProgram, OutOfBounds, Unsupported, UnsupportedModel
from tilewright.frontend import onnx_proto
from tilewright.frontend.onnx_rules import RULES, Rule
from tilewright.frontend.onnx_shapes import GivenShapes, input_shapes
from tilewright.graph import Array, Graph, Node, Value, evaluate_node, make_node
from tilewright.ops import Attribute, Operator, find
from tilewright.ops.shapes import Shape, static
from tilewright.symbolic.expr import Const, const

SHAPE_ELEMENTS = 1 << 12
"""Integer results of constants up to this size are computed here: axes, shapes and bounds that other nodes need."""

_OWN_DOMAIN = ("", "ai.onnx")


def load(source: str | os.PathLike[str] | onnx.ModelProto, shapes: GivenShapes | None = None) -> Graph:
    """The graph of an ONNX model: a path or a ``ModelProto``.

    ``shapes`` gives the shapes of inputs by name; a str names a dimension that is known at run time only. Raises
    ``BadModel`` if the file is missing or malformed, ``UnsupportedModel`` for what can't be compiled, ``ResourceLimit``
    for a tensor that no machine can hold.
    """
    model = source if isinstance(source, onnx.ModelProto) else onnx_proto.read_model(Path(source))
    return _Importer(model.graph, onnx_proto.opset_of(model)).graph(shapes or {})


@dataclass(slots=True)
class _Importer:
    """Walks one graph, and keeps what each name stands for."""

    proto: onnx.GraphProto
    opset: int
    values: dict[str, Value] = field(default_factory=dict[str, Value])
    constants: dict[Value, Array] = field(default_factory=dict[Value, Array])
    nodes: list[Node] = field(default_factory=list[Node])

    def graph(self, shapes: GivenShapes) -> Graph:
        if self.proto.sparse_initializer:
            raise UnsupportedModel("the model has sparse constants; convert them to dense ones")
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
            self._define(Value(info.name, dtype, shapes[info.name]), f"input {info.name}")
        return tuple(self.values[info.name] for info in infos)

    def _outputs(self) -> tuple[Value, ...]:
        """What leaves the graph; what no node makes is copied, so that it has a place of its own."""
        names = [info.name for info in self.proto.output]
        if not names:
            raise BadModel("the model has no outputs")
        if len(set(names)) != len(names):
            raise BadModel(f"the outputs {', '.join(names)} repeat one")
        made = {value for node in self.nodes for value in node.outputs}
        values = [self._value(name, "the graph's outputs") for name in names]
        return tuple(value if value in made else self._copied(value) for value in values)

    def _copied(self, value: Value) -> Value:
        """A copy that has the name of ``value``, if that can be had: an input keeps its own."""
        name, source = f"{value.name}.copy", value
        if value in self.constants:
            name, source = value.name, Value(f"{value.name}.value", value.dtype, value.shape)
            self.constants[source] = self.constants.pop(value)
            self.nodes = [_reading(node, value, source) for node in self.nodes]
        copy = make_node(_operator("Identity"), [source], [name], {}, f"output {value.name}")
        self.nodes.append(copy)
        return copy.outputs[0]

    def _define(self, value: Value, place: str) -> None:
        if value.name in self.values:
            raise BadModel(f"{place} makes `{value.name}`, which exists already")
        self.values[value.name] = value

    def _constant(self, name: str, array: Array, place: str) -> None:
        value = Value(name, dtypes.from_numpy(array.dtype), tuple(const(extent) for extent in array.shape))
        self._define(value, place)
        self.constants[value] = array

    def _value(self, name: str, place: str) -> Value:
        known = self.values.get(name)
        if known is None:
            raise BadModel(f"{place} uses `{name}`, which nothing before it makes; nodes must be in topological order")
        return known

    # Nodes

    def _node(self, node: onnx.NodeProto, place: str) -> None:
        is_own = node.domain in _OWN_DOMAIN
        if (is_own and node.op_type not in RULES and node.op_type not in ("Constant", "Shape")) or not is_own:
            raise UnsupportedModel(_unsupported(node, place))
        onnx_proto.check_node(node, self.opset, place)
        if node.op_type == "Constant":
            self._constant(node.output[0], onnx_proto.constant_of(node, place), place)
            return
        inputs = [self._value(name, place) if name else None for name in node.input]
        attributes = {a.name: onnx_proto.attribute_of(a, place) for a in node.attribute}
        if node.op_type == "Shape":
            self._constant(node.output[0], _shape(inputs[0], attributes, place), place)
            return
        rule = RULES[node.op_type]
        operands, options = self._arguments(rule, inputs, attributes, place)
        self._add(_made(_operator(rule.operator), operands, node, options, place), place)

    def _check_indices(self, node: Node, place: str) -> None:
        """A constant index out of range is a fault of the model (at run time, the nearest slice is taken)."""
        data, indices = node.inputs[:2] if node.op.name == "Gather" else (None, None)
        known = None if indices is None else self.constants.get(indices)
        if data is None or known is None or not known.size:
            return
        axis = dict(node.attributes).get("axis", 0)
        extent = data.shape[axis] if isinstance(axis, int) else None
        if isinstance(extent, Const):
            for index in (int(known.min()), int(known.max())):
                if not -extent.value <= index < extent.value:
                    raise BadModel(f"{place}: index {index} of dimension {axis} is out of range for {data!r}")

    def _add(self, node: Node, place: str) -> None:
        self._check_indices(node, place)
        for value in node.outputs:
            onnx_proto.check_size(static(value.shape) or (), f"{place}: its result {value.name}")
        if not self._is_shape_computation(node):
            for value in node.outputs:
                self._define(value, place)
            self.nodes.append(node)
            return
        try:
            results = evaluate_node(node, self.constants)
        except OutOfBounds as error:
            raise BadModel(f"{place}: {error}") from error
        for value, array in zip(node.outputs, results, strict=True):
            self._constant(value.name, array, place)

    def _is_shape_computation(self, node: Node) -> bool:
        known = all(value is None or value in self.constants for value in node.inputs)
        return known and all(
            not value.dtype.is_float and np.prod(static(value.shape) or (), dtype=object) <= SHAPE_ELEMENTS
            for value in node.outputs
        )

    def _arguments(
        self, rule: Rule, inputs: list[Value | None], attributes: Mapping[str, Attribute], place: str
    ) -> tuple[list[Value | None], dict[str, Attribute]]:
        """Tensors for the operator, and its attributes: the node's own, and inputs that must be constant."""
        operands = [v for position, v in enumerate(inputs) if position not in rule.constant_inputs]
        while operands and operands[-1] is None:
            operands.pop()
        options: dict[str, Attribute] = {}
        for name, value in attributes.items():
            if name in rule.attributes:
                options[rule.attributes[name]] = rule.convert(name, value, place)
            elif name not in rule.ignored:
                raise UnsupportedModel(f"{place}: attribute {name} is not supported; leave it out")
        for position, option in rule.constant_inputs.items():
            value = inputs[position] if position < len(inputs) else None
            if value is not None:
                options[option] = self._known(value, place)
        return operands, options

    def _known(self, value: Value, place: str) -> tuple[int, ...]:
        array = self.constants.get(value)
        if array is None:
            raise UnsupportedModel(
                f"{place}: input `{value.name}` must be a constant, but is computed at run time; if it depends on "
                "shapes only, give these by shapes="
            )
        if not value.dtype.is_int:
            raise BadModel(f"{place}: input `{value.name}` must hold integers, not {value.dtype}")
        return tuple(int(x) for x in np.ravel(array))


def _made(
    op: Operator, operands: list[Value | None], node: onnx.NodeProto, options: Mapping[str, Attribute], place: str
) -> Node:
    """The node. Outputs that are left out at the end are dropped, others get a name."""
    names = list(node.output)
    while names and not names[-1]:
        names.pop()
    named = [name or f"{node.output[0]}.{position}" for position, name in enumerate(names)]
    try:
        return make_node(op, operands, named, options, place)
    except BadProgram as error:
        raise BadModel(str(error)) from error
    except Unsupported as error:
        raise UnsupportedModel(f"{place}: {error}") from error


def _operator(name: str) -> Operator:
    found = find(name)
    assert found is not None, f"the rules name {name}, which is no operator"
    return found


def _reading(node: Node, old: Value, new: Value) -> Node:
    """``node`` with ``new`` in the place of ``old``."""
    inputs = tuple(new if value == old else value for value in node.inputs)
    return Node(node.op, inputs, node.outputs, node.attributes, node.source)


def _unsupported(node: onnx.NodeProto, place: str) -> str:
    if node.domain not in _OWN_DOMAIN:
        return f"{place}: operators of the domain {node.domain} are not supported; export with ONNX's own operators"
    near = difflib.get_close_matches(node.op_type, RULES, n=3) or sorted(RULES)
    return f"{place}: operator {node.op_type} is not supported; the nearest known: {', '.join(near)}"


def _shape(value: Value | None, attributes: Mapping[str, Attribute], place: str) -> Array:
    shape: Shape = () if value is None else value.shape
    extents = static(shape)
    if value is None or extents is None:
        raise UnsupportedModel(f"{place}: the shape of {value!r} is known at run time only; give it by shapes=")
    start, end = attributes.get("start"), attributes.get("end")
    begin, stop = (bound if isinstance(bound, int) else None for bound in (start, end))
    return np.array(extents[begin:stop], np.int64)
