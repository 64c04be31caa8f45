"""Register tiling: keeps a tile of the output in registers over the whole reduction, and fuses its consumers.

One schedule for all that have such tiles: the analytic choices go from tile to tile (``Plan`` without blocks),
the larger space of contractions gathers tiles in blocks and splits reductions (``tile_blocks``).
"""

from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum

from tilewright.base.errors import ScheduleError
from tilewright.kernels.contraction import Contraction, Roles, Tile
from tilewright.kernels.dot_descriptions import lanes_of
from tilewright.kernels.schedules import driving_loop, extent_of, ref, vectorize_last
from tilewright.loops.ir import Block
from tilewright.loops.memory import GLOBAL, LOCAL
from tilewright.schedule.intrinsics import TensorIntrinsic
from tilewright.schedule.schedule import Schedule
from tilewright.schedule.tree import BlockRef, LoopRef, block_at, consumers, loops_of
from tilewright.symbolic.domain import IterKind
from tilewright.symbolic.expr import Binary, Const, Var
from tilewright.symbolic.operations import BinaryOp
from tilewright.symbolic.traversal import free_vars

_TOGETHER = 2
"""Rows of a tile from memory that an epilogue computes at a time: each is a chain of instructions, which wait for one
another."""


class Order(Enum):
    """The order of the loops around register tiles, outermost first, which decides which operand stays in cache."""

    COLUMNS_ROWS = 0
    """Batch axes, columns, rows: a strip of the panel is reused for all rows."""
    ROWS_COLUMNS = 1
    """Batch axes, rows, columns: rows are reused for the whole panel."""
    PANEL_FIRST = 2
    """All axes of the panel, then the others: the panel is read once, and the other operand for each strip of it."""


class Unroll(Enum):
    """What of a reduction is written out."""

    NOTHING = 0
    EVERYTHING = 1
    INNERMOST = 2
    """The innermost loop, along which the rows of a tile read the same elements; steps of it in a contraction."""


@dataclass(frozen=True, slots=True)
class Plan:
    """The loop structure around tiles. Axes are positions among those of the block."""

    tile: Tile
    outer: tuple[int, ...]
    """The spatial axes, in the order of the loops around tiles, or around their blocks; outermost first."""
    reduction: tuple[int, ...]
    """The reduction axes, in the order of their loops."""
    blocks: Mapping[int, int] = field(default_factory=dict[int, int])
    """Tiles of a block along the blocked axes, in the order of the loops over the tiles of a block."""
    steps: Mapping[int, int] = field(default_factory=dict[int, int])
    """Iterations of the inner parts of loops of the reduction; these parts are innermost."""
    written_out: int = 0
    """Number of innermost reduction loops to unroll: their steps share loads."""
    instruction: TensorIntrinsic | None = None
    """Computes the vectors of a tile; it sums over the reduction axes that are not in ``reduction``."""
    slices: int = 1
    """Slices of the reduction, whose sums are added in memory (``reduction_slices``)."""

    @property
    def written_axes(self) -> frozenset[int]:
        """The axes of the reduction all of whose steps are written out."""
        loops = [*self.reduction, *self.steps]
        return frozenset(loops[len(loops) - self.written_out :]).difference(self.steps)

    def sizes(self, roles: Roles) -> dict[int, int]:
        """The extents of the tile, by axis."""
        sizes = {roles.vector: self.tile.lanes, roles.rows: self.tile.rows, roles.panels: self.tile.panels}
        return {axis: size for axis, size in sizes.items() if axis is not None}


def axes_of(block: Block, kind: IterKind) -> tuple[int, ...]:
    """The positions of the axes of a kind."""
    return tuple(position for position, axis in enumerate(block.axes) if axis.kind is kind)


