"""Packing: what the lanes of a tile read from far apart is copied first, so that they read a vector.

In ``C[i, j] += A[i, k] * B[j, k]`` with lanes along ``j``, each vector of ``B`` would be gathered from as many rows.
A copy ``B'[k, j]`` of what a tile needs is read by vectors; the copy itself is made of squares that are transposed in
registers (``backend/cpu/transposition``). Where the copy is made is a decision of each tiled block and operand, so
sketches are as many as without. (Goto and van de Geijn, "Anatomy of High-Performance Matrix Multiplication", 2008.)

A constant may be stored as the tile reads it, instead, whatever its lanes read (``constant_layouts``).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tilewright.base.errors import ScheduleError
from tilewright.kernels.schedules import extent_of
from tilewright.kernels.transposes import crossed_axis
from tilewright.loops.ir import Block, Store
from tilewright.loops.memory import GLOBAL
from tilewright.loops.program import Program
from tilewright.schedule.index_map import IndexMap
from tilewright.schedule.schedule import Schedule
from tilewright.schedule.tree import BlockRef, LoopRef, block_at, buffers_read, buffers_written
from tilewright.sketch.constant_layouts import order_of_loops
from tilewright.sketch.rule import Draft, Tile
from tilewright.symbolic.domain import IterKind
from tilewright.symbolic.expr import Expr, Var
from tilewright.symbolic.traversal import free_vars, reads_in

NOT, WHOLE, TILE, STEPS, STORED = range(5)
"""An operand is read as it is; is packed before all loops; for each tile of the second level; for each outer step of
the reduction there; is stored as it is read, before all calls."""
_LEVELS = {TILE: 1, STEPS: 2}


@dataclass(frozen=True, slots=True)
class Operand:
    """A buffer that ``block`` reads, and that may be packed.

    If it is read across its rows, neighbours along the lanes are a step of ``dimension`` apart.
    """

    block: str
    buffer: str
    dimension: int | None
    places: tuple[int, ...]
    """Where it may be packed. One that is read at several places of a tile only as a whole, or as it is stored."""

    @property
    def knob(self) -> str:
        """The name of the decision where it is packed."""
        return f"{self.block}.pack.{self.buffer}"


def operands(draft: Draft) -> Iterator[Operand]:
    """What may be packed, block by block."""
    for name in draft.names():
        if name in draft.tiles and name not in draft.instructions and name not in draft.written:
            yield from _operands(draft.schedule.program, draft.block(name), draft.tiles[name])


def _operands(program: Program, block: Block, tile: Tile) -> Iterator[Operand]:
    if not isinstance(block.body, Store):
        return
    written = buffers_written(block)
    reads = dict.fromkeys(read for read in reads_in(block.body.value) if read.source not in written)
    for buffer in dict.fromkeys(region.buffer for region in block.reads if region.buffer not in written):
        own = [read.indices for read in reads if read.source == buffer]
        dimension = _across(block, own)
        places = [NOT]
        if dimension is not None:
            levels = (place for place, level in _LEVELS.items() if len(own) == 1 and tile.levels[level])
            places += [*([] if program.is_constant(buffer.name) else [WHOLE]), *levels]
        if program.is_constant(buffer.name):
            places.append(STORED)
        if len(places) > 1:
            yield Operand(block.name, buffer.name, dimension, tuple(places))


def _across(block: Block, reads: Sequence[tuple[Expr, ...]]) -> int | None:
    """The dimension along which the lanes of a tile read a buffer at these indices, if it is not always the last."""
    lane = [axis.var for axis in block.axes if axis.kind is IterKind.SPATIAL][-1]
    along = {place for indices in reads for place, index in enumerate(indices) if lane in free_vars(index)}
    return along.pop() if len(along) == 1 and any(lane in indices[:-1] for indices in reads) else None


def pack(draft: Draft, operand: Operand, place: int, lanes: int) -> str | None:
    """Pack ``operand`` at ``place``, if the block still reads it as it was, and all of it exists.

    Returns the block that packs it.
    """
    s, tile, reader = draft.schedule, draft.tiles[operand.block], BlockRef(operand.block)
    read = {buffer.name for buffer in buffers_read(block_at(s.program, reader).stmt)}
    if place == NOT or operand.buffer not in read or s.program.layout(operand.buffer):
        return None
    if place == STORED:
        _store(s, reader, operand.buffer)
        return None
    assert operand.dimension is not None, "it is read across its rows"
    try:
        copy = s.cache_read(reader, operand.buffer, GLOBAL)
    except ScheduleError:  # it is computed in a loop, so that it is small, or in parts
        return None
    packed = block_at(s.program, copy).stmt.writes[0].buffer
    width = extent_of(s, tile.vector) if place == WHOLE else 0
    loops = s.transform_layout(copy, packed.name, _packing(len(packed.shape), operand.dimension, width))
    if place != WHOLE:
        loops = s.compute_at(copy, tile.levels[_LEVELS[place]][-1])
    elif draft.target.cores > 1:
        s.parallel(loops[0])
    transpose(s, copy, loops, (operand.dimension, len(packed.shape) - 1), lanes)
    return copy.name


def _store(s: Schedule, reader: BlockRef, buffer: str) -> None:
    """Let a constant be stored as ``reader`` reads it."""
    index_map = order_of_loops(s.program, reader, buffer)
    if index_map is not None:
        s.transform_layout(reader, buffer, index_map)


def _packing(rank: int, dimension: int, width: int) -> IndexMap:
    """``dimension`` last; or panels of ``width`` of its elements, if that is more than 0."""
    variables = tuple(Var(f"d{place}") for place in range(rank))
    moved = variables[dimension]
    before, after = variables[:dimension], variables[dimension + 1 :]
    panel = (moved // width,) if width else ()
    return IndexMap(variables, (*before, *panel, *after, moved % width if width else moved))


def crossed_axes(block: Block, lanes: int) -> tuple[int, int] | None:
    """The axes along which ``block`` writes, and reads, what is contiguous, if they are two; for ``transpose``."""
    lane = crossed_axis(block, lanes)
    if lane is None or not isinstance(block.body, Store):
        return None
    row = next(place for place, axis in enumerate(block.axes) if axis.var == block.body.indices[-1])
    return row, lane


def transpose(s: Schedule, copy: BlockRef, loops: Sequence[LoopRef], axes: tuple[int, int], lanes: int) -> None:
    """Squares among ``loops`` of a block: rows, written out, along the first of ``axes``, lanes along the second."""
    block = block_at(s.program, copy).stmt
    others, square = list(loops), list[LoopRef]()
    for binding in (block.bindings[axes[0]], block.bindings[axes[1]]):
        names = {var.name for var in free_vars(binding)}
        driving = [loop for loop in loops if loop.name in names and extent_of(s, loop) > 1]
        if driving:
            place = others.index(driving[-1])
            others[place], part = s.split(driving[-1], (None, min(lanes, extent_of(s, driving[-1]))))
            square.append(part)
    if square:
        s.reorder(*others, *square)
        s.vectorize(square[-1])
    if len(square) > 1:
        s.unroll(square[0])
