"""Decides which values of a graph are stored in 16 bits, and which products have operands of 16 bits.

The graph keeps its dtypes: all arithmetic, and all sums, are in f32. A value that passes from one kernel to another is
rounded when it is stored (``kernels.narrowing``). With bfloat16, the operands of products with constant weights, and of
large products of two values, are rounded as well, where the target has dot products for them, which add exact products
in f32. Those of recurrences, too: there, only the operands of the products are rounded, and all states stay in f32.
Small values stay in f32 between elementwise operators, and so does what is normalized row by row, which is as fast.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod

import numpy as np

from tilewright.base.dtypes import DType, bf16, f16, f32
from tilewright.base.numerics import Precision
from tilewright.graph import Array, Graph, Node, Value
from tilewright.graph.ir import as_placeholder
from tilewright.kernels.dot_products import dot_products
from tilewright.kernels.narrowing import factors
from tilewright.kernels.relayout import origin_of
from tilewright.kernels.tile_products import tile_unit
from tilewright.ops import FusionKind, Trait
from tilewright.ops.shapes import static
from tilewright.passes.blocks import can_be_blocked
from tilewright.symbolic.bounds import Bounds
from tilewright.symbolic.expr import ZERO, Const, Expr, Read
from tilewright.symbolic.simplify import simplify
from tilewright.target.target import Architecture, Target
from tilewright.tensor.ir import Compute, Extern, Tensor, topological_order

_STORED = {Precision.BF16: bf16, Precision.F16: f16}
_PAIR = 2
"""Products of 16-bit numbers that one accumulator of 32 bits adds up at a time."""
_OPERANDS = 3
"""The first inputs of a node that are multiplied: the others are added, as the mask of attention is."""


@dataclass(frozen=True, slots=True)
class Narrow:
    """The values that are stored in 16 bits, by name; ``weights``: the right operands of products whose operands are
    both rounded, by the node's first result, all by name."""

    dtype: DType | None = None
    values: frozenset[str] = frozenset()
    weights: Mapping[str, frozenset[str]] = field(default_factory=dict[str, frozenset[str]])
    is_flushing: bool = False
    """Whether subnormal numbers become 0 when they are rounded."""
    constants: Mapping[str, DType] = field(default_factory=dict[str, DType])
    """Weights that are stored in 16 bits and widened when they are read, by name: they have no other numbers."""
    is_everywhere: bool = False
    """Whether all values may be rounded, not only those that the model has in 16 bits."""

    def stored(self, name: str) -> DType | None:
        """The dtype in which the value is stored, if not its own."""
        return self.dtype if name in self.values else self.constants.get(name)

    def multiplying(self, weights: Mapping[str, frozenset[str]], values: Collection[str] = ()) -> "Narrow":
        """Also with these ``weights``, and these ``values``."""
        return replace(self, weights={**self.weights, **weights}, values=self.values.union(values))

    def products(self, node: Node) -> int:
        """The products of ``node`` that one accumulator adds up at a time."""
        return _PAIR if node.outputs[0].name in self.weights else 1


WIDE = Narrow()
"""Every value in its own dtype."""


def narrow(graph: Graph, precision: Precision, target: Target) -> Narrow:
    """The storage of the values of ``graph``. By default, what the model has in bf16 is stored in bf16."""
    dtype, only = _STORED.get(precision), None
    if dtype is None:
        only = frozenset(name for name, own in graph.halves.items() if own == bf16)
        dtype = bf16 if only else None
    if dtype is None:
        return Narrow(constants=dict(_half_weights(graph, frozenset(), target)))
    weights = dict(_narrow_weights(graph, target, only)) if has_products(dtype, target) else {}
    wide = _wide(graph, weights)
    if has_products(dtype, target) and not is_faster_by_pairs(target):
        wide |= _of_wide_products(graph, weights)
    wide.update(value for value in _between(graph, _is_elementwise) if _is_near(value, target))
    wide |= _between(graph, _normalizes)
    made = (value for node in graph.nodes for value in node.outputs if value.dtype == f32)
    names = frozenset(v.name for v in made if v not in wide and (only is None or v.name in only))
    multiplied = frozenset(value for values in weights.values() for value in values)
    constants = dict(_half_weights(graph, multiplied, target))
    factors = {name: frozenset(value.name for value in values) for name, values in weights.items()}
    return Narrow(dtype, names, factors, has_products(dtype, target), constants, only is None)


