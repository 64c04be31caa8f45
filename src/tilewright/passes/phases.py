"""Transposed convolutions with few filters: all phases as channels of one convolution, interleaved afterwards.

A ``PhaseConv`` works on blocks of filters, phase by phase. Three filters would leave most of a block empty; with the
phases of two strides of 2 they are twelve. This needs phases with equally many taps, as one convolution has one kernel.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from math import prod
from typing import TypeAlias

import numpy as np

from tilewright.base.names import Names
from tilewright.base.target import Target
from tilewright.graph import Array, Graph, Node, Value, make_node
from tilewright.ops.operator import Attribute, require
from tilewright.ops.shapes import static
from tilewright.ops.transposed_convolution import phases
from tilewright.ops.windows import number
from tilewright.passes.layout import fills_blocks
from tilewright.symbolic.expr import Expr, as_expr, const

Attributes: TypeAlias = Mapping[str, Attribute]


def interleave_phases(graph: Graph, target: Target) -> Graph:
    """``graph`` with a ``Conv`` and ``PhasesToSpace`` for each ``PhaseConv`` whose filters would fill blocks badly."""
    constants, names = dict(graph.constants), graph.names()
    nodes: list[Node] = []
    for node in graph.nodes:
        width = target.vector_bits // (8 * node.outputs[0].dtype.itemsize)
        if node.op.name == "PhaseConv" and _is_better(node, constants, width):
            nodes.extend(_interleaved(node, constants, names))
        else:
            nodes.append(node)
    return replace(graph, nodes=tuple(nodes), constants=constants)


def _is_better(node: Node, constants: Mapping[Value, Array], width: int) -> bool:
    """Whether phases as channels fill blocks of ``width`` better, all have as many taps, and parameters are known."""
    parameters = [v for v in node.inputs[1:] if v is not None]
    if fills_blocks(node.outputs[0].shape[1], width) or any(v not in constants for v in parameters):
        return False
    attributes = dict(node.attributes)
    own = phases(_extents(attributes, "kernel"), _strides(parameters[0]), _integers(attributes, "dilations"))
    return all(dim.are_even for dim in own)


def _interleaved(node: Node, constants: dict[Value, Array], names: Names) -> Iterator[Node]:
    """Filter ``co * phases + p`` makes phase ``p`` of output channel ``co``; phases are in row-major order."""
    data, filters, bias = (*node.inputs, None)[:3]
    assert data is not None and filters is not None, "a convolution has data and filters"
    attributes, strides, result = dict(node.attributes), _strides(filters), node.outputs[0]
    begins, spatial = _integers(attributes, "begins"), _extents(attributes, "spatial")
    count, old = prod(strides), constants[filters]
    merged = old.reshape(-1, *old.shape[len(strides) + 1 :])
    operands = [data, _constant(filters, merged, constants, names)]
    if bias is not None:
        operands.append(_constant(bias, np.repeat(constants[bias], count), constants, names))
    dilations = tuple(d if s == 1 else 1 for d, s in zip(_integers(attributes, "dilations"), strides, strict=True))
    moves = zip(merged.shape[2:], dilations, begins, strides, strict=True)
    before = [(taps - 1) * dilation - begin // stride for taps, dilation, begin, stride in moves]
    ends = zip(begins, spatial, strides, data.shape[2:], strict=True)
    after = [number((y + (begin - 1)) // stride + 1 - own) for begin, y, stride, own in ends]
    options: Attributes = {"pads": (*before, *after), "dilations": dilations, "group": attributes.get("group", 1)}
    conv = make_node(require("Conv"), operands, [names.fresh(f"{result.name}.phases")], options, node.source)
    offsets = tuple(begin % stride for begin, stride in zip(begins, strides, strict=True))
    places: Attributes = {"strides": strides, "offsets": offsets, "spatial": spatial}
    yield conv
    yield make_node(require("PhasesToSpace"), conv.outputs, [result.name], places, node.source)


def _constant(like: Value, array: Array, constants: dict[Value, Array], names: Names) -> Value:
    value = Value(names.fresh(like.name), like.dtype, tuple(map(const, array.shape)))
    constants[value] = array
    return value


def _strides(filters: Value) -> tuple[int, ...]:
    """The strides, of which filters ``[CO, strides..., CI, taps...]`` have the phases."""
    shape = static(filters.shape) or ()
    return shape[1 : len(shape) // 2]


def _integers(attributes: Attributes, name: str) -> tuple[int, ...]:
    return tuple(int(str(value)) for value in _extents(attributes, name))


def _extents(attributes: Attributes, name: str) -> tuple[Expr, ...]:
    values = attributes[name]
    assert isinstance(values, tuple), f"{name} has an entry for each dimension"
    return tuple(as_expr(value) for value in values if not isinstance(value, str))
