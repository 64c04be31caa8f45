"""Convolutions with filters of 3 x 3 or 2 x 2 taps by Winograd's minimal filtering, where it is estimated to be faster.

One node becomes three: the input transform, a matrix product for each point, and the output transform, which adds the
bias and can be fused with an epilogue. Filters are transformed here, in float64. Convolutions of one image share the
input transform, if its tiles are the same.

It is not a rewrite rule: a search over graphs sees the convolution.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from math import prod

from tilewright.base.dtypes import f32
from tilewright.cost.kernels import pass_cycles, sum_cycles
from tilewright.cost.work import Work
from tilewright.graph import Array, Node, Value
from tilewright.ops import Attribute
from tilewright.ops.minimal_filtering import FILTERINGS
from tilewright.ops.operator import require
from tilewright.ops.shapes import static
from tilewright.ops.winograd import transformed_filter
from tilewright.passes.alternatives.api import OTHER_TERMS, Building, Errors, Facts, FirstStep, Way
from tilewright.passes.blocks import Reads, can_be_blocked, filled_blocks
from tilewright.target.target import Target


@dataclass(frozen=True, slots=True)
class Problem:
    """A convolution with strides and dilations of 1: ``[n, c, d..., y, x]``, with at most one ``d``."""

    data: tuple[int, ...]
    weight: tuple[int, ...]
    result: tuple[int, ...]
    group: int
    pads: tuple[int, ...]
    """Padding before the data, in each dimension."""

    @property
    def depth(self) -> int:
        """Taps of the filter along ``d``."""
        return prod(self.weight[2:-2])

    @property
    def extents(self) -> tuple[int, ...]:
        """Extents of the result."""
        return self.result[2:]

    def grid(self, tile: int) -> tuple[int, ...]:
        """Tiles along the last two dimensions."""
        return tuple(-(-extent // tile) for extent in self.extents[-2:])

    def layers(self) -> tuple[int, ...]:
        """Extents of ``d`` in the transformed data."""
        return tuple(extent + self.depth - 1 for extent in self.extents[:-2])

    def more_bytes(self, tile: int) -> int:
        """The relative growth of transformed filters."""
        taps = prod(self.weight[-2:])
        return (FILTERINGS[tile].points ** 2 - taps) * max(1, prod(self.weight) // taps) * f32.itemsize

    def cycles(self, tile: int, target: Target) -> float:
        """Cycles in the transformed domain."""
        points = FILTERINGS[tile].points ** 2
        leaving = points * self._tiles(tile) * prod(self.extents[:-2]) * self.result[1]
        products = sum_cycles(leaving * prod(self.weight[1:-2]), points * prod(self.weight[:-2]), target)
        products = max(products, _moving(leaving, target))  # few channels, so that storing takes longer than summing
        leaving_cycles = max(_transforming(leaving, target), _moving(leaving + prod(self.result), target))
        return self.cycles_of_input(tile, target) + products + leaving_cycles

    def cycles_of_input(self, tile: int, target: Target) -> float:
        """Those of the transform of the data."""
        points = FILTERINGS[tile].points ** 2
        return _transforming(points * self._tiles(tile) * prod(self.layers()) * self.data[1], target)

    def input_options(self, tile: int) -> dict[str, Attribute]:
        """The attributes of the transform of the data: convolutions of one image for which they are equal share it."""
        return {"tile": tile, "depth": self.depth, "pads": self.pads, "outputs": self.extents}

    def _tiles(self, tile: int) -> int:
        return self.result[0] * prod(self.grid(tile))


def _transforming(points: int, target: Target) -> float:
    """Cycles of a transform with so many points on its larger side."""
    machine = target.machine
    return machine.shared_kernel_start + points / target.lanes(8 * f32.itemsize) * machine.transform_cycles


def _moving(elements: int, target: Target) -> float:
    """Cycles in which so many elements are read, or stored."""
    return pass_cycles(Work(0, 0, f32.itemsize * elements), target)


@dataclass(frozen=True, slots=True)
class MinimalFiltering:
    """With ``tile`` outputs at a time along each of the last two dimensions."""

    tile: int
    errors: Errors

    @property
    def name(self) -> str:
        return f"F({self.tile}x{self.tile})"

    def ways(self, node: Node, facts: Facts) -> Iterator[Way]:
        problem = _problem_of(node, facts.constants, FILTERINGS[self.tile].taps)
        if problem is None or (data := node.inputs[0]) is None:
            return
        blocked, target = can_be_blocked(node.outputs[0], facts.target), facts.target
        cycles = problem.cycles(self.tile, target) * filled_blocks(node.outputs[0], facts.blocks)
        reads = Reads.BLOCKED if can_be_blocked(data, target) else Reads.AS_THEY_ARE
        make = partial(_transformed, problem, self.tile, reads)
        kind = ("winograd", *problem.input_options(self.tile).items())
        first = FirstStep(kind, problem.cycles_of_input(self.tile, target))
        yield Way(self.name, cycles, blocked, reads, make, problem.more_bytes(self.tile), self.errors, first=first)


F2, F3 = MinimalFiltering(2, OTHER_TERMS), MinimalFiltering(3, OTHER_TERMS)
F4 = MinimalFiltering(4, replace(OTHER_TERMS, estimated=1.25))
"""Errors of the largest tile are about ten times as large, those of the others twice."""


def _transformed(problem: Problem, tile: int, reads: Reads, node: Node, building: Building) -> None:
    """Adds the nodes that compute ``node`` in the transformed domain."""
    data, weight, bias = (*node.inputs, None)[:3]
    assert data is not None and weight is not None, "a convolution has data and a weight"
    points, grid = FILTERINGS[tile].points, problem.grid(tile)
    batch, filters = problem.result[:2]
    # Without depth, the tiles of all images are rows of the same products: each weight is read once.
    images, step = (batch, prod(grid)) if problem.depth > 1 else (1, prod(grid))
    shared, own = batch // images, problem.data[1] // problem.group
    tiles = building.common(_INPUT, data, node, "tiles", problem.input_options(tile), reads)
    shape = (points**2, images, shared * prod(problem.layers()) * step, problem.group, own)
    rows = building.add(_RESHAPE, [tiles], node, "rows", {"shape": shape})

    def transform(array: Array) -> Array:
        return transformed_filter(array, tile, problem.group)

    matrices = building.weight(weight, ("winograd", tile, problem.group), transform)
    products = building.add(_PRODUCTS, [rows, matrices], node, "products", {"step": step})
    shape = (points, points, batch, *problem.extents[:-2], *grid, filters)
    places = building.add(_RESHAPE, [products], node, "places", {"shape": shape})
    inputs = [places, *([] if bias is None else [bias])]
    building.add(_OUTPUT, inputs, node, "", {"tile": tile, "outputs": problem.extents}, Reads.AS_THEY_ARE)


def _problem_of(node: Node, constants: Mapping[Value, Array], taps: int) -> Problem | None:
    """The extents, if ``node`` is a supported convolution with ``taps`` taps."""
    attributes: dict[str, object] = dict(node.attributes)
    if node.op != _CONVOLUTION or len(node.outputs) != 1 or node.outputs[0].dtype != f32:
        return None
    if node.inputs[1] not in constants:
        return None
    shapes = [None if value is None else static(value.shape) for value in (*node.inputs[:2], node.outputs[0])]
    data, weight, result = shapes
    if data is None or weight is None or result is None or prod(result) == 0:
        return None
    group = attributes.get("group", 1)
    plain = all(_ones(attributes.get(name)) for name in ("strides", "dilations"))
    if not plain or not isinstance(group, int) or len(weight) not in (4, 5) or weight[-2:] != (taps, taps):
        return None
    return Problem(data, weight, result, group, _pads(node, len(data) - 2))


_CONVOLUTION, _RESHAPE, _PRODUCTS = require("Conv"), require("Reshape"), require("WinogradProducts")
_INPUT, _OUTPUT = require("WinogradInput"), require("WinogradOutput")


def _pads(node: Node, count: int) -> tuple[int, ...]:
    """The zeros before the data."""
    pads = dict(node.attributes).get("pads")
    return tuple(int(str(pad)) for pad in pads[:count]) if isinstance(pads, tuple) and pads else (0,) * count


def _ones(values: object) -> bool:
    return values in (None, (1, 1), (1, 1, 1))
