"""Parametric schedules of reductions: lanes along what is kept or along what is reduced, and whole rows at a time."""

from collections.abc import Iterator, Sequence
from math import prod

from tilewright.base.errors import ScheduleError
from tilewright.kernels.schedules import (
    REGISTERS,
    RUN_TIME,
    contiguous_axes,
    driver,
    driving_loop,
    extent_of,
    fitted,
    is_reduction,
    iterations,
    iterations_of,
    ref,
    vectorize_last,
)
from tilewright.kernels.tiling import privatized
from tilewright.loops.ir import Alloc, Block, Loop
from tilewright.loops.memory import LOCAL
from tilewright.schedule.combiner import has_combiner
from tilewright.schedule.schedule import Schedule
from tilewright.schedule.tree import BlockRef, LoopRef, all_blocks, block_at, loops_of, walk
from tilewright.symbolic.bounds import interval
from tilewright.symbolic.domain import IterKind
from tilewright.symbolic.expr import Const, Var
from tilewright.symbolic.linear import polynomial
from tilewright.symbolic.traversal import free_vars

FULL_ROW = 16
"""The least elements of rows, one after the other, that are worth partial results in lanes: shorter ones are lanes.

A register of 512 bits, whatever the processor has."""
ROWS_TOGETHER = (4, 3, 2)
"""Numbers of rows that are computed step by step together: while one waits for its sum, another one computes."""
MOST_TOGETHER = 2048
"""Maximum elements of these rows: longer ones do not wait much, and nearer caches hold several buffers of them."""


def schedule_reduction(s: Schedule, block: BlockRef, lanes: int, parallel: bool) -> None:
    """A reduction over axes other than the last: lanes along the last axis, partial results in registers.

    If the last axis has one element, or operands lie apart along it, lanes along another one whose operands are side by
    side, or along the reduction.
    """
    stmt = block_at(s.program, block).stmt
    spatial = [driving_loop(s, block, p) for p, a in enumerate(stmt.axes) if a.kind is IterKind.SPATIAL]
    reduced = [driving_loop(s, block, p) for p, a in enumerate(stmt.axes) if a.kind is IterKind.REDUCE]
    has_parts = has_combiner(stmt)
    if has_parts and (not spatial or reduces_rows(stmt)):
        _reduce_in_lanes(s, block, spatial, lanes, parallel)
        return
    if not spatial:
        return
    along = {driver(stmt, axis) for axis in _side_by_side(stmt)}
    last = next((loop for loop in reversed(spatial) if loop in along and extent_of(s, loop) > 1), spatial[-1])
    if has_parts and extent_of(s, last) == 1:
        _reduce_in_lanes(s, block, spatial, lanes, parallel)
        return
    others, extent = [loop for loop in spatial if loop != last], extent_of(s, last)
    outer, inner = s.split(last, (None, extent if extent <= lanes else fitted(extent, lanes)))
    s.reorder(*others, outer, *reduced, inner)
    s.vectorize(inner)
    if parallel:
        for loop in (*others, outer):
            s.parallel(loop)


def reduces_rows(block: Block) -> bool:
    """Whether what ``block`` reads lies side by side along the last axis of the reduction, and along no other axis of
    several elements."""
    several = [axis for axis in _side_by_side(block) if iterations_of(block.axes[axis]) > 1]
    is_row = len(several) == 1 and several[0] == len(block.axes) - 1 and not _slides(block)
    return is_row and _row(block) >= REGISTERS


def _slides(block: Block) -> bool:
    """Whether some operand is read along its last dimension by the last axis and others together: as by a window. Whole
    rows of at least ``FULL_ROW`` elements, one after the other, are none."""
    last = block.axes[-1]
    others = {axis.var for axis in block.axes[:-1] if iterations_of(axis) > 1}
    for start in (region.ranges[-1][0] for region in block.reads if region.ranges):
        used, length = free_vars(start), iterations_of(last)
        if last.var in used and not used.isdisjoint(others):
            steps = polynomial(start)
            if length < FULL_ROW or any(steps.get((var,), 0) < length for var in used & others):
                return True
    return False


