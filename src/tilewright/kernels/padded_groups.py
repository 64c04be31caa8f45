"""Register tiles over data that are padded a group at a time, as in convolutions in groups.

Each group reads channels of its own. So the block that pads them runs inside of the loop over groups, before the tiles
of a group: the padded channels lie in a near cache, and those of all groups nowhere.
"""

from dataclasses import dataclass, field, replace

from tilewright.kernels.contraction import Contraction, Extents
from tilewright.kernels.nests import Tiles
from tilewright.kernels.panel_rows import Pack
from tilewright.kernels.schedules import iterations, ref, vectorize_last
from tilewright.kernels.tiling import Plan
from tilewright.loops.ir import Block, Store
from tilewright.loops.program import Program
from tilewright.schedule.blocks import bounds_within
from tilewright.schedule.schedule import Schedule
from tilewright.schedule.tree import BlockRef, block_at, loops_of
from tilewright.symbolic.bounds import Bounds, interval
from tilewright.symbolic.expr import Const, Expr, Select, Var
from tilewright.symbolic.simplify import linear_form, simplify
from tilewright.symbolic.traversal import free_vars
from tilewright.target.machine import ENOUGH_CHUNKS


def padded_group(program: Program, padding: Block, sums: Block, roles: Contraction) -> int | None:
    """The axis of ``sums`` over groups, if ``padding`` makes the data of each; None if there are too few of them to
    share among threads, or if the size of these data is not known."""
    if not isinstance(padding.body, Store) or not isinstance(padding.body.value, Select):
        return None
    made, bounds, extents = padding.writes[0].buffer, bounds_within(program, sums.axes), Extents(program.dims)
    starts = [[start for start, _ in region.ranges] for region in sums.reads if region.buffer == made]
    for place in sorted(roles.panel_axes - {roles.vector, roles.panels}):
        group = sums.axes[place]
        is_apart = all(any(_steps_over(start, group.var, bounds) for start in read) for read in starts)
        is_known = all(
            isinstance(extent, Const) or free_vars(start) <= {group.var}
            for read in starts
            for extent, start in zip(made.shape, read, strict=True)
        )
        if starts and is_apart and is_known and extents(group) >= ENOUGH_CHUNKS:
            return place
    return None


def _steps_over(start: Expr, group: Var, bounds: Bounds) -> bool:
    """Whether an index has other values in each group."""
    step = linear_form(start, bounds).coefficient(group)
    low, high = interval(simplify(start - group * step, bounds), bounds)
    return low is not None and high is not None and high - low < step


@dataclass(frozen=True, slots=True)
class PaddedGroups(Tiles):
    """Tiles, and the block ``padding`` that pads the data of each group along the axis ``group``."""

    padding: str = field(default="", kw_only=True)
    group: int = field(default=0, kw_only=True)

    @staticmethod
    def around(tiles: Tiles, padding: str, group: int) -> "PaddedGroups":
        """``tiles`` with the block."""
        own = (tiles.name, tiles.knobs, tiles.roles, tiles.facts, tiles.registers, tiles.parallel, tiles.stream_ahead)
        return PaddedGroups(*own, points=tiles.points, padding=padding, group=group)

    def go(self, s: Schedule, plan: Plan, pack: Pack, prefetch: int) -> None:
        """See ``Tiles``."""
        Tiles.go(replace(self, parallel=False), s, plan, pack, prefetch)
        around = loops_of(s.program, self.anchor)
        groups = free_vars(block_at(s.program, self.anchor).stmt.bindings[self.group])
        place = next(place for place, loop in enumerate(around) if loop.var in groups)
        *_, last = s.compute_at(BlockRef(self.padding), ref(around[place]))
        vectorize_last(s, last, self.registers.lanes)
        for loop in around[: place + 1] if self.parallel else ():
            if iterations(loop) > 1:
                s.parallel(ref(loop))