def _half_weights(graph: Graph, others: Collection[Value], target: Target) -> Iterator[tuple[str, DType]]:
    """The weights that models have in 16 bits, except ``others``, of products of one row.

    These take as long as reading the weight: half of its bytes, half of the time. For more rows, what converts it again
    for each tile of them takes longer.
    """
    if target.arch is Architecture.X86_64 and not target.has("f16c"):
        return  # a conversion would take a call
    readers: dict[Value, list[Node]] = {}
    for node in graph.nodes:
        for value in node.inputs:
            if value in graph.constants and value is not None and value.name in graph.halves:
                readers.setdefault(value, []).append(node)
    for value, nodes in readers.items():
        array, dtype = graph.constants[value], graph.halves[value.name]
        is_wanted = value.dtype == f32 and value not in others and all(map(_has_one_row, nodes))
        if is_wanted and np.array_equal(array, array.astype(dtype.numpy).astype(array.dtype)):
            yield value.name, dtype


def _has_one_row(node: Node) -> bool:
    """Whether ``node`` is a product of a row with a matrix."""
    is_product = node.op.kind is FusionKind.CONTRACTION and not node.op.has(Trait.SUMS_CHANNELS)
    rows = static(node.outputs[0].shape[:-1])
    return is_product and rows is not None and prod(rows) == 1


def has_products(dtype: DType, target: Target) -> bool:
    """Whether ``target`` has dot products of ``dtype``."""
    return any(i.description.params[0].dtype == dtype for i in dot_products(target).intrinsics)


def _wide(graph: Graph, weights: Collection[str]) -> set[Value]:
    """The values that keep their dtype: inputs and outputs; operands and results of what has no functional form, and of
    products without a weight; and statistics, which many elements depend on."""
    producers = graph.producers()
    wide = {*graph.inputs, *graph.outputs}
    multiplied: set[Value] = set()
    for node in graph.nodes:
        is_opaque = node.op.kind is FusionKind.OPAQUE
        is_rounded = node.outputs[0].name in weights and not is_opaque
        operands, others = (node.inputs[:_OPERANDS], node.inputs[_OPERANDS:]) if is_rounded else ((), node.inputs)
        multiplied.update(_through_views(operands, producers))
        if is_opaque or _has_no_weight(node, graph.constants):
            wide.update(_through_views(others, producers))
    for node in graph.nodes:
        first = node.inputs[0] if node.op.kind is FusionKind.REDUCTION else None
        is_statistic = first is not None and first.shape != node.outputs[0].shape
        if node.op.kind is FusionKind.OPAQUE:
            wide.update(node.outputs)
        elif is_statistic or _has_no_weight(node, graph.constants):
            wide.update(value for value in node.outputs if value not in multiplied)
    return wide


def _of_wide_products(graph: Graph, weights: Collection[str]) -> set[Value]:
    """The data of products that are not by ``weights``: to widen them takes longer than to read them."""
    producers = graph.producers()
    products = (node for node in graph.nodes if node.op.kind is FusionKind.CONTRACTION)
    apart = (node for node in products if node.outputs[0].name not in weights)
    return {value for node in apart for value in _through_views(node.inputs, producers)}


def _between(graph: Graph, reads: Callable[[Node], bool]) -> set[Value]:
    """The values that such nodes read, and no others."""
    others = {value for node in graph.nodes if not reads(node) for value in node.inputs}
    return {value for node in graph.nodes for value in node.inputs if value is not None and value not in others}


def _is_elementwise(node: Node) -> bool:
    """Along a chain of these, roundings would add up."""
    return node.op.has(Trait.ELEMENTWISE)


def _normalizes(node: Node) -> bool:
    """What is normalized row by row is a sum of many, as that of a residual connection; to store it in 16 bits saves
    hardly any time, as rows are few bytes beside the weights of the products around."""
    return node.op.kind is FusionKind.REDUCTION and node.op.has(Trait.FLAT_AXES) and node.op.has(Trait.LIKE_FIRST)


def _is_near(value: Value, target: Target) -> bool:
    """Whether ``value`` stays in the first cache: storing fewer bits of it would save no time."""
    size = static(value.shape)
    return size is not None and value.dtype.itemsize * prod(size) <= target.l1_bytes


def _has_no_weight(node: Node, constants: Mapping[Value, Array]) -> bool:
    return node.op.kind is FusionKind.CONTRACTION and not any(value in constants for value in node.inputs)


def _through_views(values: Sequence[Value | None], producers: Mapping[Value, Node]) -> Iterator[Value]:
    """``values``, and those that they show in another shape or order."""
    for value in values:
        while value is not None:
            yield value
            producer = producers.get(value)
            value = producer.inputs[0] if producer is not None and producer.op.kind is FusionKind.VIEW else None


_MULTIPLIES = frozenset({FusionKind.CONTRACTION, FusionKind.OPAQUE})


def _narrow_weights(
    graph: Graph, target: Target, only: Collection[str] | None
) -> Iterator[tuple[str, frozenset[Value]]]:
    """The constant operands of products whose sums can be taken in pairs, by the first results of the nodes, which are
    ``only`` these."""
    for node in graph.nodes:
        is_asked = only is None or node.outputs[0].name in only
        if only is None and (values := _of_two_values(node, graph.constants, target)):
            yield node.outputs[0].name, values
        if is_asked and node.op.kind in _MULTIPLIES and any(value in graph.constants for value in node.inputs):
            weights = frozenset(_weights(node, graph.constants, target) if _gains_by_pairs(node, target) else ())
            if weights:
                yield node.outputs[0].name, weights