def _row(block: Block) -> int:
    """The number of elements that ``block`` reduces along its last axes, as far as these lie side by side."""
    reduced = sum(axis.kind is IterKind.REDUCE for axis in block.axes)
    return prod(iterations_of(axis) for axis in block.axes[-max(1, min(reduced, contiguous_axes(block))) :])


def _side_by_side(block: Block) -> tuple[int, ...]:
    """The axes along which ``block`` reads the last dimension of a buffer, one element after the other."""
    written = {region.buffer for region in block.writes}
    reads = (region for region in block.reads if region.ranges and region.buffer not in written)
    starts = [polynomial(region.ranges[-1][0]) for region in reads]
    return tuple(
        position for position, axis in enumerate(block.axes) if any(start.get((axis.var,)) == 1 for start in starts)
    )


def _reduce_in_lanes(s: Schedule, block: BlockRef, rows: list[LoopRef], lanes: int, parallel: bool) -> None:
    """One element for each of ``rows``: partial results in lanes. A single serial sum would also be less accurate."""
    before = {other.name for other in all_blocks(s.program.body)}
    partial_results(s, block, lanes)
    for made in all_blocks(s.program.body):
        if made.name not in before:
            vectorize_columns(s, BlockRef(made.name), rows, lanes)
    if parallel:
        for loop in rows:
            if extent_of(s, loop) > 1:
                s.parallel(loop)


def schedule_rows(s: Schedule, result: BlockRef, lanes: int, parallel: bool) -> None:
    """A chain of reductions and elementwise steps along the last axis (softmax, normalization): row by row.

    All steps of a row run while it is in cache, and each step of a few short rows before the next. Reductions keep
    partial results in vectors, and combine these in a tree of narrower vectors.
    """
    rows = [ref(loop) for loop in loops_of(s.program, result)][:-1]
    together: list[LoopRef] = []
    if rows:
        rows[-1], together = _rows_together(s, result, rows[-1])
        pull_producers(s, result, rows[-1])
        together += _loops_over_rows(s, rows) if together else ()
    for block in [b for b in all_blocks(s.program.body) if is_reduction(b)]:
        partial_results(s, BlockRef(block.name), lanes)
    for block in all_blocks(s.program.body):
        vectorize_columns(s, BlockRef(block.name), [*rows, *together], lanes)
    for loop in together:
        s.unroll(loop)
    if parallel:
        for loop in rows:
            s.parallel(loop)


def _rows_together(s: Schedule, result: BlockRef, row: LoopRef) -> tuple[LoopRef, list[LoopRef]]:
    """The loop over rows, and one over a few rows of an iteration, if they are short."""
    rows, length = extent_of(s, row), iterations(loops_of(s.program, result)[-1])
    fitting = (n for n in ROWS_TOGETHER if rows < RUN_TIME and rows % n == 0 and n * length <= MOST_TOGETHER)
    count = next(fitting, 1)
    if count == 1:
        return row, []
    outer, inner = s.split(row, (None, count))
    return outer, [inner]


def _loops_over_rows(s: Schedule, rows: Sequence[LoopRef]) -> Iterator[LoopRef]:
    """The loops over the rows of an iteration around the blocks that were moved into it."""
    for block in all_blocks(s.program.body)[:-1]:
        driving = free_vars(block.bindings[len(rows) - 1])
        loops = (ref(loop) for loop in loops_of(s.program, BlockRef(block.name)) if loop.var in driving)
        yield from (loop for loop in loops if loop not in rows)


def schedule_columns(s: Schedule, result: BlockRef, lanes: int, parallel: bool, *, axis: int) -> None:
    """A chain of reductions along ``axis``, before the last one, and elementwise steps (softmax over channels): all
    steps of at most ``lanes`` columns, while these are in cache, then those of the next ones."""
    *loops, last = [ref(loop) for loop in loops_of(s.program, result)]
    reduced = loops.pop(axis)
    strip, inner = s.split(last, (None, fitted(extent_of(s, last), lanes)))
    s.reorder(*loops, strip, reduced, inner)
    s.vectorize(inner)
    pull_producers(s, result, strip)
    for block in all_blocks(s.program.body)[:-1]:
        vectorize_columns(s, BlockRef(block.name), [*loops, strip], lanes)
    if parallel:
        for loop in (*loops, strip):
            s.parallel(loop)


