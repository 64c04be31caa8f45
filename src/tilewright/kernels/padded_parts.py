"""Register tiles over data that are padded part by part: those of an image, or of a group of a convolution in groups.

Each part is read by tiles of its own. So the block that pads it runs inside of the loops over parts, before the tiles
of a part: the padded data of a part lie in a near cache, and those of all parts nowhere.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import takewhile
from math import prod

from tilewright.kernels.contraction import Contraction, Extents
from tilewright.kernels.nests import Tiles
from tilewright.kernels.panel_rows import Pack
from tilewright.kernels.schedules import REGISTERS, iterations, ref, schedule_moved
from tilewright.kernels.tiling import Plan
from tilewright.loops.ir import Block, Loop, Store
from tilewright.loops.program import Program
from tilewright.schedule.blocks import bounds_within
from tilewright.schedule.schedule import Schedule
from tilewright.schedule.tree import BlockRef, block_at, loops_of
from tilewright.symbolic.bounds import Bounds, interval
from tilewright.symbolic.domain import IterKind, IterVar
from tilewright.symbolic.expr import ONE, Const, Expr, Select, Var
from tilewright.symbolic.simplify import linear_form, simplify
from tilewright.symbolic.traversal import free_vars


def parts_of(program: Program, padding: Block, sums: Block, roles: Contraction) -> tuple[int, ...]:
    """The axes of ``sums`` over parts of what ``padding`` makes, images before groups; none where the size of a part
    is not known."""
    if not isinstance(padding.body, Store) or not isinstance(padding.body.value, Select):
        return ()
    made, bounds = padding.writes[0].buffer, bounds_within(program, sums.axes)
    starts = [[start for start, _ in region.ranges] for region in sums.reads if region.buffer == made]
    own = (roles.vector, roles.rows, roles.panels)
    summed = frozenset(axis.var for axis in sums.axes if axis.kind is IterKind.REDUCE)

    def are_apart(place: int, axis: IterVar) -> bool:
        taps = frozenset[Var]() if place in roles.panel_axes else summed  # windows that do not overlap are no parts
        return all(any(_steps_over(start, axis.var, taps, bounds) for start in read) for read in starts)

    found = tuple(
        place
        for place, axis in enumerate(sums.axes)
        if axis.kind is IterKind.SPATIAL and axis.extent != ONE and place not in own
        if starts and are_apart(place, axis)
    )
    across = {sums.axes[place].var for place in found}
    is_known = all(
        isinstance(extent, Const) or free_vars(start) <= across
        for read in starts
        for extent, start in zip(made.shape, read, strict=True)
    )
    return tuple(sorted(found, key=lambda place: place in roles.panel_axes)) if is_known else ()


def _steps_over(start: Expr, part: Var, without: frozenset[Var], bounds: Bounds) -> bool:
    """Whether an index, which depends on none of the variables ``without``, has other values in each part."""
    step = linear_form(start, bounds).coefficient(part)
    low, high = interval(simplify(start - part * step, bounds), bounds)
    return low is not None and high is not None and high - low < step and not free_vars(start) & without


@dataclass(frozen=True, slots=True)
class PaddedParts(Tiles):
    """Tiles, and the block ``padding`` that pads the data of each part."""

    padding: str = field(default="", kw_only=True)
    parts: tuple[int, ...] = field(default=(), kw_only=True)
    """The axes over parts, which the outermost loops go along."""
    count: int = field(default=1, kw_only=True)
    """The number of parts."""
    images: int = field(default=1, kw_only=True)
    """The number of parts that read the same panel."""
    padded_bytes: int = field(default=0, kw_only=True)
    """Of all parts."""

    @staticmethod
    def around(tiles: Tiles, program: Program, padding: Block, sums: Block, parts: tuple[int, ...]) -> "PaddedParts":
        """``tiles`` of ``sums`` with the block."""
        tiles = tiles.without("slices")
        along = tiles.roles.panel_axes if isinstance(tiles.roles, Contraction) else frozenset[int]()
        extents, made = Extents(program.dims), padding.writes[0].buffer
        own = (tiles.name, tiles.knobs, tiles.roles, tiles.facts, tiles.registers, tiles.parallel, tiles.stream_ahead)
        return PaddedParts(
            *own,
            tiles.instruction,
            points=tiles.points,
            padding=padding.name,
            parts=parts,
            count=extents.points(sums.axes[place] for place in parts),
            images=extents.points(sums.axes[place] for place in parts if place not in along),
            padded_bytes=made.dtype.itemsize * prod(map(extents.of, made.shape)),
        )

    def go(self, s: Schedule, plan: Plan, pack: Pack, prefetch: int) -> None:
        """See ``Tiles``."""
        others = tuple(axis for axis in plan.outer if axis not in self.parts)
        Tiles.go(replace(self, parallel=False), s, replace(plan, outer=(*self.parts, *others)), pack, prefetch)
        around = self._around(s)
        own = s.compute_at(BlockRef(self.padding), ref(around[-1]))
        schedule_moved(s, BlockRef(self.padding), own, REGISTERS * self.registers.lanes)
        for loop in around if self.parallel else ():
            if iterations(loop) > 1:
                s.parallel(ref(loop))

    def _around(self, s: Schedule) -> Sequence[Loop]:
        """The outermost loops, to the last one over parts."""
        bindings = block_at(s.program, self.anchor).stmt.bindings
        across = {var for place in self.parts for var in free_vars(bindings[place])}
        loops = loops_of(s.program, self.anchor)
        leading = list(takewhile(lambda loop: loop.var in across or iterations(loop) == 1, loops))
        return leading[: 1 + max(place for place, loop in enumerate(leading) if loop.var in across)]
