"""Panels that are asked for while the one before is multiplied: each tile of rows asks for its part of the next panel.

A panel from memory takes longer to come than one tile of rows takes to multiply it, and less than all of them take.
If each load asks for what comes some bytes later, the first tile waits for it, and the others ask for what is there.
"""

from typing import Final

from tilewright.kernels.contraction import Contraction, Tile
from tilewright.kernels.schedules import ref
from tilewright.loops.ir import Block, LoopKind
from tilewright.schedule.schedule import Schedule
from tilewright.schedule.tree import BlockRef, LoopRef, block_at, loops_of
from tilewright.symbolic.domain import IterKind
from tilewright.symbolic.expr import ONE, Const
from tilewright.symbolic.traversal import free_vars

PANEL_CACHE: Final = 2
"""The cache that panels come to: the first one has no room for a panel beside the one that is read."""
LINE_BYTES: Final = 64
"""Bytes that are asked for in a step of the reduction."""


def has_next_panel(block: Block, roles: Contraction) -> bool:
    """Whether tiles of rows read panels of ``block`` one after the other, each from one end to the other."""
    own = (roles.vector, roles.rows)
    others = [axis for place, axis in enumerate(block.axes) if place not in own and axis.extent != ONE]
    is_one = len(others) == 1 and others[0].kind is IterKind.REDUCE
    is_known = roles.rows is not None and isinstance(block.axes[roles.rows].extent, Const)
    return is_known and roles.panels is None and is_one


def ask_for_panels(s: Schedule, anchor: BlockRef, roles: Contraction, tile: Tile) -> None:
    """Let each tile of rows of ``anchor``, which is scheduled, ask for its part of the next panel, in equal steps."""
    block = block_at(s.program, anchor).stmt
    assert roles.rows is not None, "a block with a next panel has rows"
    sums = (place for place, axis in enumerate(block.axes) if axis.kind is IterKind.REDUCE)
    reduced = next(place for place in sums if block.axes[place].extent != ONE)
    panel = next(region.buffer for region in block.reads if region.buffer.name == roles.panel)
    rows, steps = (_number(block, place) for place in (roles.rows, reduced))
    width = tile.lanes * panel.dtype.itemsize
    share = -(-width // -(-rows // tile.rows))
    along = (_around(s, anchor, roles.rows), steps * share), (_around(s, anchor, reduced), share - width)
    s.prefetch(roles.panel, steps * width, PANEL_CACHE, along)


def _number(block: Block, place: int) -> int:
    extent = block.axes[place].extent
    assert isinstance(extent, Const), "a block with a next panel has known extents"
    return int(extent.value)


def _around(s: Schedule, anchor: BlockRef, place: int) -> LoopRef:
    """The loop around tiles along an axis."""
    used = free_vars(block_at(s.program, anchor).stmt.bindings[place])
    kinds = LoopKind.SERIAL, LoopKind.PARALLEL
    return ref(next(loop for loop in loops_of(s.program, anchor) if loop.var in used and loop.kind in kinds))
