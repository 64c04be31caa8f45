"""Finishes the schedule of one candidate: packed operands, lanes, unrolled and parallel loops, buffers on the stack.

``finishing`` says which loops become what, here as for all candidates of a pattern at once.
"""

from collections.abc import Mapping

import numpy as np

from tilewright.kernels.schedules import extent_of, ref
from tilewright.loops.ir import Alloc, Loop, LoopKind
from tilewright.loops.memory import LOCAL
from tilewright.loops.visit import walk
from tilewright.schedule.schedule import Schedule
from tilewright.schedule.tree import BlockRef, LoopRef, all_blocks, block_at, loops_of
from tilewright.sketch.annotate import Decided, own_loops, register_lanes
from tilewright.sketch.finishing import (
    KINDS,
    PARALLEL,
    UNROLLED,
    VECTORIZED,
    Finishing,
    Ints,
    Spread,
    Tail,
    around,
    tail_of,
)
from tilewright.sketch.packing import crossed_axes, pack, transpose
from tilewright.sketch.rule import Draft
from tilewright.symbolic.expr import Const

LOCAL_BYTES = 1 << 12
"""Of a buffer on the stack."""


def finish(draft: Draft, decided: Decided) -> None:
    """Finish ``draft.schedule``, whose blocks are placed. Raises ``ScheduleError`` if answers do not go together."""
    s, lanes = draft.schedule, register_lanes(draft.schedule.program, draft.target)
    copies = [pack(draft, operand, place, lanes) for operand, place in decided.packed.items()]
    for name in [name for name in draft.names() if name not in copies]:
        square = None if name in draft.tiles else crossed_axes(block_at(s.program, BlockRef(name)).stmt, lanes)
        if square is None:
            _finish(draft, name, decided, lanes)
        else:
            transpose(s, BlockRef(name), [ref(loop) for loop in own_loops(s, name)], square, lanes)
    _keep_small_buffers_local(s)
    for name, count in decided.parallel.items():
        _spread(s, name, count)


def _finish(draft: Draft, name: str, decided: Decided, lanes: int) -> None:
    """The instruction or the lanes of a block, and loops that are written out."""
    s, tile = draft.schedule, draft.tiles.get(name)
    if tile is not None and tile.instruction is not None:
        s.tensorize(tile.vector, tile.instruction.intrinsic)
    tail = tail_of(draft, name, decided)
    whole = {loop.var.name: _one(extent_of(s, ref(loop))) for loop in loops_of(s.program, BlockRef(name))}
    finished = Finishing(lanes, (tail,), ()).of(whole, _one)
    extents = {loop: int(extent[0]) for loop, extent in finished.extents.items()}
    kinds = {loop: int(kind[0]) for loop, kind in finished.kinds.items()}
    known = {loop: LoopRef(loop) for loop in whole}
    for loop, outer in tail.parts.items():
        if extents[loop] == 1:
            known[outer] = known.pop(loop)
        elif extents[outer] > 1:
            known[outer], known[loop] = s.split(loop, (None, extents[loop]))
    if tail.lanes is not None and kinds[tail.lanes] == VECTORIZED:
        _make_lanes(s, tail, known)
    for loop in reversed(tail.unrolled):
        if loop in known and kinds[loop] == UNROLLED:
            s.unroll(known[loop])


def _make_lanes(s: Schedule, tail: Tail, known: Mapping[str, LoopRef]) -> None:
    """Lanes, inside of the other loops and of rows. ``known``: the loops of ``tail``."""
    assert tail.lanes is not None
    own = [ref(loop) for loop in own_loops(s, tail.block)]
    if tail.outer in known or tail.rows is not None or own[-1] != known[tail.lanes]:
        s.reorder(*(known[loop] for loop in tail.order if known.get(loop) in own))
    if tail.rows is not None and tail.rows.loop in known:
        s.unroll(known[tail.rows.loop])
    s.vectorize(known[tail.lanes])


def _one(number: int) -> Ints:
    """Of one candidate."""
    return np.array([int(number)])


def _keep_small_buffers_local(s: Schedule) -> None:
    """What is allocated in a loop, and small, is on the stack, of which LLVM makes registers."""
    inside: set[str] = set()
    for node in walk(s.program.body):
        if isinstance(node, Loop):
            inside |= {inner.buffer.name for inner in walk(node.body) if isinstance(inner, Alloc)}
    for node in walk(s.program.body):
        if isinstance(node, Alloc) and node.buffer.name in inside and _bytes(node) <= LOCAL_BYTES:
            s.set_scope(node.buffer.name, LOCAL)


def _bytes(alloc: Alloc) -> int:
    size = alloc.buffer.dtype.itemsize
    for extent in alloc.buffer.shape:
        size *= int(extent.value) if isinstance(extent, Const) else LOCAL_BYTES + 1
    return size


def _spread(s: Schedule, name: str, count: int) -> None:
    """Make the outermost ``count`` loops around a block parallel, as far as they may."""
    if name not in {block.name for block in all_blocks(s.program.body)}:
        return
    loops = loops_of(s.program, BlockRef(name))
    kinds = {loop.var.name: _one(KINDS.index(loop.kind)) for loop in loops}
    Spread(tuple(around(s, name, loop, loop.var.name) for loop in loops), count).spread(kinds, _one(count))
    for loop in loops:
        if loop.kind is LoopKind.SERIAL and kinds[loop.var.name] == PARALLEL:
            s.parallel(ref(loop))
