"""Raises what models with ``QuantizeLinear`` and ``DequantizeLinear`` around each operator (QDQ) mean.

- Bytes with a sign between these two become bytes without one, with a zero point 128 larger: the same real numbers,
  and the left operand of dot-product instructions.
- A value that is dequantized, moved or pooled, and quantized with the same parameters stays in bytes: quantizing what
  was dequantized gives the same bytes, and so does the largest of several.
- What is put together of dequantized values that nothing else reads, and quantized, is quantized before: where these
  values are computed. Bytes are put together then.
- Elements of a dequantized table of constants are dequantized after they are gathered.
- Products of dequantized operands become ``QuantizedConv`` and ``QuantizedMatMul``, together with the quantization of
  their result; a ``Relu`` between is left out where quantizing saturates at 0. Their alternatives compute them in
  integers or in f32, as the target suggests.

Constants that are dequantized for any other use are folded afterwards, as before.
"""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from tilewright.base.dtypes import i8
from tilewright.graph import Graph, Node, Value, make_node
from tilewright.ops import Trait
from tilewright.ops.operator import require
from tilewright.passes.products_of_bytes import with_products
from tilewright.passes.quantized_values import Coded, Making, coded_by, is_positive, is_scalar, producer_of

_QUANTIZE, _DEQUANTIZE = require("QuantizeLinear"), require("DequantizeLinear")
_LARGEST, _GATHER = require("MaxPool"), require("Gather")

_HALF = 128


def raise_quantized(graph: Graph) -> Graph:
    """``graph`` with operators on quantized values; unused parts remain."""
    if not any(node.op == _DEQUANTIZE for node in graph.nodes):
        return graph
    return with_products(_in_bytes(_joined_as_bytes(_without_signs(graph))))


# Without signs


def _without_signs(graph: Graph) -> Graph:
    making = Making(graph)
    moved: dict[Value, Value] = {}
    shifted: dict[Value | None, Value] = {}

    def zero(old: Value | None) -> Value:
        if old not in shifted:
            array = np.zeros((), np.int8) if old is None else making.constants[old]
            name = "zero" if old is None else old.name
            moved = np.asarray(array.astype(np.int16) + _HALF).astype(np.uint8)
            shifted[old] = making.constant(f"{name}.unsigned", moved)
        return shifted[old]

    for node in graph.nodes:
        source, scale, own = (*node.inputs, None, None, None)[:3]
        result = node.outputs[0]
        attributes = dict(node.attributes)
        if node.op == _DEQUANTIZE and source in moved:
            making.nodes.append(replace(node, inputs=(moved[source], scale, zero(own))))
        elif node.op == _QUANTIZE and _may_lose_sign(node, making):
            name = making.names.fresh(f"{result.name}.unsigned")
            attributes.pop("dtype", None)
            made = make_node(_QUANTIZE, [source, scale, zero(own)], [name], attributes, node.source)
            moved[result] = made.outputs[0]
            making.nodes.append(made)
        else:
            making.nodes.append(node)
    return making.made()


def _may_lose_sign(node: Node, making: Making) -> bool:
    """Whether all that read these bytes dequantize them, by zero points that are known."""
    result, readers = node.outputs[0], making.readers(node.outputs[0])
    if result.dtype != i8 or not readers or len(node.inputs[1].shape if node.inputs[1] else ()) > 1:
        return False
    if not all(reader.op == _DEQUANTIZE and reader.inputs[0] == result for reader in readers):
        return False
    zeros = [(*reader.inputs, None)[2] for reader in (node, *readers)]
    return all((zero is None and is_scalar(node.inputs[1])) or zero in making.constants for zero in zeros)


# Before they are put together


def _joined_as_bytes(graph: Graph) -> Graph:
    making = Making(graph)
    replaced: set[Value] = set()
    for node in graph.nodes:
        ending = _quantized_after(node, making)
        if ending is not None:
            making.nodes.extend(_quantized_parts(node, ending, making))
            replaced.add(ending.outputs[0])
        elif node.outputs[0] not in replaced:
            making.nodes.append(node)
    return making.made()


