"""Schedules of recurrences (``te.scan``): the steps run in sequence, and what is inside a step is scheduled as usual.

A matrix product inside a step (the recurrent weights of an LSTM) is a contraction like any other: a register tile over
the whole reduction, the weights in panels, and what follows it element by element done on the tile. The rest of a step
runs in lanes along its last axis.
"""

from dataclasses import replace

from tilewright.base.target import Target
from tilewright.cost.tiles import Problem, choose_tile
from tilewright.kernels.contraction import Contraction, Extents, analyze
from tilewright.kernels.schedules import (
    REGISTERS,
    inline_all,
    is_reduction,
    schedule_elementwise,
    schedule_tiles,
)
from tilewright.loops.ir import Block
from tilewright.loops.program import Program
from tilewright.schedule.schedule import Schedule
from tilewright.schedule.tree import BlockRef, all_blocks, buffers_read, buffers_written, consumers
from tilewright.symbolic.domain import IterKind
from tilewright.symbolic.expr import Const

PARALLEL_WORK = 1 << 16
"""Multiply-adds, or elements, of one step from which on it is spread over workers: each step has its own join."""


def is_recurrent(program: Program) -> bool:
    """Whether a block has steps that run in sequence."""
    return any(_is_step(block) for block in all_blocks(program.body))


def schedule_recurrence(s: Schedule, target: Target) -> None:
    """Schedule the naive program of one or more scans, in place."""
    steps = [block for block in all_blocks(s.program.body) if _is_step(block)]
    inline_all(s, keep=frozenset(region.buffer.name for block in steps for region in block.writes))
    finished = {name for block in steps for name in _contraction(s, block, target)}
    for block in all_blocks(s.program.body):
        if block.name not in finished and not is_reduction(block):
            schedule_elementwise(s, BlockRef(block.name), _lanes(block, target), _points(s, block) >= PARALLEL_WORK)


def _is_step(block: Block) -> bool:
    return any(axis.kind is IterKind.ORDERED for axis in block.axes)


def _contraction(s: Schedule, block: Block, target: Target) -> tuple[str, ...]:
    """Tile ``block``, if it is a contraction that one block of the step reads; returns the blocks that are done."""
    roles, readers = analyze(block), consumers(s.program, block)
    if roles is None or len(readers) != 1 or is_reduction(readers[0]) or not _is_step(readers[0]):
        return ()
    if buffers_written(readers[0]) & buffers_read(block):  # the next state: complete before anything of it is read
        return ()
    tile = choose_tile(_problem(s, block, roles), target)
    if roles.rows is not None and not isinstance(block.axes[roles.rows].extent, Const):
        tile = replace(tile, rows=1)  # tiles of a run-time extent can't be told apart within a step
    schedule_tiles(s, BlockRef(block.name), roles, tile, _points(s, block) >= PARALLEL_WORK)
    return block.name, readers[0].name


def _problem(s: Schedule, block: Block, roles: Contraction) -> Problem:
    def extent(axis: int | None) -> int:
        return 1 if axis is None else Extents(s.program.dims)(block.axes[axis])

    itemsize = block.writes[0].buffer.dtype.itemsize
    return Problem(extent(roles.vector), extent(roles.rows), extent(roles.panels), itemsize)


def _lanes(block: Block, target: Target) -> int:
    widest = max(region.buffer.dtype.itemsize for region in (*block.reads, *block.writes))
    return max(1, REGISTERS * target.vector_bits // (8 * widest))


def _points(s: Schedule, block: Block) -> int:
    """Points of one step."""
    count = 1
    for axis in block.axes:
        count *= 1 if axis.kind is IterKind.ORDERED else Extents(s.program.dims)(axis)
    return count
