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

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod

import numpy as np

from tilewright.base.dtypes import f32, from_numpy, i8, i32, u8
from tilewright.base.names import Names
from tilewright.graph import Array, Graph, Node, Value, make_node
from tilewright.ops import Attribute, Trait
from tilewright.ops.operator import require
from tilewright.ops.shapes import static
from tilewright.symbolic.expr import const

_QUANTIZE, _DEQUANTIZE = require("QuantizeLinear"), require("DequantizeLinear")
_CONVOLUTION, _MATMUL, _GEMM = require("Conv"), require("MatMul"), require("Gemm")
_RELU, _LARGEST, _TRANSPOSE, _GATHER = map(require, ("Relu", "MaxPool", "Transpose", "Gather"))

_HALF = 128
LARGEST_SUM = 1 << 31
"""Sums of products of bytes stay below."""
_MOST_OF_TERM = 255 * 255


def raise_quantized(graph: Graph) -> Graph:
    """``graph`` with operators on quantized values; unused parts remain."""
    if not any(node.op == _DEQUANTIZE for node in graph.nodes):
        return graph
    return _with_products(_in_bytes(_joined_as_bytes(_without_signs(graph))))


@dataclass(slots=True)
class _Making:
    """The nodes and constants of the new graph, and how values are computed in the old one."""

    graph: Graph
    constants: dict[Value, Array] = field(init=False)
    names: Names = field(init=False)
    producers: Mapping[Value, Node] = field(init=False)
    consumers: Mapping[Value, Sequence[Node]] = field(init=False)
    leaving: frozenset[Value] = field(init=False)
    nodes: list[Node] = field(default_factory=list[Node])

    def __post_init__(self) -> None:
        self.constants, self.names = dict(self.graph.constants), self.graph.names()
        self.producers, self.consumers = self.graph.producers(), self.graph.consumers()
        self.leaving = frozenset(self.graph.outputs)

    def made(self) -> Graph:
        """The new graph."""
        return replace(self.graph, nodes=tuple(self.nodes), constants=self.constants)

    def constant(self, like: str, array: Array) -> Value:
        """A new constant."""
        value = Value(self.names.fresh(like), from_numpy(array.dtype), tuple(map(const, array.shape)))
        self.constants[value] = array
        return value

    def readers(self, value: Value) -> Sequence[Node]:
        """The nodes that read ``value``; none if it leaves the graph, where nothing may replace it."""
        return () if value in self.leaving else self.consumers.get(value, ())


# Without signs


def _without_signs(graph: Graph) -> Graph:
    making = _Making(graph)
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


def _may_lose_sign(node: Node, making: _Making) -> bool:
    """Whether all that read these bytes dequantize them, by zero points that are known."""
    result, readers = node.outputs[0], making.readers(node.outputs[0])
    if result.dtype != i8 or not readers or len(node.inputs[1].shape if node.inputs[1] else ()) > 1:
        return False
    if not all(reader.op == _DEQUANTIZE and reader.inputs[0] == result for reader in readers):
        return False
    zeros = [(*reader.inputs, None)[2] for reader in (node, *readers)]
    return all((zero is None and _is_scalar(node.inputs[1])) or zero in making.constants for zero in zeros)


def _is_scalar(value: Value | None) -> bool:
    """Whether ``value`` has one element."""
    shape = None if value is None else static(value.shape)
    return shape is not None and prod(shape) == 1


# Before they are put together


def _joined_as_bytes(graph: Graph) -> Graph:
    making = _Making(graph)
    replaced: set[Value] = set()
    for node in graph.nodes:
        ending = _quantized_after(node, making)
        if ending is not None:
            making.nodes.extend(_quantized_parts(node, ending, making))
            replaced.add(ending.outputs[0])
        elif node.outputs[0] not in replaced:
            making.nodes.append(node)
    return making.made()


def _quantized_after(node: Node, making: _Making) -> Node | None:
    """What quantizes the elements that ``node`` puts together, if it alone reads them, and ``node`` its operands."""
    readers = making.readers(node.outputs[0])
    if not node.op.has(Trait.MOVES) or len(node.inputs) < 2 or len(readers) != 1 or readers[0].op != _QUANTIZE:
        return None
    (ending,) = readers
    parameters = [value for value in ending.inputs[1:] if value is not None]
    are_known = all(value in making.constants and _is_scalar(value) for value in parameters)
    is_plain = not dict(ending.attributes).get("block_size")
    are_own = all(_coded(_producer(v, making)) and v and list(making.readers(v)) == [node] for v in node.inputs)
    return ending if are_known and is_plain and are_own else None


def _quantized_parts(node: Node, ending: Node, making: _Making) -> Iterator[Node]:
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


@dataclass(frozen=True, slots=True)
class _Coded:
    """Quantized elements, with one scale and zero point for all."""

    bytes: Value
    scale: Value
    zero: Value | None

    def has(self, scale: Value | None, zero: Value | None) -> bool:
        """Whether these are its parameters."""
        return (self.scale, self.zero) == (scale, zero)


