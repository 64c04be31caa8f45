"""Sums of products of rows: both factors lie side by side along the reduction, as in ``a @ transpose(b)``.

Lanes run along the reduction, and each sum of a tile is a register of partial sums, which are added up at its end.
Nothing is copied first, which for few rows takes longer than the products.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from tilewright.kernels.contraction import Extents, RowRoles, row_roles
from tilewright.kernels.nests import Nest, Registers
from tilewright.kernels.schedules import driving_loop, extent_of, ref
from tilewright.kernels.tiling import axes_of, finish_tiles, privatized
from tilewright.loops.memory import LOCAL
from tilewright.schedule.schedule import Schedule
from tilewright.schedule.tree import BlockRef, LoopRef, block_at, loops_of
from tilewright.space.knobs import Knob
from tilewright.space.population import BoolArray, Population
from tilewright.symbolic.domain import IterKind
from tilewright.target.target import Target

MOST_TILE = 8
"""Maximum rows, and columns, of a tile."""
_PAIR = 2
"""Partial sums that are added up as they are."""


@dataclass(frozen=True, slots=True)
class RowFacts:
    """What determines the time of a tile."""

    columns: int
    rows: int
    places: int
    """The product of all other spatial axes."""
    reduction: int


@dataclass(frozen=True, slots=True)
class RowProducts(Nest):
    """Tiles of sums along lanes. Knobs: ``rows`` and ``columns`` of a tile."""

    roles: RowRoles
    facts: RowFacts
    registers: Registers
    parallel: bool

    @staticmethod
    def of(s: Schedule, anchor: BlockRef, target: Target, parallel: bool) -> "RowProducts | None":
        """The nest of a reduction block of ``s``, if it multiplies rows."""
        block = block_at(s.program, anchor).stmt
        roles, registers, extents = row_roles(block), Registers.of(block, target), Extents(s.program.dims)
        if roles is None:
            return None
        columns = extents(block.axes[roles.columns])
        rows = 1 if roles.rows is None else extents(block.axes[roles.rows])
        others = extents.points(axis for axis in block.axes if axis.kind is IterKind.SPATIAL) // (rows * columns)
        facts = RowFacts(columns, rows, others, extents(block.axes[roles.reduced]))
        knobs = tuple(
            Knob(name, tuple(range(1, min(MOST_TILE, extent) + 1)))
            for name, extent in (("rows", rows), ("columns", columns))
        )
        return RowProducts(anchor.name, knobs, roles, facts, registers, parallel)

    @property
    def anchor(self) -> BlockRef:
        """The reduction block."""
        return BlockRef(self.name)

    def allowed(self, population: Population) -> BoolArray:
        """Checks that a tile, a vector of each row or column, and one of the others fit in the registers."""
        rows, columns = population.column("rows"), population.column("columns")
        return np.less_equal(rows * columns + np.minimum(rows, columns) + 1, self.registers.count)

    def schedule(self, s: Schedule, values: Mapping[str, int]) -> None:
        """See ``Nest``."""
        anchor, roles = self.anchor, self.roles
        epilogue = privatized(s, anchor)
        block = block_at(s.program, anchor).stmt
        outer = {axis: driving_loop(s, anchor, axis) for axis in axes_of(block, IterKind.SPATIAL)}
        single = [driving_loop(s, anchor, axis) for axis in axes_of(block, IterKind.REDUCE) if axis != roles.reduced]
        tile: list[LoopRef] = []
        # The fewer vectors stay in registers, and each of the others is used at once.
        sizes = [(values["rows"], roles.rows), (values["columns"], roles.columns)]
        for size, axis in sorted(sizes, key=lambda pair: -pair[0]):
            if axis is not None:
                outer[axis], inner = s.split(outer[axis], (None, size))
                tile.append(inner)
        step, lane = s.split(driving_loop(s, anchor, roles.reduced), (None, self.registers.lanes))
        last = (roles.columns, roles.rows)
        order = [*(axis for axis in outer if axis not in last), *(axis for axis in last if axis is not None)]
        around = sorted((outer[axis] for axis in order), key=lambda loop: extent_of(s, loop) > 1)
        s.reorder(*single, *around, step, *tile, lane)
        _add_up(s, anchor, lane, tile, self.registers.lanes)
        finished = finish_tiles(s, anchor, epilogue, around, values["columns"])
        for loop in finished if self.parallel else ():
            if extent_of(s, loop) > 1:
                s.parallel(loop)


def _add_up(s: Schedule, anchor: BlockRef, lane: LoopRef, tile: list[LoopRef], lanes: int) -> None:
    """Partial sums in the iterations of ``lane``, a register for each place in ``tile``; then of halves of these."""
    rank = len(block_at(s.program, anchor).stmt.writes[0].buffer.shape)
    *loops, lane = _in_lanes(s, anchor, lane, rank, tile)
    for loop in loops[len(loops) - len(tile) :]:
        s.unroll(loop)
    while lanes > _PAIR:
        lanes //= 2
        lane, half = s.split(lane, (None, lanes))
        lane = _in_lanes(s, anchor, half, rank, [lane])[-1]
    s.unroll(lane)


def _in_lanes(s: Schedule, anchor: BlockRef, lane: LoopRef, rank: int, written_out: list[LoopRef]) -> list[LoopRef]:
    """Factor ``lane`` out of the sums of ``anchor``, into registers; returns the loops around what adds these up."""
    partial = s.rfactor(lane, rank)
    s.set_scope(block_at(s.program, partial).stmt.writes[0].buffer.name, LOCAL)
    for loop in written_out:
        s.unroll(loop)
    s.vectorize(lane)
    return [ref(loop) for loop in loops_of(s.program, anchor)]