ADDED_COLUMNS = 1024
"""Columns of which all rows are added up before those of the next ones: the sums stay in the first cache, and rows are
read in pieces long enough for processors to foresee."""
LEAST_STRIP = 256
"""The same from which on it takes little time to begin a loop over them."""
STRIPS_OF_CORE = 2
"""Strips for each core, at least, if there is one row of results."""
ADDED_TOGETHER = 8
"""Rows that are combined in registers, before the sum is read and stored."""


def adds_rows(block: Block) -> bool:
    """Whether ``block`` combines rows, each element of which it reads once: along the last axis they become a row of
    the result, and lie side by side."""
    kept = [axis for axis in block.axes if axis.kind is IterKind.SPATIAL]
    rows = [axis for axis in block.axes if axis.kind is IterKind.REDUCE]
    written = {region.buffer for region in block.writes}
    reads = [[start for start, _ in region.ranges] for region in block.reads if region.buffer not in written]
    several = {axis.var for axis in block.axes if iterations_of(axis) > 1}
    are_whole = any(all(isinstance(at, Var | Const) for at in read) and several <= {*read} for read in reads)
    are_rows = bool(kept) and all(bool(read) and read[-1] == kept[-1].var for read in reads)
    return len(rows) == 1 and are_whole and are_rows and has_combiner(block)