def _coded(node: Node | None) -> _Coded | None:
    """What ``node`` dequantizes, if all has one scale."""
    if node is None or node.op != _DEQUANTIZE or node.outputs[0].dtype != f32:
        return None
    source, scale, zero = (*node.inputs, None)[:3]
    if source is None or scale is None or source.dtype not in (u8, i8) or scale.dtype != f32:
        return None
    is_one = _is_scalar(scale) and (zero is None or _is_scalar(zero))
    return _Coded(source, scale, zero) if is_one and not dict(node.attributes).get("block_size") else None


def _in_bytes(graph: Graph) -> Graph:
    making = _Making(graph)
    coded: dict[Value, _Coded] = {}
    same: dict[Value, Value] = {}
    for node in graph.nodes:
        node = replace(node, inputs=tuple(value if value is None else same.get(value, value) for value in node.inputs))
        result = node.outputs[0]
        source, scale, zero = (*node.inputs, None, None, None)[:3]
        known = _coded(node)
        if known is not None:
            coded[result] = known
        elif node.op == _QUANTIZE and source is not None and result not in making.leaving:
            own = coded.get(source)
            is_same = own is not None and own.has(scale, zero) and own.bytes.dtype == result.dtype
            if own is not None and is_same and _is_positive(own.scale, making):
                same[result] = own.bytes
                continue
        elif _only_moves(node):
            _move(node, coded, making)
        elif node.op == _GATHER and source in coded and coded[source].bytes in making.constants:
            node = _gathered(node, coded[source], making)
            coded[result] = replace(coded[source], bytes=_first(node))
        making.nodes.append(node)
    return making.made()


def _gathered(node: Node, table: _Coded, making: _Making) -> Node:
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


def _move(node: Node, coded: dict[Value, _Coded], making: _Making) -> None:
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


def _is_quantized_again(value: Value, coded: _Coded, making: _Making) -> bool:
    """Whether all that reads ``value``, perhaps moved further, quantizes it by the same parameters."""
    readers = making.readers(value)
    return bool(readers) and all(
        coded.has(*(*reader.inputs[1:], None)[:2])
        if reader.op == _QUANTIZE
        else _only_moves(reader) and _is_quantized_again(reader.outputs[0], coded, making)
        for reader in readers
    )


def _is_positive(scale: Value, making: _Making) -> bool:
    """Whether the scale is known and positive, and bytes times it are exact to a few units in the last place."""
    array = making.constants.get(scale)
    if array is None:
        return False
    exact = array.astype(np.float64)
    return bool(np.all((exact >= np.finfo(np.float32).tiny) & (exact <= _LARGEST_SCALE)))


_LARGEST_SCALE = 2.0**100
"""All bytes times it are finite."""


# Products


@dataclass(frozen=True, slots=True)
class _Product:
    """The operands of a product of dequantized values, and the constant term."""

    op: str
    left: _Coded
    right: tuple[Value, Value, Value | None]
    bias: Value | None
    attributes: Mapping[str, Attribute]


@dataclass(frozen=True, slots=True)
class _Ending:
    """The node that quantizes a product, its scale and its zero point."""

    node: Node
    scale: Value
    zero: Value | None


def _with_products(graph: Graph) -> Graph:
    making = _Making(graph)
    at_end: dict[Value, tuple[_Product, _Ending]] = {}
    for node in graph.nodes:
        result = node.outputs[0]
        if result in at_end:
            product, ending = at_end[result]
            making.nodes.append(_made(product, node, making, ending))
            continue
        found = _product(node, making)
        if found is None:
            making.nodes.append(node)
            continue
        ending = _ending(result, making)
        if ending is None:
            making.nodes.append(_made(found, node, making))
        else:
            at_end[ending.node.outputs[0]] = found, ending
            making.nodes.append(node)
    return making.made()


def _made(product: _Product, node: Node, making: _Making, ending: _Ending | None = None) -> Node:
    """The product as one node with the results of ``node``."""
    left = product.left
    last = () if ending is None else (ending.scale, ending.zero)
    inputs = (left.bytes, left.scale, left.zero, *product.right, _integer_bias(product, making), *last)
    return make_node(require(product.op), inputs, [node.outputs[0].name], product.attributes, node.source)


def _product(node: Node, making: _Making) -> _Product | None:
    if node.op == _CONVOLUTION:
        return _of_convolution(node, making)
    return _of_matrices(node, making) if node.op in (_MATMUL, _GEMM) else None


def _of_convolution(node: Node, making: _Making) -> _Product | None:
    data, weight, bias = (*node.inputs, None)[:3]
    left, right = _coded(_producer(data, making)), _parameters(weight, 0, making)
    if left is None or right is None or not _is_bounded(right[0].shape[1:]):
        return None
    return _Product("QuantizedConv", left, right, bias, dict(node.attributes))


