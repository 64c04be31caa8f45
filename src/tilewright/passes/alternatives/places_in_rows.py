"""Convolutions of few places by a matrix unit, with all places as rows of one product (``ops.place_convolution``)."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from math import prod

import numpy as np

from tilewright.base.dtypes import bf16, i8, u8
from tilewright.cost.kernels import pass_cycles, sum_cycles
from tilewright.cost.work import Work
from tilewright.graph import Array, Node
from tilewright.kernels.matrix_tiles import MOST_ROWS
from tilewright.kernels.tile_products import tile_unit
from tilewright.ops.operator import Attribute, entries_of, require
from tilewright.ops.place_convolution import lines
from tilewright.ops.shapes import static
from tilewright.passes.alternatives.api import Building, Facts, Way
from tilewright.passes.blocks import Blocks, Reads, can_be_blocked, filled_blocks, points, row_gain, width_of
from tilewright.target.target import Target

_CONVOLUTION, _PLACES = require("Conv"), require("PlaceConv")
_BYTES, _BYTE_PLACES = require("BlockedDotConvolution"), require("PlaceDotConvolution")
_PAIR = 2
_FEW_BETWEEN, _FEW_BETWEEN_BYTES = 1.3, 1.6
"""Rows for each place, up to which those between rows of places are computed, and places never gathered: products of
bytes take half of the time."""
_PANEL = 32
"""Filters that a tile has, for which it reads all places once more."""


class PlacesInRows:
    """For several taps, or a stride: places that a single tap reads are rows anyway."""

    name = "places in rows"

    def ways(self, node: Node, facts: Facts) -> Iterator[Way]:
        found = _problem(node, facts)
        for problem in () if found is None else found.variants(_FEW_BETWEEN):
            name = f"{problem.kind}{self.name}"
            cycles = _cycles(problem, node, facts)
            make = partial(_make, problem, facts.blocks)
            yield Way(name, cycles, is_blocked=True, reads=Reads.BLOCKED, make=make)


PLACES_IN_ROWS = PlacesInRows()


class BytePlacesInRows:
    """The same for bytes, where a row of places is about a tile or less: the model compares it with such rows."""

    name = "byte places in rows"

    def ways(self, node: Node, facts: Facts) -> Iterator[Way]:
        found = _problem_of_bytes(node, facts)
        for problem in () if found is None else found.variants(_FEW_BETWEEN_BYTES):
            name, make = f"{problem.kind}{self.name}", partial(_make_bytes, problem, _row_of(facts.target))
            yield Way(name, is_blocked=True, reads=Reads.BLOCKED, make=make)


BYTE_PLACES_IN_ROWS = BytePlacesInRows()


@dataclass(frozen=True, slots=True)
class _Problem:
    """A convolution; an entry for each spatial dimension."""

    kernel: tuple[int, ...]
    outputs: tuple[int, ...]
    strides: tuple[int, ...]
    pads: tuple[int, ...]
    dilations: tuple[int, ...]
    images: int = 0
    """How many leading dimensions are apart."""
    is_gathered: bool = False
    """Whether each tap has a copy of what it reads."""

    @property
    def moves(self) -> dict[str, Attribute]:
        """The attributes of the node that computes it."""
        moves = {"strides": self.strides, "pads": self.pads, "dilations": self.dilations}
        return {**moves, "images": self.images, "is_gathered": self.is_gathered}

    def variants(self, few: float) -> list["_Problem"]:
        """The ways to have all places as rows, if there are few enough of them. ``few``: rows for each place up to
        which they are not gathered."""
        apart = range(2 if len(self.outputs) > 2 else 1) if set(self.strides) == {1} else ()
        in_lines = [replace(self, images=images) for images in apart]
        is_sparse = all(problem.rows * problem.products > few * prod(self.outputs) for problem in in_lines)
        gathered = [replace(self, is_gathered=True)] if is_sparse else []
        return [problem for problem in (*in_lines, *gathered) if 1 < problem.rows <= MOST_ROWS]

    @property
    def kind(self) -> str:
        """What tells it from others, in a name."""
        return "gathered " if self.is_gathered else "images of " if self.images else ""

    @property
    def _lines(self) -> tuple[int, ...]:
        return lines(self.outputs, self.kernel, self.dilations)

    @property
    def _between(self) -> int:
        """Rows from the first place of an image to the last, along padded rows."""
        within, extents = self.outputs[self.images :], self._lines[self.images :]
        return sum((y - 1) * prod(extents[place + 1 :]) for place, y in enumerate(within)) + 1

    @property
    def rows(self) -> int:
        """Those of a product."""
        return prod(self.outputs) if self.is_gathered else self._between

    @property
    def products(self) -> int:
        """The images that have one."""
        return prod(self.outputs[: self.images])

    @property
    def copied(self) -> int:
        """Positions of the copy."""
        return prod(self.kernel) * prod(self.outputs) if self.is_gathered else prod(self._lines)


def _problem(node: Node, facts: Facts) -> _Problem | None:
    """The convolution, if its products are pairs of bfloat16 for a matrix unit."""
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
    strides, pads, dilations = (entries_of(attributes.get(n), c * len(kernel), default) for n, c, default in names)
    found = _Problem(kernel, outputs, strides, pads, dilations)
    is_single = prod(kernel) == 1 and set(strides) == {1} and not any(pads)
    return found if not is_single and min(pads) >= 0 else None


def _problem_of_bytes(node: Node, facts: Facts) -> _Problem | None:
    """The convolution, if it is one of bytes in blocks for a matrix unit, and rows of its places fill no two tiles."""
    unit = tile_unit(facts.target, u8, i8)
    if node.op != _BYTES or unit is None or node.inputs[1] is None:
        return None
    attributes = dict(node.attributes)
    kernel, outputs = static(node.inputs[1].shape[2:-3]), static(node.outputs[0].shape[2:])
    if kernel is None or outputs is None or attributes.get("group", 1) != 1 or attributes.get("is_limited"):
        return None
    names = ("strides", 1, 1), ("pads", 2, 0), ("dilations", 1, 1)
    strides, pads, dilations = (entries_of(attributes.get(n), c * len(kernel), default) for n, c, default in names)
    found = _Problem(kernel, outputs, strides, pads, dilations)
    is_single = prod(kernel) == 1 and set(strides) == {1} and not any(pads)
    are_short = outputs[-1] < 2 * unit.rows and len(outputs) > 1
    return found if are_short and not is_single and min(pads) >= 0 else None


def _row_of(target: Target) -> int:
    """The words of bytes that fill a row of a tile."""
    unit = tile_unit(target, u8, i8)
    assert unit is not None, "see `_problem_of_bytes`"
    return unit.steps


def _make_bytes(problem: _Problem, row: int, node: Node, building: Building) -> None:
    data, weight, *around = node.inputs
    assert weight is not None, "a convolution has a weight"
    packed = building.weight(weight, ("in rows", row), partial(_in_whole_rows, row))
    attributes = {**problem.moves, "filters": dict(node.attributes)["filters"]}
    building.add(_BYTE_PLACES, [data, packed, *around], node, "", attributes, Reads.BLOCKED)


def _in_whole_rows(row: int, weight: Array) -> Array:
    """``[F/lanes, C/width, kernel..., width/4, lanes, 4]`` with blocks of as many channels as fill a row, and zeros
    for those that are missing: places are copied anyway."""
    words = weight.shape[-3]
    if row % words:
        return weight
    whole = np.pad(weight, [(0, 0), (0, -weight.shape[1] % (row // words)), *((0, 0) for _ in weight.shape[2:])])
    split = whole.reshape(whole.shape[0], -1, row // words, *whole.shape[2:])
    joined = np.moveaxis(split, 2, -4)
    return np.ascontiguousarray(joined.reshape(*joined.shape[:-4], row, *joined.shape[-2:]))


def _cycles(problem: _Problem, node: Node, facts: Facts) -> float:
    data, result, target, machine = node.inputs[0], node.outputs[0], facts.target, facts.target.machine
    assert data is not None, "a convolution has data"
    filters, terms = points(result.shape[1:2]), points(data.shape[1:2]) * prod(problem.kernel)
    products = points(result.shape[:2]) * problem.products * problem.rows * terms
    cycles = sum_cycles(products, filters * terms, target) * filled_blocks(result, facts.blocks)
    gain = _PAIR * row_gain(data, facts.blocks) * machine.places_gain
    copied = bf16.itemsize * points(data.shape[:2]) * problem.copied
    is_far = copied > machine.cache_part * target.l2_bytes
    read_again = filters / _PANEL * copied / machine.third_bytes if is_far else 0.0
    weights = bf16.itemsize * filters * terms
    # Products of several images do not ask for the weights of the next one.
    waiting = weights / machine.tile_stream_bytes if problem.products > 1 and weights > target.l2_bytes else 0.0
    return cycles / gain + pass_cycles(Work(0, 0, 2 * copied), target) + read_again + waiting


def _make(problem: _Problem, blocks: Blocks, node: Node, building: Building) -> None:
    data, weight, bias = (*node.inputs, None)[:3]
    assert data is not None and weight is not None, "a convolution has data and a weight"
    width, lanes = width_of(data, blocks), width_of(node.outputs[0], blocks)
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
