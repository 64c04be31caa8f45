"""Products of quantized matrices, and convolutions: by dot-product instructions, or as products of f32 or i32.

Dot products multiply u8 by i8, or i8 by i8, in groups of four. Where the type of ``a`` takes longer than the other,
``a' = a + 128`` if it is signed, ``a' = a - 128`` if it is not; ``b' = b - 128`` if ``b`` is unsigned; and zero points
are shifted likewise::

    sum (a - za) (b - zb) = sum a' b' - za' (sum b' - k zb') - zb' sum a'

modulo 2^32, as in ONNX. Terms in ``b`` are computed at compile time: so ``b`` must be constant, and is packed in groups
of four. Usually ``zb'`` is 0, and only one number per column is subtracted.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from tilewright.base.dtypes import DType, f32, i8, i32, u8
from tilewright.cost.kernels import sum_cycles
from tilewright.graph import Array, Node, Value
from tilewright.kernels.dot_descriptions import WORD
from tilewright.kernels.dot_products import product_of
from tilewright.kernels.packing import pack
from tilewright.ops.dot_products import LIMIT
from tilewright.ops.operator import Attribute, require
from tilewright.ops.shapes import static
from tilewright.passes.alternatives.api import Building, Facts, Way
from tilewright.passes.blocks import can_be_blocked, points
from tilewright.schedule.index_map import IndexMap
from tilewright.symbolic.expr import ONE, const
from tilewright.target.target import Target

Words: TypeAlias = NDArray[np.int32]

GROUP = 4
"""Products of one instruction per accumulator."""
_HALF = 128
_MATMUL, _CONVOLUTION = require("MatMulInteger"), require("ConvInteger")


class InGroups:
    """By dot products, if the target has them, for a constant second operand."""

    name = "dot products"

    def ways(self, node: Node, facts: Facts) -> Iterator[Way]:
        if node.op not in (_MATMUL, _CONVOLUTION):
            return
        a, b, _, b_zero = _operands(node)
        instruction = product_of(facts.target, _data_type(a.dtype, facts.target), i8, i32)
        if b not in facts.constants or facts.constants[b].size == 0 or (b_zero and b_zero not in facts.constants):
            return
        if node.op == _MATMUL:
            joined = int(len(a.shape) > 1 and len(b.shape) == 2)
        else:
            joined = _joined(node, facts) if _has_known_pads(node) else 0
        if joined and instruction is not None:
            spent = joined * cycles(node, facts, GROUP, instruction.multiply_adds)
            yield Way(self.name, spent, make=partial(in_groups, target=facts.target))


class InChannels:
    """Convolutions of each channel by a filter of its own, without zero points of filters: sums of words, of bytes that
    are widened in registers."""

    name = "sums by channel"

    def ways(self, node: Node, facts: Facts) -> Iterator[Way]:
        if node.op != _CONVOLUTION or not _has_known_pads(node) or not _has_own_filters(node, facts):
            return
        yield Way(self.name, cycles(node, facts, 1), make=partial(in_channels, target=facts.target))


class InWords:
    """As products of i32, for any operands and target."""

    name = "products of words"

    def ways(self, node: Node, facts: Facts) -> Iterator[Way]:
        if node.op in (_MATMUL, _CONVOLUTION):
            yield Way(self.name, cycles(node, facts, 1), make=_in_words)


class InReals:
    """As convolutions of f32, if sums are so short that they are exact: all partial sums are below 2^24."""

    name = "products of reals"

    def ways(self, node: Node, facts: Facts) -> Iterator[Way]:
        if node.op == _CONVOLUTION and points(_operands(node)[1].shape[1:]) * _LARGEST_TERM <= _EXACT:
            yield Way(self.name, cycles(node, facts, 1), make=_in_reals)


IN_GROUPS, IN_CHANNELS, IN_REALS, IN_WORDS = InGroups(), InChannels(), InReals(), InWords()

_LARGEST_TERM = 255 * 255
_EXACT = 1 << 24
"""Integers up to this one are numbers of f32."""


def _operands(node: Node) -> tuple[Value, Value, Value | None, Value | None]:
    """Both operands, and their zero points."""
    a, b, a_zero, b_zero = (*node.inputs, None, None)[:4]
    assert a is not None and b is not None, "a product has two operands"
    return a, b, a_zero, b_zero


def cycles(node: Node, facts: Facts, group: int, multiply_adds: int = 1) -> float:
    """Cycles of the sums, if a word holds a ``group`` of their terms, and so many ``multiply_adds`` are one of them."""
    a, b, *_ = _operands(node)
    terms = a.shape[-1:] if node.op == _MATMUL else b.shape[1:]
    products = points(node.outputs[0].shape) * points(terms)
    return sum_cycles(products * multiply_adds // group, points(b.shape) // group, facts.target)


def _joined(node: Node, facts: Facts) -> int:
    """How many groups of channels are summed up as one, with zeros for the others, so that groups fill blocks; 0 if
    that is not possible."""
    data, weight, _, zeros = _operands(node)
    group, result = dict(node.attributes)["group"], node.outputs[0]
    if group == 1:
        return 1
    channels, filters = (static(value.shape[1:2]) for value in (data, result))
    are_blocks = can_be_blocked(data, facts.target) and can_be_blocked(result, facts.target)
    if channels is None or filters is None or not are_blocks or not _is_symmetric(weight, zeros, facts):
        return 0
    own, made, lanes = channels[0] // int(str(group)), filters[0] // int(str(group)), facts.target.lanes(WORD)
    if own % lanes == 0 and made % lanes == 0:
        return 1
    return lanes // own if 1 < own == made and lanes % own == 0 and channels[0] % lanes == 0 else 0


def _has_known_pads(node: Node) -> bool:
    pads = dict(node.attributes)["pads"]
    return isinstance(pads, tuple) and all(isinstance(pad, int) and pad >= 0 for pad in pads)


def _has_own_filters(node: Node, facts: Facts) -> bool:
    """Whether each channel has a filter, which is known and has no zero point, and channels can be in blocks."""
    data, weight, _, zeros = _operands(node)
    if weight not in facts.constants or not can_be_blocked(data, facts.target):
        return False
    (filters, terms), (channels, group) = weight.shape[:2], (data.shape[1], dict(node.attributes)["group"])
    return _is_symmetric(weight, zeros, facts) and terms == ONE and channels == filters == const(int(str(group)))


def _is_symmetric(weight: Value, zeros: Value | None, facts: Facts) -> bool:
    """Whether a known ``weight``, as signed bytes, has no zero points."""
    moved = _HALF if weight.dtype == u8 else 0
    if zeros is None:
        return moved == 0
    return zeros in facts.constants and not np.any(facts.constants[zeros].astype(np.int32) - moved)


def in_groups(node: Node, building: Building, target: Target, addend: Value | None = None) -> None:
    """Adds the nodes that compute ``node`` by dot products, where ``InGroups`` has a way, and add ``addend`` to it."""
    is_limited = _has_limits(node, building) and _gains_by_limits(target)
    data_type = u8 if is_limited else _data_type(_operands(node)[0].dtype, target)
    terms = _Terms(node, building, addend, target.lanes(WORD), data_type, is_limited)
    if node.op == _MATMUL:
        terms.subtract(terms.of_product())
        return
    data, result = node.inputs[0], node.outputs[0]
    in_blocks = data is not None and can_be_blocked(data, target) and can_be_blocked(result, target)
    terms.subtract(terms.of_blocks() if in_blocks else terms.of_convolution())


def _has_limits(node: Node, building: Building) -> bool:
    """Whether the weight, as signed bytes, is between the limits of ``limited``."""
    weight = _operands(node)[1]
    words: Words = building.constants[weight].astype(np.int32) - (_HALF if weight.dtype == u8 else 0)
    return bool(np.abs(words).max(initial=0) <= LIMIT)


def _gains_by_limits(target: Target) -> bool:
    """Whether products by weights between limits take no more multiply-adds than others: there is less around them."""
    found, plain = (product_of(target, u8, i8, i32, is_limited=limits) for limits in (True, False))
    return found is not None and plain is not None and found.multiply_adds <= plain.multiply_adds


def _data_type(own: DType, target: Target) -> DType:
    """The type in which bytes are multiplied by signed ones: their ``own``, if the other one is not faster."""
    found = {data: product_of(target, data, i8, i32) for data in (own, i8 if own == u8 else u8)}
    taken = {data: one.multiply_adds for data, one in found.items() if one is not None}
    return min(taken, key=lambda data: taken[data], default=own)


def in_channels(node: Node, building: Building, target: Target, addend: Value | None = None) -> None:
    """The same, where ``InChannels`` has a way."""
    terms = _Terms(node, building, addend, target.lanes(WORD))
    terms.subtract(terms.of_channels())


def _in_words(node: Node, building: Building) -> None:
    terms = _Terms(node, building)
    terms.subtract(iter([terms.convolution_in(i32) if node.op == _CONVOLUTION else terms.product_in_words()]))


def _in_reals(node: Node, building: Building) -> None:
    terms = _Terms(node, building)
    terms.subtract(iter([terms.in_words(terms.convolution_in(f32))]))


@dataclass(frozen=True, slots=True)
class _Terms:
    """Adds the nodes that compute ``node``: its terms, of which all but the first are subtracted."""

    node: Node
    building: Building
    addend: Value | None = None
    """In i32, broadcast."""
    lanes: int = 1
    """Words of a register."""
    data_type: DType = u8
    """In which data are multiplied."""
    is_limited: bool = False
    """Whether there is an instruction for a weight between limits, as this one is."""

    def subtract(self, terms: Iterator[Value]) -> None:
        """The result: the first of ``terms`` without the others, and the addend. Constant terms are taken from that, so
        that one addition remains."""
        result, *others = terms
        addend = self.addend
        for term in others:
            if addend is None:
                result = self._add("Sub", result, term)
            else:
                addend = self._add("Sub", addend, term)
        if addend is not None:
            self._add("Add", result, addend)
        self.building.finish(self.node)

    def product_in_words(self) -> Value:
        """The only term."""
        a, b, a_zero, b_zero = _operands(self.node)
        return self._add("MatMul", self._centered(a, self._by_row(a, a_zero)), self._centered(b, b_zero))

    def in_words(self, value: Value) -> Value:
        """``value`` as integers."""
        return self._add("Cast", value, to=i32)

    def convolution_in(self, dtype: DType) -> Value:
        """The only term, in numbers of ``dtype``."""
        x, weight, x_zero, zeros = _operands(self.node)
        if zeros is not None and zeros.shape:
            zeros = self._add("Unsqueeze", zeros, axes=tuple(range(1, len(weight.shape))))
        filters, data = self._centered(weight, zeros, dtype), self._centered(x, x_zero, dtype)
        return self._add("Conv", data, filters, **dict(self.node.attributes))

    def of_product(self) -> Iterator[Value]:
        """The sum of products, and what zero points add to it."""
        a, b, a_zero, b_zero = _operands(self.node)
        moved = _HALF if b.dtype == u8 else 0
        words: Words = self._array(b).astype(np.int32) - moved
        zeros: Words = np.zeros(1, np.int32) if b_zero is None else self._array(b_zero).astype(np.int32).reshape(-1)
        zeros = zeros - moved
        depth, columns = words.shape
        left = self._grouped(self._moved(a), depth)
        packed = self._constant(_packed(words.astype(np.int8), self.lanes))
        yield self._add("DotProducts", left, packed, columns=columns, **self._limits)
        by_column: Words = words.sum(0, dtype=np.int32) - depth * zeros
        if (zero := self._shifted_zero(a, a_zero)) is not None and by_column.any():
            yield self._add("Mul", zero, self._constant(by_column))
        if zeros.any():
            wide = self._add("Cast", left, to=i32)
            sums = self._add("ReduceSum", wide, axes=(len(a.shape) - 1,), keepdims=True)
            yield self._add("Mul", sums, self._constant(zeros))

    def of_convolution(self) -> Iterator[Value]:
        """The convolution of the input padded with its zero point, and one number for each filter."""
        x, weight, x_zero, _ = _operands(self.node)
        attributes = dict(self.node.attributes)
        words: Words = self._array(weight).astype(np.int32) - (_HALF if weight.dtype == u8 else 0)
        filters, rank, data = len(words), words.ndim - 2, self._moved(x)
        pads = attributes.pop("pads")
        assert isinstance(pads, tuple), "see `_is_plain`"
        around, places = self._around(x, x_zero), {"before": pads[:rank], "after": pads[rank:]}
        grouped = self._add("ChannelGroups", data, around, **places, group=GROUP)
        moves = {name: attributes[name] for name in ("strides", "dilations")}
        packed = self._constant(_packed_filters(words.astype(np.int8), self.lanes))
        yield self._add("DotConvolution", grouped, packed, filters=filters, **moves, **self._limits)
        yield from self._of_zeros(words, data, around)

    def of_blocks(self) -> Iterator[Value]:
        """The same, with the channels of data and result in blocks."""
        x, weight, x_zero, _ = _operands(self.node)
        words: Words = self._array(weight).astype(np.int32) - (_HALF if weight.dtype == u8 else 0)
        filters, channels, *kernel = words.shape
        data, around = self._moved(x), self._around(x, x_zero)
        whole, of_blocks = data, words.astype(np.int8)
        attributes = dict(self.node.attributes)
        if attributes["group"] != 1 and channels < self.lanes:
            of_blocks, attributes["group"] = _joined_groups(of_blocks, self.lanes), filters // self.lanes
        elif missing := -channels % self.lanes:
            after = (0, missing, *(0 for _ in kernel))
            whole = self._add("Pad", data, around, before=(0,) * len(after), after=after)
        packed = self._constant(_packed_blocks(of_blocks, self.lanes))
        yield self._add("BlockedDotConvolution", whole, packed, around, filters=filters, **attributes, **self._limits)
        yield from self._of_zeros(words, data, around)

    def of_channels(self) -> Iterator[Value]:
        """The convolution of each channel, and one number for each filter."""
        x, weight, x_zero, _ = _operands(self.node)
        words: Words = self._array(weight).astype(np.int32) - (_HALF if weight.dtype == u8 else 0)
        data, around = self._moved(x), self._around(x, x_zero)
        packed = self._constant(_by_lanes(words.astype(np.int8)[:, 0], self.lanes))
        moves = {name: value for name, value in self.node.attributes if name != "group"}
        yield self._add("ChannelConvolution", data, packed, around, **moves)
        yield from self._of_zeros(words, data, around)

    def _of_zeros(self, words: Words, data: Value, around: Value | None) -> Iterator[Value]:
        """What zero points add to a convolution of ``data``, padded with ``around``: one number for each filter; and
        those of filters times the sum of each window."""
        x, weight, x_zero, weight_zero = _operands(self.node)
        filters, *terms = words.shape
        by_filter = (filters, *(1 for _ in terms[1:]))
        zeros: Words = np.zeros(1, np.int32) if weight_zero is None else self._array(weight_zero).astype(np.int32)
        zeros = np.broadcast_to(zeros.reshape(-1) - (_HALF if weight.dtype == u8 else 0), filters)
        sums: Words = words.reshape(filters, -1).sum(1, dtype=np.int32) - np.int32(np.prod(terms)) * zeros
        if (zero := self._shifted_zero(x, x_zero)) is not None and sums.any():
            yield self._add("Mul", zero, self._constant(sums.reshape(by_filter)))
        if zeros.any():
            windows = self._window_sums(data, around, np.ones((1, 1, *terms[1:]), np.int32))
            yield self._add("Mul", windows, self._constant(zeros.reshape(by_filter)))

    def _window_sums(self, data: Value, around: Value | None, ones: Words) -> Value:
        """The sum of each window over all channels, ``[N, 1, spatial...]``: channels first, as there are many."""
        attributes = dict(self.node.attributes)
        pads, rank = attributes.pop("pads"), ones.ndim - 2
        assert isinstance(pads, tuple), "see `_is_plain`"
        sums = self._add("ReduceSum", self._add("Cast", data, to=i32), axes=(1,), keepdims=True)
        if any(pads):
            channels = self._constant(np.array(int(str(data.shape[1])), np.int32))
            filling = None if around is None else self._add("Mul", self._add("Cast", around, to=i32), channels)
            whole = [int(str(pad)) for pad in pads]
            sums = self._add("Pad", sums, filling, before=(0, 0, *whole[:rank]), after=(0, 0, *whole[rank:]))
        moves = {name: attributes[name] for name in ("strides", "dilations")}
        return self._add("Conv", sums, self._constant(ones), **moves)

    @property
    def _limits(self) -> dict[str, bool]:
        return {"is_limited": True} if self.is_limited else {}

    def _centered(self, matrix: Value, zero: Value | None, dtype: DType = i32) -> Value:
        wide = self._add("Cast", matrix, to=dtype)
        return wide if zero is None else self._add("Sub", wide, self._add("Cast", zero, to=dtype))

    def _by_row(self, a: Value, zero: Value | None) -> Value | None:
        """A zero point of the left matrix, made broadcastable: one number, or one for each row."""
        is_vector = zero is not None and len(zero.shape) == 1 and len(a.shape) > 1
        return self._add("Unsqueeze", zero, axes=(1,)) if is_vector else zero

    def _around(self, x: Value, zero: Value | None) -> Value | None:
        """The zero point of ``x'``, in its type; None if it is 0."""
        if zero is not None:
            return self._moved(zero)
        shift = self._shift(x)
        return self._constant(np.array(shift, self.data_type.numpy)) if shift else None

    def _shift(self, a: Value) -> int:
        """``a' - a``."""
        return 0 if a.dtype == self.data_type else _HALF if self.data_type == u8 else -_HALF

    def _moved(self, a: Value) -> Value:
        """``a'``."""
        if a.dtype == self.data_type:
            return a
        moved = self._add("Add", self._add("Cast", a, to=i32), self._constant(np.array(self._shift(a), np.int32)))
        return self._add("Cast", moved, to=self.data_type)

    def _grouped(self, a: Value, depth: int) -> Value:
        """Padded with zeros after each row to whole groups."""
        missing = -depth % GROUP
        if not missing:
            return a
        none = (0,) * (len(a.shape) - 1)
        return self._add("Pad", a, None, before=(*none, 0), after=(*none, missing))

    def _shifted_zero(self, a: Value, zero: Value | None) -> Value | None:
        """The zero point of ``a'`` in i32; None if it is 0."""
        moved = np.array(self._shift(a), np.int32)
        if zero is None:
            return self._constant(moved) if moved else None
        if zero in self.building.constants and not np.any(self._array(zero).astype(np.int32) + moved):
            return None
        by_row = self._by_row(a, zero) if zero.shape != (ONE,) else zero
        wide = self._add("Cast", by_row, to=i32)
        return self._add("Add", wide, self._constant(moved.reshape(()))) if moved else wide

    def _array(self, value: Value) -> Array:
        return self.building.constants[value]

    def _constant(self, array: Array) -> Value:
        return self.building.constant(f"{self.node.outputs[0].name}.constant", array)

    def _add(self, op: str, *inputs: Value | None, **attributes: Attribute) -> Value:
        return self.building.add(require(op), inputs, self.node, op.lower(), attributes)


