"""``compute_at``: moves a producer into a loop of its consumers, where it computes only what they need.

``for i: T[i] = ...; for io: for ii: C[io*8 + ii] = f(T[io*8 + ii])`` with ``T`` at ``io`` becomes ``for io: alloc T[8];
for i < 8: T[i] = ...; for ii: C[io*8 + ii] = f(T[ii])``. (Halide's ``compute_at``, Ragan-Kelley et al. 2013.)
"""

import dataclasses
from collections.abc import Collection, Mapping

from tilewright.loops.ir import Alloc, Buffer, If, LoopKind, Region, Stmt
from tilewright.loops.program import Program
from tilewright.loops.visit import substitute as substitute_stmt
from tilewright.loops.visit import walk
from tilewright.schedule.blocks import axis_vars, bounds_within, guard, map_parts, refreshed
from tilewright.schedule.compact import compact
from tilewright.schedule.placing import (
    Lifted,
    check_each_once,
    insert_before,
    intermediate,
    lift,
    loops_since_allocation,
    nest_over,
    put,
)
from tilewright.schedule.region import Window, Windows, axis_window, is_point, touched, union, unit_index, unit_of
from tilewright.schedule.tree import (
    BlockRef,
    LoopRef,
    all_blocks,
    block_at,
    buffers_read,
    buffers_written,
    refuse,
)
from tilewright.symbolic.domain import IterKind, IterVar
from tilewright.symbolic.expr import ONE, TRUE, ZERO, Expr, Var, const
from tilewright.symbolic.simplify import linear_form
from tilewright.symbolic.traversal import free_vars, substitute


def compute_at(program: Program, block: BlockRef, loop: LoopRef) -> tuple[Program, tuple[LoopRef, ...]]:
    """Compute ``block`` inside ``loop``, just before its first consumer there; returns its new loops.

    Its result becomes a buffer of the size that one iteration needs, allocated there. Elements that several iterations
    need are computed in each of them. The block's old loops and their annotations are removed. Refuses if a consumer is
    outside of ``loop``; for outputs of the program, recurrences, and buffers that other blocks also write.
    """
    lifted = lift(program, block, loop)
    written = buffers_written(lifted.block)
    _check_buffers(lifted, written)
    consumers = [other for other in all_blocks(lifted.program.body) if written & buffers_read(other)]
    inside = {other.name for other in all_blocks(lifted.target.stmt)}
    outside = [other.name for other in consumers if other.name not in inside]
    if not consumers:
        raise refuse(f"nothing reads what `{block}` writes", block)
    if any(own.kind is LoopKind.VECTORIZED for own in (*lifted.target.loops, lifted.target.stmt)):
        raise refuse("lanes of a vectorized loop have no buffers of their own", loop)
    if outside:
        raise refuse(f"`{outside[0]}` reads what `{block}` writes, and is not inside `{loop}`", BlockRef(outside[0]))
    local, moving, windows = _localized(lifted, _needed_windows(lifted))
    placed = nest_over(local, windows)
    names = {other.name for other in consumers}
    body = insert_before(lifted.target.stmt.body, lambda s: any(b.name in names for b in all_blocks(s)), placed.stmt)
    result = put(lifted, body)
    for buffer in sorted(written, key=lambda b: b.name):
        result = compact(result, buffer.name, lifted.bounds)
    check_each_once(result, block)
    _check_private(result, block, moving)
    return result, placed.refs


def _check_private(program: Program, block: BlockRef, moving: Collection[Var]) -> None:
    """Checks that iterations of the loops ``moving``, if their windows overlap, each have a buffer of their own."""
    place = block_at(program, block)
    for region in place.stmt.writes:
        for loop in loops_since_allocation(place, region.buffer):
            if loop.var in moving:
                reason = f"iterations of `{loop.var}` share `{region.buffer.name}`, and need overlapping parts of it"
                raise refuse(reason, LoopRef(loop.var.name))


def _check_buffers(lifted: Lifted, written: frozenset[Buffer]) -> None:
    local = {stmt.buffer for stmt in walk(lifted.target.stmt) if isinstance(stmt, Alloc)}
    for buffer in written:
        if buffer in local:
            raise refuse(f"`{buffer.name}` is allocated in the loop, where `{lifted.ref}` is already", lifted.ref)
        if not intermediate(lifted.original, buffer):
            raise refuse(f"`{buffer.name}` is an output: all of it must be computed, and once", lifted.ref)
        other = next((b for b in all_blocks(lifted.program.body) if buffer in buffers_written(b)), None)
        if other is not None:
            raise refuse(f"`{buffer.name}` is written by `{other.name}` too", BlockRef(other.name))
    own_reads = buffers_read(lifted.block) & written
    if own_reads and lifted.block.init is None:
        raise refuse(f"`{lifted.ref}` updates what it writes, and has no init; nothing can compute it anew", lifted.ref)


