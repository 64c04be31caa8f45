"""Merges the spatial dimensions of blocked tensors into one axis of places, where that makes better tiles.

The order in memory is unchanged. A 1x1 convolution over 7 by 7 positions then has one axis of 49 for tiles, and so has
a result that is stored plain.
"""

from collections.abc import Sequence
from math import prod

from tilewright.kernels.matrix_tiles import tile_rows
from tilewright.kernels.narrowing import factors
from tilewright.kernels.relayout import Layouts
from tilewright.kernels.tile_descriptions import TileUnit
from tilewright.kernels.tile_products import tile_unit
from tilewright.ops.shapes import static
from tilewright.schedule.index_map import IndexMap
from tilewright.symbolic.bounds import Bounds
from tilewright.symbolic.expr import Var, const
from tilewright.symbolic.simplify import simplify
from tilewright.symbolic.sizes import flat_index
from tilewright.symbolic.traversal import free_vars
from tilewright.target.target import Target
from tilewright.tensor.ir import Compute, Operation, Placeholder, Tensor, reads_of, topological_order


def merge_places(outputs: Sequence[Tensor], layouts: Layouts, target: Target) -> Layouts:
    """``layouts`` with the dimensions after the channels merged, if every read is at the position of its output, and
    there are few positions, or a matrix unit multiplies them and rows of an image leave much of its tiles empty.
    """
    operations, places = topological_order(outputs), {tensor.shape[2:] for tensor in layouts}
    shape = static(next(iter(places))) if len(places) == 1 else None
    if shape is None or len(shape) < 2 or not _makes_better_tiles(shape, operations, target):
        return layouts
    if not all(_stays_in_place(op, layouts) for op in operations):
        return layouts
    plain = {t: _as_it_is(t.ndim) for t in outputs if t.shape[2:] in places}
    return {tensor: _merged(index_map, shape) for tensor, index_map in {**plain, **layouts}.items()}


def _makes_better_tiles(shape: Sequence[int], operations: Sequence[Operation], target: Target) -> bool:
    every, machine = prod(shape), target.machine
    if every <= machine.merged_places:
        return every > 1
    units = [unit for op in operations if (unit := _unit_of(op, target)) is not None]
    return bool(units) and all(_filled(every, u) >= machine.fuller_tiles * _filled(shape[-1], u) for u in units)


def _unit_of(op: Operation, target: Target) -> TileUnit | None:
    """The matrix unit for the products that ``op`` adds up."""
    operands = factors(op) if isinstance(op, Compute) else None
    if operands is None:
        return None
    (left, right) = (operand.dtype for operand in operands)
    return tile_unit(target, left, right) or tile_unit(target, right, left)


def _filled(rows: int, unit: TileUnit) -> float:
    """The largest part of the rows of tiles that so many ``rows`` fill; 0 if no tiles are made of them."""
    sizes = tile_rows(const(rows), unit, all_rows=False)
    return max((size / (-(-size // unit.rows) * unit.rows) for size in sizes), default=0.0)


def _stays_in_place(op: Operation, layouts: Layouts) -> bool:
    """Whether ``op`` reads blocked tensors, and others with spatial dimensions, only at the position of its output."""
    if not isinstance(op, Compute):
        return isinstance(op, Placeholder)
    bounds = Bounds({axis.var: axis.extent for axis in (*op.axes, *op.reduce_axis)})
    own = tuple(axis.var for axis in op.axes[2:])
    for source, indices in reads_of(op):
        places = tuple(simplify(index, bounds) for index in indices[2:])
        if places != own and (source in layouts or any(free_vars(index).intersection(own) for index in places)):
            return False
    return True


def _merged(index_map: IndexMap, shape: Sequence[int]) -> IndexMap:
    places = index_map.variables[2:]
    merged = flat_index(places, tuple(map(const, shape)))
    kept = [merged if result == places[0] else result for result in index_map.results if result not in places[1:]]
    return IndexMap(index_map.variables, tuple(kept))


def _as_it_is(rank: int) -> IndexMap:
    variables = tuple(Var(f"d{position}") for position in range(rank))
    return IndexMap(variables, variables)
