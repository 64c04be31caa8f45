"""Moves a block from its nest to another loop: common code of ``compute_at`` and ``reverse_compute_at``."""

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from tilewright.loops.ir import NOTHING, Alloc, Block, Buffer, If, Loop, Stmt
from tilewright.loops.program import Program
from tilewright.loops.visit import seq, seq_items
from tilewright.schedule.blocks import guard
from tilewright.schedule.determination import undetermined
from tilewright.schedule.region import Window, Windows, domain
from tilewright.schedule.tree import (
    BlockRef,
    Location,
    LoopRef,
    Refusal,
    all_blocks,
    block_at,
    bounds_at,
    bounds_inside,
    buffers_of,
    buffers_read,
    buffers_written,
    depends_on,
    fresh_loop_vars,
    loop_at,
    nest,
    places,
    refuse,
    rewrite,
)
from tilewright.symbolic.bounds import Bounds
from tilewright.symbolic.domain import IterKind, IterVar
from tilewright.symbolic.expr import ONE, TRUE, ZERO, Binary, Expr, Var
from tilewright.symbolic.operations import BinaryOp
from tilewright.symbolic.simplify import prove, simplify
from tilewright.symbolic.traversal import all_of, conjuncts, free_vars


@dataclass(frozen=True, slots=True)
class Lifted:
    """A block taken out of its nest, to be moved into another loop."""

    original: Program
    program: Program
    """The program without the block."""
    block: Block
    target: Location[Loop]
    """The target loop, in ``program``."""
    own: Windows
    """The ranges of its axes at the old place, for fixed values of the loops that stay around it."""
    kept: tuple[bool, ...]
    """For each axis: whether only loops that stay around the block determine it."""
    inner: frozenset[Var]
    """The old loops that do not stay around it."""
    bounds: Bounds
    """Facts in the body of the target loop."""

    @property
    def ref(self) -> BlockRef:
        return BlockRef(self.block.name)

    @property
    def new_loops(self) -> tuple[Loop, ...]:
        """The loops around the new place that are not around the old one."""
        old = {loop.var for loop in block_at(self.original, self.ref).loops}
        around = (*self.target.loops, self.target.stmt)
        return tuple(loop for loop in around if loop.var not in old)


def lift(program: Program, block: BlockRef, loop: LoopRef, *, within_step: bool = False) -> Lifted:
    """Take ``block`` out of its nest, to move it into ``loop``. Refuses if its place can't change.

    A block with ordered axes (part of a recurrence) may only move with ``within_step``: the loops that drive these axes
    are around it before and after.
    """
    place = block_at(program, block)
    if any(isinstance(a, Block | If) for a in place.ancestors):
        raise refuse(f"`{block}` is inside a condition or another block, and stays there", block)
    if not within_step and any(axis.kind is IterKind.ORDERED for axis in place.stmt.axes):
        raise _stays_in_sequence(block)
    if any(isinstance(a, Block) for a in loop_at(program, loop).ancestors):
        raise refuse(f"the loop `{loop}` is inside a block, which is opaque to the schedule", loop)
    without = rewrite(program, place, NOTHING)
    target = next(places(without.body, Loop, lambda s: s.var.name == loop.name), None)
    if target is None:
        raise refuse(f"the loop `{loop}` has nothing inside but `{block}` itself", loop)
    around = {target.stmt.var, *(outer.var for outer in target.loops)}
    inner = [own for own in place.loops if own.var not in around]
    bounds = bounds_inside(without, target)
    kept = tuple(not depends_on(binding, [own.var for own in inner]) for binding in place.stmt.bindings)
    if any(axis.kind is IterKind.ORDERED and not stays for axis, stays in zip(place.stmt.axes, kept, strict=True)):
        raise _stays_in_sequence(block)
    own = domain(place.stmt, inner, bounds)
    return Lifted(program, without, place.stmt, target, own, kept, frozenset(loop.var for loop in inner), bounds)


def _stays_in_sequence(block: BlockRef) -> Refusal:
    return refuse(f"`{block}` has ordered axes (a recurrence), which run in sequence where they are", block)


@dataclass(frozen=True, slots=True)
class Nest:
    """A block in new loops."""

    stmt: Stmt
    block: Block
    loops: tuple[Loop, ...]

    @property
    def refs(self) -> tuple[LoopRef, ...]:
        return tuple(LoopRef(loop.var.name) for loop in self.loops)


