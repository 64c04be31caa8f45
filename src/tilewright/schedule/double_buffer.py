"""``double_buffer``: loads the data of an iteration one iteration ahead, while the previous data is used.

``for ko: alloc S[8]; S[...] = A[ko]; use(S[...])`` becomes ``alloc S[2, 8]; S[0, ...] = A[0]; for ko: S[(ko + 1) % 2,
...] = A[ko + 1] where ko + 1 < n; use(S[ko % 2, ...])``. With threads, one barrier in each iteration is enough then.
"""

import dataclasses
from collections.abc import Sequence

from tilewright.base.names import fresh_name
from tilewright.loops.ir import Alloc, Block, Buffer, If, Loop, LoopKind, Stmt
from tilewright.loops.program import Program
from tilewright.loops.visit import rename_loops, seq, seq_items, substitute, transform_stmts
from tilewright.schedule.blocks import (
    Indices,
    axis_vars,
    bounds_within,
    map_parts,
    moved_accesses,
    recovered,
    refreshed,
    unallocated,
)
from tilewright.schedule.tree import (
    BlockRef,
    Location,
    LoopRef,
    all_blocks,
    block_at,
    bounds_at,
    bounds_inside,
    buffers_read,
    buffers_written,
    change_blocks,
    depends_on,
    fresh_block_name,
    fresh_buffer_name,
    loop_at,
    refuse,
    rewrite,
    substitute_loops,
    variable_names,
)
from tilewright.symbolic.bounds import Bounds, interval
from tilewright.symbolic.domain import IterKind, IterVar
from tilewright.symbolic.expr import ONE, ZERO, Expr, Var, const
from tilewright.symbolic.simplify import linear_form, prove, simplify
from tilewright.symbolic.traversal import all_of


def double_buffer(program: Program, block: BlockRef) -> tuple[Program, None]:
    """Compute the result of ``block`` one iteration ahead of the innermost serial loop around its buffer.

    Refuses unless the buffer is allocated in such a loop, written by ``block`` alone, in its own nest, from buffers
    that nothing else in the loop writes; and if a reader's axes do not determine the iteration.
    """
    place = block_at(program, block)
    buffer = _single_target(place)
    loop = _fetching_loop(program, place, buffer)
    _require_inputs(loop, place.stmt)
    bounds = bounds_inside(program, loop)
    halves = dataclasses.replace(
        buffer, name=fresh_buffer_name(program, buffer.name + "_2"), shape=(const(2), *buffer.shape)
    )
    ahead = _Ahead(program, loop, bounds, buffer, halves)
    producer = ahead.producer(place.stmt)
    body = change_blocks(
        unallocated(loop.stmt.body, buffer), lambda b: producer if b.name == block.name else ahead.reader(b)
    )
    fetch = next(item for item in _items(body) if any(b.name == block.name for b in all_blocks(item)))
    first = ahead.first(fetch, block)
    body = _replaced(body, fetch, ahead.next(fetch))
    return rewrite(program, loop, Alloc(halves, seq(first, dataclasses.replace(loop.stmt, body=body)))), None


def _single_target(place: Location[Block]) -> Buffer:
    block, ref = place.stmt, BlockRef(place.stmt.name)
    if any(isinstance(around, Block | If) for around in place.ancestors):
        raise refuse(f"`{ref}` is inside a condition or another block, and stays there", ref)
    if block.init is not None or any(axis.kind is not IterKind.SPATIAL for axis in block.axes):
        raise refuse(f"`{ref}` reduces, or is a recurrence: it can't run ahead", ref)
    written = buffers_written(block)
    if len(written) != 1 or written & buffers_read(block):
        raise refuse(f"`{ref}` must write one buffer, which it does not read, to be double-buffered", ref)
    return next(iter(written))


def _fetching_loop(program: Program, place: Location[Block], buffer: Buffer) -> Location[Loop]:
    """The loop that allocates ``buffer`` in each iteration."""
    ref, loop = BlockRef(place.stmt.name), None
    for ancestor in place.ancestors:
        if isinstance(ancestor, Loop):
            loop = ancestor
        elif isinstance(ancestor, Alloc) and ancestor.buffer == buffer:
            break
    else:
        loop = None
    if loop is None or loop.kind not in (LoopKind.SERIAL, LoopKind.UNROLLED):
        raise refuse(
            f"`{buffer.name}` is not allocated anew in each iteration of a serial loop; compute_at one first", ref
        )
    if loop.extent == ONE:
        raise refuse(f"`{loop.var}` runs once, and nothing is fetched ahead", LoopRef(loop.var.name))
    others = [b for b in all_blocks(loop) if b.name != place.stmt.name]
    writer = next((b for b in others if buffer in buffers_written(b)), None)
    if writer is not None:
        raise refuse(f"`{buffer.name}` is written by `{writer.name}` too", BlockRef(writer.name))
    fetch = next(item for item in _items(loop.body) if any(b.name == ref.name for b in all_blocks(item)))
    if len(all_blocks(fetch)) != 1:
        raise refuse(f"`{ref}` shares its nest with other blocks, which can't run ahead", ref)
    return loop_at(program, LoopRef(loop.var.name))


