"""Blocks of channels (NCHWc, Liu et al., "Neo", 2019): which results can be stored so, and who reads what from them.

A value in blocks has its channels, the second dimension, in blocks as wide as a vector register, which go last.
"""

from enum import Enum, auto
from math import prod

from tilewright.graph import Node, Value
from tilewright.graph.ir import apply
from tilewright.kernels.relayout import blocked, is_row_major
from tilewright.symbolic.bounds import Bounds
from tilewright.symbolic.expr import ONE, ZERO, Const, Expr
from tilewright.symbolic.simplify import simplify
from tilewright.target.target import Target
from tilewright.tensor.ir import Compute, Operation, Placeholder, reads_of, topological_order

ANCHORS = frozenset({"Conv", "PhaseConv", "WinogradOutput"})
"""Sums of products over channels, whose results may be in blocks whatever they read."""
_TRANSFORMS = frozenset({"WinogradInput"})
"""What is much faster from blocks."""
_WASTE = 1.5
"""By how much rounding channels up to whole blocks may enlarge a value."""
_TYPICAL = 32
"""Stands for an extent that is known at run time only."""


class Reads(Enum):
    """How a node needs its data."""

    AS_THEY_ARE = auto()
    """Either way is as good."""
    PLAIN = auto()
    BLOCKED = auto()
    RATHER_BLOCKED = auto()
    """It can read plain data, too, across blocks."""


def width_of(value: Value, target: Target) -> int:
    """The elements of a block of ``value``."""
    return target.vector_bits // (8 * value.dtype.itemsize)


def points(shape: tuple[Expr, ...]) -> int:
    """Elements of a value of this shape, about."""
    return prod(int(extent.value) if isinstance(extent, Const) else _TYPICAL for extent in shape)


def fills_blocks(channels: Expr, width: int) -> bool:
    """Whether blocks of ``width`` waste little."""
    if not isinstance(channels, Const) or channels.value <= 0:
        return False
    return filled(int(channels.value), width) <= _WASTE


def filled(channels: int, width: int) -> float:
    """By how much rounding ``channels`` up to whole blocks enlarges a value."""
    return -(-channels // width) * width / channels


def can_be_blocked(value: Value, target: Target) -> bool:
    """Whether ``value`` has channels that fill blocks."""
    return len(value.shape) > 2 and fills_blocks(value.shape[1], width_of(value, target))


def is_plain_in_blocks(value: Value, target: Target) -> bool:
    """Whether the memory of ``value`` is the same in blocks."""
    return is_row_major(blocked(len(value.shape), width_of(value, target)), value.shape)


def reads(node: Node, is_blocked: bool, target: Target) -> Reads:
    """How ``node`` needs its data, if its result is stored in blocks, or is not."""
    data = node.inputs[0] if node.inputs else None
    if node.op.name in _TRANSFORMS and data is not None:
        return reads_of_transform(data, target)
    if is_depthwise(node):
        return Reads.BLOCKED if is_blocked else Reads.PLAIN
    if node.op.name in ANCHORS and data is not None:
        must = is_blocked and _mixes_groups(node, width_of(node.outputs[0], target)) and can_be_blocked(data, target)
        return Reads.BLOCKED if must else Reads.AS_THEY_ARE
    if node.op.name == "PhasesToSpace":
        return Reads.AS_THEY_ARE
    return Reads.RATHER_BLOCKED if is_blocked else Reads.PLAIN


def reads_of_transform(data: Value, target: Target) -> Reads:
    """How the transform of tiles needs its data."""
    return Reads.BLOCKED if can_be_blocked(data, target) else Reads.AS_THEY_ARE


def is_depthwise(node: Node) -> bool:
    """Whether each channel is convolved with a filter of its own: that goes as well by rows of plain data."""
    weight = node.inputs[1] if node.op.name == "Conv" else None
    return weight is not None and weight.shape[1] == ONE and dict(node.attributes).get("group", 1) != 1


def _mixes_groups(node: Node, width: int) -> bool:
    """Whether filters of one block read different channels: several groups share it."""
    groups = dict(node.attributes).get("group", 1)
    filters = node.outputs[0].shape[1]
    if not isinstance(groups, int) or not isinstance(filters, Const):
        return True
    return groups != 1 and int(filters.value) // groups % width != 0


def is_channelwise(node: Node, target: Target) -> bool:
    """Whether each channel of the result is computed from the same channel of the inputs, or from whole blocks on."""
    width = width_of(node.outputs[0], target)
    result = apply(node.op, node.inputs, dict(node.attributes))[0]
    return all(_keeps_channels(op, width) for op in topological_order([result]) if not isinstance(op, Placeholder))


def _keeps_channels(op: Operation, width: int) -> bool:
    if not isinstance(op, Compute) or len(op.axes) < 3:
        return False
    channel = op.axes[1].var
    bounds = Bounds({axis.var: axis.extent for axis in (*op.axes, *op.reduce_axis)})
    for source, indices in reads_of(op):
        has_channels = source.ndim == len(op.axes) and source.shape[1] != ONE
        if has_channels and simplify((indices[1] - channel) % width, bounds) != ZERO:
            return False
    return True
