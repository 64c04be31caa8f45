"""Parametric schedules for each class of kernel; the analytic model and the tuner choose the parameters.

Each function takes a fresh ``Schedule`` of a naive program and only applies primitives to it, so that the trace is
complete and can be replayed.
"""

from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from itertools import chain
from math import lcm

from tilewright.base.errors import InternalError, ScheduleError
from tilewright.kernels.transposes import crossed_axis
from tilewright.loops.ir import Block, Loop, Region, Store
from tilewright.schedule.compute_inline import is_unread
from tilewright.schedule.schedule import Schedule
from tilewright.schedule.tree import BlockRef, LoopRef, all_blocks, block_at, loops_of, walk
from tilewright.symbolic.domain import IterKind, IterVar
from tilewright.symbolic.expr import Binary, Const, Expr, Var
from tilewright.symbolic.operations import BinaryOp
from tilewright.symbolic.traversal import free_vars, reads_in
from tilewright.symbolic.traversal import walk as walk_expr
from tilewright.target.machine import ENOUGH_CHUNKS

REGISTERS = 4
"""Vector registers that a vectorized loop fills at a time, to overlap the latencies of a chain of operations.

A shape of schedules, and no figure of a processor: how many lanes a loop has is open (``Lanes``)."""
MOSTLY_EMPTY = 4
"""Loops of fewer iterations than the lanes of a register divided by this are fused with the loop around: a quarter of
a register is called full, whatever its width."""
MOST_IDLE = 1.15
"""Relative extra work of lanes that are idle at the end of a row, for which there are more of them at a time."""
MOST_WRITTEN_OUT = 8
"""Maximum number of vectors that are written out so that each has a pattern of its own: their code must be fetched."""
RUN_TIME = 1 << 30
"""In place of an extent known only at run time: more than any number that it is compared with. No time is estimated
from it (``GUESSED_EXTENT``)."""


def is_reduction(block: Block) -> bool:
    """Whether ``block`` is a reduction."""
    return any(axis.kind is IterKind.REDUCE for axis in block.axes)


def inline_all(s: Schedule, keep: frozenset[str]) -> None:
    """Inline every elementwise block, except those that write a result or a buffer in ``keep``.

    Blocks stay for which ``compute_inline`` is refused: loop programs (an ``extern``), and values that would get too
    large. The size is that of the simplified value in each of its readers, which is known after rewriting them: a query
    would do what the primitive does. A refused primitive leaves ``s`` as it was.
    """
    results = {p.name for p in s.program.params} | keep
    for block in all_blocks(s.program.body):
        written = {region.buffer.name for region in block.writes}
        if not is_reduction(block) and not written & results:
            with suppress(ScheduleError):
                s.compute_inline(BlockRef(block.name))


def drop_unread(s: Schedule) -> None:
    """Remove every block whose result is unused: inlining may show that a value does not matter (``x == x``)."""
    for block in reversed(all_blocks(s.program.body)):
        if is_unread(s.program, block):
            s.compute_inline(BlockRef(block.name))


