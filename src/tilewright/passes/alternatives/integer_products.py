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

from tilewright.base.dtypes import DType, f32, i8, i16, i32, u8
from tilewright.cost.kernels import sum_cycles
from tilewright.graph import Array, Node, Value
from tilewright.kernels.dot_descriptions import WORD, group_of
from tilewright.kernels.dot_products import product_of
from tilewright.kernels.tile_products import tile_unit
from tilewright.ops.dot_products import LIMIT
from tilewright.ops.operator import Attribute, require
from tilewright.ops.shapes import static
from tilewright.passes.alternatives.api import Building, Facts, Way
from tilewright.passes.alternatives.byte_packing import (
    GROUP,
    packed_blocks,
    packed_by_lanes,
    packed_filters,
    packed_matrix,
    packed_pixels,
    with_others,
)
from tilewright.passes.blocks import Blocks, can_be_blocked, points, width_of
from tilewright.symbolic.expr import ONE, const
from tilewright.target.target import Target

Words: TypeAlias = NDArray[np.int32]
Codes: TypeAlias = NDArray[np.int8]

_HALF = 128
_COLUMN_TILES = 2
"""Tiles beside each other whose sums a matrix unit holds, with as many above each other."""
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
            spent = joined * cycles(node, facts, group_of(instruction), instruction.multiply_adds) / _gain(node, facts)
            yield Way(self.name, spent, make=partial(in_groups, blocks=facts.blocks))


class InChannels:
    """Convolutions of each channel by a filter of its own, without zero points of filters: sums of words, of bytes that
    are widened in registers."""

    name = "sums by channel"

    def ways(self, node: Node, facts: Facts) -> Iterator[Way]:
        if node.op != _CONVOLUTION or not _has_known_pads(node) or not _has_own_filters(node, facts):
            return
        yield Way(self.name, cycles(node, facts, 1), make=partial(in_channels, blocks=facts.blocks))


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
    joined = _joined_groups(data, result, int(str(group)), facts.blocks)
    return joined if channels[0] != int(str(group)) else 0