def nest_over(lifted: Lifted, windows: Sequence[Window]) -> Nest:
    """The block in a new loop for each axis, over its window; axes determined by the loops around keep their binding.

    Its new points are a subset of the old ones, as its buffers may have shrunk.
    """
    block = lifted.block
    free = [axis for axis, kept in zip(block.axes, lifted.kept, strict=True) if not kept]
    fresh = iter(fresh_loop_vars(lifted.program, [_loop_name(block, axis) for axis in free]))
    loops: list[Loop] = []
    bindings: list[Expr] = []
    for binding, window, kept in zip(block.bindings, windows, lifted.kept, strict=True):
        if kept:
            bindings.append(binding)
        else:
            loops.append(Loop(next(fresh), window.extent, NOTHING))
            bindings.append(window.start + loops[-1].var)
    inside = lifted.bounds.extended({loop.var: loop.extent for loop in loops})
    predicate = _predicate(lifted, bindings, inside)
    placed = dataclasses.replace(block, bindings=tuple(bindings), predicate=predicate)
    return Nest(nest(loops, placed), placed, tuple(loops))


def _predicate(lifted: Lifted, bindings: Sequence[Expr], bounds: Bounds) -> Expr:
    """The condition that the axes, with their new ``bindings``, have values that they had at the old place."""
    placed = list(zip(lifted.block.axes, bindings, lifted.own, lifted.kept, strict=True))
    own = guard([(b - window.start, window.extent) for _, b, window, kept in placed if not kept], bounds)
    domains = guard([(b, axis.extent) for axis, b, _, _ in placed], bounds)
    needed: list[Expr] = []
    for condition in (*_old_conditions(lifted, bindings, bounds), *conjuncts(own), *conjuncts(domains)):
        if not prove(condition, bounds.assuming(*needed)):
            needed.append(condition)
    return all_of(*needed)


def _old_conditions(lifted: Lifted, bindings: Sequence[Expr], bounds: Bounds) -> Iterator[Expr]:
    """The old predicate over the new ``bindings``, without the part on old loops only, which is in ``own``."""
    block = lifted.block
    for condition in conjuncts(block.predicate):
        used = free_vars(condition)
        if used.isdisjoint(lifted.inner):
            yield condition
        elif not used <= lifted.inner | lifted.bounds.dims.keys():
            yield _over(lifted, condition, bindings, bounds)


def _over(lifted: Lifted, condition: Expr, bindings: Sequence[Expr], bounds: Bounds) -> Expr:
    """``condition`` with its sum of old loops, found in the binding of an axis, replaced by the new binding."""
    old = block_at(lifted.original, lifted.ref)
    known = bounds_at(lifted.original, old)
    match condition:
        case Binary(BinaryOp.LT | BinaryOp.LE | BinaryOp.GT | BinaryOp.GE, a, b):
            for past, after in zip(lifted.block.bindings, bindings, strict=True):
                sides = [simplify(side - past, known) for side in (a, b)]
                rest = [side for side in sides if free_vars(side).isdisjoint(lifted.inner)]
                other = b if rest and rest[0] is sides[0] else a
                if rest and free_vars(other).isdisjoint(lifted.inner):
                    new = simplify(rest[0] + after, bounds)
                    return Binary(condition.op, new, b) if other is b else Binary(condition.op, a, new)
        case _:
            pass
    axes = zip(old.stmt.bindings, old.stmt.axes, strict=True)
    if prove(condition, known.assuming(*(c for v, axis in axes for c in (v >= ZERO, v < axis.extent)))):
        return TRUE
    raise refuse(f"`{lifted.ref}` has the condition `{condition}` on loops that it leaves, and stays there", lifted.ref)


def _loop_name(block: Block, axis: IterVar) -> str:
    """``i`` for the axis ``vi``; if only a number remains, as in axes of copies, ``T_copy_0`` for ``v0``."""
    name = axis.name.removeprefix("v")
    return name if name.isidentifier() else f"{block.name}_{name}"


def insert_before(body: Stmt, holds: Callable[[Stmt], bool], new: Stmt) -> Stmt:
    """``body`` with ``new`` before the first statement for which ``holds``; inside allocations, not inside loops."""
    return _inserted(body, new, lambda items: min(_places(items, holds)), 0)


