"""Cycles of products by a matrix unit: of tiles whose operands come from the caches, and of attention between two."""

from collections.abc import Mapping
from math import gcd

import numpy as np
from numpy.typing import NDArray

from tilewright.base.dtypes import bf16, f32, i32
from tilewright.cost.pieces import Cycles
from tilewright.kernels.attention_tiles import AttentionTiles
from tilewright.kernels.matrix_tiles import MatrixTiles
from tilewright.kernels.panels_ahead import LINE_BYTES
from tilewright.kernels.tile_descriptions import TileProduct
from tilewright.kernels.tiling import Order
from tilewright.space.population import Population
from tilewright.target.target import Target


def tiles_of_rows(product: TileProduct, rows: int) -> tuple[tuple[int, TileProduct], ...]:
    """How often a tile is multiplied for all rows, and a last one that is lower, if their number is open."""
    whole, left = divmod(rows, product.spatial[product.rows])
    if not product.is_open:
        return ((whole, product),)
    return ((whole, product.of_rows(product.spatial[product.rows])), *(((1, product.of_rows(left)),) if left else ()))


def panel_loads(
    nest: MatrixTiles, product: TileProduct, choice: Mapping[str, int], target: Target
) -> tuple[float, float]:
    """Cycles to load a tile of the panels for the first block of rows of a product, and for each further one: from the
    cache that still has it. Parts of a panel lie apart, and fill only some sets of a cache."""
    facts, machine, unit = nest.facts, target.machine, nest.pattern.unit
    depth = facts.reduction * unit.group * unit.right.itemsize
    lanes, width = choice["lanes"], nest.pattern.width or facts.vector
    spread = max(1, width // lanes)
    is_swept = choice["order"] == Order.ROWS_COLUMNS.value
    between = facts.vector * facts.panels if is_swept else lanes * choice["panels"] * spread

    def load(size: int) -> float:
        if size <= machine.cache_part * target.l1_bytes:
            return machine.matrix_load
        near = size <= machine.cache_part * target.l2_bytes
        return machine.matrix_far_load if near else unit.rows * LINE_BYTES / machine.tile_stream_bytes

    first, again = load(between * depth), load(product.column_tiles * unit.columns * spread * depth)
    repeated = 1.0 - min(choice["rows"] / (facts.places * facts.rows), 1.0)  # the first time counts as streamed
    return min(first, machine.matrix_far_load) + repeated * max(0.0, first - machine.matrix_far_load), again


def product_cycles(
    product: TileProduct, steps: int, target: Target, panels: tuple[float, float] | None = None, row_bytes: int = 0
) -> float:
    """Cycles of one product by a matrix unit, of operands in the first cache; ``steps``: groups of its reduction;
    ``panels``: cycles to load a tile of the right one, for the first block of rows and for others; ``row_bytes``:
    between rows of the left one, 0 if these are whole lines."""
    machine, columns, total = target.machine, product.column_tiles, 0.0
    across = machine.matrix_split * _share_across(row_bytes, product.at_once * i32.itemsize)
    first, again = panels or (machine.matrix_load, machine.matrix_load)
    for number, (blocks, heights) in enumerate(product.row_blocks):
        multiplied = columns * sum(max(machine.matrix_row * height, machine.matrix_least) for height in heights)
        sums = (machine.matrix_store + machine.matrix_load) * len(heights) * columns
        for count, load in ((1, first), (blocks - 1, again)) if number == 0 else ((blocks, again),):
            step = max(multiplied, machine.matrix_load * len(heights) + across * sum(heights) + load * columns)
            total += product.column_blocks * count * (steps // product.at_once * step + sums)
        total += machine.matrix_start
    return total


def _share_across(row_bytes: int, width: int) -> float:
    """The share of rows of ``width`` bytes, at multiples of ``row_bytes`` and of the width, that lie in two lines."""
    step = gcd(row_bytes, width, LINE_BYTES)
    return (width - step) / LINE_BYTES if row_bytes else 0.0


def attention_cycles(nest: AttentionTiles, population: Population, target: Target) -> tuple[Cycles, NDArray[np.int64]]:
    """Cycles of attention on one core, and the number of parts of rows: two products, and a softmax between."""
    machine, (keys, width) = target.machine, nest.columns
    rows = population.column("rows")
    per_vector = machine.function_cycles + 4 * machine.plain_cycles
    softmax = nest.rows * (keys * per_vector + width * machine.plain_cycles) / nest.lanes
    parts = nest.rows // rows
    products = np.zeros(len(population))
    for number, steps in enumerate(nest.steps):
        products += np.array([product_cycles(nest.product(number, int(count)), steps, target) for count in rows])
    near = rows * keys * (f32.itemsize + bf16.itemsize) <= machine.cache_part * target.l1_bytes
    return nest.heads * (softmax * np.where(near, 1.0, _FARTHER) + parts * products), nest.heads * parts


_FARTHER = 1.1
"""Relative time of a softmax over scores that lie in the second cache."""
