"""``reverse_compute_at``: moves a consumer into a loop of its producer, where it processes each completed tile.

It fuses an epilogue (bias, activation) with a matrix product that keeps its result in registers: ``Cl =
cache_write(C)``, tile, then move the rest to the loop around the tile. (TensorIR, Feng et al. 2023.)
"""

from collections.abc import Mapping

from tilewright.loops.ir import Alloc, Buffer, If, LoopKind, Region
from tilewright.loops.program import Program
from tilewright.loops.visit import walk
from tilewright.schedule.blocks import bounds_within
from tilewright.schedule.compact import compact
from tilewright.schedule.placing import Lifted, Nest, check_each_once, insert_after, lift, nest_over, put
from tilewright.schedule.region import Window, Windows, axis_window, is_point, touched
from tilewright.schedule.steps import selects_a_row
from tilewright.schedule.tree import BlockRef, LoopRef, all_blocks, buffers_read, buffers_written, depends_on, refuse
from tilewright.symbolic.bounds import Bounds
from tilewright.symbolic.domain import IterKind, IterVar
from tilewright.symbolic.expr import ZERO, Expr, Var
from tilewright.symbolic.simplify import equivalent, prove
from tilewright.symbolic.traversal import substitute


def reverse_compute_at(program: Program, block: BlockRef, loop: LoopRef) -> tuple[Program, tuple[LoopRef, ...]]:
    """Compute ``block`` inside ``loop``, just after the last of its producers there; returns its new loops.

    Each iteration processes the part of the producers' results that it computed; buffers used nowhere else shrink to
    that part. The block's old loops and their annotations are removed. Refuses if a producer's reduction is not
    complete at the end of an iteration, if a producer does not run before it, and if an iteration's part is not a box
    of the block's own axes.
    """
    lifted = lift(program, block, loop, within_step=True)
    _check_recurrence(lifted)
    produced = _produced(lifted)
    windows = _windows(lifted, produced)
    placed = nest_over(lifted, windows)
    _check_reduction_order(lifted, placed)
    wanted = set(produced)
    body = insert_after(
        lifted.target.stmt.body,
        lambda s: any(buffers_written(b) & wanted for b in all_blocks(s)),
        placed.stmt,
    )
    result = put(lifted, body)
    for buffer in sorted(wanted, key=lambda b: b.name):
        result = compact(result, buffer.name, lifted.bounds)
    check_each_once(result, block)
    return result, placed.refs


def _check_recurrence(lifted: Lifted) -> None:
    """Checks that parts of a step that run between iterations of another part do not access what it writes."""
    if all(axis.kind is not IterKind.ORDERED for axis in lifted.block.axes):
        return
    written = buffers_written(lifted.block)
    for other in all_blocks(lifted.target.stmt):
        shared = written & (buffers_read(other) | buffers_written(other))
        if shared:
            names = ", ".join(sorted(f"`{buffer.name}`" for buffer in shared))
            raise refuse(f"`{lifted.ref}` writes {names} for the recurrence that the loop is part of", lifted.ref)


def _produced(lifted: Lifted) -> Mapping[Buffer, Windows]:
    """The regions that each iteration computes of the buffers that the block reads."""
    if any(isinstance(a, If) for a in lifted.target.ancestors):
        raise refuse("the loop is inside a condition", LoopRef(lifted.target.stmt.var.name))
    around = [lifted.target.stmt.var, *(outer.var for outer in lifted.target.loops)]
    in_step = any(axis.kind is IterKind.ORDERED for axis in lifted.block.axes)
    read = buffers_read(lifted.block) - buffers_written(lifted.block)
    found: set[Buffer] = set()
    for other in all_blocks(lifted.target.stmt):
        if not buffers_written(other) & read:
            continue
        for axis, binding in zip(other.axes, other.bindings, strict=True):
            is_row = in_step and axis.kind is IterKind.ORDERED and selects_a_row(other, axis, read)
            if axis.kind is not IterKind.SPATIAL and not is_row and depends_on(binding, around):
                raise refuse(
                    f"`{other.name}` is not complete at the end of an iteration: the loops around still drive its "
                    f"{axis.kind.value} axis `{axis.name}`",
                    BlockRef(other.name),
                )
        found |= buffers_written(other) & read
    if not found:
        raise refuse("nothing inside the loop makes what the block reads", LoopRef(lifted.target.stmt.var.name))
    local = {stmt.buffer for stmt in walk(lifted.target.stmt) if isinstance(stmt, Alloc)}
    for buffer in found & local:
        raise refuse(f"`{buffer.name}` is allocated in the loop, where `{lifted.ref}` is already", lifted.ref)
    writes = touched(lifted.target.stmt.body, lifted.bounds, found).writes
    return {buffer: writes[buffer] for buffer in found}