def insert_after(body: Stmt, holds: Callable[[Stmt], bool], new: Stmt) -> Stmt:
    """``body`` with ``new`` after the last statement for which ``holds``; inside allocations, not inside loops."""
    return _inserted(body, new, lambda items: max(_places(items, holds)), 1)


def _places(items: Sequence[Stmt], holds: Callable[[Stmt], bool]) -> Iterator[int]:
    return (place for place, item in enumerate(items) if holds(item))


def _inserted(body: Stmt, new: Stmt, find: Callable[[Sequence[Stmt]], int], behind: int) -> Stmt:
    """``body`` with ``new`` ``behind`` positions after the statement that ``find`` chooses."""
    if isinstance(body, Alloc):
        return Alloc(body.buffer, _inserted(body.body, new, find, behind))
    items = list(seq_items(body))
    place = find(items)
    if isinstance(items[place], Alloc):
        items[place] = _inserted(items[place], new, find, behind)
        return seq(*items)
    return seq(*items[: place + behind], new, *items[place + behind :])


def put(lifted: Lifted, body: Stmt) -> Program:
    """The program with ``body``, which contains the block, in the target loop. Refuses if the move changes a value."""
    target = lifted.target
    program = rewrite(lifted.program, target, dataclasses.replace(target.stmt, body=body))
    _check_order(lifted, program)
    check_scopes(program, lifted.ref)
    return program


def _check_order(lifted: Lifted, program: Program) -> None:
    """Checks that no block that the move crosses accesses its values."""
    block = block_at(program, lifted.ref).stmt
    moved_over = before(lifted.original, block.name) ^ before(program, block.name)
    for other in all_blocks(program.body):
        if other.name not in moved_over:
            continue
        shared = buffers_written(other) & (buffers_read(block) | buffers_written(block))
        shared |= buffers_read(other) & buffers_written(block)
        if shared:
            names = ", ".join(sorted(f"`{buffer.name}`" for buffer in shared))
            raise refuse(f"`{block.name}` can't move across `{other.name}`: both use {names}", BlockRef(other.name))


def check_each_once(program: Program, block: BlockRef) -> None:
    """Checks that no point of the block is computed again while the buffers that it writes are allocated."""
    place = block_at(program, block)
    bounds = bounds_at(program, place)
    for buffer in buffers_written(place.stmt):
        inside = loops_since_allocation(place, buffer)
        if any(loop.extent == ZERO for loop in inside):
            continue
        varying = [loop.var for loop in inside if loop.extent != ONE and not prove(loop.extent <= 1, bounds)]
        free = _free(place.stmt.bindings, varying, bounds)
        if free:
            reason = f"iterations of `{free[0]}` would store the same elements of `{buffer.name}` again"
            raise refuse(reason, LoopRef(free[0].name))


def _free(bindings: Sequence[Expr], varying: Sequence[Var], bounds: Bounds) -> Sequence[Var]:
    """The variables that the values of ``bindings`` do not determine."""
    while True:
        # Determined variables are fixed for the others.
        found = undetermined(bindings, varying, varying, bounds)
        if not found or len(found) == len(varying):
            return found
        varying = found


def loops_since_allocation(place: Location[Block], buffer: Buffer) -> list[Loop]:
    """The loops around ``place`` in which ``buffer`` keeps its contents between iterations."""
    loops: list[Loop] = []
    for ancestor in place.ancestors:
        if isinstance(ancestor, Loop):
            loops.append(ancestor)
        elif isinstance(ancestor, Alloc) and ancestor.buffer.name == buffer.name:
            loops.clear()
    return loops


def before(program: Program, name: str) -> set[str]:
    """The names of the blocks before the block ``name``, in program order."""
    names = [block.name for block in all_blocks(program.body)]
    return set(names[: names.index(name)])


def check_scopes(program: Program, block: BlockRef) -> None:
    """Refuse unless all buffers that the block uses are in scope at its place."""
    place = block_at(program, block)
    present = {*(p.name for p in program.params), *(a.buffer.name for a in place.ancestors if isinstance(a, Alloc))}
    for buffer in buffers_read(place.stmt) | buffers_written(place.stmt):
        if buffer.name not in present:
            raise refuse(f"`{buffer.name}`, which `{block}` would use, is not allocated around it", block)


def intermediate(program: Program, buffer: Buffer) -> bool:
    """Whether ``buffer`` is allocated in the program (not a parameter)."""
    return buffer in buffers_of(program).values() and buffer not in program.params
