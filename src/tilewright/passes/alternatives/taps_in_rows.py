"""Convolutions of few channels in pairs of bfloat16: rows of pixels have the taps of a row of the window side by side.

A first convolution over the three channels of an image has no block of channels to sum over. A row of its window has 21
terms, which are written as 14 pairs: all products of a place and a row of the window are one row of a tile, or steps of
a dot product.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from math import prod

import numpy as np

from tilewright.base.dtypes import bf16
from tilewright.cost.kernels import pass_cycles, sum_cycles
from tilewright.cost.work import Work
from tilewright.graph import Array, Node
from tilewright.kernels.tile_products import tile_unit
from tilewright.ops.operator import Attribute, entries_of, require
from tilewright.ops.shapes import static
from tilewright.passes.alternatives.api import Building, Facts, Way
from tilewright.passes.blocks import can_be_blocked, points, width_of
from tilewright.passes.precision import has_products, is_faster_by_pairs

_CONVOLUTION, _ROWS, _PRODUCT = require("Conv"), require("PixelRows"), require("PixelRowConv")
_PAIR = 2


class TapsInRows:
    """Where values are stored in bfloat16, and the target is faster at its products than at those of float32."""

    name = "taps in rows"

    def ways(self, node: Node, facts: Facts) -> Iterator[Way]:
        found = _problem(node, facts)
        if found is None:
            return
        result, target = node.outputs[0], facts.target
        weight = points(result.shape[1:2]) * prod(found.kernel[:-1]) * found.pairs
        products = points(result.shape) // max(1, points(result.shape[1:2])) * weight
        written = Work(0, 0, 2 * bf16.itemsize * found.size * prod(found.extents))
        has_unit = tile_unit(target, bf16, bf16) is not None
        gain = target.machine.matrix_gain if has_unit else target.machine.pair_gain / _PAIR
        cycles = sum_cycles(products, weight, target) / gain + pass_cycles(written, target)
        yield Way(self.name, cycles, is_blocked=True, make=partial(_make, found, width_of(result, facts.blocks)))


TAPS_IN_ROWS = TapsInRows()


@dataclass(frozen=True, slots=True)
class _Problem:
    """A convolution; an entry for each spatial dimension."""

    kernel: tuple[int, ...]
    outputs: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    before: tuple[int, ...]
    channels: int

    @property
    def size(self) -> int:
        """The numbers of a pixel, in pairs."""
        return -(-self.channels // _PAIR) * _PAIR

    @property
    def pairs(self) -> int:
        """Those of a row of the window."""
        return self.kernel[-1] * self.size // _PAIR

    @property
    def extents(self) -> tuple[int, ...]:
        """Of the pixels that windows read."""
        moves = zip(self.outputs, self.strides, self.kernel, self.dilations, strict=True)
        return tuple((y - 1) * stride + (k - 1) * dilation + 1 for y, stride, k, dilation in moves)


def _problem(node: Node, facts: Facts) -> _Problem | None:
    """The convolution, if its terms are no pairs of channels, and all filters, known ones, see all channels."""
    weight = facts.constants.get(node.inputs[1]) if node.op == _CONVOLUTION and node.inputs[1] is not None else None
    data, result, attributes = node.inputs[0] if node.inputs else None, node.outputs[0], dict(node.attributes)
    if weight is None or data is None or attributes.get("group", 1) != 1 or 0 in weight.shape:
        return None
    has_pairs = has_products(bf16, facts.target) and is_faster_by_pairs(facts.target)
    is_narrow = facts.narrow.stored(result.name) == bf16 and has_pairs
    if not is_narrow or can_be_blocked(data, facts.target) or not can_be_blocked(result, facts.target):
        return None
    extents, outputs, rank = static(data.shape), static(result.shape), weight.ndim - 2
    strides, dilations = (entries_of(attributes.get(name), rank, 1) for name in ("strides", "dilations"))
    before = entries_of(attributes.get("pads"), 2 * rank, 0)[:rank]
    if extents is None or outputs is None or 0 in outputs or min(before) < 0 or dilations[-1] != 1:
        return None
    return _Problem(weight.shape[2:], outputs[2:], strides, dilations, before, weight.shape[1])


def _make(problem: _Problem, lanes: int, node: Node, building: Building) -> None:
    data, weight, bias = (*node.inputs, None)[:3]
    assert data is not None and weight is not None, "a convolution has data and a weight"
    pixels = {"before": problem.before, "extents": problem.extents, "size": problem.size}
    rows = building.add(_ROWS, [data], node, "rows", pixels)
    *heights, width = problem.extents
    shape: dict[str, Attribute] = {"shape": (data.shape[0], *heights, width * problem.size)}
    flat = building.add(require("Reshape"), [rows], node, "flat", shape)
    packed = building.weight(weight, ("taps in rows", lanes), partial(_packed, problem, lanes))
    attributes: dict[str, Attribute] = {
        "filters": len(building.constants[weight]),
        "places": problem.outputs[-1],
        "step": problem.strides[-1] * problem.size,
        "strides": problem.strides[:-1],
        "dilations": problem.dilations[:-1],
    }
    building.add(_PRODUCT, [flat, packed, *([] if bias is None else [bias])], node, "", attributes)


def _packed(problem: _Problem, lanes: int, weight: Array) -> Array:
    """``[F, C, kernel...]`` as ``[F/lanes, kernel[:-1]..., pairs, lanes, 2]`` of bf16."""
    filters, channels, *kernel = weight.shape
    missing = ((0, -filters % lanes), (0, problem.size - channels), *((0, 0) for _ in kernel))
    rows = np.moveaxis(np.pad(weight, missing), 1, -1).reshape(-1, lanes, *kernel[:-1], problem.pairs, _PAIR)
    return np.ascontiguousarray(np.moveaxis(rows, 1, -2)).astype(bf16.numpy)