def _windows(lifted: Lifted, produced: Mapping[Buffer, Windows]) -> list[Window]:
    """The range of each axis in one iteration."""
    fixed: dict[Var, Window] = {}
    inside = bounds_within(lifted.original, lifted.block.axes)
    for region in lifted.block.reads:
        if region.buffer in produced:
            for axis, window in _constraints(lifted, inside, region, produced[region.buffer]):
                known = fixed.setdefault(axis.var, window)
                same = equivalent(known.start, window.start, lifted.bounds) and known.extent == window.extent
                if not same:
                    raise refuse(f"its producers make different ranges of its axis `{axis.name}`", lifted.ref)
    return [fixed.get(axis.var, own) for axis, own in zip(lifted.block.axes, lifted.own, strict=True)]


def _constraints(lifted: Lifted, inside: Bounds, region: Region, made: Windows) -> list[tuple[IterVar, Window]]:
    """The axes that index a dimension which an iteration computes in part, and their ranges.

    ``inside``: facts in the block.
    """
    found: list[tuple[IterVar, Window]] = []
    values = {axis.var: b for axis, b in zip(lifted.block.axes, lifted.block.bindings, strict=True)}
    for index, window, size in zip(region.ranges, made, region.buffer.shape, strict=True):
        if window.is_whole(size):
            continue
        first = substitute(index[0], values)
        ends_inside = first + index[1] <= window.start + window.extent
        if prove(first >= window.start, lifted.bounds) and prove(ends_inside, lifted.bounds):
            continue
        solved = _solved(lifted, index, window)
        if solved is None:
            raise refuse(
                f"`{lifted.ref}` reads `{region.buffer.name}` at `{index[0]}`, which one iteration does not make alone",
                lifted.ref,
            )
        if not (prove(index[0] >= ZERO, inside) and prove(index[0] < size, inside)):
            raise refuse(
                f"`{lifted.ref}` has points at which `{index[0]}` is no index of `{region.buffer.name}`; no iteration"
                " would compute them",
                lifted.ref,
            )
        found.append(solved)
    return found


def _solved(lifted: Lifted, index: tuple[Expr, Expr], window: Window) -> tuple[IterVar, Window] | None:
    for axis, own, kept in zip(lifted.block.axes, lifted.own, lifted.kept, strict=True):
        if is_point(index) and not kept:
            solved = axis_window(axis.var, index[0], window, own, lifted.bounds)
            if solved is not None:
                return axis, solved
    return None


_SEQUENTIAL = frozenset({LoopKind.SERIAL, LoopKind.UNROLLED})


def _check_reduction_order(lifted: Lifted, placed: Nest) -> None:
    """Checks that loops outside that drive a reduction of the block are sequential."""
    axes = zip(placed.block.axes, placed.block.bindings, strict=True)
    reduced = [(axis, binding) for axis, binding in axes if axis.kind is IterKind.REDUCE]
    concurrent = [loop.var for loop in lifted.new_loops if loop.kind not in _SEQUENTIAL] if reduced else []
    for axis, binding in reduced:
        if depends_on(binding, concurrent):
            raise refuse(
                f"`{axis.name}` of `{lifted.ref}` is a reduction, and a loop around it is not serial", lifted.ref
            )