def schedule_tiles(s: Schedule, anchor: BlockRef, roles: Roles, plan: Plan, parallel: bool) -> None:
    """Keep a tile of the output in registers over the whole reduction, with its consumers fused."""
    epilogue = privatized(s, anchor)
    block = block_at(s.program, anchor).stmt
    outer = {position: driving_loop(s, anchor, position) for position in axes_of(block, IterKind.SPATIAL)}
    reduced = {position: driving_loop(s, anchor, position) for position in plan.reduction}
    within, (*inside, lanes) = split_tiles(s, roles, plan, outer)
    at_once = [lanes]
    if plan.instruction is not None:
        vector, lanes = s.split(lanes, (None, lanes_of(plan.instruction)))
        inside.append(vector)
        summed = (p for p in axes_of(block, IterKind.REDUCE) if p not in plan.reduction)
        at_once = [lanes, *(driving_loop(s, anchor, position) for position in summed)]
    parts: list[LoopRef] = []
    for axis, count in plan.steps.items():
        reduced[axis], part = s.split(reduced[axis], (None, count))
        parts.append(part)
    # Loops of one iteration go outermost: the parallel ones are then perfectly nested, and share one region.
    around = sorted((outer[axis] for axis in plan.outer), key=lambda loop: extent_of(s, loop) > 1)
    steps = [*reduced.values(), *parts]
    s.reorder(*around, *within, *steps, *inside, *at_once)
    for loop in (*steps[len(steps) - plan.written_out :], *inside):
        s.unroll(loop)
    if plan.instruction is None:
        s.vectorize(lanes)
    finished = finish_tiles(s, anchor, epilogue, [*around, *within], plan.tile.lanes)
    if plan.instruction is not None:
        s.tensorize(lanes, plan.instruction)
    for loop in finished[: len(around)] if parallel else ():
        if extent_of(s, loop) > 1:
            s.parallel(loop)


def split_tiles(
    s: Schedule, roles: Roles, plan: Plan, outer: dict[int, LoopRef]
) -> tuple[list[LoopRef], list[LoopRef]]:
    """Split the loops over axes, ``outer``, which are those over tiles or blocks of tiles afterwards; returns the loops
    over the tiles of a block, and those of a tile, lanes last."""
    of_tile: dict[int, LoopRef] = {}
    for axis, size in plan.sizes(roles).items():
        outer[axis], of_tile[axis] = s.split(outer[axis], (None, size))
    within: list[LoopRef] = []
    for axis, tiles in plan.blocks.items():
        outer[axis], of_block = s.split(outer[axis], (None, min(tiles, extent_of(s, outer[axis]))))
        within.append(of_block)
    # Rows before panels: each broadcast is used at once, and only the panels' few vectors stay in registers.
    return within, [of_tile[axis] for axis in (roles.rows, roles.panels, roles.vector) if axis in of_tile]


def finish_tiles(
    s: Schedule, anchor: BlockRef, epilogue: BlockRef, loops: list[LoopRef], lanes: int, *, written_out: bool = True
) -> list[LoopRef]:
    """Fuse the consumer with the register tile that ``anchor`` computes inside of ``loops``; returns the loops that may
    be parallel.

    These are the loops around the epilogue: all of ``loops`` if it needs no more than a tile. ``written_out``: whether
    its own loops over a tile are unrolled, as they must be for a tile in registers.
    """
    made = block_at(s.program, anchor).stmt.writes[0].buffer.name
    around = loops_of_epilogue(s, epilogue, loops)
    if around == loops:
        _finish_tile(s, epilogue, loops[-1], made, written_out)
    else:
        _finish_later(s, epilogue, around, made, lanes)
    _fill_lanes(s, anchor, lanes)
    return around or loops


def outer_order(axes: Collection[int], roles: Roles, order: Order) -> tuple[int, ...]:
    """Axes of a block in the order of the loops around tiles, outermost first."""
    columns = (roles.panels, roles.vector)
    last = (roles.rows, *columns) if order is Order.ROWS_COLUMNS else (*columns, roles.rows)
    ordered = [axis for axis in axes if axis not in last] + [axis for axis in last if axis is not None and axis in axes]
    if order is Order.PANEL_FIRST and isinstance(roles, Contraction):
        ordered.sort(key=lambda axis: axis not in roles.panel_axes)
    return tuple(ordered)


def privatized(s: Schedule, anchor: BlockRef) -> BlockRef:
    """The block that reads the anchor's result, which becomes private: the fused epilogue, or a plain copy."""
    block = block_at(s.program, anchor).stmt
    readers = consumers(s.program, block)
    if not readers:
        return s.cache_write(anchor, block.writes[0].buffer.name, LOCAL)
    s.set_scope(block.writes[0].buffer.name, LOCAL)
    return BlockRef(readers[0].name)


def loops_of_epilogue(s: Schedule, epilogue: BlockRef, loops: list[LoopRef]) -> list[LoopRef]:
    """Move the epilogue into the innermost of ``loops`` in which its operands are complete; returns those around it.

    All of them unless it reads more than a tile (all lanes of a block that has one channel read the first). In which
    loop its operands are complete follows from the regions that an iteration computes, which ``reverse_compute_at``
    derives: its refusal, which leaves ``s`` as it was, is the answer.
    """
    around = list(loops)
    while around:
        with suppress(ScheduleError):
            s.reverse_compute_at(epilogue, around[-1])
            break
        around.pop()
    return around


