"""Register tiles over a panel that is unpacked from narrow codes, a strip of columns at a time.

The producer of the panel runs inside of the loop over strips, before the tiles of all rows: the strip lies in cache,
and the whole panel nowhere.
"""

from dataclasses import dataclass, field

from tilewright.kernels.contraction import Contraction
from tilewright.kernels.nests import Tiles
from tilewright.kernels.panel_rows import Pack
from tilewright.kernels.schedules import extent_of, ref, schedule_elementwise
from tilewright.kernels.tiling import Order, Plan
from tilewright.loops.ir import Block, LoopKind
from tilewright.schedule.schedule import Schedule
from tilewright.schedule.tree import BlockRef, block_at, loops_of
from tilewright.space.knobs import Knob
from tilewright.symbolic.traversal import free_vars
from tilewright.target.target import Target

_PART = 2
"""The part of the second cache that a strip may take, as a divisor: rows and results need the rest."""
_AT_ONCE = 2
"""Rows of the panel that are unpacked together: codes may share a byte."""


def unpacked_panel(block: Block, roles: Contraction) -> bool:
    """Whether ``block`` makes the panel, from elements that are narrower."""
    made = block.writes[0].buffer
    return made.name == roles.panel and any(r.buffer.dtype.bits < made.dtype.bits for r in block.reads)


@dataclass(frozen=True, slots=True)
class UnpackedTiles(Tiles):
    """Tiles, and the block ``unpacked`` that makes their panel."""

    unpacked: str = field(default="", kw_only=True)

    @staticmethod
    def around(tiles: Tiles, unpacked: str, target: Target) -> "UnpackedTiles":
        """``tiles`` with the block, in strips that fit into the second cache."""
        strip = target.l2_bytes // _PART // (tiles.facts.itemsize * max(1, tiles.facts.reduction))
        lanes = tiles.values("lanes")
        fitting = tuple(number for number in lanes if number <= strip) or lanes[:1]
        order, pack = (Order.COLUMNS_ROWS.value,), (Pack.NOTHING.value,)
        fixed = {"lanes": fitting, "order": order, "pack": pack, "prefetch": (0,), "slices": (1,)}
        knobs = tuple(Knob(knob.name, fixed.get(knob.name, knob.values)) for knob in tiles.knobs)
        own = (tiles.roles, tiles.facts, tiles.registers, tiles.parallel, tiles.stream_ahead)
        return UnpackedTiles(tiles.name, knobs, *own, points=tiles.points, unpacked=unpacked)

    def go(self, s: Schedule, plan: Plan, pack: Pack, prefetch: int) -> None:
        """See ``Tiles``."""
        Tiles.go(self, s, plan, pack, prefetch)
        vector = block_at(s.program, self.anchor).stmt.bindings[self.roles.vector]
        strip = next(loop for loop in loops_of(s.program, self.anchor) if loop.var in free_vars(vector))
        if strip.kind is LoopKind.VECTORIZED:  # there is one
            schedule_elementwise(s, BlockRef(self.unpacked), plan.tile.lanes, parallel=False)
            return
        *_, rows, columns = s.compute_at(BlockRef(self.unpacked), ref(strip))
        if extent_of(s, rows) > _AT_ONCE:
            _, inner = s.split(rows, (None, _AT_ONCE))
            s.unroll(inner)
        s.vectorize(columns)
