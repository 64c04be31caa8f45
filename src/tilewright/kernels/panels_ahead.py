"""Panels that are asked for while the one before is multiplied: each tile of rows asks for its part of the next panel.

A panel from memory takes longer to come than one tile of rows takes to multiply it, and less than all of them take.
If each load asks for what comes some bytes later, the first tile waits for it, and the others ask for what is there.
A round of loops whose steps are written out asks once, if that is enough.
"""

from collections.abc import Collection, Iterable
from math import prod
from typing import Final

from tilewright.kernels.contraction import Contraction, Tile
from tilewright.kernels.schedules import ref
from tilewright.loops.ir import Block, Loop, LoopKind
from tilewright.schedule.schedule import Schedule
from tilewright.schedule.tree import BlockRef, block_at, loops_of
from tilewright.symbolic.domain import IterKind
from tilewright.symbolic.expr import ONE, Const, Expr
from tilewright.symbolic.traversal import free_vars

PANEL_CACHE: Final = 2
"""The cache that panels come to: the first one has no room for a panel beside the one that is read."""
LINE_BYTES: Final = 64
"""Bytes that are asked for in a step of the reduction."""


def has_next_panel(block: Block, roles: Contraction, *, several: bool) -> bool:
    """Whether tiles of rows read panels of ``block`` one after the other, each from one end to the other; ``several``:
    those of several matrices, too."""
    own = (roles.vector, roles.rows, roles.panels)
    axes = [(place, axis) for place, axis in enumerate(block.axes) if place not in own and axis.extent != ONE]
    matrices = roles.panel_axes if several else frozenset[int]()
    are_panels = all(axis.kind is IterKind.REDUCE or place in matrices for place, axis in axes)
    are_known = all(isinstance(axis.extent, Const) for _, axis in axes)
    return roles.rows is not None and isinstance(block.axes[roles.rows].extent, Const) and are_panels and are_known


def ask_for_panels(s: Schedule, anchor: BlockRef, roles: Contraction, tile: Tile, slices: int = 1) -> None:
    """Let each tile of rows of ``anchor``, which is scheduled, ask for its part of the next panels, a line in each
    round of the reduction's loops; of the same slice of these, if ``anchor`` sums one of several ``slices``."""
    block = block_at(s.program, anchor).stmt
    assert roles.rows is not None, "a block with a next panel has rows"
    panel = next(region.buffer for region in block.reads if region.buffer.name == roles.panel)
    reduced = _loops(s, anchor, [place for place, axis in enumerate(block.axes) if axis.kind is IterKind.REDUCE])
    rows, panels = (_loops(s, anchor, [] if place is None else [place]) for place in (roles.rows, roles.panels))
    step = tile.lanes * panel.dtype.itemsize
    strip = step * _iterations(reduced)
    tiles = -(-_number(block.axes[roles.rows].extent) // tile.rows)
    once = [loop for loop in reduced if loop.kind is not LoopKind.UNROLLED]
    # Panels of a tile that follow each other are one strip, for which the loads of the first one ask.
    for at_once, rounds in ((tile.panels if slices == 1 else 1, once), (1, once), (1, reduced)):
        share = -(-at_once * strip // (tiles * _iterations(rounds)))
        if share <= LINE_BYTES:
            break
    along = {ref(loop): share * _iterations(rounds) for loop in rows if loop.kind is not LoopKind.UNROLLED}
    for place, loop in enumerate(reduced):
        inside = reduced[place + 1 :]
        later = share * _iterations([other for other in inside if other in rounds])
        along[ref(loop)] = later - step * _iterations(inside) if loop in rounds else 0
    if at_once > 1:
        along |= {ref(loop): 0 for loop in panels if loop.kind is LoopKind.UNROLLED}
    s.prefetch(roles.panel, tile.panels * strip * slices, PANEL_CACHE, tuple(along.items()))


def _loops(s: Schedule, anchor: BlockRef, places: Collection[int]) -> list[Loop]:
    """The loops along axes, of more than one iteration, outermost first."""
    bindings = block_at(s.program, anchor).stmt.bindings
    used = {var for place in places for var in free_vars(bindings[place])}
    return [loop for loop in loops_of(s.program, anchor) if loop.var in used and loop.extent != ONE]


def _iterations(loops: Iterable[Loop]) -> int:
    return prod(_number(loop.extent) for loop in loops)


def _number(extent: Expr) -> int:
    assert isinstance(extent, Const), "a block with a next panel has known extents"
    return int(extent.value)
