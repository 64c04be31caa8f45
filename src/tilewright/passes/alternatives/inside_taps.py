"""Convolutions without the taps that lie in the padding for every position of the result.

A 3x3 filter with a dilation of 18 on an image of 16x16 is a 1x1 filter: all other taps are outside everywhere.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from tilewright.graph import Array, Node, Value, make_node
from tilewright.ops.operator import Attribute, entries_of, require
from tilewright.ops.shapes import static
from tilewright.passes.alternatives.api import Building, Facts, Way
from tilewright.symbolic.expr import const


class InsideTaps:
    """The smaller filter, in each way to compute that."""

    name = "inside taps"

    def ways(self, node: Node, facts: Facts) -> Iterator[Way]:
        found = _smaller(node, facts)
        if found is None:
            return
        for way in replace(facts, constants={**facts.constants, found.weight: found.taps}).ways(found.convolution):
            yield replace(way, algorithm=f"{way.algorithm} of {self.name}", make=partial(_make, found, way))


INSIDE_TAPS = InsideTaps()
_CONVOLUTION = require("Conv")


@dataclass(frozen=True, slots=True)
class _Smaller:
    """An equivalent convolution, and its weight."""

    convolution: Node
    weight: Value
    taps: Array


def _make(found: _Smaller, way: Way, _: Node, building: Building) -> None:
    building.constants[found.weight] = found.taps
    building.compute(found.convolution, way)


@dataclass(frozen=True, slots=True)
class _Dimension:
    """A window along a spatial dimension: ``outputs`` positions, of which the first begins ``begin`` elements before
    the data."""

    extent: int
    outputs: int
    taps: int
    stride: int
    dilation: int
    begin: int

    @property
    def used(self) -> range:
        """The taps from the first to the last that read an element of the data for some position."""
        starts = np.arange(self.outputs) * self.stride - self.begin
        places = np.add.outer(starts, np.arange(self.taps) * self.dilation)
        used = np.flatnonzero(((places >= 0) & (places < self.extent)).any(axis=0))
        return range(int(used[0]), int(used[-1]) + 1) if len(used) else range(0)

    def only(self, taps: range) -> "_Dimension":
        """The window of these taps, with the same positions of the result."""
        begin = self.begin - taps.start * self.dilation
        return replace(self, taps=len(taps), dilation=self.dilation if len(taps) > 1 else 1, begin=begin)

    @property
    def end(self) -> int:
        """The padding after the data that the last position needs."""
        return (self.outputs - 1) * self.stride + (self.taps - 1) * self.dilation + 1 - self.extent - self.begin


def _smaller(node: Node, facts: Facts) -> _Smaller | None:
    """The convolution with fewer taps, if there are such that are always outside."""
    if node.op != _CONVOLUTION or node.inputs[1] not in facts.constants:
        return None
    data, weight, *others = node.inputs
    assert data is not None and weight is not None, "a convolution has data and a weight"
    dimensions = _dimensions(node, data)
    used = [dimension.used for dimension in dimensions]
    if not dimensions or not all(used) or all(len(u) == d.taps for u, d in zip(used, dimensions, strict=True)):
        return None
    fewer = [dimension.only(taps) for dimension, taps in zip(dimensions, used, strict=True)]
    if any(dimension.begin < 0 for dimension in fewer):  # ONNX has no pads that cut off
        return None
    kept = (slice(None), slice(None), *(slice(taps.start, taps.stop) for taps in used))
    array = np.ascontiguousarray(facts.constants[weight][kept])
    name = facts.names.fresh(f"{weight.name}.inside")
    smaller = Value(name, weight.dtype, tuple(map(const, array.shape)))
    attributes: Mapping[str, Attribute] = {
        **dict(node.attributes),
        "dilations": tuple(dimension.dilation for dimension in fewer),
        "pads": (*(dimension.begin for dimension in fewer), *(dimension.end for dimension in fewer)),
    }
    convolution = make_node(_CONVOLUTION, [data, smaller, *others], [node.outputs[0].name], attributes, node.source)
    return _Smaller(convolution, smaller, array)


def _dimensions(node: Node, data: Value) -> list[_Dimension]:
    """The windows along the spatial dimensions; none if extents are known only at run time."""
    shapes = [None if value is None else static(value.shape) for value in (data, node.inputs[1], node.outputs[0])]
    extents, weight, outputs = (None if shape is None else shape[2:] for shape in shapes)
    if extents is None or weight is None or outputs is None or 0 in outputs:
        return []
    attributes = dict(node.attributes)
    strides, dilations = (entries_of(attributes.get(name), len(extents), 1) for name in ("strides", "dilations"))
    begins = entries_of(attributes.get("pads"), 2 * len(extents), 0)[: len(extents)]
    return [_Dimension(*numbers) for numbers in zip(extents, outputs, weight, strides, dilations, begins, strict=True)]
