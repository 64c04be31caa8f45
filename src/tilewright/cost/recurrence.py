"""Schedules recurrences (``te.scan``): the steps run in sequence, and blocks inside a step are scheduled as usual.

A matrix product inside a step (the recurrent weights of an LSTM) is a contraction like any other: a register tile over
the whole reduction, the weights in panels, with elementwise consumers fused into the tile. The rest of a step runs in
lanes along its last axis.
"""

from collections.abc import Iterator
from dataclasses import replace

from tilewright.kernels.contraction import Extents, analyze
from tilewright.kernels.dot_tiles import by_instruction, instruction_for
from tilewright.kernels.nests import Lanes, Nests, Tiles
from tilewright.kernels.schedules import inline_all, is_reduction, schedule_elementwise
from tilewright.loops.ir import Block
from tilewright.loops.program import Program
from tilewright.schedule.schedule import Schedule
from tilewright.schedule.tree import BlockRef, all_blocks, block_at, buffers_read, buffers_written, consumers
from tilewright.symbolic.domain import IterKind
from tilewright.symbolic.expr import Const
from tilewright.target.target import Target


def is_recurrent(program: Program) -> bool:
    """Whether a block has sequential steps."""
    return any(_is_step(block) for block in all_blocks(program.body))


def recurrence(s: Schedule, target: Target) -> Nests:
    """Inline blocks in the naive program of one or more scans, in place; return the space of the remaining choices."""
    steps = [block for block in all_blocks(s.program.body) if _is_step(block)]
    inline_all(s, keep=frozenset(region.buffer.name for block in steps for region in block.writes))
    tiled = [nest for block in steps for nest in _contraction(s, block, target)]
    finished = {nest.name for nest in tiled} | {reader for nest in tiled for reader in _readers(s, nest)}
    others = [b for b in all_blocks(s.program.body) if b.name not in finished and not is_reduction(b)]
    lanes = (Lanes.of(s, block, schedule_elementwise, target, _is_large(s, block, target)) for block in others)
    return Nests((*tiled, *lanes))


def _is_step(block: Block) -> bool:
    return any(axis.kind is IterKind.ORDERED for axis in block.axes)


def _contraction(s: Schedule, block: Block, target: Target) -> Iterator[Tiles]:
    """The tile nest of ``block``, if it is a contraction that one block of the step reads."""
    roles, readers = analyze(block), consumers(s.program, block)
    if roles is None or len(readers) != 1 or is_reduction(readers[0]) or not _is_step(readers[0]):
        return
    if buffers_written(readers[0]) & buffers_read(block):  # complete before any part of it is read
        return
    large = _is_large(s, block, target)
    nest = _read_each_step(Tiles.of(s, BlockRef(block.name), roles, target, large, may_unroll=False), target)
    instruction = instruction_for(block, roles, target)
    if instruction is not None:
        nest = by_instruction(nest, instruction)
    if roles.rows is not None and not isinstance(block.axes[roles.rows].extent, Const):
        nest = nest.without("rows")  # tiles of a run-time extent can't be distinguished within a step
    yield nest


def _read_each_step(nest: Tiles, target: Target) -> Tiles:
    """``nest`` with a panel that comes from the last cache: all steps but the first find it there, if it fits."""
    if nest.facts.streamed > max(target.l2_bytes, target.l3_bytes):
        return nest
    return replace(nest, facts=replace(nest.facts, streamed=0))


def _readers(s: Schedule, nest: Tiles) -> list[str]:
    """The blocks computed on the tiles of ``nest``."""
    return [block.name for block in consumers(s.program, block_at(s.program, nest.anchor).stmt)]


def _is_large(s: Schedule, block: Block, target: Target) -> bool:
    """Whether distributing each step of ``block`` over workers saves time."""
    points = Extents(s.program.dims).points(axis for axis in block.axes if axis.kind is not IterKind.ORDERED)
    return points >= target.machine.step_factor * target.machine.parallel_work
