"""Register tiles over slices of a long reduction: what all tiles read of a slice stays in a near cache.

The sums of a block of columns are in memory. The tiles of a slice add to them what they have summed in registers,
and after the last slice the epilogue reads the block. (Goto and van de Geijn, "Anatomy of High-Performance Matrix
Multiplication", 2008, for products of matrices.)
"""

from collections.abc import Collection
from dataclasses import dataclass

from tilewright.base.errors import InternalError
from tilewright.kernels.contraction import Roles
from tilewright.kernels.schedules import driving_loop, even, extent_of, ref, schedule_elementwise, schedule_moved
from tilewright.kernels.tile_facts import TileFacts
from tilewright.kernels.tiling import Plan, axes_of, loops_of_epilogue, split_tiles
from tilewright.loops.ir import Block
from tilewright.loops.memory import LOCAL
from tilewright.schedule.schedule import Schedule
from tilewright.schedule.tree import BlockRef, LoopRef, block_at, consumers, loops_of
from tilewright.symbolic.domain import IterKind
from tilewright.symbolic.expr import ONE, Const
from tilewright.symbolic.traversal import free_vars

SLICES = (1, 2, 3, 4, 5, 6, 8, 10, 12, 16)
LEAST_STEPS = 256
"""Of the shortest slice: loading and storing the sums of a tile takes as long as several steps."""
BLOCK = 8
"""Maximum number of tiles of a block along its columns."""


def slice_counts(block: Block, facts: TileFacts, near_bytes: int) -> tuple[int, ...]:
    """The numbers of slices that the reduction of ``block`` may have.

    Only one where ``near_bytes`` hold all that a strip of tiles reads, or where panels are no blocks that lie one after
    the other.
    """
    place = _sliced_axis(block)
    image = facts.rows * facts.reduction * facts.overlap.stride // facts.overlap.taps
    read = facts.itemsize * (facts.places * image + facts.vector_block * facts.reduction)
    if place is None or not facts.vector_block or read <= near_bytes:
        return SLICES[:1]
    extent = block.axes[place].extent
    assert isinstance(extent, Const), "all extents are known"
    is_innermost = place == max(axes_of(block, IterKind.REDUCE))
    steps = max(1, facts.steps) if is_innermost else 1
    counts = [count for count in SLICES[1:] if facts.reduction >= count * LEAST_STEPS]
    # A slice of one iteration would have no loop for it.
    fitting = (c for c in counts if int(extent.value) % (c * steps) == 0 and int(extent.value) > c)
    return (SLICES[0], *fitting)


def _sliced_axis(block: Block) -> int | None:
    """The outermost axis of the reduction; None if an extent is known at run time only, or axes are in another order
    than primitives leave them in."""
    reduced = [place for place in axes_of(block, IterKind.REDUCE) if block.axes[place].extent != ONE]
    spatial = axes_of(block, IterKind.SPATIAL)
    is_known = all(isinstance(axis.extent, Const) for axis in block.axes)
    return reduced[0] if reduced and is_known and spatial == tuple(range(len(spatial))) else None


@dataclass(frozen=True, slots=True)
class Slice:
    """The block that sums a slice, before it is moved into the loops over tiles."""

    block: BlockRef
    reduction: dict[int, int]
    """Its axes, by those of the whole reduction; without those of one iteration."""


def schedule_slices(s: Schedule, anchor: BlockRef, own: Slice, roles: Roles, plan: Plan, parallel: bool) -> None:
    """Sum each slice of the reduction in registers, add it to the sums of a block of columns, and fuse the consumer
    with this block."""
    around, innermost = _schedule_adding(s, anchor, roles, plan)
    _schedule_summing(s, own, roles, plan, innermost)
    for loop in _finish(s, anchor, around, plan.tile.lanes, parallel) if parallel else ():
        if extent_of(s, loop) > 1:
            s.parallel(loop)


