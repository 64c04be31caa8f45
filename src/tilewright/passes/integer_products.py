"""Lowers products of quantized matrices to dot-product instructions, or to i32 products.

``vpdpbusd`` multiplies u8 by i8 in groups of four. With ``a' = a + 128`` if ``a`` is signed, ``b' = b - 128`` if ``b``
is unsigned, and zero points shifted likewise::

    sum (a - za) (b - zb) = sum a' b' - za' (sum b' - k zb') - zb' sum a'

modulo 2^32, as in ONNX. Terms in ``b`` are computed at compile time: so ``b`` must be constant, and is packed in groups
of four. Usually ``zb'`` is 0, and only one number per column is subtracted.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from tilewright.base.dtypes import from_numpy, i8, i32, u8
from tilewright.base.names import Names
from tilewright.graph import Array, Graph, Node, Value, make_node
from tilewright.kernels.dot_products import LANES, dot_products
from tilewright.kernels.packing import pack
from tilewright.ops.operator import Attribute, require
from tilewright.passes.normalize import normalize
from tilewright.schedule.index_map import IndexMap
from tilewright.symbolic.expr import ONE, const
from tilewright.target.target import Target

Words: TypeAlias = NDArray[np.int32]

GROUP = 4
"""Products of one instruction per accumulator."""
_PACKED = IndexMap.parse(f"k, n -> n // {LANES}, k // {GROUP}, n % {LANES}, k % {GROUP}")
_HALF = 128
_QUANTIZED = frozenset({"MatMulInteger", "ConvInteger"})


def expand_integer_products(graph: Graph, target: Target) -> Graph:
    """``graph`` with products of quantized matrices lowered for ``target``."""
    if not any(node.op.name in _QUANTIZED for node in graph.nodes):
        return graph
    has_instruction = dot_products(target).get("vpdpbusd") is not None
    expansion = _Expansion(graph.names(), dict(graph.constants))
    for node in graph.nodes:
        if node.op.name in _QUANTIZED:
            expansion.expand(node, has_instruction)
        else:
            expansion.nodes.append(node)
    return normalize(replace(graph, nodes=tuple(expansion.nodes), constants=expansion.constants))


@dataclass(slots=True)
class _Expansion:
    """The nodes so far; ``source`` of new ones is that of the expanded node."""

    names: Names
    constants: dict[Value, Array]
    nodes: list[Node] = field(default_factory=list[Node])
    node: Node | None = None

    def expand(self, node: Node, has_instruction: bool) -> None:
        """Add the nodes that compute ``node``."""
        self.node = node
        a, b, a_zero, b_zero = (*node.inputs, None, None)[:4]
        assert a is not None and b is not None, "a product has two operands"
        is_known = b in self.constants and self.constants[b].size > 0 and (b_zero is None or b_zero in self.constants)
        if node.op.name == "ConvInteger":
            fits = has_instruction and is_known and self._fits(node, b, b_zero)
            terms = list(self._dot_convolution(a, b, a_zero) if fits else self._conv_in_words(a, b, a_zero, b_zero))
        elif has_instruction and is_known and len(a.shape) > 1 and len(b.shape) == 2:
            terms = list(self._dot_products(a, b, a_zero, b_zero))
        else:
            terms = [self._in_words(a, a_zero, b, b_zero)]
        result, *others = terms
        for term in others:
            result = self._add("Sub", result, term)
        *before, last = self.nodes
        self.nodes = [*before, replace(last, outputs=node.outputs)]

    def _in_words(self, a: Value, a_zero: Value | None, b: Value, b_zero: Value | None) -> Value:
        return self._add("MatMul", self._centered(a, self._by_row(a, a_zero)), self._centered(b, b_zero))

    def _centered(self, matrix: Value, zero: Value | None) -> Value:
        wide = self._add("Cast", matrix, to=i32)
        return wide if zero is None else self._add("Sub", wide, self._add("Cast", zero, to=i32))

    def _by_row(self, a: Value, zero: Value | None) -> Value | None:
        """A zero point of the left matrix, made broadcastable: one number, or one for each row."""
        is_vector = zero is not None and len(zero.shape) == 1 and len(a.shape) > 1
        return self._add("Unsqueeze", zero, axes=(1,)) if is_vector else zero

    def _dot_products(self, a: Value, b: Value, a_zero: Value | None, b_zero: Value | None) -> Iterator[Value]:
        """The sum of products, and the value to subtract from it."""
        moved = _HALF if b.dtype == u8 else 0
        words: Words = self.constants[b].astype(np.int32) - moved
        zeros: Words = np.zeros(1, np.int32) if b_zero is None else self.constants[b_zero].astype(np.int32).reshape(-1)
        zeros = zeros - moved
        depth, columns = words.shape
        left = self._grouped(self._unsigned(a), depth)
        yield self._add("DotProducts", left, self._constant(_packed(words.astype(np.int8))), columns=columns)
        by_column: Words = words.sum(0, dtype=np.int32) - depth * zeros
        if (zero := self._shifted_zero(a, a_zero)) is not None and by_column.any():
            yield self._add("Mul", zero, self._constant(by_column))
        if zeros.any():
            wide = self._add("Cast", left, to=i32)
            sums = self._add("ReduceSum", wide, axes=(len(a.shape) - 1,), keepdims=True)
            yield self._add("Mul", sums, self._constant(zeros))

    def _conv_in_words(self, x: Value, weight: Value, x_zero: Value | None, zeros: Value | None) -> Iterator[Value]:
        assert self.node is not None, "nodes are added for a node"
        if zeros is not None and zeros.shape:
            zeros = self._add("Unsqueeze", zeros, axes=tuple(range(1, len(weight.shape))))
        filters = self._centered(weight, zeros)
        yield self._add("Conv", self._centered(x, x_zero), filters, **dict(self.node.attributes))

    def _fits(self, node: Node, weight: Value, zeros: Value | None) -> bool:
        """Whether there are no terms per window, all filters read all channels, and pads are known."""
        attributes = dict(node.attributes)
        pads = attributes["pads"]
        is_whole = isinstance(pads, tuple) and all(isinstance(pad, int) and pad >= 0 for pad in pads)
        known = np.zeros(1, np.int32) if zeros is None else self.constants[zeros].astype(np.int32)
        neutral = np.all(known == (_HALF if weight.dtype == u8 else 0))
        return is_whole and bool(neutral) and attributes["group"] == 1

    def _dot_convolution(self, x: Value, weight: Value, x_zero: Value | None) -> Iterator[Value]:
        """The convolution of the input padded with its zero point, and one number for each filter."""
        assert self.node is not None, "nodes are added for a node"
        attributes = dict(self.node.attributes)
        words: Words = self.constants[weight].astype(np.int32) - (_HALF if weight.dtype == u8 else 0)
        filters, rank = len(words), words.ndim - 2
        pads = attributes.pop("pads")
        assert isinstance(pads, tuple), "see `_fits`"
        around, places = self._around(x, x_zero), {"before": pads[:rank], "after": pads[rank:]}
        grouped = self._add("ChannelGroups", self._unsigned(x), around, **places, group=GROUP)
        moves = {name: attributes[name] for name in ("strides", "dilations")}
        packed = self._constant(_packed_filters(words.astype(np.int8)))
        yield self._add("DotConvolution", grouped, packed, filters=filters, **moves)
        if (zero := self._shifted_zero(x, x_zero)) is not None:
            by_filter: Words = words.reshape(filters, -1).sum(1, dtype=np.int32)
            yield self._add("Mul", zero, self._constant(by_filter.reshape(filters, *[1] * rank)))

    def _around(self, x: Value, zero: Value | None) -> Value | None:
        """The zero point of ``x'``, in u8; None if it is 0."""
        if zero is not None:
            return self._unsigned(zero)
        return None if x.dtype == u8 else self._constant(np.array(_HALF, np.uint8))

    def _unsigned(self, a: Value) -> Value:
        if a.dtype == u8:
            return a
        moved = self._add("Add", self._add("Cast", a, to=i32), self._constant(np.array(_HALF, np.int32)))
        return self._add("Cast", moved, to=u8)

    def _grouped(self, a: Value, depth: int) -> Value:
        """Padded with zeros after each row to whole groups."""
        missing = -depth % GROUP
        if not missing:
            return a
        none = (0,) * (len(a.shape) - 1)
        return self._add("Pad", a, None, before=(*none, 0), after=(*none, missing))

    def _shifted_zero(self, a: Value, zero: Value | None) -> Value | None:
        """The zero point of ``a'`` in i32; None if it is 0."""
        moved = np.array(_HALF if a.dtype == i8 else 0, np.int32)
        if zero is None:
            return self._constant(moved) if a.dtype == i8 else None
        if zero in self.constants and not np.any(self.constants[zero].astype(np.int32) + moved):
            return None
        by_row = self._by_row(a, zero) if zero.shape != (ONE,) else zero
        wide = self._add("Cast", by_row, to=i32)
        return self._add("Add", wide, self._constant(moved.reshape(()))) if moved else wide

    def _constant(self, array: Array) -> Value:
        assert self.node is not None, "constants are made for a node"
        dtype = from_numpy(array.dtype)
        name = self.names.fresh(f"{self.node.outputs[0].name}.constant")
        value = Value(name, dtype, tuple(map(const, array.shape)))
        self.constants[value] = array
        return value

    def _add(self, op: str, *inputs: Value | None, **attributes: Attribute) -> Value:
        assert self.node is not None, "nodes are added for a node"
        name = self.names.fresh(f"{self.node.outputs[0].name}.{op.lower()}")
        self.nodes.append(make_node(require(op), inputs, [name], attributes, self.node.source))
        return self.nodes[-1].outputs[0]


def _packed_filters(weight: Array) -> Array:
    """``[F, C, kernel...]`` as ``[F/16, C/4, kernel..., 16, 4]``: as matrices, one for each tap."""
    filters, channels, *kernel = weight.shape
    taps = np.moveaxis(weight.reshape(filters, channels, -1), 2, 0)
    packed = np.stack([_packed(np.ascontiguousarray(tap.T)) for tap in taps], axis=2)
    strips, groups = packed.shape[:2]
    return packed.reshape(strips, groups, *kernel, LANES, GROUP)


def _packed(b: Array) -> Array:
    """In groups, and padded with columns of zeros to whole registers, or pairs of them for more than one."""
    depth, columns = b.shape
    width = LANES if columns <= LANES else 2 * LANES
    return pack(np.pad(b, ((0, -depth % GROUP), (0, -columns % width))), _PACKED)
