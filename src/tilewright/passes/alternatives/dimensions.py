"""The windows of a convolution along its spatial dimensions: which taps read the data, and which padding."""

from dataclasses import dataclass, replace

import numpy as np

from tilewright.graph import Node
from tilewright.ops.operator import entries_of
from tilewright.ops.shapes import static


@dataclass(frozen=True, slots=True)
class Dimension:
    """A window along a spatial dimension: ``outputs`` positions, of which the first begins ``begin`` elements before
    the data."""

    extent: int
    outputs: int
    taps: int
    stride: int
    dilation: int
    begin: int

    def inside(self) -> np.ndarray[tuple[int, int], np.dtype[np.bool_]]:
        """Whether a position reads the data by a tap: ``[outputs, taps]``."""
        starts = np.arange(self.outputs) * self.stride - self.begin
        places = np.add.outer(starts, np.arange(self.taps) * self.dilation)
        return (places >= 0) & (places < self.extent)

    @property
    def used(self) -> range:
        """The taps from the first to the last that read an element of the data for some position."""
        used = np.flatnonzero(self.inside().any(axis=0))
        return range(int(used[0]), int(used[-1]) + 1) if len(used) else range(0)

    def share(self, group: int = 1) -> float:
        """The share of the terms that remain if ``group`` neighbours leave out a tap where all of them read padding."""
        first = np.arange(0, self.outputs, group)
        kept = np.logical_or.reduceat(self.inside(), first).sum(axis=1)
        return float(kept @ np.minimum(group, self.outputs - first)) / (self.outputs * self.taps)

    def only(self, taps: range) -> "Dimension":
        """The window of these taps, with the same positions of the result."""
        begin = self.begin - taps.start * self.dilation
        return replace(self, taps=len(taps), dilation=self.dilation if len(taps) > 1 else 1, begin=begin)

    @property
    def end(self) -> int:
        """The padding after the data that the last position needs."""
        return (self.outputs - 1) * self.stride + (self.taps - 1) * self.dilation + 1 - self.extent - self.begin


def dimensions_of(convolution: Node) -> list[Dimension]:
    """The windows along the spatial dimensions; none if extents are known only at run time."""
    values = (*convolution.inputs[:2], convolution.outputs[0])
    shapes = [None if value is None else static(value.shape) for value in values]
    extents, weight, outputs = (None if shape is None else shape[2:] for shape in shapes)
    if extents is None or weight is None or outputs is None or 0 in (*weight, *outputs):
        return []
    attributes = dict(convolution.attributes)
    strides, dilations = (entries_of(attributes.get(name), len(extents), 1) for name in ("strides", "dilations"))
    begins = entries_of(attributes.get("pads"), 2 * len(extents), 0)[: len(extents)]
    return [Dimension(*numbers) for numbers in zip(extents, outputs, weight, strides, dilations, begins, strict=True)]