def _finish_tile(s: Schedule, epilogue: BlockRef, at: LoopRef, made: str, written_out: bool) -> None:
    """Schedule the epilogue in ``at`` on each tile of the buffer ``made``, in the lanes of the tile."""
    position = [ref(loop) for loop in loops_of(s.program, epilogue)].index(at)
    own = [ref(loop) for loop in loops_of(s.program, epilogue)[position + 1 :]]
    own = _block_by_block(s, epilogue, own, made)
    lanes = _lanes_read(s, epilogue, made)
    if lanes in own[:-1]:  # computed in blocks, stored in the plain layout
        own = [*(loop for loop in own if loop != lanes), lanes]
        s.reorder(*own)
    if own:
        own[-1:] = _by_blocks(s, epilogue, own[-1], made)
    for loop in own[:-1] if written_out else ():
        s.unroll(loop)
    if not written_out and len(own) > 1 and extent_of(s, own[-2]) % _TOGETHER == 0:
        *_, inner = s.split(own[-2], (None, _TOGETHER))
        s.unroll(inner)
    if own:
        s.vectorize(own[-1])


def _block_by_block(s: Schedule, epilogue: BlockRef, own: list[LoopRef], made: str) -> list[LoopRef]:
    """``own`` with the loop over channels that are stored plain, the last of which do not fill a block, split by the
    blocks of the buffer ``made``; lanes go along a block."""
    stmt = block_at(s.program, epilogue).stmt
    match next(region for region in stmt.reads if region.buffer.name == made).ranges[-1][0]:
        case Binary(BinaryOp.MOD, Var() as channel, Const(int(width))):
            binding = next(value for axis, value in zip(stmt.axes, stmt.bindings, strict=True) if axis.var == channel)
            driving = [loop for loop in own if loop.name in {v.name for v in free_vars(binding)}]
        case _:
            return own
    if len(driving) != 1:
        return own
    (channels,), place = driving, own.index(driving[0])
    blocks, lanes = s.split(channels, (None, width)) if extent_of(s, channels) > width else (None, channels)
    ordered = [*own[:place], *([] if blocks is None else [blocks]), *own[place + 1 :], lanes]
    s.reorder(*ordered)
    return ordered


def _by_blocks(s: Schedule, epilogue: BlockRef, loop: LoopRef, made: str) -> list[LoopRef]:
    """``loop`` over several blocks of the buffer ``made`` split into one over blocks and one in a block: then each
    vector is in one register."""
    read = next(r.buffer for r in block_at(s.program, epilogue).stmt.reads if r.buffer.name == made)
    width, extent = read.shape[-1], extent_of(s, loop)
    is_divided = isinstance(width, Const) and extent > int(width.value) and extent % int(width.value) == 0
    return [*s.split(loop, (None, int(width.value)))] if isinstance(width, Const) and is_divided else [loop]


def _finish_later(s: Schedule, epilogue: BlockRef, around: list[LoopRef], made: str, lanes: int) -> None:
    """Schedule the epilogue on several tiles of the buffer ``made``: too many for registers and unrolling."""
    s.set_scope(made, GLOBAL)
    own = [ref(loop) for loop in loops_of(s.program, epilogue)[len(around) :]]
    if own:
        vectorize_last(s, own[-1], lanes)


def _fill_lanes(s: Schedule, block: BlockRef, lanes: int) -> None:
    """Pad rows of the result of ``block`` that are shorter than ``lanes``, so that registers do not overlap."""
    written = block_at(s.program, block).stmt.writes[0].buffer
    rows = [f"d{position}" for position in range(len(written.shape) - 1)]
    extent = written.shape[-1]
    if rows and isinstance(extent, Const) and int(extent.value) < lanes:
        s.transform_layout(block, written.name, f"{', '.join(rows)}, x -> {', '.join(rows)}, x % {lanes}")


def _lanes_read(s: Schedule, block: BlockRef, buffer: str) -> LoopRef | None:
    """The loop along which ``block`` reads the last dimension of ``buffer``, if a single loop drives it."""
    stmt = block_at(s.program, block).stmt
    region = next(region for region in stmt.reads if region.buffer.name == buffer)
    bindings = zip(stmt.axes, stmt.bindings, strict=True)
    binding = next((value for axis, value in bindings if axis.var == region.ranges[-1][0]), None)
    return LoopRef(binding.name) if isinstance(binding, Var) else None