def schedule_added_rows(s: Schedule, block: BlockRef, lanes: int, parallel: bool, *, cores: int) -> None:
    """Rows combined to one (``adds_rows``), and its elementwise consumer: strip by strip, and of each a few rows at a
    time, whose part of the sum is made in registers. ``cores``: that share the strips."""
    result, stmt = privatized(s, block), block_at(s.program, block).stmt
    loops = [driving_loop(s, block, place) for place in range(len(stmt.axes))]
    row = loops.pop(next(place for place, axis in enumerate(stmt.axes) if axis.kind is IterKind.REDUCE))
    *outer, last = loops
    others = prod(extent_of(s, loop) for loop in outer)
    least = -(-STRIPS_OF_CORE * cores // others) if parallel and cores > 1 else 1
    strip, columns = s.split(last, (None, _strip(extent_of(s, last), lanes, least)))
    columns, inner = s.split(columns, (None, lanes))
    few, one = s.split(row, (None, ADDED_TOGETHER))
    s.reorder(*outer, strip, few, columns, one, inner)
    part = s.rfactor(few, 0)
    *_, columns, inner, few = [ref(loop) for loop in loops_of(s.program, block)]
    s.reorder(few, columns, inner)
    s.vectorize(inner)
    *_, inner, _, one = s.compute_at(part, columns)
    s.set_scope(block_at(s.program, part).stmt.writes[0].buffer.name, LOCAL)
    s.reorder(one, inner)
    s.unroll(one)
    s.vectorize(inner)
    *_, own = s.reverse_compute_at(result, strip)
    *_, inner = s.split(own, (None, lanes))
    s.vectorize(inner)
    if parallel:
        for loop in (*outer, strip):
            s.parallel(loop)


def _strip(columns: int, lanes: int, least: int) -> int:
    """The columns of a strip: of whole vectors, and such that at least so many strips share them, if these are not
    short."""
    count = max(-(-columns // ADDED_COLUMNS), min(least, columns // LEAST_STRIP))
    return columns if count <= 1 else -(-columns // (count * lanes)) * lanes


def inline_open_rows(s: Schedule, result: BlockRef) -> bool:
    """Compute the values of rows anew where they are read, if a row has no upper bound of its length: no worker has
    memory for one.

    Returns whether that was possible; if not, ``s`` is as it was.
    """
    blocks = [BlockRef(block.name) for block in _open_rows(s, result)]
    trial = s.copy()
    try:
        for block in blocks:
            trial.compute_inline(block)
    except ScheduleError:
        return False
    for block in blocks:
        s.compute_inline(block)
    return True


def _open_rows(s: Schedule, result: BlockRef) -> list[Block]:
    """The blocks before ``result`` whose rows have no upper bound of their length; none if there is only one row."""
    if len(loops_of(s.program, result)) < 2:
        return []
    return [block for block in all_blocks(s.program.body) if block.name != result.name and _has_open_rows(s, block)]


def _has_open_rows(s: Schedule, block: Block) -> bool:
    lengths = (region.buffer.shape[-1] for region in block.writes if region.buffer.shape)
    return any(interval(length, s.program.bounds).hi is None for length in lengths)


def partial_results(s: Schedule, block: BlockRef, lanes: int) -> None:
    """Reduce into ``lanes`` partial results, these into half as many, and so on: each step waits for the one before, so
    that of a short row it is their number that takes time.

    Loops over elements that lie side by side are joined first, if the last one does not fill the lanes.
    """
    _join_reducing(s, block, lanes)
    extent = extent_of(s, _reducing_loop(s, block))
    width = min(fitted(extent, lanes), 1 << (extent.bit_length() - 1))
    while width >= 2:
        _, inner = s.split(_reducing_loop(s, block), (None, width))
        s.rfactor(inner, 0)
        width //= 2


def _join_reducing(s: Schedule, block: BlockRef, lanes: int) -> None:
    stmt = block_at(s.program, block).stmt
    loops = [driving_loop(s, block, p) for p, axis in enumerate(stmt.axes) if axis.kind is IterKind.REDUCE]
    loops = loops[-contiguous_axes(stmt) :] if contiguous_axes(stmt) > 1 else loops[-1:]
    while len(loops) > 1 and extent_of(s, loops[-1]) < lanes and extent_of(s, loops[-2]) > 1:
        loops[-2:] = [s.fuse(loops[-2], loops[-1])]


def _reducing_loop(s: Schedule, block: BlockRef) -> LoopRef:
    """The innermost loop that drives a reduction axis."""
    place = block_at(s.program, block)
    bound = zip(place.stmt.axes, place.stmt.bindings, strict=True)
    driven = {var for axis, binding in bound if axis.kind is IterKind.REDUCE for var in free_vars(binding)}
    return [ref(loop) for loop in place.loops if loop.var in driven][-1]


def pull_producers(s: Schedule, result: BlockRef, at: LoopRef) -> None:
    """Move all transitive producers of ``result`` into ``at``; nearest first."""
    for block in reversed(all_blocks(s.program.body)):
        if block.name != result.name:
            s.compute_at(BlockRef(block.name), at)
            written = block_at(s.program, BlockRef(block.name)).stmt.writes[0].buffer
            if _is_allocated(s, written.name):
                s.set_scope(written.name, LOCAL)


def vectorize_columns(s: Schedule, block: BlockRef, rows: list[LoopRef], lanes: int) -> None:
    """Within a row: lanes along the only spatial axis; a remaining short reduction is unrolled."""
    stmt = block_at(s.program, block).stmt
    own = [loop for loop in loops_of(s.program, block) if ref(loop) not in rows and _may_repeat(s, loop)]
    spatial = {
        v for a, e in zip(stmt.axes, stmt.bindings, strict=True) if a.kind is IterKind.SPATIAL for v in free_vars(e)
    }
    columns = [ref(loop) for loop in own if loop.var in spatial]
    others = [ref(loop) for loop in own if loop.var not in spatial]
    if columns:
        s.reorder(*others, *columns)
        vectorize_last(s, columns[-1], lanes)
    for loop in others[-1:]:
        if extent_of(s, loop) <= REGISTERS:
            s.unroll(loop)


def _may_repeat(s: Schedule, loop: Loop) -> bool:
    """Whether ``loop`` may run more than once, as far as bounds are known."""
    most = interval(loop.extent, s.program.bounds).hi
    return most is None or most > 1


def _is_allocated(s: Schedule, buffer: str) -> bool:
    return any(isinstance(stmt, Alloc) and stmt.buffer.name == buffer for stmt in walk(s.program.body))
