"""Dependences between iterations, from the signatures of blocks.

Two points of a block with different spatial axes write different elements. So the iterations of a loop may run at once
if the spatial bindings *determine* its variable (or the block writes only what is allocated inside the loop), if a
block that reads its own results (a scan) reads them at its own place, and if blocks pass values to each other only
within an iteration. The last two conditions also allow loops to be interchanged.
"""

from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass

from tilewright.loops.access import regions
from tilewright.loops.ir import Alloc, Block, Buffer, Loop, LoopKind, Region, Stmt
from tilewright.loops.memory import Sharing
from tilewright.loops.program import Program
from tilewright.loops.visit import walk
from tilewright.schedule.determination import determines
from tilewright.schedule.tree import (
    BlockRef,
    Location,
    blocks_in,
    bounds_below,
    buffers_read,
    buffers_written,
    depends_on,
    nest,
    places,
    refuse,
)
from tilewright.symbolic.bounds import Bounds, interval
from tilewright.symbolic.domain import IterKind, IterVar
from tilewright.symbolic.expr import Expr, Var
from tilewright.symbolic.simplify import equivalent, prove


@dataclass(frozen=True, slots=True)
class _Inside:
    """A block in a loop: the loops between, and the facts around it."""

    block: Block
    between: tuple[Loop, ...]
    """The loops from the loop itself to the block."""
    ancestors: tuple[Stmt, ...]
    """All loops around it."""


def _blocks_inside(place: Location[Loop]) -> Iterator[_Inside]:
    depth = len(place.loops)
    outermost = {block.name for block in blocks_in(place.stmt)}
    for found in places(place.stmt, Block, lambda s: s.name in outermost, place.ancestors, place.path):
        yield _Inside(found.stmt, found.loops[depth:], found.ancestors)


def _bound_axes(block: Block) -> Iterator[tuple[IterVar, Expr]]:
    return zip(block.axes, block.bindings, strict=True)


# Iterations at once --------------------------------------------------------------------------------------------------


def require_independent(program: Program, place: Location[Loop], kind: LoopKind) -> None:
    """Refuse if the iterations of the loop at ``place`` can't run at once, as a loop of ``kind``."""
    loop = place.stmt
    private = {stmt.buffer for stmt in walk(loop) if isinstance(stmt, Alloc)}
    for inside in _blocks_inside(place):
        _require_own_elements(program, inside, loop, private, kind)
        _require_worker_memory(inside.block, loop, private, kind)
        _require_own_history(inside, kind)
    require_own_values(program, place, (loop,))


def _require_own_elements(program: Program, inside: _Inside, loop: Loop, private: set[Buffer], kind: LoopKind) -> None:
    """Refuse if two iterations of ``loop`` may write one element of a buffer that they share."""
    block = inside.block
    shared = sorted(buffer.name for buffer in buffers_written(block) - private)
    if not shared:
        return
    bounds = bounds_below(program, inside.ancestors)
    driven = [axis for axis, binding in _bound_axes(block) if depends_on(binding, [loop.var])]
    is_single = interval(loop.extent, bounds).hi in (0, 1)
    if is_single and all(axis.kind is IterKind.SPATIAL for axis in driven):
        return
    spatial = [binding for axis, binding in _bound_axes(block) if axis.kind is IterKind.SPATIAL]
    varying = [inner.var for inner in inside.between]
    if determines(spatial, loop.var, varying, bounds):
        return
    raise refuse(
        f"`{loop.var}` can't be {kind.value}: block `{block.name}` writes {', '.join(shared)}, and"
        f" {_why_shared(driven)}",
        BlockRef(block.name),
    )


def _why_shared(driven: Sequence[IterVar]) -> str:
    for axis in driven:
        if axis.kind is IterKind.REDUCE:
            return f"the loop drives its reduction axis `{axis.name}`, so all add to the same elements; use rfactor"
        if axis.kind is IterKind.ORDERED:
            return f"the loop drives its ordered axis `{axis.name}`: each step needs the one before"
    if driven:
        names = ", ".join(f"`{axis.name}`" for axis in driven)
        return f"the loop's iterations overlap in {names}"
    return "the loop drives none of its axes: all iterations would compute the same elements"


def _require_worker_memory(block: Block, loop: Loop, private: set[Buffer], kind: LoopKind) -> None:
    """Refuse if workers would share a buffer that is private to one of them."""
    for region in (*block.reads, *block.writes):
        buffer = region.buffer
        if kind is LoopKind.PARALLEL and buffer.memory.sharing is Sharing.THREAD and buffer not in private:
            raise refuse(
                f"`{loop.var}` can't be parallel: block `{block.name}` uses {buffer.name}, which is local to one worker"
                " but allocated outside of the loop; compute its producer inside, or set its scope to global",
                BlockRef(block.name),
            )


def _require_own_history(inside: _Inside, kind: LoopKind) -> None:
    """Refuse if steps of an ordered axis run inside and read elements that other iterations write."""
    driving = [loop.var for loop in inside.between]
    ordered = [a for a, e in _bound_axes(inside.block) if a.kind is IterKind.ORDERED and depends_on(e, driving)]
    if ordered and not _reads_own_place(inside.block):
        raise refuse(
            f"`{driving[0]}` can't be {kind.value}: the steps of the ordered axis `{ordered[0].name}` of block"
            f" `{inside.block.name}` run inside, and read elements that other iterations write",
            BlockRef(inside.block.name),
        )


def _reads_own_place(block: Block) -> bool:
    """Whether ``block`` reads its own results only where it writes them, apart from ordered axes."""
    ordered = [axis.var for axis in block.axes if axis.kind is IterKind.ORDERED]
    written = {region.buffer: region.ranges for region in block.writes}
    for read in block.reads:
        own = written.get(read.buffer, ())
        for (start, extent), (own_start, own_extent) in zip(read.ranges, own, strict=False):
            if not depends_on(own_start, ordered) and (start != own_start or extent != own_extent):
                return False
    return True


