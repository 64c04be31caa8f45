"""Convolutions of bytes whose blocks of channels do not fill rows of a matrix unit's tiles: over rows of pixels.

Eighty channels are five blocks of 16 bytes, each of which fills a quarter of a tile's row. Pixels with all their
channels side by side are rows in which all taps of a row of the window are neighbours: three taps of 80 channels are
240 bytes, which fill four rows of 60.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from math import prod

import numpy as np

from tilewright.base.dtypes import i8, u8
from tilewright.graph import Array, Node
from tilewright.kernels.tile_descriptions import TileUnit, steps_at_once
from tilewright.kernels.tile_products import tile_unit
from tilewright.ops.operator import Attribute, entries_of, require
from tilewright.ops.shapes import static
from tilewright.passes.alternatives.api import Building, Facts, Way
from tilewright.passes.blocks import Reads

_BLOCKED, _PIXELS, _RESHAPE = require("BlockedDotConvolution"), require("ChannelGroups"), require("Reshape")
_PRODUCT = require("PixelRowConv")


class ByteRows:
    """The copy has all channels of a pixel side by side; the model compares it with products of parts of rows."""

    name = "bytes of whole rows"

    def ways(self, node: Node, facts: Facts) -> Iterator[Way]:
        found = _problem(node, facts)
        if found is not None:
            yield Way(self.name, is_blocked=True, reads=Reads.AS_THEY_ARE, make=partial(_make, found))


BYTE_ROWS = ByteRows()


@dataclass(frozen=True, slots=True)
class _Problem:
    """A convolution; an entry for each spatial dimension."""

    channels: int
    kernel: tuple[int, ...]
    places: int
    """Outputs in a row."""
    strides: tuple[int, ...]
    pads: tuple[int, ...]
    dilations: tuple[int, ...]
    words: int
    """Of a row of the window, with those of zeros that fill rows of tiles."""

    @property
    def more(self) -> int:
        """Pixels behind each row that words of zeros are multiplied with."""
        return -(-(self.words * _GROUP - self.kernel[-1] * self.channels) // self.channels)


_GROUP = 4


def _problem(node: Node, facts: Facts) -> _Problem | None:
    """The convolution, if it is one of bytes in blocks that fill only parts of rows, and rows of taps fill more."""
    unit = tile_unit(facts.target, u8, i8)
    attributes = dict(node.attributes)
    if node.op != _BLOCKED or unit is None or attributes.get("group", 1) != 1 or attributes.get("is_limited"):
        return None
    data, weight = node.inputs[0], node.inputs[1]
    if data is None or weight is None or weight not in facts.constants:
        return None
    (_, blocks, *kernel, parts, _, _), extents = facts.constants[weight].shape, static(data.shape)
    outputs, rank = static(node.outputs[0].shape), len(kernel)
    if extents is None or outputs is None or rank < 2 or parts >= unit.steps:
        return None
    names = ("strides", 1, 1), ("pads", 2, 0), ("dilations", 1, 1)
    strides, pads, dilations = (entries_of(attributes.get(n), c * rank, default) for n, c, default in names)
    words = filling(kernel[-1] * extents[1] // _GROUP, unit)
    fewer = words // steps_at_once(words, unit) < kernel[-1] * blocks
    if min(pads) < 0 or dilations[-1] != 1 or not fewer:
        return None
    return _Problem(extents[1], tuple(kernel), outputs[-1], strides, pads, dilations, words)


def filling(words: int, unit: TileUnit) -> int:
    """As few words as need the fewest instructions of ``unit``, at least ``words``."""
    counts = range(words, -(-words // unit.steps) * unit.steps + 1)
    return min(counts, key=lambda count: (count // steps_at_once(count, unit), count))


def _make(problem: _Problem, node: Node, building: Building) -> None:
    data, weight, around = (*node.inputs, None)[:3]
    assert data is not None and weight is not None, "a convolution has data and a weight"
    rank = len(problem.kernel)
    before, after = problem.pads[:rank], problem.pads[rank:]
    behind = (*after[:-1], after[-1] + problem.more)
    places: dict[str, Attribute] = {"before": before, "after": behind, "group": problem.channels}
    pixels = building.add(_PIXELS, [data, around], node, "pixels", places, Reads.AS_THEY_ARE)
    *heights, width, size = (int(str(extent)) for extent in pixels.shape[2:])
    flat = building.add(_RESHAPE, [pixels], node, "rows", {"shape": (data.shape[0], *heights, width * size)})
    packed = building.weight(weight, ("whole rows", problem.words), partial(_packed, problem))
    attributes: dict[str, Attribute] = {
        "filters": dict(node.attributes)["filters"],
        "places": problem.places,
        "step": problem.strides[-1] * problem.channels,
        "strides": problem.strides[:-1],
        "dilations": problem.dilations[:-1],
    }
    building.add(_PRODUCT, [flat, packed], node, "", attributes)


def _packed(problem: _Problem, weight: Array) -> Array:
    """``[F/lanes, C/width, kernel..., width/4, lanes, 4]`` as ``[F/lanes, kernel[:-1]..., words, lanes, 4]``."""
    strips, _, *kernel, _, lanes, size = weight.shape
    rows = np.moveaxis(weight, 1, -4)  # words of all blocks of a tap side by side
    words = prod(rows.shape[len(kernel) : -2])
    missing = [(0, 0)] * len(kernel) + [(0, problem.words - words), (0, 0), (0, 0)]
    return np.ascontiguousarray(np.pad(rows.reshape(strips, *kernel[:-1], words, lanes, size), missing))