def _needed_windows(lifted: Lifted) -> list[Window]:
    """The part of the block's domain that one iteration of the loop needs."""
    needed = touched(lifted.target.stmt.body, lifted.bounds, buffers_written(lifted.block)).reads
    windows = list(lifted.own)
    for position, axis in enumerate(lifted.block.axes):
        if axis.kind is IterKind.SPATIAL and not lifted.kept[position]:
            windows[position] = _needed(lifted, axis, lifted.own[position], needed)
    return windows


def _needed(lifted: Lifted, axis: IterVar, own: Window, needed: Mapping[Buffer, Windows]) -> Window:
    """The values of ``axis`` at which the block writes a needed element."""
    found: list[Windows] = []
    for region in lifted.block.writes:
        if region.buffer not in needed:
            continue
        window = _at_write(lifted, axis.var, region, own, needed[region.buffer])
        found.append((own if window is None else window,))
    result = union(found, (axis.extent,), lifted.bounds)
    assert result is not None
    return result[0]


def _at_write(lifted: Lifted, var: Var, region: Region, own: Window, needed: Windows) -> Window | None:
    for index, window in zip(region.ranges, needed, strict=True):
        found = axis_window(var, index[0], window, own, lifted.bounds) if is_point(index) else None
        if found is not None:
            return found
    return None


def _localized(lifted: Lifted, windows: list[Window]) -> tuple[Lifted, Collection[Var], list[Window]]:
    """The block with axes relative to the start of their window, where windows overlap; and the axes of the starts.

    The start moves with loops outside, so these become axes too: ``v`` becomes ``vo * 8 - 1 + v``.
    """
    overlapping = [i for i, w in enumerate(windows) if not lifted.kept[i] and not _is_tile(lifted, w)]
    if not overlapping:
        return lifted, (), windows
    starting = {v for i in overlapping for v in free_vars(windows[i].start)}
    outer = [v for v in lifted.bounds.extents if v in starting]
    block = lifted.block
    fresh = axis_vars(lifted.original, [f"v{v.name}" for v in outer], [axis.name for axis in block.axes])
    added = [IterVar(new, lifted.bounds.extents[v], IterKind.SPATIAL) for v, new in zip(outer, fresh, strict=True)]
    renamed: dict[Var, Expr] = dict(zip(outer, fresh, strict=True))
    axes, bindings, own = list(block.axes), list(block.bindings), list(lifted.own)
    values: dict[Var, Expr] = {}
    for i in overlapping:
        bindings[i] = bindings[i] - windows[i].start
        if own[i].is_whole(axes[i].extent):  # The condition inside ensures that.
            own[i] = Window(ZERO, windows[i].extent)
        else:
            own[i] = Window(own[i].start - windows[i].start, own[i].extent)
        values[axes[i].var] = substitute(windows[i].start, renamed) + axes[i].var
        axes[i] = IterVar(axes[i].var, windows[i].extent, axes[i].kind)
        windows[i] = Window(ZERO, windows[i].extent)
    local = dataclasses.replace(block, axes=(*added, *axes), bindings=(*outer, *bindings))
    inside = bounds_within(lifted.original, local.axes)
    condition = guard([(values[axis.var], axis.extent) for axis in block.axes if axis.var in values], inside)
    local = map_parts(local, lambda stmt: _guarded(condition, substitute_stmt(stmt, values)))
    points = [Window(v, ONE) for v in outer]
    kept = (*(True for _ in outer), *lifted.kept)
    changed = dataclasses.replace(lifted, block=refreshed(lifted.original, local), own=(*points, *own), kept=kept)
    return changed, outer, [*points, *windows]


def _guarded(condition: Expr, stmt: Stmt) -> Stmt:
    return stmt if condition == TRUE else If(condition, stmt)


def _is_tile(lifted: Lifted, window: Window) -> bool:
    """Whether windows with different starts are disjoint."""
    form = linear_form(window.start, lifted.bounds)
    if not form.terms or window.extent == ONE:
        return True
    first = const(form.constant)
    unit = unit_of(window.start - first, lifted.bounds)
    return unit_index(first, first + window.extent - 1, unit, lifted.bounds) is not None
