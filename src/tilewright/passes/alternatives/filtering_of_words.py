"""Convolutions of bytes with 3 x 3 taps by Winograd's F(2x2, 3x3) in words of 16 bits, as dot products of pairs.

All entries of its matrices are 0, 1 and -1, but those of the filter's, which are halves, too: filters times 4 become
integers, and results are shifted by two bits. They are exact: bytes become numbers up to 4 * 255, filters up to
9 * 128, and sums modulo 2^32 are right where four times the result fits in 32 bits. Only words are convolved so, which
bytes are widened to where no instruction multiplies four of them: else direct sums take less time.
"""

from collections.abc import Iterator
from functools import partial
from math import prod

from tilewright.base.dtypes import i8, i16, i32
from tilewright.graph import Array, Node
from tilewright.kernels.dot_products import product_of
from tilewright.ops import Attribute
from tilewright.ops.minimal_filtering import filtering
from tilewright.ops.operator import require
from tilewright.ops.shapes import static
from tilewright.ops.winograd import SHIFT, filter_in_words
from tilewright.passes.alternatives.api import Building, Facts, Way
from tilewright.passes.alternatives.dimensions import entries_of
from tilewright.passes.alternatives.minimal_filtering import Problem
from tilewright.passes.blocks import Reads

_BYTES = require("BlockedDotConvolution")
_INPUT, _OUTPUT = require("WinogradInput"), require("WinogradOutput")
_PRODUCTS, _RESHAPE = require("WinogradProducts"), require("Reshape")
_FILTERINGS = (filtering(2, 3),) * 2
_MOST_CHANNELS = (1 << 31) // ((1 << SHIFT) * 9 * 255 * 128)
_LEAST_TILES = 32
"""For fewer, as those of 7 x 7 places, transformed filters would be most of a network's weights, and save little."""


class FilteringOfWords:
    """The model compares its kernels with those of direct sums."""

    name = "F(2x2) of words"

    def ways(self, node: Node, facts: Facts) -> Iterator[Way]:
        problem = _problem_of(node, facts)
        if problem is not None:
            make = partial(_transformed, problem)
            yield Way(self.name, is_blocked=True, reads=Reads.BLOCKED, make=make, more_bytes=_more_bytes(problem))


FILTERING_OF_WORDS = FilteringOfWords()


def _more_bytes(problem: Problem) -> int:
    """The growth of the filters."""
    filters, channels, *taps = problem.weight
    return filters * channels * (prod(problem.points) * i16.itemsize - prod(taps) * i8.itemsize)


def _problem_of(node: Node, facts: Facts) -> Problem | None:
    """The convolution, if it is one of words by a constant weight with 3 x 3 taps, without strides or dilations."""
    if node.op != _BYTES or product_of(facts.target, i16, i16, i32) is None or node.inputs[1] not in facts.constants:
        return None
    data, weight, attributes = node.inputs[0], node.inputs[1], dict(node.attributes)
    assert data is not None and weight is not None, "a convolution has data and a weight"
    shapes = [static(value.shape) for value in (data, weight, node.outputs[0])]
    if data.dtype != i16 or attributes.get("group", 1) != 1 or None in shapes:
        return None
    extents, (strips, blocks, *kernel, parts, lanes, size), result = (shape for shape in shapes if shape is not None)
    channels = blocks * parts * size
    moves = [entries_of(attributes.get(name), len(kernel), 1) for name in ("strides", "dilations")]
    pads = entries_of(attributes.get("pads"), 2 * len(kernel), 0)
    is_plain = all(move == 1 for entries in moves for move in entries)
    if kernel != [one.taps for one in _FILTERINGS] or not is_plain or min(pads) < 0 or channels > _MOST_CHANNELS:
        return None
    problem = Problem(extents, (strips * lanes, channels, *kernel), result, 1, pads[:2], _FILTERINGS, (1, 1))
    return problem if problem.tiles >= _LEAST_TILES else None


def _transformed(problem: Problem, node: Node, building: Building) -> None:
    """Adds the nodes that compute ``node`` in the transformed domain."""
    data, weight, around = (*node.inputs, None)[:3]
    assert data is not None and weight is not None, "a convolution has data and a weight"
    points, rows, (batch, filters, *_) = problem.points, problem.tiles, problem.result
    tiles = building.add(_INPUT, [data, around], node, "tiles", problem.input_options(), Reads.BLOCKED)
    shape: dict[str, Attribute] = {"shape": (prod(points), 1, rows, 1, problem.data[1])}
    left = building.add(_RESHAPE, [tiles], node, "rows", shape)
    matrices = building.weight(weight, ("words", filters), partial(_in_words, filters))
    products = building.add(_PRODUCTS, [left, matrices], node, "products", {"step": rows})
    shape = {"shape": (*points, batch, *problem.grid, filters)}
    places = building.add(_RESHAPE, [products], node, "places", shape)
    building.add(_OUTPUT, [places], node, "", problem.output_options() | {"shift": SHIFT}, Reads.AS_THEY_ARE)


def _in_words(filters: int, packed: Array) -> Array:
    """``[F/lanes, C/width, 3, 3, width/2, lanes, 2]``, transformed: ``[points^2, 1, 1, C, filters]``."""
    strips, blocks, *kernel, parts, lanes, size = packed.shape
    plain = packed.transpose(0, 5, 1, 4, 6, 2, 3).reshape(strips * lanes, blocks * parts * size, *kernel)
    return filter_in_words(plain[:filters], [one.outputs for one in _FILTERINGS])