# Another order -------------------------------------------------------------------------------------------------------


def require_free_order(place: Location[Loop], before: Sequence[Loop], after: Sequence[Loop]) -> None:
    """Refuse if the loops ``before`` can't run in the order ``after``, because of ordered axes of a block inside."""
    position = {loop.var: i for i, loop in enumerate(after)}
    for block in blocks_in(place.stmt):
        _require_zero_point_first(block, before, position)
        for axis, binding in _bound_axes(block):
            if axis.kind is not IterKind.ORDERED:
                continue
            steps = [loop.var for loop in before if depends_on(binding, [loop.var])]
            if sorted(steps, key=lambda var: position[var]) != steps:
                names = ", ".join(f"`{var}`" for var in steps)
                raise refuse(
                    f"{names} drive the ordered axis `{axis.name}`, and must keep their order", BlockRef(block.name)
                )
            if _crosses(steps, before, position) and not _reads_own_place(block):
                raise refuse(
                    f"block `{block.name}` reads, at each step of its ordered axis `{axis.name}`, elements that other"
                    " iterations write; the loops that drive it must stay where they are",
                    BlockRef(block.name),
                )


def _require_zero_point_first(block: Block, before: Sequence[Loop], position: dict[Var, int]) -> None:
    """Refuse if a reduction whose loops also drive spatial axes (they were fused) would start at another iteration."""
    if block.init is None:
        return
    reduced = [binding for axis, binding in _bound_axes(block) if axis.kind is IterKind.REDUCE]
    others = [binding for axis, binding in _bound_axes(block) if axis.kind is not IterKind.REDUCE]
    driving = [loop.var for loop in before if any(depends_on(binding, [loop.var]) for binding in reduced)]
    mixed = [binding for binding in others if depends_on(binding, driving)]
    together = [loop.var for loop in before if loop.var in driving or any(depends_on(b, [loop.var]) for b in mixed)]
    if mixed and sorted(together, key=lambda var: position[var]) != together:
        names = ", ".join(f"`{var}`" for var in together)
        raise refuse(
            f"{names} drive spatial and reduction axes of `{block.name}` together (some were fused), and its init runs"
            " at the first point of the reduction; decompose_reduction first, or keep their order",
            BlockRef(block.name),
        )


def _crosses(steps: Sequence[Var], before: Sequence[Loop], position: dict[Var, int]) -> bool:
    """Whether one of ``steps`` is interchanged with another loop."""
    others = [loop.var for loop in before if loop.var not in steps]
    was = {loop.var: i for i, loop in enumerate(before)}
    return any((was[s] < was[o]) != (position[s] < position[o]) for s in steps for o in others)


# Values passed between blocks ----------------------------------------------------------------------------------------


def require_own_values(program: Program, place: Location[Loop], fixed: Sequence[Loop]) -> None:
    """Refuse if a block at ``place`` reads values that another one writes in another iteration of the loops ``fixed``.

    ``fixed`` are the outermost loops at ``place``, in a perfect nest. Buffers allocated inside do not count.
    """
    private = {stmt.buffer for stmt in walk(place.stmt) if isinstance(stmt, Alloc)}
    inside = list(_blocks_inside(place))
    if not _share([item.block for item in inside], private):
        return
    bounds = bounds_below(program, (*place.ancestors, *fixed))
    variables = [loop.var for loop in fixed]
    touched = [_touched(item, len(fixed), bounds) for item in inside]
    for first, (_, writes) in enumerate(touched):
        for second, (reads, other_writes) in enumerate(touched):
            for buffer in (writes.keys() - private) if first != second else ():
                own = writes[buffer]
                is_kept = buffer not in reads or (first < second and _covers(own, reads[buffer], bounds))
                if buffer in other_writes:
                    is_kept = is_kept and _same_slice(own, other_writes[buffer], variables, bounds)
                if not is_kept:
                    raise refuse(
                        f"block `{inside[second].block.name}` touches elements of {buffer.name} that block"
                        f" `{inside[first].block.name}` writes in another iteration",
                        BlockRef(inside[second].block.name),
                    )


def _share(blocks: Sequence[Block], private: Set[Buffer]) -> bool:
    """Whether any block accesses a buffer, other than ``private`` ones, that another block writes."""
    for block in blocks:
        written = buffers_written(block) - private
        if any(written & (buffers_read(other) | buffers_written(other)) for other in blocks if other is not block):
            return True
    return False


def _touched(inside: _Inside, fixed: int, bounds: Bounds) -> tuple[dict[Buffer, Region], dict[Buffer, Region]]:
    """The regions that a block reads and writes in one iteration of the first ``fixed`` loops around it."""
    found = regions(nest(inside.between[fixed:], inside.block), bounds)
    return {r.buffer: r for r in found.reads}, {r.buffer: r for r in found.writes}


def _covers(outer: Region, inner: Region, bounds: Bounds) -> bool:
    return all(
        prove(start <= first, bounds) and prove(first + count <= start + extent, bounds)
        for (start, extent), (first, count) in zip(outer.ranges, inner.ranges, strict=True)
    )


def _same_slice(a: Region, b: Region, fixed: Sequence[Var], bounds: Bounds) -> bool:
    """Whether two regions agree in all dimensions in which they move with the loops ``fixed``."""
    return all(
        (equivalent(start, first, bounds) and equivalent(extent, count, bounds))
        for (start, extent), (first, count) in zip(a.ranges, b.ranges, strict=True)
        if depends_on(start, fixed) or depends_on(first, fixed)
    )
