"""Recognizes uses of quantized weights, before constants are folded: ``x W`` with ``W = (codes - zero) * scale``.

Such a weight stays in its few bits, as one operator with the product (``WeightProduct``). If ``x`` is quantized as
well, nothing is changed here: such products are computed in integers. Rows that are gathered from a table are
dequantized afterwards.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from tilewright.base.names import Names
from tilewright.graph import Graph, Node, Value, make_node
from tilewright.ops import Attribute, Trait
from tilewright.ops.operator import require
from tilewright.symbolic.expr import ONE

_DEQUANTIZE, _MATMUL, _GEMM, _TRANSPOSE, _PRODUCT, _ADD, _GATHER = map(
    require, ("DequantizeLinear", "MatMul", "Gemm", "Transpose", "WeightProduct", "Add", "Gather")
)
MOST_BITS = 8
"""Of a code."""


@dataclass(frozen=True, slots=True)
class _Weight:
    """A weight that is dequantized: codes, scale, zero point, and how they go together."""

    inputs: tuple[Value | None, ...]
    transposed: bool
    block_size: int

    @property
    def attributes(self) -> Mapping[str, Attribute]:
        return {"transposed": self.transposed, "block_size": self.block_size}


def keep_weights(graph: Graph) -> Graph:
    """``graph`` with products by quantized weights in place of dequantization and product, and rows of tables gathered
    before they are dequantized; unused parts remain."""
    if not any(node.op == _DEQUANTIZE for node in graph.nodes):
        return graph
    index = _Index(graph, graph.producers(), graph.names())
    return replace(graph, nodes=tuple(made for node in graph.nodes for made in index.replaced(node)))


@dataclass(frozen=True, slots=True)
class _Index:
    graph: Graph
    producers: Mapping[Value, Node]
    names: Names

    def replaced(self, node: Node) -> tuple[Node, ...]:
        """The nodes that compute ``node``."""
        if node.op == _GATHER:
            return self._gathered(node)
        if node.op not in (_MATMUL, _GEMM):
            return (node,)
        given = dict(node.attributes)
        a, b, *rest = node.inputs
        if a is None or b is None or self._is_quantized(a) or not a.dtype.is_float or a.dtype.bits != 32:
            return (node,)
        weight = self._weight(b, transposed=bool(given.get("transpose_b", False)))
        addend = rest[0] if rest else None
        is_plain = given.get("alpha", 1.0) == 1.0 and not given.get("transpose_a", False)
        if weight is None or not is_plain or (addend is not None and given.get("beta", 1.0) != 1.0):
            return (node,)
        operands, result = (a, *weight.inputs), node.outputs[0].name
        if addend is None:
            return (make_node(_PRODUCT, operands, [result], weight.attributes, node.source),)
        product = make_node(_PRODUCT, operands, [self.names.fresh(f"{result}.product")], weight.attributes, node.source)
        return product, make_node(_ADD, [product.outputs[0], addend], [result], {}, node.source)

    def _gathered(self, node: Node) -> tuple[Node, ...]:
        """The nodes that gather rows of a table and dequantize them, if scales are along its rows."""
        table, indices = node.inputs
        producer = None if table is None else self.producers.get(table)
        if producer is None or not self._is_table(producer) or dict(node.attributes).get("axis", 0) != 0:
            return (node,)
        codes, scale, *zeros = producer.inputs
        given, result = dict(producer.attributes), node.outputs[0]
        has_blocks = bool(given.get("block_size", 0))
        is_number = scale is not None and all(extent == ONE for extent in scale.shape)
        if given.get("axis", 1) not in (1, -1) and not is_number:
            return (node,)
        operands: list[Value | None] = [codes, scale, *zeros]
        made: list[Node] = []
        for place, value in enumerate(operands if has_blocks else operands[:1]):
            if value is not None:
                name = self.names.fresh(f"{result.name}.{value.name}")
                made.append(make_node(_GATHER, [value, indices], [name], {"axis": 0}, node.source))
                operands[place] = made[-1].outputs[0]
        options = {**given, "axis": len(result.shape) - 1}
        return *made, make_node(_DEQUANTIZE, operands, [result.name], options, producer.source)

    def _is_table(self, node: Node) -> bool:
        """Whether ``node`` dequantizes a constant matrix of a few bits."""
        codes, *others = node.inputs
        is_known = all(value is None or value in self.graph.constants for value in others)
        if node.op != _DEQUANTIZE or codes not in self.graph.constants or not is_known:
            return False
        return codes is not None and len(codes.shape) == 2 and codes.dtype.bits <= MOST_BITS

    def _is_quantized(self, value: Value) -> bool:
        producer = self.producers.get(value)
        while producer is not None and producer.op.has(Trait.MOVES) and producer.inputs[0] is not None:
            producer = self.producers.get(producer.inputs[0])
        return producer is not None and producer.op == _DEQUANTIZE

    def _weight(self, value: Value, transposed: bool) -> _Weight | None:
        """The weight ``value``, or its transpose, if it is dequantized as a whole."""
        producer = self.producers.get(value)
        while producer is not None and producer.op != _DEQUANTIZE:
            source, result = producer.inputs[0], producer.outputs[0]
            if source is None or len(source.shape) != 2:
                return None
            if producer.op == _TRANSPOSE:
                transposed ^= dict(producer.attributes).get("perm") in (None, (1, 0))
            elif not producer.op.has(Trait.NEUTRAL) or (source.dtype, source.shape) != (result.dtype, result.shape):
                return None
            producer = self.producers.get(source)
        if producer is None or any(v is not None and v not in self.graph.constants for v in producer.inputs):
            return None
        return _dequantized(producer, transposed)


def _dequantized(node: Node, transposed: bool) -> _Weight | None:
    """The weight that ``node`` makes, if it is a matrix whose columns have scales, or blocks of them."""
    codes, scale, *zeros = node.inputs
    given = dict(node.attributes)
    axis, block_size = given.get("axis", 1), given.get("block_size", 0)
    if codes is None or scale is None or not isinstance(axis, int) or not isinstance(block_size, int):
        return None
    is_narrow = codes.dtype.bits <= MOST_BITS and node.outputs[0].dtype == scale.dtype and scale.dtype.bits == 32
    if not is_narrow or not scale.dtype.is_float or len(codes.shape) != 2:
        return None
    along_rows = axis % 2 == (1 if transposed else 0)
    is_number = all(extent == ONE for extent in scale.shape)
    if not is_number and along_rows != bool(block_size):
        return None
    return _Weight((codes, scale, *zeros), transposed, block_size)