def _packed_filters(weight: Array, lanes: int) -> Array:
    """``[F, C, kernel...]`` as ``[F/lanes, C/4, kernel..., lanes, 4]``: as matrices, one for each tap."""
    filters, channels, *kernel = weight.shape
    taps = np.moveaxis(weight.reshape(filters, channels, -1), 2, 0)
    packed = np.stack([_packed(np.ascontiguousarray(tap.T), lanes) for tap in taps], axis=2)
    strips, groups = packed.shape[:2]
    return packed.reshape(strips, groups, *kernel, lanes, GROUP)


def _packed_blocks(weight: Array, lanes: int) -> Array:
    """``[F, C, kernel...]`` as ``[F/lanes, C/lanes, kernel..., lanes/4, lanes, 4]``."""
    filters, channels, *kernel = weight.shape
    padding = (-filters % lanes, -channels % lanes, *(0 for _ in kernel))
    whole = np.pad(weight, [(0, missing) for missing in padding])
    split = whole.reshape(-1, lanes, whole.shape[1] // lanes, lanes // GROUP, GROUP, *kernel)
    taps = range(5, split.ndim)
    return np.ascontiguousarray(split.transpose(0, 2, *taps, 3, 1, 4))


def _joined_groups(weight: Array, lanes: int) -> Array:
    """``[F, c, kernel...]`` of groups of ``c`` channels and filters as ``[F, lanes, kernel...]``: with zeros for the
    channels of other groups."""
    filters, own, *kernel = weight.shape
    made = np.zeros((filters, lanes, *kernel), weight.dtype)
    for filter_ in range(filters):
        first = filter_ % lanes // own * own
        made[filter_, first : first + own] = weight[filter_]
    return made


def _by_lanes(weight: Array, lanes: int) -> Array:
    """``[C, kernel...]`` as ``[C/lanes, kernel..., lanes]``."""
    channels, *kernel = weight.shape
    whole = np.pad(weight, [(0, -channels % lanes), *((0, 0) for _ in kernel)])
    return np.ascontiguousarray(np.moveaxis(whole.reshape(-1, lanes, *kernel), 1, -1))


def _packed(b: Array, lanes: int) -> Array:
    """In groups, and padded with columns of zeros to whole registers, or pairs of them for more than one."""
    depth, columns = b.shape
    width = lanes if columns <= lanes else 2 * lanes
    stored = IndexMap.parse(f"k, n -> n // {lanes}, k // {GROUP}, n % {lanes}, k % {GROUP}")
    return pack(np.pad(b, ((0, -depth % GROUP), (0, -columns % width))), stored)
