"""Blocked layouts of channels (NCHWc, Liu et al., "Neo", 2019): which values can have one, and what nodes need.

A value in blocks has its channels, the second dimension, in blocks as wide as a vector register, which go last; or as
wide as several, which then fill a row of a matrix unit's registers.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from math import prod

from tilewright.base.dtypes import i16, i32
from tilewright.graph import Node, Value
from tilewright.graph.ir import apply
from tilewright.kernels.relayout import blocked, is_row_major
from tilewright.symbolic.bounds import Bounds
from tilewright.symbolic.expr import ONE, ZERO, Const, Expr
from tilewright.symbolic.simplify import simplify
from tilewright.target.machine import GUESSED_EXTENT
from tilewright.target.target import Target
from tilewright.tensor.ir import Compute, Operation, Placeholder, reads_of, topological_order


class Reads(Enum):
    """The layout in which a node needs its data."""

    AS_THEY_ARE = auto()
    """Either layout."""
    PLAIN = auto()
    BLOCKED = auto()
    RATHER_BLOCKED = auto()
    """Either layout, with reads of plain data across blocks."""


_WORD = i32.itemsize


@dataclass(frozen=True, slots=True)
class Blocks:
    """How wide the blocks of a graph's values are. ``registers``: at most so many vector registers; ``fewer``: at most
    so many of them where all channels fill so many registers."""

    target: Target
    registers: int = 1
    fewer: Mapping[int, int] = field(default_factory=dict[int, int])


def width_of(value: Value, blocks: Blocks) -> int:
    """The block width of ``value``: that of as many registers as need no more memory than blocks of one.

    Sums run over whole blocks only.
    """
    width, channels = register_of(value, blocks.target), value.shape[1] if len(value.shape) > 1 else ZERO
    filled_registers = -(-int(channels.value) // width) if isinstance(channels, Const) else 0
    count = blocks.fewer.get(filled_registers, blocks.registers) if filled_registers else 1
    while filled_registers % count:
        count //= 2
    return width * count


def register_of(value: Value, target: Target) -> int:
    """The elements of ``value`` in a vector register. Bytes, and bytes that are widened to i16, count as words: they
    come from sums of words, or go into such."""
    is_summed = value.dtype.itemsize == 1 or value.dtype == i16
    return target.vector_bits // (8 * (_WORD if is_summed else value.dtype.itemsize))


def points(shape: tuple[Expr, ...]) -> int:
    """Approximate number of elements of a shape."""
    return prod(int(extent.value) if isinstance(extent, Const) else GUESSED_EXTENT for extent in shape)


def filled(channels: int, width: int) -> float:
    """The growth factor of a value from rounding ``channels`` up to whole blocks."""
    return -(-channels // width) * width / channels


def filled_blocks(value: Value, blocks: Blocks) -> float:
    """The extra work on ``value`` from rounding channels up to whole blocks."""
    channels = value.shape[1]
    return filled(int(channels.value), width_of(value, blocks)) if isinstance(channels, Const) else 1.0


def row_gain(data: Value, blocks: Blocks) -> float:
    """How many times as fast a matrix unit sums over blocks of channels, which fill its rows or half of each."""
    machine = blocks.target.machine
    return machine.matrix_gain if width_of(data, blocks) > register_of(data, blocks.target) else machine.half_gain


def sum_gain(data: Value, blocks: Blocks) -> float:
    """The same for sums over channels as they are stored: if blocks do not divide these, there are no tiles."""
    return 1.0 if points(data.shape[1:2]) % width_of(data, blocks) else row_gain(data, blocks)


def can_be_blocked(value: Value, target: Target) -> bool:
    """Whether ``value`` has channels, and blocks of them waste little."""
    channels = value.shape[1] if len(value.shape) > 2 else ZERO
    if not isinstance(channels, Const) or channels.value <= 0:
        return False
    return filled(int(channels.value), register_of(value, target)) <= target.machine.block_waste


def mixes_channels(channels: int, filters: int, width: int) -> bool:
    """Whether lanes of blocks of filters, in groups of so many ``filters`` that read so many ``channels``, read
    channels that lie apart: unless groups fill blocks, or blocks of data and of the result hold the same groups."""
    return filters % width != 0 and (width % filters != 0 or channels != filters)


def is_plain_in_blocks(value: Value, blocks: Blocks) -> bool:
    """Whether ``value`` has the same order in memory with blocks."""
    return is_row_major(blocked(len(value.shape), width_of(value, blocks)), value.shape)


def is_channelwise(node: Node, blocks: Blocks) -> bool:
    """Whether each channel of the result is computed from the same channel of the inputs, or starts a new block."""
    width = width_of(node.outputs[0], blocks)
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
