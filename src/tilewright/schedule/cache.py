"""``cache_read`` and ``cache_write``: give a block a copy of a buffer, with its own place, layout and scope.

First, the copy has full size and its own root nest; ``compute_at`` (of a read cache) or ``reverse_compute_at`` (of a
write cache) moves it to a loop and shrinks it. (Chen et al., OSDI 2018.)
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence, Set

from tilewright.loops.ir import Alloc, Block, Buffer, Loop, Stmt
from tilewright.loops.memory import Memory
from tilewright.loops.program import Program
from tilewright.loops.visit import seq, seq_items
from tilewright.schedule.blocks import copy_nest, moved_accesses
from tilewright.schedule.tree import (
    BlockRef,
    all_blocks,
    block_at,
    buffers_of,
    buffers_read,
    buffers_written,
    change_blocks,
    fresh_block_name,
    fresh_buffer_name,
    places,
    refuse,
    rewrite,
)
from tilewright.symbolic.expr import ONE, ZERO, Expr


def cache_read(program: Program, readers: Sequence[BlockRef], buffer: str, scope: Memory) -> tuple[Program, BlockRef]:
    """``readers`` read a copy of ``buffer`` in ``scope``; returns the copying block, placed before all of them.

    Refuses if a reader does not read the buffer, or also writes it, and if the buffer is not fully written.
    """
    source = buffer_named(program, buffer)
    names = {reader.name for reader in readers}
    if not names:
        raise refuse("a copy that nobody reads is not made; name its readers")
    for block in readers:
        reader = block_at(program, block).stmt
        if source not in buffers_read(reader):
            raise refuse(f"`{block}` does not read `{buffer}`", block)
        if source in buffers_written(reader):
            raise refuse(f"`{block}` writes `{buffer}` too, so it can't read a copy of it", block)
    check_defined(program, source)
    target = _cached(program, source, scope)
    name = fresh_block_name(program, target.name)
    copy = copy_nest(program, name, target, source)

    def cached(stmt: Stmt) -> Stmt:
        rival = next((b for b in all_blocks(stmt) if source in buffers_written(b)), None)
        if rival is not None:
            raise refuse(f"`{rival.name}` writes `{buffer}` in the same nest, so there is no place for a copy between")
        return Alloc(target, seq(copy, redirected_blocks(program, stmt, names, source, target)))

    return around(program, source, names, cached), BlockRef(name)


def cache_write(program: Program, block: BlockRef, buffer: str, scope: Memory) -> tuple[Program, BlockRef]:
    """``block`` writes a copy of ``buffer`` in ``scope``; returns the block that copies it back, placed after it.

    All other blocks that write the buffer (a hoisted init) write the copy too; readers still read the buffer. Refuses
    if ``block`` does not write the buffer, if it is not fully written, and if blocks in the same nest read the buffer
    before the copy is complete.
    """
    writer = block_at(program, block)
    source = buffer_named(program, buffer)
    if source not in buffers_written(writer.stmt):
        raise refuse(f"`{block}` does not write `{buffer}`", block)
    check_defined(program, source)
    target = _cached(program, source, scope)
    name = fresh_block_name(program, f"{source.name}_copy")
    copy = copy_nest(program, name, source, target)
    writers = {other.name for other in all_blocks(program.body) if source in buffers_written(other)}

    def cached(stmt: Stmt) -> Stmt:
        early = next((b for b in all_blocks(stmt) if b.name not in writers and source in buffers_read(b)), None)
        if early is not None:
            reason = f"`{early.name}` reads `{buffer}` in the same nest, before a copy is complete"
            raise refuse(reason, BlockRef(early.name))
        return Alloc(target, seq(redirected_blocks(program, stmt, writers, source, target), copy))

    return around(program, source, writers, cached), BlockRef(name)


def buffer_named(program: Program, name: str) -> Buffer:
    """The buffer ``name``. Refuses if the program has none of that name."""
    known = buffers_of(program)
    if name not in known:
        raise refuse(f"there is no buffer `{name}`; the buffers are: {', '.join(known)}")
    return known[name]


def _cached(program: Program, source: Buffer, scope: Memory) -> Buffer:
    return dataclasses.replace(source, name=fresh_buffer_name(program, f"{source.name}_{scope.name}"), memory=scope)


def check_defined(program: Program, buffer: Buffer) -> None:
    """Checks that no element is undefined (in the tail of a tile, or in padding of a layout): a copy reads all."""
    for at in places(program.body, Alloc, lambda s: s.buffer == buffer):
        if any(isinstance(a, Loop) for a in at.ancestors):
            raise refuse(f"`{buffer.name}` lives inside of a loop, partly undefined; cache it before it is moved there")
    writers = [block for block in all_blocks(program.body) if buffer in buffers_written(block)]
    if writers and not any(_writes_all(block, buffer) for block in writers):
        raise refuse(f"parts of `{buffer.name}` may be undefined; cache it before its layout is transformed")


def _writes_all(block: Block, buffer: Buffer) -> bool:
    """Whether the block stores at its own axes, over the whole buffer."""
    extents: Mapping[Expr, Expr] = {axis.var: axis.extent for axis in block.axes}
    for region in block.writes:
        starts = [start for start, _ in region.ranges if start != ZERO]
        if region.buffer == buffer and len(set(starts)) == len(starts):
            pairs = zip(region.ranges, buffer.shape, strict=True)
            return all((s == ZERO and e == size) or (e == ONE and extents.get(s) == size) for (s, e), size in pairs)
    return False


def redirected_blocks(program: Program, stmt: Stmt, names: Set[str], source: Buffer, target: Buffer) -> Stmt:
    """``stmt`` with the blocks ``names`` using ``target`` instead of ``source``."""

    def change(block: Block) -> Stmt:
        return moved_accesses(program, block, source, target) if block.name in names else block

    return change_blocks(stmt, change)


def around(program: Program, buffer: Buffer, names: Set[str], change: Callable[[Stmt], Stmt]) -> Program:
    """The program with ``change`` applied to the nests with the blocks ``names``, in the scope of ``buffer``."""
    at = next(places(program.body, Alloc, lambda s: s.buffer == buffer), None)
    if at is not None:
        return rewrite(program, at, _around_nests(at.stmt, names, change))
    return dataclasses.replace(program, body=_around_nests(program.body, names, change))


def _around_nests(stmt: Stmt, names: Set[str], change: Callable[[Stmt], Stmt]) -> Stmt:
    if isinstance(stmt, Alloc):
        return Alloc(stmt.buffer, _around_nests(stmt.body, names, change))
    items = list(seq_items(stmt))
    held = [i for i, item in enumerate(items) if any(block.name in names for block in all_blocks(item))]
    first, last = held[0], held[-1]
    if first == last and isinstance(items[first], Alloc):
        items[first] = _around_nests(items[first], names, change)
    else:
        changed = change(seq(*items[first : last + 1]))
        if isinstance(changed, Alloc):  # for the rest of the suite, so that its readers may move into later nests
            return seq(*items[:first], Alloc(changed.buffer, seq(changed.body, *items[last + 1 :])))
        items[first : last + 1] = [changed]
    return seq(*items)