def in_slices(s: Schedule, anchor: BlockRef, count: int) -> Slice:
    """Make ``anchor`` add up ``count`` slices, each summed by a block of its own."""
    block = block_at(s.program, anchor).stmt
    place = _sliced_axis(block)
    loops = [driving_loop(s, anchor, axis) for axis in range(len(block.axes))]
    reduced = [axis for axis in axes_of(block, IterKind.REDUCE) if block.axes[axis].extent != ONE]
    if place is None:
        raise InternalError(f"the reduction of {anchor.name} has no slices")
    over, loops[place] = s.split(loops[place], (count, None))
    inside = [loops[axis] for axis in axes_of(block, IterKind.SPATIAL)]
    s.reorder(over, *inside, *(loops[axis] for axis in reduced))
    summing = s.rfactor(over)
    driven = {loop: axis for axis, loop in _loops_by_axis(s, summing).items()}
    return Slice(summing, {axis: driven[loops[axis]] for axis in reduced})


def _loops_by_axis(s: Schedule, block: BlockRef, loops: Collection[LoopRef] | None = None) -> dict[int, LoopRef]:
    """The innermost of ``loops``, by default of all around ``block``, that drives each axis; axes of one iteration may
    have none."""
    place, result = block_at(s.program, block), dict[int, LoopRef]()
    for loop in map(ref, place.loops):
        for axis, binding in enumerate(place.stmt.bindings):
            if (loops is None or loop in loops) and loop.name in {v.name for v in free_vars(binding)}:
                result[axis] = loop
    return result


def _schedule_adding(s: Schedule, anchor: BlockRef, roles: Roles, plan: Plan) -> tuple[list[LoopRef], LoopRef]:
    """Order the loops of the block that adds; returns those around that over slices, and the innermost over tiles."""
    outer = _loops_by_axis(s, anchor)
    *_, over = (outer.pop(axis) for axis in axes_of(block_at(s.program, anchor).stmt, IterKind.REDUCE))
    within, inside = split_tiles(s, roles, plan, outer)
    around = sorted((outer[axis] for axis in plan.outer if axis in outer), key=lambda loop: extent_of(s, loop) > 1)
    columns = [outer[axis] for axis in (roles.panels, roles.vector) if axis in outer]
    place = min((around.index(loop) for loop in columns if extent_of(s, loop) > 1), default=len(around) - 1)
    block, column = s.split(around[place], (None, even(extent_of(s, around[place]), BLOCK)))
    again = [column, *around[place + 1 :], *within]
    s.reorder(*around[:place], block, over, *again, *inside)
    for loop in inside[:-1]:
        s.unroll(loop)
    s.vectorize(inside[-1])
    return [*around[:place], block], again[-1]


def _schedule_summing(s: Schedule, own: Slice, roles: Roles, plan: Plan, at: LoopRef) -> None:
    """Keep the sums of a slice in registers, in the loop ``at`` over tiles."""
    s.set_scope(block_at(s.program, own.block).stmt.writes[0].buffer.name, LOCAL)
    loops = s.compute_at(own.block, at)
    driving = _loops_by_axis(s, own.block, loops)
    reduced = {axis: driving[own.reduction[axis]] for axis in plan.reduction if axis in own.reduction}
    written: list[LoopRef] = []
    for axis, count in plan.steps.items():
        reduced[axis], inner = s.split(reduced[axis], (None, count))
        written.append(inner)
    inside = [driving[axis] for axis in (roles.rows, roles.panels, roles.vector) if axis in driving]
    steps = [*reduced.values(), *written]
    others = [loop for loop in loops if loop not in driving.values()]
    s.reorder(*others, *steps, *inside)
    for loop in (*steps[len(steps) - plan.written_out :], *inside[:-1]):
        s.unroll(loop)
    s.vectorize(inside[-1])


def _finish(s: Schedule, anchor: BlockRef, around: list[LoopRef], lanes: int, parallel: bool) -> list[LoopRef]:
    """Fuse the consumer of the sums with a block of columns, inside of ``around``; returns the loops that may be
    parallel."""
    readers = consumers(s.program, block_at(s.program, anchor).stmt)
    if not readers:
        return around
    epilogue = BlockRef(readers[0].name)
    loops = loops_of_epilogue(s, epilogue, around)
    if not loops:
        schedule_elementwise(s, epilogue, lanes, parallel)
        return around
    own = [ref(loop) for loop in loops_of(s.program, epilogue)]
    schedule_moved(s, epilogue, own[own.index(loops[-1]) + 1 :], lanes)
    return loops