def _joined_groups(data: Value, result: Value, groups: int, blocks: Blocks) -> int:
    """The fewest groups that together fill blocks of ``data`` and of the ``result``; 0 if not even all of them do."""
    filling = [(int(str(value.shape[1])) // groups, width_of(value, blocks)) for value in (data, result)]
    counts = (count for count in range(1, groups + 1) if groups % count == 0)
    return next((count for count in counts if all(count * size % width == 0 for size, width in filling)), 0)


def _gain(node: Node, facts: Facts) -> float:
    """How many times as fast a matrix unit sums in groups as dot products do: where blocks fill its rows, or parts."""
    data, unit = _operands(node)[0], tile_unit(facts.target, u8, i8)
    if node.op != _CONVOLUTION or unit is None or not can_be_blocked(data, facts.target):
        return 1.0
    row = unit.steps * unit.group
    return max(1.0, facts.target.machine.byte_gain * width_of(data, facts.blocks) / row)


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


def in_groups(node: Node, building: Building, blocks: Blocks, addend: Value | None = None) -> None:
    """Adds the nodes that compute ``node`` by dot products, where ``InGroups`` has a way, and add ``addend`` to it."""
    target = blocks.target
    is_limited = _has_limits(node, building) and _gains_by_limits(target)
    data_type = u8 if is_limited else _data_type(_operands(node)[0].dtype, target)
    terms = _Terms(node, building, addend, blocks, data_type, is_limited)
    if node.op == _MATMUL:
        terms.subtract(terms.of_product())
        return
    data, result = node.inputs[0], node.outputs[0]
    in_blocks = data is not None and can_be_blocked(data, target) and can_be_blocked(result, target)
    terms.subtract(terms.of_blocks() if in_blocks else terms.of_convolution())


def _has_limits(node: Node, building: Building) -> bool:
    """Whether the weight, as signed bytes, is between the limits of ``limited``."""
    weight = _operands(node)[1]
    codes = _signed(building.constants[weight])
    return int(codes.min(initial=0)) >= -LIMIT and int(codes.max(initial=0)) <= LIMIT


def _signed(weight: Array) -> Codes:
    """``weight``, of bytes, less half of their range if they have no sign."""
    return weight.view(np.int8) ^ np.int8(-_HALF) if weight.dtype == np.uint8 else weight.astype(np.int8, copy=False)


def _gains_by_limits(target: Target) -> bool:
    """Whether products by weights between limits take no more multiply-adds than others: there is less around them."""
    found, plain = (product_of(target, u8, i8, i32, is_limited=limits) for limits in (True, False))
    return found is not None and plain is not None and found.multiply_adds <= plain.multiply_adds


def _data_type(own: DType, target: Target) -> DType:
    """The type in which bytes are multiplied by signed ones: their ``own``, if the other one is not faster. Where no
    instruction multiplies four bytes, they are widened once."""
    found = {data: product_of(target, data, i8, i32) for data in (own, i8 if own == u8 else u8)}
    taken = {data: one.multiply_adds for data, one in found.items() if one is not None}
    if product_of(target, i16, i8, i32) is not None and min(taken.values(), default=2) > 1:
        return i16
    return min(taken, key=lambda data: taken[data], default=own)


def in_channels(node: Node, building: Building, blocks: Blocks, addend: Value | None = None) -> None:
    """The same, where ``InChannels`` has a way."""
    terms = _Terms(node, building, addend, blocks)
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
    blocks: Blocks | None = None
    """Those of values; None where no layout of weights depends on them."""
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
        codes = _signed(self._array(b))
        zeros: Words = np.zeros(1, np.int32) if b_zero is None else self._array(b_zero).astype(np.int32).reshape(-1)
        zeros = zeros - (_HALF if b.dtype == u8 else 0)
        depth, columns = codes.shape
        left = self._grouped(self._moved(a), depth)
        panels = self._panels_of(columns, self._matrix_panel)
        packed = self._constant(packed_matrix(codes, *panels, self._group))
        yield self._add("DotProducts", left, packed, columns=columns, **self._limits)
        by_column: Words = codes.sum(0, dtype=np.int32) - depth * zeros
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
        codes = _signed(self._array(weight))
        filters, rank, data = len(codes), codes.ndim - 2, self._moved(x)
        pads = attributes.pop("pads")
        assert isinstance(pads, tuple), "see `_is_plain`"
        around, places = self._around(x, x_zero), {"before": pads[:rank], "after": pads[rank:]}
        grouped = self._add("ChannelGroups", data, around, **places, group=self._group)
        moves = {name: attributes[name] for name in ("strides", "dilations")}
        if self._are_pixels(codes):
            yield self._of_pixels(grouped, codes)
            yield from self._of_zeros(codes, data, around)
            return
        panels = self._panels_of(filters, self._width(self.node.outputs[0]))
        packed = self._constant(packed_filters(codes, *panels, self._group))
        yield self._add("DotConvolution", grouped, packed, filters=filters, **moves, **self._limits)
        yield from self._of_zeros(codes, data, around)

    def _are_pixels(self, codes: Codes) -> bool:
        """Whether a matrix unit multiplies words of a few channels: taps of a row of the window lie side by side."""
        unit, result = tile_unit(self._known_blocks.target, self.data_type, i8), self.node.outputs[0]
        _, channels, *kernel = codes.shape
        dilations = dict(self.node.attributes)["dilations"]
        is_dense = isinstance(dilations, tuple) and dilations[-1] == 1
        return (
            unit is not None and channels <= GROUP and is_dense and static(result.shape) is not None and len(kernel) > 1
        )

    def _of_pixels(self, grouped: Value, codes: Codes) -> Value:
        """The convolution of ``grouped`` channels, which are one group, as rows of pixels."""
        attributes, (filters, *_) = dict(self.node.attributes), codes.shape
        strides, dilations = (attributes[name] for name in ("strides", "dilations"))
        assert isinstance(strides, tuple) and isinstance(dilations, tuple), "see `cycles`"
        *heights, width, size = grouped.shape[2:]
        shape = (grouped.shape[0], *heights, int(str(width)) * int(str(size)))
        flat = self._add("Reshape", grouped, shape=shape)
        packed = self._constant(packed_pixels(codes, self._width(self.node.outputs[0])))
        moves = {"strides": strides[:-1], "dilations": dilations[:-1], "step": int(str(strides[-1])) * GROUP}
        places = int(str(self.node.outputs[0].shape[-1]))
        return self._add("PixelRowConv", flat, packed, filters=filters, places=places, **moves)

    def of_blocks(self) -> Iterator[Value]:
        """The same, with the channels of data and result in blocks."""
        x, weight, x_zero, _ = _operands(self.node)
        codes = _signed(self._array(weight))
        filters, channels, *kernel = codes.shape
        data, around = self._moved(x), self._around(x, x_zero)
        whole, of_blocks = data, codes
        attributes, width = dict(self.node.attributes), self._width(data)
        if (groups := int(str(attributes["group"]))) != 1:
            joined = _joined_groups(data, self.node.outputs[0], groups, self._known_blocks)
            of_blocks, attributes["group"] = with_others(of_blocks, groups, joined), groups // joined
        elif missing := -channels % width:
            after = (0, missing, *(0 for _ in kernel))
            whole = self._add("Pad", data, around, before=(0,) * len(after), after=after)
        lanes = self._width(self.node.outputs[0])
        packed = self._constant(packed_blocks(of_blocks, width, lanes, self._group))
        yield self._add("BlockedDotConvolution", whole, packed, around, filters=filters, **attributes, **self._limits)
        yield from self._of_zeros(codes, data, around)

    def of_channels(self) -> Iterator[Value]:
        """The convolution of each channel, and one number for each filter."""
        x, weight, x_zero, _ = _operands(self.node)
        codes = _signed(self._array(weight))
        data, around = self._moved(x), self._around(x, x_zero)
        packed = self._constant(packed_by_lanes(codes[:, 0], self._width(data)))
        moves = {name: value for name, value in self.node.attributes if name != "group"}
        yield self._add("ChannelConvolution", data, packed, around, **moves)
        yield from self._of_zeros(codes, data, around)

    def _of_zeros(self, codes: Codes, data: Value, around: Value | None) -> Iterator[Value]:
        """What zero points add to a convolution of ``data``, padded with ``around``: one number for each filter; and
        those of filters times the sum of each window."""
        x, weight, x_zero, weight_zero = _operands(self.node)
        filters, *terms = codes.shape
        by_filter = (filters, *(1 for _ in terms[1:]))
        zeros: Words = np.zeros(1, np.int32) if weight_zero is None else self._array(weight_zero).astype(np.int32)
        zeros = np.broadcast_to(zeros.reshape(-1) - (_HALF if weight.dtype == u8 else 0), filters)
        sums: Words = codes.reshape(filters, -1).sum(1, dtype=np.int32) - np.int32(np.prod(terms)) * zeros
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
    def _known_blocks(self) -> Blocks:
        assert self.blocks is not None, "layouts of weights depend on them"
        return self.blocks

    @property
    def _group(self) -> int:
        """Terms that an instruction adds up in a word."""
        return WORD // self.data_type.bits

    def _width(self, value: Value) -> int:
        """That of the blocks of a value's channels."""
        return width_of(value, self._known_blocks)

    @property
    def _matrix_panel(self) -> int:
        """The columns of a panel of a matrix: what registers hold sums of."""
        unit = tile_unit(self._known_blocks.target, u8, i8)
        return 1 if unit is None else _COLUMN_TILES * unit.columns

    def _panels_of(self, columns: int, wanted: int) -> tuple[int, int]:
        """The columns of a panel, registers or what is ``wanted``, and a divisor of all of them with those of zeros:
        pairs of registers for more than one."""
        lanes = self._known_blocks.target.lanes(WORD)
        return (lanes, lanes) if columns <= lanes else (max(lanes, wanted), max(2 * lanes, wanted))

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
        """The zero point of ``x'``, in its type; None if it is known to be 0."""
        if zero is not None:
            return None if self._is_zero(x, zero) else self._moved(zero)
        shift = self._shift(x)
        return self._constant(np.array(shift, self.data_type.numpy)) if shift else None

    def _shift(self, a: Value) -> int:
        """``a' - a``."""
        return 0 if self.data_type in (a.dtype, i16) else _HALF if self.data_type == u8 else -_HALF

    def _moved(self, a: Value) -> Value:
        """``a'``."""
        if a.dtype == self.data_type:
            return a
        if not self._shift(a):
            return self._add("Cast", a, to=self.data_type)
        moved = self._add("Add", self._add("Cast", a, to=i32), self._constant(np.array(self._shift(a), np.int32)))
        return self._add("Cast", moved, to=self.data_type)

    def _grouped(self, a: Value, depth: int) -> Value:
        """Padded with zeros after each row to whole groups."""
        missing = -depth % self._group
        if not missing:
            return a
        none = (0,) * (len(a.shape) - 1)
        return self._add("Pad", a, None, before=(*none, 0), after=(*none, missing))

    def _shifted_zero(self, a: Value, zero: Value | None) -> Value | None:
        """The zero point of ``a'`` in i32; None if it is 0."""
        moved = np.array(self._shift(a), np.int32)
        if zero is None:
            return self._constant(moved) if moved else None
        if self._is_zero(a, zero):
            return None
        by_row = self._by_row(a, zero) if zero.shape != (ONE,) else zero
        wide = self._add("Cast", by_row, to=i32)
        return self._add("Add", wide, self._constant(moved.reshape(()))) if moved else wide

    def _is_zero(self, a: Value, zero: Value) -> bool:
        """Whether the zero point of ``a'`` is known to be 0."""
        return zero in self.building.constants and not np.any(self._array(zero).astype(np.int32) + self._shift(a))

    def _array(self, value: Value) -> Array:
        return self.building.constants[value]

    def _constant(self, array: Array) -> Value:
        return self.building.constant(f"{self.node.outputs[0].name}.constant", array)

    def _add(self, op: str, *inputs: Value | None, **attributes: Attribute) -> Value:
        return self.building.add(require(op), inputs, self.node, op.lower(), attributes)