def _require_inputs(loop: Location[Loop], block: Block) -> None:
    """Checks that the operands of the next iteration's data are already available."""
    for other in all_blocks(loop.stmt):
        shared = buffers_written(other) & buffers_read(block)
        if shared:
            name = min(buffer.name for buffer in shared)
            reason = f"`{block.name}` reads `{name}`, which `{other.name}` writes in `{loop.stmt.var}`"
            raise refuse(reason, BlockRef(other.name))


def _items(body: Stmt) -> Sequence[Stmt]:
    """The statements of an iteration, inside of its allocations."""
    found: list[Stmt] = []
    for item in seq_items(body):
        found += _items(item.body) if isinstance(item, Alloc) else [item]
    return found


def _replaced(stmt: Stmt, old: Stmt, new: Stmt) -> Stmt:
    return transform_stmts(stmt, lambda node: new if node is old else None)


@dataclasses.dataclass(frozen=True, slots=True)
class _Ahead:
    """The change from one ``buffer`` for each iteration of ``loop`` to two ``halves`` for all of them."""

    program: Program
    loop: Location[Loop]
    bounds: Bounds
    buffer: Buffer
    halves: Buffer

    @property
    def _step(self) -> Var:
        return self.loop.stmt.var

    def producer(self, block: Block) -> Block:
        """``block`` with an ordered axis for the iteration, on which no other axis depends.

        Iterations write the same elements in turn, so their order stays.
        """
        (own,) = axis_vars(self.program, [f"v{self._step.name}"], [axis.name for axis in block.axes])
        axes = [IterVar(own, self.loop.stmt.extent, IterKind.ORDERED)]
        bindings: list[Expr] = [self._step]
        around = bounds_at(self.program, block_at(self.program, BlockRef(block.name)))
        values: dict[Var, Expr] = {}
        for axis, binding in zip(block.axes, block.bindings, strict=True):
            if not depends_on(binding, [self._step]):
                axes.append(axis)
                bindings.append(binding)
                continue
            factor = linear_form(binding, around).coefficient(self._step)
            rest = simplify(binding - self._step * factor, around)
            low, high = interval(rest, around)
            if depends_on(rest, [self._step]) or factor <= 0 or low is None or low < 0 or high is None:
                reason = f"axis `{axis.name}` of `{block.name}` does not rise evenly with `{self._step}`"
                raise refuse(reason, BlockRef(block.name))
            axes.append(IterVar(axis.var, const(high + 1), axis.kind))
            bindings.append(rest)
            values[axis.var] = own * factor + axis.var
        placed = dataclasses.replace(block, axes=tuple(axes), bindings=tuple(bindings))
        inside = refreshed(self.program, map_parts(placed, lambda stmt: substitute(stmt, values)))
        known = bounds_within(self.program, axes)

        def change(indices: Indices) -> Indices:
            return (own % 2, *(simplify(index, known) for index in indices))

        return moved_accesses(self.program, inside, self.buffer, self.halves, change)

    def reader(self, block: Block) -> Block:
        """``block`` reading the half of its iteration."""
        if self.buffer not in buffers_read(block):
            return block
        at = block_at(self.program, BlockRef(block.name))
        half = recovered(block, self._step, const(2), bounds_at(self.program, at))
        if half is None:
            reason = f"no axis of `{block.name}` tells which iteration of `{self._step}` it is in"
            raise refuse(reason, BlockRef(block.name))
        return moved_accesses(self.program, block, self.buffer, self.halves, lambda indices: (half, *indices))

    def first(self, fetch: Stmt, block: BlockRef) -> Stmt:
        """``fetch`` for the first iteration, with new names."""
        taken = variable_names(self.program)

        def fresh(name: str) -> str:
            taken.add(found := fresh_name(name, taken))
            return found

        name = fresh_block_name(self.program, f"{block.name}_first")
        stmt = rename_loops(substitute_loops(fetch, {self._step: ZERO}), fresh)
        return change_blocks(stmt, lambda b: self._guarded(dataclasses.replace(b, name=name), ZERO))

    def next(self, fetch: Stmt) -> Stmt:
        """``fetch`` for the iteration after this one, if there is one."""
        stmt = substitute_loops(fetch, {self._step: self._step + 1})
        return change_blocks(stmt, lambda b: self._guarded(b, self._step + ONE))

    def _guarded(self, block: Block, step: Expr) -> Block:
        condition = step < self.loop.stmt.extent
        if prove(condition, self.bounds):
            return block
        return dataclasses.replace(block, predicate=all_of(condition, block.predicate))
