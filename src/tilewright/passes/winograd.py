"""Convolutions with filters of 3 x 3 or 2 x 2 taps by Winograd's minimal filtering, where it is estimated to be faster.

One node becomes three: the transform of the input, a matrix product for each point, and the transform back, which takes
over the bias and is what an epilogue joins. Filters are transformed here, in float64.

It follows from algebra, but is no rule: it is a way to compute one operator, chosen by its cost among others, layouts
included, and by how large errors may be (``math``). A search over graphs sees the convolution.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from math import prod
from types import MappingProxyType

import numpy as np

from tilewright.base.dtypes import f32
from tilewright.base.names import Names
from tilewright.base.numerics import Math
from tilewright.graph import Array, Node, Value, make_node
from tilewright.ops.minimal_filtering import FILTERINGS
from tilewright.ops.operator import require
from tilewright.ops.shapes import static
from tilewright.ops.winograd import transformed_filter
from tilewright.symbolic.expr import const
from tilewright.target.target import Target

ADVANTAGE: Mapping[int, float] = MappingProxyType({2: 1.1, 3: 1.1, 4: 1.25})
"""By how much the estimate must be lower, by outputs of a tile: it is rough, and errors grow about twofold, tenfold."""
MEASURED_ADVANTAGE = 1.05
"""The same where times are known: errors alone count."""
FAST_ADVANTAGE = 1.0
"""The same under ``math="fast"``."""


def advantage(tile: int, math: Math, *, is_measured: bool = False) -> float:
    """What the estimate (or time) for tiles of this size is multiplied by before it is compared."""
    if math is Math.FAST:
        return FAST_ADVANTAGE
    return MEASURED_ADVANTAGE if is_measured else ADVANTAGE[tile]


@dataclass(frozen=True, slots=True)
class Problem:
    """A convolution with strides and dilations of 1: ``[n, c, d..., y, x]``, with at most one ``d``."""

    data: tuple[int, ...]
    weight: tuple[int, ...]
    result: tuple[int, ...]
    group: int
    pads: tuple[int, ...]
    """Before the data, in each dimension."""

    @property
    def depth(self) -> int:
        """Taps of the filter along ``d``."""
        return prod(self.weight[2:-2])

    @property
    def extents(self) -> tuple[int, ...]:
        """Of the result."""
        return self.result[2:]

    @property
    def tiles(self) -> list[int]:
        """The sizes of tiles that there are for its taps."""
        return [tile for tile, filtering in FILTERINGS.items() if filtering.taps == self.weight[-1]]

    def grid(self, tile: int) -> tuple[int, ...]:
        """Tiles along the last two dimensions."""
        return tuple(-(-extent // tile) for extent in self.extents[-2:])

    def layers(self) -> tuple[int, ...]:
        """Extents of ``d`` in the transformed data."""
        return tuple(extent + self.depth - 1 for extent in self.extents[:-2])

    def more_bytes(self, tile: int) -> int:
        """By how much transformed filters are larger."""
        taps = prod(self.weight[-2:])
        return (FILTERINGS[tile].points ** 2 - taps) * max(1, prod(self.weight) // taps) * f32.itemsize

    def cycles(self, tile: int, target: Target) -> float:
        """In the transformed domain."""
        points = FILTERINGS[tile].points ** 2
        tiles = self.result[0] * prod(self.grid(tile))
        leaving = points * tiles * prod(self.extents[:-2]) * self.result[1]
        entering = points * tiles * prod(self.layers()) * self.data[1]
        products = product_cycles(leaving * prod(self.weight[1:-2]), points * prod(self.weight[:-2]), target)
        transforms = (entering + leaving) / _lanes(target) * target.machine.transform_cycles
        return 2 * target.machine.shared_kernel_start + products + transforms


def _lanes(target: Target) -> int:
    return target.vector_bits // (8 * f32.itemsize)


def product_cycles(products: int, weights: int, target: Target) -> float:
    """Cycles for sums of so many products, with so many weights: those of the arithmetic, or of reading the weights."""
    size = weights * f32.itemsize
    streaming = size / target.machine.far_bytes if size > target.l2_bytes else 0.0
    return max(products / (_lanes(target) * target.fma_per_cycle), streaming)


@dataclass(slots=True)
class Rewriting:
    """One pass over a graph; transformed filters are added to its constants."""

    constants: dict[Value, Array]
    names: Names
    filters: dict[tuple[Value, int, int], Value] = field(default_factory=dict[tuple[Value, int, int], Value])

    def nodes(self, node: Node, tile: int) -> Iterator[Node]:
        """What does the same as ``node`` in the transformed domain, by tiles of this size."""
        problem = problem_of(node, self.constants)
        assert problem is not None, "only such convolutions are computed so"
        data, weight, bias = (*node.inputs, None)[:3]
        assert data is not None and weight is not None, "a convolution has data and a weight"
        result = node.outputs[0]
        points, grid = FILTERINGS[tile].points, problem.grid(tile)
        batch, filters = problem.result[:2]
        # Without depth, the tiles of all images are rows of the same products: a weight is read once for all.
        images, step = (batch, prod(grid)) if problem.depth > 1 else (1, prod(grid))
        shared = batch // images
        attributes = {"tile": tile, "depth": problem.depth, "pads": problem.pads, "outputs": problem.extents}
        entering = make_node(_INPUT, [data], [self.names.fresh(f"{result.name}.tiles")], attributes, node.source)
        rows = shared * prod(problem.layers()) * step
        shape = (points**2, images, rows, problem.group, problem.data[1] // problem.group)
        matrices = make_node(
            _RESHAPE, entering.outputs, [self.names.fresh(f"{result.name}.rows")], {"shape": shape}, node.source
        )
        factors = [matrices.outputs[0], self._filter(weight, tile, problem.group)]
        products = make_node(
            _PRODUCTS, factors, [self.names.fresh(f"{result.name}.products")], {"step": step}, node.source
        )
        shape = (points, points, batch, *problem.extents[:-2], *grid, filters)
        places = make_node(
            _RESHAPE, products.outputs, [self.names.fresh(f"{result.name}.places")], {"shape": shape}, node.source
        )
        inputs = [places.outputs[0], *([] if bias is None else [bias])]
        attributes = {"tile": tile, "outputs": problem.extents}
        leaving = make_node(_OUTPUT, inputs, [result.name], attributes, node.source)
        yield from (entering, matrices, products, places, leaving)

    def _filter(self, weight: Value, tile: int, group: int) -> Value:
        """The transformed filters, once for each weight."""
        if (weight, tile, group) not in self.filters:
            array = transformed_filter(self.constants[weight], tile, group).astype(np.float32)
            name = self.names.fresh(f"{weight.name}.winograd")
            value = Value(name, weight.dtype, tuple(map(const, array.shape)))
            self.filters[weight, tile, group] = value
            self.constants[value] = array
        return self.filters[weight, tile, group]


def problem_of(node: Node, constants: Mapping[Value, Array]) -> Problem | None:
    """The extents, if ``node`` is a convolution of the kinds for which this is."""
    attributes: dict[str, object] = dict(node.attributes)
    if node.op.name != "Conv" or len(node.outputs) != 1 or node.outputs[0].dtype != f32:
        return None
    if node.inputs[1] not in constants:
        return None
    shapes = [None if value is None else static(value.shape) for value in (*node.inputs[:2], node.outputs[0])]
    data, weight, result = shapes
    if data is None or weight is None or result is None or prod(result) == 0:
        return None
    group = attributes.get("group", 1)
    plain = all(_ones(attributes.get(name)) for name in ("strides", "dilations"))
    if not plain or not isinstance(group, int) or len(weight) not in (4, 5) or weight[-2:] not in _TAPS:
        return None
    return Problem(data, weight, result, group, _pads(node, len(data) - 2))


_TAPS = frozenset((filtering.taps, filtering.taps) for filtering in FILTERINGS.values())
_RESHAPE, _PRODUCTS = require("Reshape"), require("WinogradProducts")
_INPUT, _OUTPUT = require("WinogradInput"), require("WinogradOutput")


def _pads(node: Node, count: int) -> tuple[int, ...]:
    """The zeros before the data."""
    pads = dict(node.attributes).get("pads")
    return tuple(int(str(pad)) for pad in pads[:count]) if isinstance(pads, tuple) and pads else (0,) * count


def _ones(values: object) -> bool:
    return values in (None, (1, 1), (1, 1, 1))
