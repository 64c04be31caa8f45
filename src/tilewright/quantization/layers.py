"""The layers of a graph that can be quantized: convolutions and products of matrices, with the roles of their operands.

A layer has a weight, which is known, or multiplies two activations (attention). Its bias is part of it, or, of a
``MatMul``, the vector that an ``Add`` after it adds to the columns.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from tilewright.base.arrays import Array
from tilewright.base.dtypes import f32
from tilewright.graph import Graph, Node, Value
from tilewright.ops import FusionKind
from tilewright.ops.shapes import static


@dataclass(frozen=True, slots=True)
class Bias:
    """What is added to each channel of a layer's result: operand ``position`` of ``node``; None if it is missing."""

    node: Node
    position: int
    value: Value | None


@dataclass(frozen=True, slots=True)
class Layer:
    """A sum of products. ``data``: the positions of its activations; ``weight``: of its weight, if it is known.

    ``axis``: the dimension of the weight that counts channels of the result; None if it has one scale.
    ``contracted``: the dimension of the activation that is summed over, whose means correct the bias.
    """

    node: Node
    data: tuple[int, ...]
    weight: int | None = None
    axis: int | None = None
    contracted: int = -1
    bias: Bias | None = None

    @property
    def name(self) -> str:
        """Its place in the user's model."""
        return self.node.source or self.node.outputs[0].name

    @property
    def result(self) -> Value:
        """What it computes. This identifies a layer, as values do their producers."""
        return self.node.outputs[0]

    @property
    def weight_value(self) -> Value | None:
        """Its weight."""
        return None if self.weight is None else self.node.inputs[self.weight]

    @property
    def activations(self) -> tuple[Value, ...]:
        """Its activations."""
        found = (self.node.inputs[position] for position in self.data)
        return tuple(value for value in found if value is not None)


@dataclass(frozen=True, slots=True)
class Refused:
    """A sum of products that stays float, and why."""

    name: str
    operator: str
    reason: str


@dataclass(frozen=True, slots=True)
class Layers:
    """What can be quantized, in order, and what can't."""

    found: tuple[Layer, ...]
    refused: tuple[Refused, ...]


def find_layers(graph: Graph) -> Layers:
    """The layers of ``graph``, whose constants are folded."""
    consumers = graph.consumers()
    found: list[Layer] = []
    refused: list[Refused] = []
    for node in graph.nodes:
        if node.op.kind is FusionKind.CONTRACTION:
            made = _typed(_FORMS.get(node.op.name, _unknown), node, graph, consumers)
            if isinstance(made, Layer):
                found.append(made)
            else:
                refused.append(Refused(node.source or node.outputs[0].name, node.op.name, made))
    return Layers(tuple(found), tuple(refused))


_Consumers = Mapping[Value, list[Node]]
_Form = Callable[[Node, Graph, _Consumers], Layer | str]
"""Makes a layer of a node, or says why it can't be quantized."""


def _typed(form: _Form, node: Node, graph: Graph, consumers: _Consumers) -> Layer | str:
    other = next((v.dtype for v in node.inputs[:2] if v is not None and v.dtype != f32), None)
    if other is not None:
        return f"its type is {other}, not f32"
    made = form(node, graph, consumers)
    is_known = isinstance(made, Layer) and not graph.constants.keys().isdisjoint(made.activations)
    return "its data are constants" if is_known else made


def _unknown(node: Node, graph: Graph, consumers: _Consumers) -> str:
    return f"of sums of products, only {', '.join(_FORMS)} are quantized"


def _convolution(node: Node, graph: Graph, consumers: _Consumers) -> Layer | str:
    weight, bias = node.inputs[1], node.inputs[2] if len(node.inputs) > 2 else None
    if weight not in graph.constants:
        return "its weight is computed at run time"
    if bias is not None and bias not in graph.constants:
        return "its bias is computed at run time"
    return Layer(node, (0,), 1, 0, 1, Bias(node, 2, bias))


def _gemm(node: Node, graph: Graph, consumers: _Consumers) -> Layer | str:
    given = {**node.op.defaults, **dict(node.attributes)}
    weight, bias = node.inputs[1], node.inputs[2] if len(node.inputs) > 2 else None
    if weight is None or weight not in graph.constants:
        return "its weight is computed at run time"
    if given["transpose_a"] or given["alpha"] != 1.0 or given["beta"] != 1.0:
        return "it transposes its data, or scales its results"
    axis = 0 if given["transpose_b"] else 1
    own = Bias(node, 2, bias) if bias is None or _is_vector(bias, weight.shape[axis], graph) else None
    return Layer(node, (0,), 1, axis, 1, own)


def _product(node: Node, graph: Graph, consumers: _Consumers) -> Layer | str:
    left, right = node.inputs[0], node.inputs[1]
    if left is None or right is None or min(len(left.shape), len(right.shape)) < 2:
        return "it multiplies a vector"
    if left in graph.constants:
        return Layer(node, (1,), 0)
    if right not in graph.constants:
        return Layer(node, (0, 1))
    if len(right.shape) > 2:
        return Layer(node, (0,), 1)
    return Layer(node, (0,), 1, 1, -1, _added(node, graph, consumers))


def _added(node: Node, graph: Graph, consumers: _Consumers) -> Bias | None:
    """The vector that is added to the columns of a product, and to nothing else."""
    result = node.outputs[0]
    after = consumers.get(result, [])
    if len(after) != 1 or after[0].op.name != "Add" or result in graph.outputs:
        return None
    (add,) = after
    position = 1 if add.inputs[0] == result else 0
    other = add.inputs[position]
    if other is None or add.inputs[1 - position] != result or not _is_vector(other, result.shape[-1], graph):
        return None
    return Bias(add, position, other)


def _is_vector(value: Value, extent: object, graph: Graph) -> bool:
    """Whether ``value`` is a known vector of this extent."""
    return value in graph.constants and value.dtype == f32 and value.shape == (extent,)


_FORMS: Mapping[str, _Form] = {"Conv": _convolution, "Gemm": _gemm, "MatMul": _product}
"""The operators that ONNX's quantized form has."""


def weight_of(layer: Layer, graph: Graph) -> Array | None:
    """The elements of the layer's weight."""
    return None if layer.weight_value is None else graph.constants[layer.weight_value]


def channels_of(layer: Layer, graph: Graph) -> int:
    """The number of channels of the result; 1 if its weight has one scale."""
    shape = None if layer.weight_value is None else static(layer.weight_value.shape)
    return 1 if shape is None or layer.axis is None else shape[layer.axis]