def _of_matrices(node: Node, making: _Making) -> _Product | None:
    a, b, bias = (*node.inputs, None)[:3]
    given = dict(node.attributes)
    left = _coded(_producer(a, making))
    plain = given.get("alpha", 1.0) == 1.0 and given.get("beta", 1.0) == 1.0 and not given.get("transpose_a", False)
    right = _matrix(b, making, crossed=bool(given.get("transpose_b", False)))
    if left is None or right is None or not plain or len(left.bytes.shape) < 2:
        return None
    if not _is_bounded(right[0].shape[:1]) or (bias is not None and bias.shape != node.outputs[0].shape[-1:]):
        return None
    return _Product("QuantizedMatMul", left, right, bias, {})


def _matrix(value: Value | None, making: _Making, *, crossed: bool) -> tuple[Value, Value, Value | None] | None:
    """A constant matrix of bytes, transposed if it is ``crossed``, with one scale, or one for each column."""
    node = _producer(value, making)
    if node is not None and node.op == _TRANSPOSE and len(node.outputs[0].shape) == 2:
        value, crossed = node.inputs[0], crossed != (dict(node.attributes).get("perm") in (None, (1, 0)))
    found = _parameters(value, 0 if crossed else 1, making)
    if found is None or len(found[0].shape) != 2:
        return None
    source, scale, zero = found
    if not crossed:
        return found
    return making.constant(f"{source.name}.transposed", np.ascontiguousarray(making.constants[source].T)), scale, zero


def _producer(value: Value | None, making: _Making) -> Node | None:
    return None if value is None else making.producers.get(value)


def _parameters(value: Value | None, axis: int, making: _Making) -> tuple[Value, Value, Value | None] | None:
    """A constant of bytes that is dequantized by one scale, or by one for each position along ``axis``."""
    node = _producer(value, making)
    if node is None or node.op != _DEQUANTIZE or node.outputs[0].dtype != f32:
        return None
    source, scale, zero = (*node.inputs, None)[:3]
    given = dict(node.attributes)
    own = given.get("axis", 1)
    if source is None or scale is None or scale.dtype != f32 or source.dtype not in (u8, i8):
        return None
    if source not in making.constants or given.get("block_size") or not isinstance(own, int):
        return None
    fits = _is_scalar(scale) or (len(scale.shape) == 1 and own % len(source.shape) == axis)
    return (source, scale, zero) if fits else None


def _is_bounded(terms: Sequence[object]) -> bool:
    """Whether sums of products of bytes, as many as the product of ``terms``, fit in 32 bits."""
    return prod(int(str(extent)) for extent in terms) * _MOST_OF_TERM < LARGEST_SUM


def _integer_bias(product: _Product, making: _Making) -> Value | None:
    """The integers of the bias, if it is dequantized by the scales of the operands; else the bias."""
    node = _producer(product.bias, making)
    if node is None or node.op != _DEQUANTIZE:
        return product.bias
    source, scale, zero = (*node.inputs, None)[:3]
    scales = (scale, product.left.scale, product.right[1])
    known = [making.constants[value].astype(np.float64).reshape(-1) for value in scales if value in making.constants]
    if source is None or source.dtype != i32 or len(known) != 3 or (zero is not None and not _is_zero(zero, making)):
        return product.bias
    own, of_data, of_weight = known
    return source if np.allclose(own, of_data * of_weight, rtol=_ALIKE, atol=0) else product.bias


_ALIKE = 1e-6
"""Relative difference of products of scales by their rounding."""


def _is_zero(value: Value, making: _Making) -> bool:
    array = making.constants.get(value)
    return array is not None and not array.any()


def _is_least(value: Value, making: _Making) -> bool:
    array = making.constants.get(value)
    return array is not None and bool(np.all(array == value.dtype.min))


def _ending(value: Value, making: _Making) -> _Ending | None:
    """The only reader of ``value``, if it quantizes it by one scale; perhaps after a ``Relu`` that changes nothing."""
    after_relu = False
    readers = making.readers(value)
    if len(readers) == 1 and readers[0].op == _RELU:
        after_relu, readers = True, making.readers(readers[0].outputs[0])
    if len(readers) != 1 or readers[0].op != _QUANTIZE:
        return None
    node = readers[0]
    _, scale, zero = (*node.inputs, None)[:3]
    result, given = node.outputs[0], dict(node.attributes)
    if scale is None or scale.dtype != f32 or result.dtype not in (u8, i8) or not _is_scalar(scale):
        return None
    if given.get("block_size") or given.get("precision") not in (None, f32) or zero is None or not _is_scalar(zero):
        return None
    if after_relu and not (_is_positive(scale, making) and _is_least(zero, making)):
        return None
    return _Ending(node, scale, zero)
