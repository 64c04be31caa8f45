"""Convolutions of few places by a matrix unit, with all places as rows of one product (``ops.place_convolution``)."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from math import prod

import numpy as np

from tilewright.base.dtypes import bf16, i8, u8
from tilewright.cost.kernels import pass_cycles, sum_cycles
from tilewright.cost.work import Work
from tilewright.graph import Array, Node
from tilewright.kernels.matrix_tiles import MOST_ROWS
from tilewright.kernels.tile_products import tile_unit
from tilewright.ops.operator import Attribute, require
from tilewright.ops.place_convolution import lines
from tilewright.ops.shapes import static
from tilewright.passes.alternatives.api import Building, Facts, Way
from tilewright.passes.blocks import Reads, can_be_blocked, filled_blocks, points, row_gain, width_of

_CONVOLUTION, _PLACES = require("Conv"), require("PlaceConv")
_BYTES, _BYTE_PLACES = require("BlockedDotConvolution"), require("PlaceDotConvolution")
_PAIR = 2
_MOST_BETWEEN, _MOST_BETWEEN_BYTES = 1.3, 1.6
"""Rows for each place, up to which those between rows of places are computed, rather than places gathered: products of
bytes take half of the time."""


class PlacesInRows:
    """For several taps, or a stride: places that a single tap reads are rows anyway."""

    name = "places in rows"

    def ways(self, node: Node, facts: Facts) -> Iterator[Way]:
        found = _problem(node, facts)
        if found is None or (data := node.inputs[0]) is None:
            return
        result, target = node.outputs[0], facts.target
        terms = points(data.shape[1:2]) * prod(found.kernel)
        products = points(result.shape[:2]) * found.rows * terms
        cycles = sum_cycles(products, points(result.shape[1:2]) * terms, target) * filled_blocks(result, facts.blocks)
        gain = _PAIR * row_gain(data, facts.blocks) * target.machine.places_gain
        copied = Work(0, 0, 2 * bf16.itemsize * points(data.shape[:2]) * found.copied)
        widths = width_of(data, facts.blocks), width_of(result, facts.blocks)
        make = partial(_make, found, *widths)
        yield Way(
            self.name, cycles / gain + pass_cycles(copied, target), is_blocked=True, reads=Reads.BLOCKED, make=make
        )


PLACES_IN_ROWS = PlacesInRows()


class BytePlacesInRows:
    """The same for bytes, where a row of places is about a tile or less: the model compares it with such rows."""

    name = "byte places in rows"

    def ways(self, node: Node, facts: Facts) -> Iterator[Way]:
        found = _problem_of_bytes(node, facts)
        if found is not None:
            yield Way(self.name, is_blocked=True, reads=Reads.BLOCKED, make=partial(_make_bytes, found))


BYTE_PLACES_IN_ROWS = BytePlacesInRows()


@dataclass(frozen=True, slots=True)
class _Problem:
    """A convolution; an entry for each spatial dimension."""

    kernel: tuple[int, ...]
    outputs: tuple[int, ...]
    strides: tuple[int, ...]
    pads: tuple[int, ...]
    dilations: tuple[int, ...]
    most_between: float = _MOST_BETWEEN

    @property
    def moves(self) -> dict[str, Attribute]:
        """The attributes of the node that computes it."""
        moves = {"strides": self.strides, "pads": self.pads, "dilations": self.dilations}
        return {**moves, "is_gathered": self.is_gathered}

    @property
    def _lines(self) -> tuple[int, ...]:
        return lines(self.outputs, self.kernel, self.dilations)

    @property
    def _between(self) -> int:
        """Rows from the first place to the last, along padded rows."""
        steps = ((y - 1) * prod(self._lines[place + 1 :]) for place, y in enumerate(self.outputs))
        return sum(steps) + 1

    @property
    def is_gathered(self) -> bool:
        """Whether each tap has a copy of what it reads."""
        return any(stride != 1 for stride in self.strides) or self._between > self.most_between * prod(self.outputs)

    @property
    def rows(self) -> int:
        """Those that are computed."""
        return prod(self.outputs) if self.is_gathered else self._between

    @property
    def copied(self) -> int:
        """Positions of the copy."""
        return prod(self.kernel) * prod(self.outputs) if self.is_gathered else prod(self._lines)


def _problem(node: Node, facts: Facts) -> _Problem | None:
    """The convolution, if its products are pairs of bfloat16 for a matrix unit, and its places are few."""
    if node.op != _CONVOLUTION or facts.narrow.products(node) == 1 or tile_unit(facts.target, bf16, bf16) is None:
        return None
    data, weight, attributes = node.inputs[0], node.inputs[1], dict(node.attributes)
    shapes = [None if value is None else static(value.shape) for value in (data, weight, node.outputs[0])]
    if data is None or weight not in facts.constants or attributes.get("group", 1) != 1 or None in shapes:
        return None
    if not can_be_blocked(data, facts.target) or not can_be_blocked(node.outputs[0], facts.target):
        return None
    _, kernel, outputs = (shape[2:] for shape in shapes if shape is not None)
    names = ("strides", 1, 1), ("pads", 2, 0), ("dilations", 1, 1)
    strides, pads, dilations = (_numbers(attributes.get(n), c * len(kernel), default) for n, c, default in names)
    found = _Problem(kernel, outputs, strides, pads, dilations)
    is_single = prod(kernel) == 1 and set(strides) == {1} and not any(pads)
    return found if not is_single and min(pads) >= 0 and 1 < found.rows <= MOST_ROWS else None


def _problem_of_bytes(node: Node, facts: Facts) -> _Problem | None:
    """The convolution, if it is one of bytes in blocks for a matrix unit, and rows of its places fill no two tiles."""
    unit, data, attributes = tile_unit(facts.target, u8, i8), node.inputs[0], dict(node.attributes)
    if node.op != _BYTES or unit is None or data is None or node.inputs[1] is None:
        return None
    kernel, outputs = static(node.inputs[1].shape[2:-3]), static(node.outputs[0].shape[2:])
    if kernel is None or outputs is None or attributes.get("group", 1) != 1 or attributes.get("is_limited"):
        return None
    names = ("strides", 1, 1), ("pads", 2, 0), ("dilations", 1, 1)
    strides, pads, dilations = (_numbers(attributes.get(n), c * len(kernel), default) for n, c, default in names)
    found = _Problem(kernel, outputs, strides, pads, dilations, _MOST_BETWEEN_BYTES)
    is_single = prod(kernel) == 1 and set(strides) == {1} and not any(pads)
    are_short = outputs[-1] < 2 * unit.rows and len(outputs) > 1
    return found if are_short and not is_single and min(pads) >= 0 and 1 < found.rows <= MOST_ROWS else None


def _make_bytes(problem: _Problem, node: Node, building: Building) -> None:
    attributes = {**problem.moves, "filters": dict(node.attributes)["filters"]}
    building.add(_BYTE_PLACES, node.inputs, node, "", attributes, Reads.BLOCKED)


def _numbers(values: Attribute | None, count: int, default: int) -> tuple[int, ...]:
    """Those of an attribute; -1 in place of what is known only at run time."""
    if not isinstance(values, tuple) or not values:
        return (default,) * count
    return tuple(value if isinstance(value, int) else -1 for value in values)


def _make(problem: _Problem, width: int, lanes: int, node: Node, building: Building) -> None:
    data, weight, bias = (*node.inputs, None)[:3]
    assert data is not None and weight is not None, "a convolution has data and a weight"
    packed = building.weight(weight, ("in pairs", width, lanes), partial(packed_in_pairs, width, lanes))
    attributes = {**problem.moves, "filters": len(building.constants[weight])}
    inputs = [data, packed, *([] if bias is None else [bias])]
    building.add(_PLACES, inputs, node, "", attributes, Reads.BLOCKED)


def packed_in_pairs(width: int, lanes: int, weight: Array) -> Array:
    """``[F, C, kernel...]`` as ``[F/lanes, C/width, kernel..., width/2, lanes, 2]`` of bf16."""
    filters, channels, *kernel = weight.shape
    whole = np.pad(weight, [(0, -filters % lanes), (0, -channels % width), *((0, 0) for _ in kernel)])
    split = whole.reshape(-1, lanes, whole.shape[1] // width, width // _PAIR, _PAIR, *kernel)
    taps = range(5, split.ndim)
    return np.ascontiguousarray(split.transpose(0, 2, *taps, 3, 1, 4)).astype(bf16.numpy)
