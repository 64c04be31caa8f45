"""Quantized graphs: QuantizeLinear and DequantizeLinear around the chosen layers, with integer weights and biases."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from tilewright.base import dtypes
from tilewright.base.arrays import Array
from tilewright.graph import Graph, Node, Value, make_node, verify
from tilewright.ops import Attribute
from tilewright.ops.operator import require
from tilewright.quantization.layers import Layer
from tilewright.quantization.parameters import Parameters, Quantizer
from tilewright.quantization.placement import Operand, Placement
from tilewright.symbolic.expr import const


class Insertion:
    """A graph, with nodes, constants and inputs added to it, and operands of its nodes replaced."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._names = graph.names()
        self._constants = dict(graph.constants)
        self._inputs: list[Value] = []
        self._after: dict[Value, list[Node]] = {}
        self._first: list[Node] = []
        self._operands: dict[Value, dict[int, Value]] = {}

    def constant(self, name: str, array: Array) -> Value:
        """A new constant."""
        value = Value(self._names.fresh(name), dtypes.from_numpy(array.dtype), tuple(map(const, array.shape)))
        self._constants[value] = array
        return value

    def input(self, name: str, dtype: dtypes.DType, shape: Sequence[int] = ()) -> Value:
        """A new input of the graph."""
        value = Value(self._names.fresh(name), dtype, tuple(map(const, shape)))
        self._inputs.append(value)
        return value

    def apply(
        self, op: str, operands: Sequence[Value], name: str, after: Value | None = None, **attributes: Attribute
    ) -> Value:
        """The result of a new node; ``after``: the value of the graph that it needs, if it needs one."""
        node = make_node(require(op), operands, [self._names.fresh(name)], attributes)
        (self._first if after is None else self._after.setdefault(after, [])).append(node)
        return node.outputs[0]

    def replace(self, operand: Operand, value: Value) -> None:
        """Let a node read ``value`` as this operand, which may be one that it lacks."""
        result, position = operand
        self._operands.setdefault(result, {})[position] = value

    def graph(self) -> Graph:
        """The result, verified."""
        known = (*self._graph.inputs, *self._graph.constants)
        nodes = [*self._first, *(node for value in known for node in self._after.get(value, ()))]
        for node in self._graph.nodes:
            nodes.append(self._changed(node))
            nodes += (added for value in node.outputs for added in self._after.get(value, ()))
        inputs, read = (*self._graph.inputs, *self._inputs), {value for node in nodes for value in node.inputs}
        constants = {value: array for value, array in self._constants.items() if value in read}
        made = replace(self._graph, inputs=inputs, nodes=tuple(nodes), constants=constants)
        verify(made)
        return made

    def _changed(self, node: Node) -> Node:
        wanted = self._operands.get(node.outputs[0])
        if wanted is None:
            return node
        count = max(len(node.inputs), max(wanted) + 1)
        padded = (*node.inputs, *[None] * (count - len(node.inputs)))
        return replace(node, inputs=tuple(wanted.get(at, value) for at, value in enumerate(padded)))


def quantized(graph: Graph, layers: Sequence[Layer], placement: Placement, numbers: Parameters) -> Graph:
    """``graph`` with ``layers`` quantized, and the values of ``placement``, which is that of these layers."""
    inserting = Insertion(graph)
    wide = {value: _round_trip(inserting, value, numbers.quantizers[value.name]) for value in placement.scaled_as}
    producers = graph.producers()
    for result, position in placement.readers:
        value = producers[result].inputs[position]
        if value is not None:
            inserting.replace((result, position), wide[value])
    weights: dict[_Key, Value] = {}
    for layer in layers:
        _quantize_weight(inserting, layer, numbers, weights)
        _quantize_bias(inserting, layer, numbers)
    return inserting.graph()


_Key = tuple[Value, int | None, bytes]
"""A weight, the axis of its scales, and the scales: equal keys have equal integers."""


def _round_trip(inserting: Insertion, value: Value, by: Quantizer) -> Value:
    scale = inserting.constant(f"{value.name}.scale", np.array(by.scale))
    zero = inserting.constant(f"{value.name}.zero", np.array(by.zero, by.dtype.numpy))
    codes = inserting.apply("QuantizeLinear", [value, scale, zero], f"{value.name}.quantized", value)
    return inserting.apply("DequantizeLinear", [codes, scale, zero], f"{value.name}.dequantized", value)


def _quantize_weight(inserting: Insertion, layer: Layer, numbers: Parameters, made: dict[_Key, Value]) -> None:
    """Layers that share a weight share its integers, as far as their scales agree; ``made`` has those of others."""
    weight = layer.weight_value
    if weight is None or layer.weight is None:
        return
    found = numbers.weights[layer.result.name]
    key = (weight, found.axis, found.scale.tobytes())
    if key not in made:
        made[key] = _constant_product(inserting, weight.name, found.codes, found.scale, found.axis)
    inserting.replace((layer.result, layer.weight), made[key])


def _quantize_bias(inserting: Insertion, layer: Layer, numbers: Parameters) -> None:
    bias, integers = layer.bias, numbers.integer_bias(layer)
    if bias is None or integers is None:
        return
    name = f"{layer.result.name}.bias" if bias.value is None else bias.value.name
    wide = _constant_product(inserting, name, integers.codes, integers.scale, 0)
    inserting.replace((bias.node.outputs[0], bias.position), wide)


def _constant_product(inserting: Insertion, name: str, codes: Array, scale: Array, axis: int | None) -> Value:
    """``codes * scale``, in the graph."""
    integers = inserting.constant(f"{name}.quantized", codes)
    factor = inserting.constant(f"{name}.scale", scale)
    zero = inserting.constant(f"{name}.zero", np.zeros(scale.shape, codes.dtype))
    return inserting.apply(
        "DequantizeLinear", [integers, factor, zero], f"{name}.dequantized", axis=0 if axis is None else axis
    )
