"""Convolutions by Winograd's minimal filtering, where it is estimated to be faster: with 2 x 2 to 5 x 5 taps, or up to
9 taps in one dimension.

One node becomes three: the input transform, a matrix product for each point, and the output transform, which adds the
bias and can be fused with an epilogue. Filters are transformed here, in float64. Convolutions of one image share the
input transform, if its tiles are the same.

It is not a rewrite rule: a search over graphs sees the convolution.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import prod

from tilewright.base.dtypes import f32
from tilewright.cost.kernels import pass_cycles, sum_cycles
from tilewright.cost.work import Work
from tilewright.graph import Array, Node, Value
from tilewright.kernels.nests import VECTORS
from tilewright.ops import Attribute
from tilewright.ops.minimal_filtering import Filtering, filtering, has_filtering
from tilewright.ops.operator import require
from tilewright.ops.shapes import static
from tilewright.ops.winograd import tiles_along, transformed_filter
from tilewright.passes.alternatives.api import OTHER_TERMS, Building, Errors, Facts, FirstStep, Way
from tilewright.passes.alternatives.dimensions import entries_of
from tilewright.passes.blocks import Reads, can_be_blocked, filled_blocks
from tilewright.target.target import Target


@dataclass(frozen=True, slots=True)
class Problem:
    """A convolution, and how it is filtered: ``[n, c, d..., y, x]``, with at most one ``d``, or ``[n, c, x]``."""

    data: tuple[int, ...]
    weight: tuple[int, ...]
    result: tuple[int, ...]
    group: int
    pads: tuple[int, ...]
    """Padding before the data, in each dimension."""
    filterings: tuple[Filtering, ...]
    """Of the last dimensions."""
    dilations: tuple[int, ...]
    """In these."""

    @property
    def tile(self) -> tuple[int, ...]:
        """Outputs of a tile."""
        return tuple(one.outputs for one in self.filterings)

    @property
    def taps(self) -> tuple[int, ...]:
        """Taps of the filter along the last dimensions."""
        return tuple(one.taps for one in self.filterings)

    @property
    def points(self) -> tuple[int, ...]:
        """Inputs of a tile, and number of its products."""
        return tuple(one.points for one in self.filterings)

    @property
    def depth(self) -> int:
        """Taps of the filter along ``d``."""
        return prod(self.weight[2 : -len(self.filterings)])

    @property
    def extents(self) -> tuple[int, ...]:
        """Extents of the result."""
        return self.result[2:]

    @property
    def grid(self) -> tuple[int, ...]:
        """Tiles along the last dimensions (``tiles_along``)."""
        return tiles_along(self.extents[self._planes :], self.tile, self.dilations)

    @property
    def layers(self) -> tuple[int, ...]:
        """Extents of ``d`` in the transformed data."""
        return tuple(extent + self.depth - 1 for extent in self.extents[: self._planes])

    @property
    def tiles(self) -> int:
        """Those of all images, in one layer."""
        return self.result[0] * prod(self.grid)

    @property
    def has_several_tiles(self) -> bool:
        """Whether outputs that are apart make more than one tile, so that it has use for most of them."""
        each = zip(self.extents[self._planes :], self.tile, self.dilations, strict=True)
        return all(distance == 1 or extent > count * distance for extent, count, distance in each)

    @property
    def more_bytes(self) -> int:
        """The growth of transformed filters."""
        taps = prod(self.taps)
        return (prod(self.points) - taps) * max(1, prod(self.weight) // taps) * f32.itemsize

    def cycles(self, target: Target) -> float:
        """Cycles in the transformed domain."""
        points = prod(self.points)
        leaving = points * self.tiles * prod(self.extents[: self._planes]) * self.result[1]
        weights = points * prod(self.weight[: -len(self.filterings)])
        sums = leaving * prod(self.weight[1 : -len(self.filterings)]) * _filled(self.weight[0] // self.group, target)
        products = sum_cycles(int(sums), weights, target)
        products = max(products, _moving(0, leaving, target))  # few channels, so that storing takes longer than summing
        leaving_cycles = max(_transforming(leaving, target), _moving(leaving, prod(self.result), target))
        spilled = _spilled(self._entering + leaving, target)
        return self.cycles_of_input(target) + products + leaving_cycles + spilled

    def cycles_of_input(self, target: Target) -> float:
        """Those of the transform of the data."""
        return max(_transforming(self._entering, target), _moving(prod(self.data), self._entering, target))

    def input_options(self) -> dict[str, Attribute]:
        """The attributes of the transform of the data: convolutions of one image for which they are equal share it."""
        shape: dict[str, Attribute] = {"depth": self.depth, "pads": self.pads}
        return self.output_options() | shape

    def output_options(self) -> dict[str, Attribute]:
        """Those of the transform of the results."""
        moves = {"strides": tuple(one.stride for one in self.filterings), "dilations": self.dilations}
        return {"tile": self.tile, "taps": self.taps, **moves, "outputs": self.extents}

    @property
    def _entering(self) -> int:
        """Elements of the transformed data."""
        return prod(self.points) * self.tiles * prod(self.layers) * self.data[1]

    @property
    def _planes(self) -> int:
        return len(self.extents) - len(self.filterings)


def _transforming(points: int, target: Target) -> float:
    """Cycles of a transform with so many points on its larger side."""
    machine = target.machine
    return machine.shared_kernel_start + points / target.lanes(8 * f32.itemsize) * machine.transform_cycles


def _moving(read: int, stored: int, target: Target) -> float:
    """Cycles in which so many elements are read and stored. Lines that are stored are fetched first from far caches."""
    own = f32.itemsize * (read + stored)
    fetched = f32.itemsize * stored if own > target.l2_bytes else 0
    return pass_cycles(Work(0, 0, own + fetched), target)


def _filled(columns: int, target: Target) -> float:
    """Vectors that products of so many columns compute, for each that is needed: by the widths of their tiles."""
    vectors = -(-columns // target.lanes(8 * f32.itemsize))
    widest = max(width for width in VECTORS if width == 1 or (_ROWS + 1) * width < target.vector_registers)
    width = min(widest, 1 << (vectors - 1).bit_length())
    return -(-vectors // width) * width / vectors


_ROWS = 6
"""Of the tiles of products that take least time: their sums, and vectors of a row, are in registers."""


def _spilled(elements: int, target: Target) -> float:
    """Cycles to write so many transformed elements and read them again, if no cache has room for them."""
    size, machine = f32.itemsize * elements, target.machine
    return 2 * size / machine.spill_bytes if size > min(target.l3_bytes, machine.third_share) else 0.0


@dataclass(frozen=True, slots=True)
class MinimalFiltering:
    """With ``outputs`` at a time along each dimension with several taps. ``errors``: None for those of the points."""

    outputs: int
    errors: Errors | None = None

    @property
    def name(self) -> str:
        return f"F({self.outputs})"

    def ways(self, node: Node, facts: Facts) -> Iterator[Way]:
        problem = _problem_of(node, facts.constants, self.outputs)
        if problem is None or (data := node.inputs[0]) is None:
            return
        blocked, target = can_be_blocked(node.outputs[0], facts.target), facts.target
        cycles = problem.cycles(target) * filled_blocks(node.outputs[0], facts.blocks)
        if node.outputs[0] in facts.outside:  # it is brought into rows by a kernel of its own
            cycles += _moving(prod(problem.result), prod(problem.result), target)
        reads = Reads.BLOCKED if can_be_blocked(data, target) else Reads.AS_THEY_ARE
        kind = ("winograd", *problem.input_options().items())
        first, errors = FirstStep(kind, problem.cycles_of_input(target)), self.errors or _errors(problem)
        name, make = f"F({'x'.join(map(str, problem.tile))})", partial(_transformed, problem, reads)
        yield Way(name, cycles, blocked, reads, make, problem.more_bytes, errors, first=first)


F2, F3, F4 = map(MinimalFiltering, (2, 3, 4))


def _errors(problem: Problem) -> Errors:
    """Those of as many points: six in both dimensions and ten in one have the larger ones."""
    most = max(one.most_points for one in problem.filterings)
    return _LARGE if most > _FEW_POINTS[_dimensions(problem.filterings)] else OTHER_TERMS


_LARGE = replace(OTHER_TERMS, estimated=1.25)
_FEW_POINTS = (0, 8, 4)
"""The most in none, one and two dimensions that have the smaller errors."""
_MOST_POINTS = (0, 10, 6)
_MOST_PRODUCTS = 64
"""Of a tile, each channel of which a transform has in registers, or in the first cache."""


def _transformed(problem: Problem, reads: Reads, node: Node, building: Building) -> None:
    """Adds the nodes that compute ``node`` in the transformed domain."""
    data, weight, bias = (*node.inputs, None)[:3]
    assert data is not None and weight is not None, "a convolution has data and a weight"
    points, grid = problem.points, problem.grid
    batch, filters = problem.result[:2]
    # Without depth, the tiles of all images are rows of the same products: each weight is read once.
    images, step = (batch, prod(grid)) if problem.depth > 1 else (1, prod(grid))
    shared, own = batch // images, problem.data[1] // problem.group
    tiles = building.common(_INPUT, data, node, "tiles", problem.input_options(), reads)
    shape = (prod(points), images, shared * prod(problem.layers) * step, problem.group, own)
    rows = building.add(_RESHAPE, [tiles], node, "rows", {"shape": shape})

    def transform(array: Array) -> Array:
        return transformed_filter(array, problem.tile, problem.group, strides)

    strides = tuple(one.stride for one in problem.filterings)
    matrices = building.weight(weight, ("winograd", problem.tile, problem.group, strides), transform)
    products = building.add(_PRODUCTS, [rows, matrices], node, "products", {"step": step})
    outer = problem.extents[: len(problem.extents) - len(points)]
    shape = (*points, batch, *outer, *grid, filters)
    places = building.add(_RESHAPE, [products], node, "places", {"shape": shape})
    inputs = [places, *([] if bias is None else [bias])]
    building.add(_OUTPUT, inputs, node, "", problem.output_options(), Reads.AS_THEY_ARE)


def _problem_of(node: Node, constants: Mapping[Value, Array], outputs: int) -> Problem | None:
    """The extents, if ``node`` is a supported convolution, with tiles of so many outputs."""
    attributes = dict(node.attributes)
    if node.op != _CONVOLUTION or len(node.outputs) != 1 or node.outputs[0].dtype != f32:
        return None
    if node.inputs[1] not in constants:
        return None
    shapes = [None if value is None else static(value.shape) for value in (*node.inputs[:2], node.outputs[0])]
    data, weight, result = shapes
    if data is None or weight is None or result is None or prod(result) == 0:
        return None
    group = attributes.get("group", 1)
    spatial = len(weight) - 2
    strides, dilations = (entries_of(attributes.get(name), spatial, 1) for name in ("strides", "dilations"))
    if max((1, *strides[:-2], *dilations[:-2])) > 1 or not isinstance(group, int) or len(weight) > 5:
        return None
    if any(min(both) > 1 for both in zip(strides, dilations, strict=True)):
        return None
    filterings = filterings_of(weight[2:][-2:], strides[-2:], outputs)
    pads = entries_of(attributes.get("pads"), 2 * spatial, 0)[:spatial]
    if filterings is None or min(*strides, *dilations, *pads) < 0:  # known only at run time
        return None
    problem = Problem(data, weight, result, group, pads, filterings, dilations[-2:])
    return problem if problem.has_several_tiles else None


def filterings_of(taps: Sequence[int], strides: Sequence[int], outputs: int) -> tuple[Filtering, ...] | None:
    """Those with ``outputs`` along each dimension that has several ``taps``; None where there are none, where they save
    no products, or where errors would be too large."""
    counts = [(outputs if count > 1 else 1, count, stride) for count, stride in zip(taps, strides, strict=True)]
    if not all(has_filtering(*count) for count in counts):
        return None
    found = tuple(filtering(*count) for count in counts)
    points = prod(one.points for one in found)
    if points > _MOST_PRODUCTS or points >= prod(one.outputs * one.taps for one in found):
        return None
    return found if max(one.most_points for one in found) <= _MOST_POINTS[_dimensions(found)] else None


def _dimensions(filterings: Sequence[Filtering]) -> int:
    """In how many dimensions errors arise."""
    return sum(one.most_points > 1 for one in filterings)


_CONVOLUTION, _RESHAPE, _PRODUCTS = require("Conv"), require("Reshape"), require("WinogradProducts")
_INPUT, _OUTPUT = require("WinogradInput"), require("WinogradOutput")