def _quantized_after(node: Node, making: Making) -> Node | None:
    """What quantizes the elements that ``node`` puts together, if it alone reads them, and ``node`` its operands."""
    readers = making.readers(node.outputs[0])
    if not node.op.has(Trait.MOVES) or len(node.inputs) < 2 or len(readers) != 1 or readers[0].op != _QUANTIZE:
        return None
    (ending,) = readers
    parameters = [value for value in ending.inputs[1:] if value is not None]
    are_known = all(value in making.constants and is_scalar(value) for value in parameters)
    is_plain = not dict(ending.attributes).get("block_size")
    are_own = all(coded_by(producer_of(v, making)) and v and list(making.readers(v)) == [node] for v in node.inputs)
    return ending if are_known and is_plain and are_own else None


def _quantized_parts(node: Node, ending: Node, making: Making) -> Iterator[Node]:
    """The operands of ``node`` quantized as ``ending`` does, and put together in its place."""
    parts: list[Value] = []
    for value in node.inputs:
        assert value is not None, "see `_quantized_after`"
        name = making.names.fresh(f"{value.name}.requantized")
        made = make_node(_QUANTIZE, [value, *ending.inputs[1:]], [name], dict(ending.attributes), ending.source)
        parts.append(made.outputs[0])
        yield made
    yield make_node(node.op, parts, [ending.outputs[0].name], dict(node.attributes), node.source)


# In bytes


def _in_bytes(graph: Graph) -> Graph:
    making = Making(graph)
    coded: dict[Value, Coded] = {}
    same: dict[Value, Value] = {}
    for node in graph.nodes:
        node = replace(node, inputs=tuple(value if value is None else same.get(value, value) for value in node.inputs))
        result = node.outputs[0]
        source, scale, zero = (*node.inputs, None, None, None)[:3]
        known = coded_by(node)
        if known is not None:
            coded[result] = known
        elif node.op == _QUANTIZE and source is not None and result not in making.leaving:
            own = coded.get(source)
            is_same = own is not None and own.has(scale, zero) and own.bytes.dtype == result.dtype
            if own is not None and is_same and is_positive(own.scale, making):
                same[result] = own.bytes
                continue
        elif _only_moves(node):
            _move(node, coded, making)
        elif node.op == _GATHER and source in coded and coded[source].bytes in making.constants:
            node = _gathered(node, coded[source], making)
            coded[result] = replace(coded[source], bytes=_first(node))
        making.nodes.append(node)
    return making.made()


def _gathered(node: Node, table: Coded, making: Making) -> Node:
    """What ``node`` selects of the constant ``table``, dequantized: the table stays bytes."""
    result = node.outputs[0].name
    bytes_ = [making.names.fresh(f"{result}.bytes")]
    own = make_node(node.op, [table.bytes, *node.inputs[1:]], bytes_, dict(node.attributes), node.source)
    making.nodes.append(own)
    return make_node(_DEQUANTIZE, [own.outputs[0], table.scale, table.zero], [result], {}, node.source)


def _first(node: Node) -> Value:
    """The first operand."""
    value = node.inputs[0]
    assert value is not None, "it is not optional"
    return value


def _only_moves(node: Node) -> bool:
    """Whether each element of the only result is one of the inputs', or the largest of some."""
    moves = node.op.has(Trait.MOVES) or node.op.has(Trait.REGROUPS) or node.op == _LARGEST
    return moves and len(node.outputs) == 1


def _move(node: Node, coded: dict[Value, Coded], making: Making) -> None:
    """Do the same with bytes, if all inputs are dequantized alike and the result is only quantized so again."""
    found = [coded.get(value) if value is not None else None for value in node.inputs]
    first = found[0] if found else None
    if first is None or not all(c is not None and c.has(first.scale, first.zero) for c in found):
        return
    result, own = node.outputs[0], [c.bytes for c in found if c is not None]
    if len({value.dtype for value in own}) != 1 or not _is_quantized_again(result, first, making):
        return
    name = making.names.fresh(f"{result.name}.bytes")
    made = make_node(node.op, own, [name], dict(node.attributes), node.source)
    making.nodes.append(made)
    coded[result] = replace(first, bytes=made.outputs[0])


def _is_quantized_again(value: Value, coded: Coded, making: Making) -> bool:
    """Whether all that reads ``value``, perhaps moved further, quantizes it by the same parameters."""
    readers = making.readers(value)
    return bool(readers) and all(
        coded.has(*(*reader.inputs[1:], None)[:2])
        if reader.op == _QUANTIZE
        else _only_moves(reader) and _is_quantized_again(reader.outputs[0], coded, making)
        for reader in readers
    )
