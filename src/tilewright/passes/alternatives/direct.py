"""Direct computation of an operator by its te program: by rows of plain data, or in blocks of channels."""

from collections.abc import Iterator
from math import prod

import numpy as np

from tilewright.base.dtypes import bf16
from tilewright.cost.kernels import pass_cycles, sum_cycles
from tilewright.cost.pieces import are_evicted
from tilewright.cost.work import Work
from tilewright.graph import Node, Value
from tilewright.graph.ir import apply
from tilewright.kernels.panels_ahead import LINE_BYTES
from tilewright.kernels.tile_products import tile_unit
from tilewright.ops import Trait
from tilewright.ops.operator import require
from tilewright.passes.alternatives.api import AS_IT_IS, Facts, Way
from tilewright.passes.alternatives.dimensions import dimensions_of
from tilewright.passes.alternatives.phases import phases_of
from tilewright.passes.blocks import (
    Blocks,
    Reads,
    can_be_blocked,
    filled,
    filled_blocks,
    is_channelwise,
    mixes_channels,
    points,
    register_of,
    sum_gain,
    width_of,
)
from tilewright.symbolic.expr import ONE, Const, Expr, as_expr
from tilewright.target.target import Target
from tilewright.tensor.ir import Compute, topological_order

_BY_PHASES = require("PhaseConv")


class Direct:
    """In blocks: sums over channels, and operations per channel on values that may be blocked."""

    name = AS_IT_IS

    def ways(self, node: Node, facts: Facts) -> Iterator[Way]:
        (result, *others) = node.outputs
        if node.op.has(Trait.COMPOSITE):
            return
        if others or len(result.shape) < 3:
            yield Way(self.name)
        elif node.op.has(Trait.SUMS_CHANNELS):
            yield from _sums(node, facts)
        elif node.op.has(Trait.STORES_BLOCKS):
            yield from _byte_sums(node, facts.target)
        elif node.op == _BY_PHASES and isinstance(result.shape[1], Const):
            yield _phase_sums(node, facts.blocks)
        elif _follows(node, facts):
            yield from _channelwise(node, facts.blocks)
        else:
            yield Way(self.name)


DIRECT = Direct()


def _in_blocks(node: Node, cycles: float, reads: Reads) -> Way:
    return Way(AS_IT_IS, cycles, is_blocked=True, reads=reads)


def _sums(node: Node, facts: Facts) -> Iterator[Way]:
    """In blocks of filters, or by rows. If each channel has its own filter, data have the layout of the result."""
    result, weight, data = node.outputs[0], node.inputs[1], node.inputs[0]
    target, blocks, together = facts.target, facts.blocks, facts.narrow.products(node)
    assert weight is not None and data is not None, "sums over channels have data and a weight"
    cycles = sum_cycles(points(result.shape) * points(weight.shape[1:]), points(weight.shape), target)
    machine = target.machine
    own = _has_own_filters(node, weight, blocks)
    padding = 0.0 if own else _padding(node, data, target)
    if can_be_blocked(result, target) and (not own or can_be_blocked(data, target)):
        # Products are added up in groups of channels, which must lie side by side.
        reads = Reads.BLOCKED if own or together > 1 else _reads_of_blocks(node, blocks)
        copying = 0.0 if weight in facts.constants else _copying(weight, target)
        summing = cycles / together * filled_blocks(result, blocks) * (1.0 if own else _gathering(node, blocks))
        if not own and together == 1 and points(weight.shape[2:]) > 1:
            summing *= _remaining(node, target)
            summing *= _short_rows(result, points(weight.shape[1:]) * weight.dtype.itemsize, result.shape[-1], blocks)
        if reads is not Reads.BLOCKED and data in facts.outside and points(weight.shape[2:]) == 1:
            summing += _evicted(result, data, target)
        if together > 1 and tile_unit(target, bf16, bf16) is not None:
            summing = max(summing / sum_gain(data, blocks), _loading(result, weight, blocks))
        yield _in_blocks(node, copying + padding + summing, reads)
    strided = 1.0 + machine.sum_by_strides * (_last_stride(node) - 1)
    grouped = 1.0 if dict(node.attributes).get("group", 1) == 1 else machine.groups_by_rows
    by_taps = 1.0
    if points(weight.shape[2:]) > machine.unrolled_taps:  # else what several taps read is read once, and permuted
        by_taps += machine.window_by_strides * (_last_stride(node) - 1)
    is_tap = points(weight.shape[2:]) == 1 and strided == 1.0 and bool(facts.outside.intersection((data, result)))
    summed = machine.tap_by_rows if is_tap else machine.sum_by_rows * strided
    by_rows = (machine.element_by_rows * by_taps if own else summed * grouped) * _filled_rows(result, target)
    yield Way(AS_IT_IS, padding + cycles * by_rows, reads=Reads.PLAIN if own else Reads.AS_THEY_ARE)