def _of_two_values(node: Node, constants: Collection[Value], target: Target) -> frozenset[Value]:
    """The right operands of a product of two values, or of attention, if sums are taken in pairs: a kernel copies them,
    which takes rows and columns enough that are multiplied."""
    match node.op.name, node.inputs:
        case ("MatMul", (Value() as left, Value() as right)) | ("Attention", (Value() as left, Value() as right, *_)):
            values = [left, right, *(v for v in node.inputs[2:3] if v is not None)]
        case _:
            return frozenset()
    shapes = [shape for value in values if (shape := static(value.shape)) is not None and len(shape) > 1]
    are_known = len(shapes) == len(values) and all(map(prod, shapes)) and {value.dtype for value in values} == {f32}
    are_two = left not in values[1:] and not any(value in constants for value in values)
    has_dots = is_faster_by_pairs(target) and tile_unit(target, bf16, bf16) is None
    if not are_known or not are_two or not has_dots:
        return frozenset()
    (*_, rows, depth), (*_, last) = shapes[0], shapes[-1]
    inner = [shape[-2] for shape in shapes[2:]]  # the keys of attention: columns of its first product
    is_possible = all(terms % _PAIR == 0 for terms in (depth, *inner))
    is_large = rows > _FEW_ROWS and all(count >= target.lanes(f32.bits) for count in (last, *inner))
    return frozenset(values[1:]) if is_possible and is_large else frozenset()


def is_faster_by_pairs(target: Target) -> bool:
    """Whether a core multiplies more numbers of bf16 than of float32 in a cycle, if it has dot products of them."""
    return target.machine.pair_gain > 1 or tile_unit(target, bf16, bf16) is not None


def _gains_by_pairs(node: Node, target: Target) -> bool:
    """Whether dot products take less time than products of float32: for few rows at least by reading fewer bytes."""
    if is_faster_by_pairs(target) or node.op.kind is FusionKind.OPAQUE:
        return True
    shape = static(node.outputs[0].shape)
    columns = 1 if node.op.has(Trait.SUMS_CHANNELS) else -1
    return not shape or prod(shape) <= _FEW_ROWS * shape[columns]


_FEW_ROWS = 16
"""Rows of a product up to which reading weights takes longer than multiplying them."""


def _weights(node: Node, constants: Collection[Value], target: Target) -> Iterator[Value]:
    inputs = {as_placeholder(value): value for value in node.inputs if value is not None}
    tensors = {value: tensor for tensor, value in inputs.items()}
    results = node.op.apply([None if v is None else tensors[v] for v in node.inputs], dict(node.attributes))
    made = topological_order(results)
    if any(isinstance(op, Extern) for op in made):
        return
    for op in (op for op in made if isinstance(op, Compute)):
        both = factors(op)
        for data, own in (both, both[::-1]) if both is not None else ():
            (source, _), (weight, indices) = _origin(data), _origin(own)
            value, entering = inputs.get(weight), inputs.get(source)
            is_product = value in constants and entering not in constants and own.dtype == f32 == data.dtype
            if is_product and value is not None and _has_pairs(node, op, data, indices, target):
                yield value


def _origin(read: Read) -> tuple[Tensor, tuple[Expr, ...]]:
    assert isinstance(read.source, Tensor), "see `factors`"
    return origin_of(read.source, read.indices)


def _has_pairs(node: Node, op: Compute, data: Read, weight: tuple[Expr, ...], target: Target) -> bool:
    """Whether neighbours along an axis of the sum are neighbours in the data, plain or in blocks of channels, which
    groups fill."""
    first = node.inputs[0]
    in_blocks = node.op.has(Trait.SUMS_CHANNELS) and first is not None and can_be_blocked(first, target)
    if not data.indices or (in_blocks and not _fill_blocks(node, target)):
        return False
    place = data.indices[1 if in_blocks else -1]
    bounds = Bounds({axis.var: axis.extent for axis in (*op.axes, *op.reduce_axis)})
    pairs = (a.var for a in op.reduce_axis if isinstance(a.extent, Const) and int(a.extent.value) % _PAIR == 0)
    return any(var in weight and simplify((place - var) % _PAIR, bounds) == ZERO for var in pairs)


def _fill_blocks(node: Node, target: Target) -> bool:
    """Whether no two groups share a block."""
    groups, filters = dict(node.attributes).get("group", 1), node.outputs[0].shape[1]
    if groups == 1 or not isinstance(groups, int) or not isinstance(filters, Const):
        return groups == 1
    registers = _PAIR if tile_unit(target, bf16, bf16) is not None else 1
    return int(filters.value) // groups % (registers * target.lanes(f32.bits)) == 0
