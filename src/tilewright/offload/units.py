"""Units: what the accelerator computes as a whole, with exactly the numbers of the CPU.

A *product* is a convolution or a product of matrices with its bias, activation and quantization; an *addition* is that
of two quantized values, with what follows; a *pooling* takes the largest of each window. Operands and results are
signed bytes without a zero point. A value is an image of channels: ``[1, channels, height, width]``, or the rows
``[width, channels]`` of a matrix.
"""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from tilewright.backend.vta.config import Config
from tilewright.graph import Node, Value
from tilewright.offload.rounding import Rounding
from tilewright.ops.shapes import static


@dataclass(frozen=True, slots=True)
class Image:
    """The shape of a value."""

    channels: int
    height: int
    width: int

    def blocks(self, config: Config) -> int:
        """Blocks of channels, the last one perhaps not full."""
        return -(-self.channels // config.block_in)

    def tiles(self, config: Config) -> tuple[int, int, int]:
        """Its shape in tiles."""
        return self.blocks(config), self.height, self.width

    def bytes(self, config: Config) -> int:
        """Bytes in the accelerator's layout."""
        return math.prod(self.tiles(config)) * config.block_in


def image_of(value: Value) -> Image | None:
    """The image that a value is, if it is one."""
    match static(value.shape):
        case (1, int(channels), int(height), int(width)) if channels * height * width:
            return Image(channels, height, width)
        case (int(rows), int(channels)) if rows * channels:
            return Image(channels, 1, rows)
        case _:
            return None


@dataclass(frozen=True, slots=True)
class Axis:
    """What a filter does along one axis of an image."""

    extent: int
    taps: int = 1
    stride: int = 1
    before: int = 0
    after: int = 0
    dilation: int = 1

    @property
    def reach(self) -> int:
        """Positions from the first tap to the last one."""
        return (self.taps - 1) * self.dilation

    @property
    def outputs(self) -> int:
        """Positions of the result."""
        return (self.extent + self.before + self.after - self.reach - 1) // self.stride + 1


@dataclass(frozen=True, slots=True, eq=False)
class Product:
    """``weights`` are (filters, channels of a group, height, width). Groups have as many filters as channels."""

    nodes: tuple[Node, ...]
    """The nodes that it takes the place of; the first one is the sum of products."""
    data: Value
    result: Value
    rows: Axis
    columns: Axis
    weights: NDArray[np.int8]
    rounding: Rounding
    groups: int = 1

    @property
    def inputs(self) -> tuple[Value, ...]:
        """What it reads of other units, or of the CPU."""
        return (self.data,)

    @property
    def filters(self) -> int:
        """Channels of the result."""
        return len(self.weights)

    @property
    def channels(self) -> int:
        """Channels of the data."""
        return self.weights.shape[1] * self.groups

    @property
    def place(self) -> str:
        """The node of the model."""
        return self.nodes[0].source or self.nodes[0].outputs[0].name


@dataclass(frozen=True, slots=True, eq=False)
class Addition:
    """``clip(round((a * 2^left[0] + b * 2^left[1]) / 2^shift), low, high)``."""

    nodes: tuple[Node, ...]
    data: tuple[Value, Value]
    result: Value
    left: tuple[int, int]
    shift: int
    low: int
    high: int

    @property
    def inputs(self) -> tuple[Value, ...]:
        """What it reads of other units, or of the CPU."""
        return tuple(dict.fromkeys(self.data))

    @property
    def place(self) -> str:
        """The node of the model."""
        return self.nodes[0].source or self.nodes[0].outputs[0].name


@dataclass(frozen=True, slots=True, eq=False)
class Pooling:
    """``clip(the largest of a window, low, high)``; what is outside of the image is no part of a window."""

    nodes: tuple[Node, ...]
    data: Value
    result: Value
    rows: Axis
    columns: Axis
    low: int
    high: int

    @property
    def inputs(self) -> tuple[Value, ...]:
        """What it reads of other units, or of the CPU."""
        return (self.data,)

    @property
    def place(self) -> str:
        """The node of the model."""
        return self.nodes[0].source or self.nodes[0].outputs[0].name


Unit: TypeAlias = Product | Addition | Pooling


def shape_of(value: Value) -> tuple[int, ...]:
    """The shape of an operand or result of a unit."""
    shape = static(value.shape)
    assert shape is not None, "units have known shapes"
    return shape


def sources(units: Iterable[Unit]) -> Iterator[str]:
    """The nodes of the model that units take the place of."""
    for unit in units:
        yield from (node.source for node in unit.nodes if node.source)