def even(extent: int, most: int) -> int:
    """The size of as few and as equal pieces of at most ``most`` as possible."""
    return -(-extent // -(-extent // most))


def ref(loop: Loop) -> LoopRef:
    """The handle of a loop."""
    return LoopRef(loop.var.name)


def driving_loop(s: Schedule, block: BlockRef, axis: int) -> LoopRef:
    """The loop that drives an axis of a block, in a program with one loop for each axis."""
    return driver(block_at(s.program, block).stmt, axis)


def driver(block: Block, axis: int) -> LoopRef:
    """The loop that drives an axis of ``block`` and nothing else."""
    binding = block.bindings[axis]
    if not isinstance(binding, Var):
        raise InternalError(f"axis {axis} of {block.name} is driven by {binding}")
    return LoopRef(binding.name)


def schedule_elementwise(s: Schedule, block: BlockRef, lanes: int, parallel: bool) -> None:
    """Lanes along the last axis; the other axes in parallel.

    The last axis is fused with the one before if it does not fill a register; if an operand is broadcast or moved, so
    that fused axes are not contiguous in it, only if most of a register would be empty. Loops over the steps of a
    recurrence are unchanged.
    """
    width = max(1, lanes // REGISTERS)
    crossed = crossed_axis(block_at(s.program, block).stmt, width)
    if crossed is not None and _has_own_loops(s, block):
        squares = _schedule_squares(s, [ref(loop) for loop in loops_of(s.program, block)], crossed, width)
        if parallel:
            _spread(s, squares)
        return
    loops = _free_loops(s, block)
    if not loops:
        return
    period = _period(block_at(s.program, block).stmt)
    contiguous, joined = contiguous_axes(block_at(s.program, block).stmt), 1
    while len(loops) > 1 and extent_of(s, loops[-1]) < (width if joined < contiguous else width // MOSTLY_EMPTY):
        loops[-2:] = [s.fuse(loops[-2], loops[-1])]
        joined += 1
    in_periods = joined == 1 and lanes % period != 0 and extent_of(s, loops[-1]) >= width * period
    vectorize = partial(_vectorize_periods, period=period) if in_periods else vectorize_last
    outer = [*loops[:-1], *vectorize(s, loops[-1], width if in_periods else lanes)]
    if parallel:
        _spread(s, outer)


def schedule_moved(s: Schedule, block: BlockRef, loops: Sequence[LoopRef], lanes: int) -> None:
    """Vectorize a block that was moved into another nest, and each axis of which has one of ``loops``: in squares if it
    transposes, else along its last axis."""
    width = max(1, lanes // REGISTERS)
    crossed = crossed_axis(block_at(s.program, block).stmt, width)
    if crossed is None:
        vectorize_last(s, loops[-1], lanes)
    else:
        _schedule_squares(s, loops, crossed, width)


def _spread(s: Schedule, loops: list[LoopRef]) -> None:
    """Make the outermost of ``loops``, or parts of them, parallel: as many as ``ENOUGH_CHUNKS`` needs.

    The others stay serial, so that invariant code can be hoisted out of them.
    """
    chunks = 1
    for loop in loops:
        missing, extent = -(-ENOUGH_CHUNKS // chunks), extent_of(s, loop)
        if 1 < missing < extent < RUN_TIME and chunks > 1:
            loop, _ = s.split(loop, (None, -(-extent // missing)))
        if missing > 1:
            s.parallel(loop)
            chunks *= extent_of(s, loop)


def contiguous_axes(block: Block) -> int:
    """How many of the last axes are, as a whole, the last dimensions of all buffers that depend on any of them."""
    count = 0
    while count < len(block.axes):
        last = block.axes[-count - 1 :]
        if not all(_ends_with(region, last) for region in (*block.reads, *block.writes)):
            break
        count += 1
    return count


def _ends_with(region: Region, axes: Sequence[IterVar]) -> bool:
    starts = [start for start, _ in region.ranges]
    if all(free_vars(start).isdisjoint(axis.var for axis in axes) for start in starts):
        return True
    dimensions = list(zip(starts, region.buffer.shape, strict=True))[-len(axes) :]
    return dimensions == [(axis.var, axis.extent) for axis in axes]


def _has_own_loops(s: Schedule, block: BlockRef) -> bool:
    """Whether each axis of ``block`` has its own loop, and there are no others around it."""
    place = block_at(s.program, block)
    return place.stmt.bindings == tuple(loop.var for loop in place.loops)


def _schedule_squares(s: Schedule, loops: Sequence[LoopRef], crossed: int, width: int) -> list[LoopRef]:
    """Square tiles of about ``width``: rows along the last axis, unrolled, with lanes along the axis ``crossed``;
    returns the loops around them."""
    outer = list(loops)
    extent = extent_of(s, outer[crossed])
    whole = even(extent, width)  # guarded lanes would be stored one by one
    outer[crossed], lanes = s.split(outer[crossed], (None, width if extent % whole else whole))
    outer[-1], rows = s.split(outer[-1], (None, even(extent_of(s, outer[-1]), width)))
    s.reorder(*outer, rows, lanes)
    s.unroll(rows)
    s.vectorize(lanes)
    return outer


def _free_loops(s: Schedule, block: BlockRef) -> list[LoopRef]:
    """The loops around ``block`` inside of those that drive its ordered axes."""
    stmt, loops = block_at(s.program, block).stmt, loops_of(s.program, block)
    bound = zip(stmt.axes, stmt.bindings, strict=True)
    steps = {var for axis, binding in bound if axis.kind is IterKind.ORDERED for var in free_vars(binding)}
    start = max((position + 1 for position, loop in enumerate(loops) if loop.var in steps), default=0)
    return [ref(loop) for loop in loops[start:]]


def vectorize_last(s: Schedule, loop: LoopRef, lanes: int) -> list[LoopRef]:
    """At most ``lanes`` iterations of ``loop`` become lanes; returns the loop around them, if there is one."""
    if extent_of(s, loop) <= lanes:
        s.vectorize(loop)
        return []
    outer, inner = s.split(loop, (None, fitted(extent_of(s, loop), lanes)))
    s.vectorize(inner)
    return [outer]


def fitted(extent: int, lanes: int) -> int:
    """The most of ``lanes``, a half or a quarter of them with which hardly any are idle at the end of ``extent``."""
    choices = [lanes // parts for parts in (1, 2, REGISTERS) if lanes % parts == 0]
    used = {choice: -(-extent // choice) * choice for choice in choices}
    return next(choice for choice in choices if used[choice] <= MOST_IDLE * min(used.values()))


def _vectorize_periods(s: Schedule, loop: LoopRef, lanes: int, period: int) -> list[LoopRef]:
    """Vectors of ``lanes`` iterations of ``loop``, of which ``period`` are written out; returns the loop around them.

    A vector after so many others reads elements as far apart as the first: its lanes are permuted, not gathered.
    """
    outer, inner = s.split(loop, (None, lanes * period))
    vectors, inner = s.split(inner, (None, lanes))
    s.unroll(vectors)
    s.vectorize(inner)
    return [outer]


def _period(block: Block) -> int:
    """Along the last axis, after how many elements what divides positions by small numbers starts anew."""
    reads = reads_in(block.body.value) if isinstance(block.body, Store) else ()
    parts = chain.from_iterable(walk_expr(index) for read in reads for index in read.indices)
    last = block.axes[-1].var
    divisors = (_divisor(part) for part in parts if last in free_vars(part))
    period = lcm(*divisors)
    return period if 1 <= period <= MOST_WRITTEN_OUT else 1


def _divisor(index: Expr) -> int:
    """What ``index`` is divided by; 1 if it is no quotient or remainder."""
    match index:
        case Binary(BinaryOp.FLOORDIV | BinaryOp.MOD, _, Const(int(divisor))):
            return divisor
        case _:
            return 1


def extent_of(s: Schedule, loop: LoopRef) -> int:
    """The number of iterations of ``loop``; a large number if known only at run time, 0 if the loop was removed."""
    for stmt in walk(s.program.body):
        if isinstance(stmt, Loop) and stmt.var.name == loop.name:
            return iterations(stmt)
    return 0


def iterations(loop: Loop) -> int:
    """The number of iterations of ``loop``; a large number if known only at run time."""
    return int(loop.extent.value) if isinstance(loop.extent, Const) else RUN_TIME


def iterations_of(axis: IterVar) -> int:
    """The extent of ``axis``; a large number if known only at run time."""
    return int(axis.extent.value) if isinstance(axis.extent, Const) else RUN_TIME