def _remaining(node: Node, target: Target) -> float:
    """The share of the products that tiles of places along rows do not leave out, as they read padding."""
    windows = dimensions_of(node)
    share = prod(window.share() for window in windows[:-1]) * prod(w.share(_rows(target)) for w in windows[-1:])
    return share if share <= _MOST_REMAINING else 1.0


_MOST_REMAINING = 0.7
"""The same up to which tests of what to leave out take little time beside what is left out."""


def _copying(weight: Value, target: Target) -> float:
    """Cycles of a copy of a weight known at run time: across its rows, and from and to memory."""
    size, machine = points(weight.shape), target.machine
    moved = pass_cycles(Work(0, 0, 2 * weight.dtype.itemsize * size), target)
    return machine.crossed_cycles * size / register_of(weight, target) + moved


def _padding(node: Node, data: Value, target: Target) -> float:
    """Cycles of a copy of the data with zeros around: of vectors, the last of a row with idle lanes, or of memory. A
    batch larger than the second cache is copied in parts."""
    pads, rank = dict(node.attributes).get("pads"), len(data.shape) - 2
    if not isinstance(pads, tuple) or not any(pads):
        return 0.0
    before, after = ([as_expr(pad) for pad in part if not isinstance(pad, str)] for part in (pads[:rank], pads[rank:]))
    extents = [points((y + b + a,)) for y, b, a in zip(data.shape[2:], before, after, strict=True)]
    rows = points(data.shape[1:2]) * prod(extents[:-1])
    vectors = rows * -(-extents[-1] // register_of(data, target))
    moved = pass_cycles(Work(0, 0, 2 * data.dtype.itemsize * rows * extents[-1]), target)
    return points(data.shape[:1]) * max(target.machine.copy_cycles * vectors, moved)


def _short_rows(result: Value, filter_bytes: int, places: Expr, blocks: Blocks) -> float:
    """The slowdown of rows of few places: a vector of weights from beyond the first cache is loaded for each of them. A
    single block of filters makes smaller tiles where rows do not fill them, and more broadcasts where these are
    instructions."""
    target, width = blocks.target, width_of(result, blocks)
    if filter_bytes * width <= target.l1_bytes or not isinstance(places, Const):
        return 1.0
    most = _rows(target)
    row = max(1, min(int(places.value), most))
    if points(result.shape[1:2]) <= width:
        whole = _step(most // 2, 2, target) if target.machine.issue else _step(most, 1, target)
        return _step(row, 1, target) / whole
    return max(1.0, target.vector_bits / 8 / target.machine.second_bytes * target.fma_per_cycle / row)


def _rows(target: Target) -> int:
    """Maximum rows of a register tile of one block of filters."""
    return target.vector_registers - 4


def _evicted(result: Value, data: Value, target: Target) -> float:
    """Cycles in which each tile of a single tap loads the lines of plain channels anew, as they evict one another:
    tiles of filters read the same places one after the other."""
    channels, plane = points(data.shape[1:2]), points(data.shape[2:]) * data.dtype.itemsize
    tiles = points(result.shape) / (register_of(result, target) * _rows(target))
    is_apart = plane % (2 * LINE_BYTES) == 0  # else they are in all sets
    is_evicted = is_apart and are_evicted(channels, plane, np.array(LINE_BYTES), target)
    return target.machine.near_piece * channels * tiles if is_evicted else 0.0


def _step(rows: int, blocks: int, target: Target) -> float:
    """Cycles of a step of a register tile of so many rows and blocks of filters, for each of its products."""
    machine, products, loads = target.machine, rows * blocks, rows + blocks
    busy = max(products / target.fma_per_cycle, loads / target.loads_per_cycle, machine.fma_latency)
    if machine.issue:
        busy = max(busy, (products + loads + machine.counting) / machine.issue)
    return (busy + machine.load_cycles * loads) / products


def _loading(result: Value, weight: Value, blocks: Blocks) -> float:
    """Cycles in which a matrix unit loads the filters of bf16, once for each row of places."""
    machine, target = blocks.target.machine, blocks.target
    rows, panel = points(result.shape[2:-1]), width_of(result, blocks) * points(weight.shape[1:]) * bf16.itemsize
    near = _TILE / machine.matrix_far_load
    rate = near if panel <= _NEAR * target.l2_bytes else machine.third_bytes
    return points(result.shape[:1]) * rows * points(weight.shape) * bf16.itemsize / rate


_TILE = 1024
"""Bytes of a tile."""
_NEAR = 0.4
"""The part of the second cache that filters may fill which are read again and again while others come."""


def _has_own_filters(node: Node, weight: Value, blocks: Blocks) -> bool:
    """Whether each channel has filters of its own that lie side by side in a block with those of other channels. Those
    of a channel that has a block or more are a convolution of it."""
    groups, filters = dict(node.attributes).get("group", 1), node.outputs[0].shape[1]
    if weight.shape[1] != ONE or not isinstance(groups, int) or groups == 1:
        return False
    return not isinstance(filters, Const) or int(filters.value) // groups < width_of(node.outputs[0], blocks)


def _last_stride(node: Node) -> int:
    """The stride along rows."""
    strides = dict(node.attributes).get("strides")
    return int(str(strides[-1])) if isinstance(strides, tuple) and strides else 1


def _byte_sums(node: Node, target: Target) -> Iterator[Way]:
    """Sums of bytes: of data whose channels are in blocks, or lie in groups, a dimension of their own."""
    result, data, weight = node.outputs[0], node.inputs[0], node.inputs[1]
    assert data is not None and weight is not None, "sums over channels have data and a weight"
    if len(data.shape) == len(result.shape):
        yield Way(AS_IT_IS, is_blocked=True, reads=Reads.BLOCKED)
        return
    products = points(result.shape) * points(weight.shape[1:-2])
    cycles = sum_cycles(products, points(weight.shape), target)
    if can_be_blocked(result, target):
        yield _in_blocks(node, cycles, Reads.PLAIN)
    yield Way(AS_IT_IS, cycles * target.machine.sum_by_rows)


def _phase_sums(node: Node, blocks: Blocks) -> Way:
    """A transposed convolution phase by phase: in blocks, as neighbouring positions use different filters. If phases
    have different taps, a tile is of the few phases of a place, and selects which it adds up."""
    result, weight = node.outputs[0], node.inputs[1]
    assert weight is not None, "a convolution has a weight"
    strides = prod(int(str(extent)) for extent in weight.shape[1 : len(weight.shape) // 2])
    products = points(result.shape) * points(weight.shape[1:]) // strides
    machine = blocks.target.machine
    cycles = sum_cycles(products, points(weight.shape), blocks.target) * filled_blocks(result, blocks)
    cycles *= _gathering(node, blocks) * (1.0 if all(dim.are_even for dim in phases_of(node)) else machine.selecting)
    filter_bytes = points(weight.shape[1:]) // strides * weight.dtype.itemsize
    places = result.shape[-1] // weight.shape[len(weight.shape) // 2 - 1]
    cycles *= _short_rows(result, filter_bytes, places, blocks)
    return _in_blocks(node, cycles, _reads_of_blocks(node, blocks))


def _reads_of_blocks(node: Node, blocks: Blocks) -> Reads:
    """The layout of data for sums in blocks of filters: blocked, if filters of one block read different channels."""
    data = node.inputs[0]
    mixed = _mixes_groups(node, width_of(node.outputs[0], blocks))
    return Reads.BLOCKED if mixed and data is not None and can_be_blocked(data, blocks.target) else Reads.AS_THEY_ARE


def _mixes_groups(node: Node, width: int) -> bool:
    """Whether several groups share a block."""
    groups, filters = dict(node.attributes).get("group", 1), node.outputs[0].shape[1]
    if not isinstance(groups, int) or not isinstance(filters, Const):
        return True
    return groups != 1 and int(filters.value) // groups % width != 0


def _gathering(node: Node, blocks: Blocks) -> float:
    """The slowdown of blocks in which each lane reads another channel."""
    groups, width = dict(node.attributes).get("group", 1), width_of(node.outputs[0], blocks)
    channels, filters = (value.shape[1] for value in (node.inputs[0], node.outputs[0]) if value is not None)
    if groups == 1 or not isinstance(groups, int) or not isinstance(channels, Const) or not isinstance(filters, Const):
        return 1.0
    apart = mixes_channels(int(channels.value) // groups, int(filters.value) // groups, width)
    return blocks.target.machine.gathered_channels if apart else 1.0


def _follows(node: Node, facts: Facts) -> bool:
    """Whether ``node`` can work on the blocked layout of its inputs."""
    result, blocks = node.outputs[0], facts.blocks
    if not can_be_blocked(result, facts.target):
        return False
    widths = {width_of(v, blocks) for v in node.inputs if v is not None and v in facts.may_be_blocked}
    return widths == {width_of(result, blocks)} and is_channelwise(node, blocks)


def _channelwise(node: Node, blocks: Blocks) -> Iterator[Way]:
    """Operators that work per channel."""
    result, machine = node.outputs[0], blocks.target.machine
    vectors = points(result.shape) / register_of(result, blocks.target)
    made = topological_order([apply(node.op, node.inputs, dict(node.attributes))[0]])
    is_window = any(isinstance(op, Compute) and op.reduce_axis for op in made)
    in_blocks = filled_blocks(result, blocks) if is_window else 1.0
    by_rows = machine.window_by_rows * _filled_rows(result, blocks.target)
    yield _in_blocks(node, vectors * in_blocks, Reads.RATHER_BLOCKED)
    yield Way(AS_IT_IS, vectors * (by_rows if is_window else machine.element_by_rows))


def _filled_rows(value: Value, target: Target) -> float:
    """The relative extra work of windows from rounding rows up to whole registers."""
    extent = value.shape[-1]
    count = int(extent.value) if isinstance(extent, Const) else 0
    return filled(count, register_of(value, target)) if count > 0 else 1.0
