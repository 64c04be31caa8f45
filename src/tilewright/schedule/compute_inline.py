"""``compute_inline`` and ``reverse_compute_inline``: merge a block into its consumers, or into its producer."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass

from tilewright.loops.ir import NOTHING, Block, Buffer, Stmt, Store
from tilewright.loops.program import Program
from tilewright.loops.visit import mentions, own_exprs, transform_exprs, walk
from tilewright.schedule.blocks import bounds_within, calls_in, map_parts, parts, refreshed, unallocated
from tilewright.schedule.placing import before, check_scopes, intermediate
from tilewright.schedule.tree import (
    BlockRef,
    all_blocks,
    block_at,
    buffers_read,
    buffers_written,
    change_blocks,
    normalize,
    refuse,
    rewrite,
)
from tilewright.symbolic.domain import IterKind
from tilewright.symbolic.expr import ONE, ZERO, Expr, Read, Var
from tilewright.symbolic.sharing import DEEPEST, MOST_INLINED, MOST_NODES, MOST_OF_SMALL, SMALL, size_of
from tilewright.symbolic.simplify import equivalent, simplify
from tilewright.symbolic.traversal import free_vars, reads_in, substitute, transform_reads


def compute_inline(program: Program, block: BlockRef) -> tuple[Program, None]:
    """Replace every read of ``block``'s result by the value that it computes; remove the block and its buffer.

    Refuses unless the block stores one value at its own axes (no reduction) in a buffer that is not an output, or if
    the values that read it would get too large. A block without readers may compute in any way.
    """
    place = block_at(program, block)
    if is_unread(program, place.stmt):
        result = rewrite(program, place, NOTHING)
        for buffer in buffers_written(place.stmt):
            result = _without_buffer(result, buffer, block)
        return result, None
    mapped = _mapped(program, place.stmt)
    without = rewrite(program, place, NOTHING)
    readers = {b.name for b in all_blocks(without.body) if mapped.buffer in buffers_read(b)}
    _check_value_stays(program, place.stmt, readers)
    most = _most(without, mapped)

    def inlined(reader: Block) -> Stmt:
        if reader.name not in readers:
            return reader
        if any(region.buffer == mapped.buffer for call in calls_in(reader) for region in call.args):
            raise refuse(f"`{reader.name}` passes `{mapped.buffer.name}` to an intrinsic", BlockRef(reader.name))
        return _replaced(without, reader, mapped, most)

    body = change_blocks(without.body, inlined)
    result = _without_buffer(dataclasses.replace(without, body=body), mapped.buffer, block)
    for reader in readers:
        check_scopes(result, BlockRef(reader))
    return result, None


def is_unread(program: Program, block: Block) -> bool:
    """Whether only ``block`` uses its result, so that removing it changes nothing."""
    written = buffers_written(block)
    others = [b for b in all_blocks(program.body) if b.name != block.name]
    used = {buffer for other in others for buffer in (*buffers_read(other), *buffers_written(other))}
    return not written & used and all(intermediate(program, buffer) for buffer in written)


def reverse_compute_inline(program: Program, block: BlockRef) -> tuple[Program, None]:
    """Let the producer of ``block`` store the value that ``block`` computes; remove the block and the buffer between.

    Refuses unless the block stores one value at its own axes, and reads, at the same indices, one buffer of which it is
    the only reader and which one block without a reduction writes. (For reductions: ``cache_write`` and
    ``reverse_compute_at``.)
    """
    place = block_at(program, block)
    reader = place.stmt
    store = _single_store(reader)
    producer, between = _only_producer(program, reader)
    indices = _read_indices(reader, between)
    made = producer.body
    if producer.init is not None or any(axis.kind is not IterKind.SPATIAL for axis in producer.axes):
        reason = f"`{producer.name}` is a reduction; use cache_write and reverse_compute_at"
        raise refuse(reason, BlockRef(producer.name))
    if not isinstance(made, Store):
        raise refuse(f"`{producer.name}` is no single store", BlockRef(producer.name))
    _check_whole(program, reader, between, indices)
    _check_inputs_ready(program, reader, producer, between)
    values = {v: e for v, e in zip(indices, made.indices, strict=True) if isinstance(v, Var)}
    values |= {axis.var: ZERO for axis in reader.axes if axis.var not in values}
    wanted = substitute(store.value, values)
    value = _with_value(wanted, between, made.value)
    _check_size(producer, between, value, MOST_INLINED)
    target = tuple(substitute(index, values) for index in store.indices)
    bounds = bounds_within(program, producer.axes)
    body = Store(store.buffer, tuple(simplify(i, bounds) for i in target), simplify(value, bounds))
    merged = refreshed(program, dataclasses.replace(producer, body=body))
    without = rewrite(program, place, NOTHING)
    changed = change_blocks(without.body, lambda b: merged if b.name == producer.name else b)
    result = _without_buffer(dataclasses.replace(without, body=changed), between, block)
    check_scopes(result, BlockRef(producer.name))
    return result, None


# The value of a producer ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Mapped:
    """``buffer[axes] = value`` for all elements."""

    buffer: Buffer
    axes: tuple[Expr, ...]
    value: Expr

    def at(self, indices: tuple[Expr, ...]) -> Expr:
        values = {axis: index for axis, index in zip(self.axes, indices, strict=True) if isinstance(axis, Var)}
        return substitute(self.value, values)


def _mapped(program: Program, block: Block) -> _Mapped:
    store = _single_store(block)
    ref = BlockRef(block.name)
    if not intermediate(program, store.buffer):
        raise refuse(f"`{store.buffer.name}` is an output, and must be stored", ref)
    other = [b.name for b in all_blocks(program.body) if store.buffer in buffers_written(b) and b.name != block.name]
    if other:
        raise refuse(f"`{store.buffer.name}` is written by `{other[0]}` too", BlockRef(other[0]))
    if store.buffer in buffers_read(block):
        raise refuse(f"`{block.name}` reads what it writes", ref)
    free = [axis for axis in block.axes if axis.var not in store.indices]
    for axis in free:
        if axis.extent != ONE and axis.var in free_vars(store.value):
            raise refuse(f"its elements are computed anew for each `{axis.name}`, as after compute_at", ref)
    value = substitute(store.value, {axis.var: ZERO for axis in free})
    return _Mapped(store.buffer, store.indices, value)


def _single_store(block: Block) -> Store:
    """The store of a block that only stores one value at its own axes."""
    ref = BlockRef(block.name)
    reduced = [axis.name for axis in block.axes if axis.kind is not IterKind.SPATIAL]
    if block.init is not None or reduced:
        raise refuse(f"`{block.name}` is a reduction or recurrence (axis {', '.join(reduced)})", ref)
    if not isinstance(block.body, Store):
        raise refuse(f"`{block.name}` is no single store", ref)
    indices = block.body.indices
    variables = [index for index in indices if index != ZERO]
    own = {axis.var: axis.extent for axis in block.axes}
    sizes = dict(zip(indices, block.body.buffer.shape, strict=True))
    distinct = len(set(variables)) == len(variables)
    if not distinct or not all(isinstance(v, Var) and own.get(v) == sizes[v] for v in variables):
        shown = ", ".join(map(str, indices))
        raise refuse(f"`{block.name}` does not store at its own axes, but at [{shown}]", ref)
    return block.body


def _check_value_stays(program: Program, block: Block, readers: set[str]) -> None:
    """Checks that the operands of the block do not change until its value is used."""
    earlier = before(program, block.name)
    for other in all_blocks(program.body):
        changed = buffers_written(other) & buffers_read(block)
        if changed and other.name not in earlier and other.name != block.name:
            names = ", ".join(buffer.name for buffer in changed)
            raise refuse(f"`{other.name}` writes {names} after `{block.name}` has read it", BlockRef(other.name))


def _replaced(program: Program, reader: Block, mapped: _Mapped, most: int) -> Block:
    bounds = bounds_within(program, reader.axes)

    def value(node: Read) -> Expr | None:
        return mapped.at(node.indices) if node.source == mapped.buffer else None

    def change(expr: Expr) -> Expr:
        changed = transform_reads(expr, value)
        if changed is not expr:
            _check_size(reader, mapped.buffer, changed, most)
        return simplify(changed, bounds)

    return refreshed(program, map_parts(reader, lambda part: transform_exprs(part, change)))


def _most(program: Program, mapped: _Mapped) -> int:
    """The size limit of a value of ``program`` with ``mapped`` inlined in it."""
    if _reads_of(program, mapped.buffer) == 1:
        return MOST_NODES
    return MOST_OF_SMALL if size_of(mapped.value).nodes <= SMALL else MOST_INLINED


def _reads_of(program: Program, buffer: Buffer) -> int:
    """The number of reads of ``buffer`` in values and indices: copies of its value after inlining."""
    blocks = [block for block in all_blocks(program.body) if buffer in buffers_read(block)]
    exprs = (e for block in blocks for stmt in walk(parts(block)) for e in own_exprs(stmt) if e.has_reads)
    return sum(1 for expr in exprs for read in reads_in(expr) if read.source == buffer)


def _check_size(reader: Block, buffer: Buffer, value: Expr, most: int) -> None:
    """The product of copies over several inlining steps: it grows exponentially."""
    size = size_of(value)
    if size.nodes > most or size.depth > DEEPEST:
        reason = f"with `{buffer.name}` in it, what `{reader.name}` computes would be {size}; use compute_at instead"
        raise refuse(reason, BlockRef(reader.name))


# The value of a consumer ---------------------------------------------------------------------------------------------


def _only_producer(program: Program, reader: Block) -> tuple[Block, Buffer]:
    """The block that writes an intermediate buffer which only ``reader`` reads, and that buffer."""
    reasons: list[str] = []
    for buffer in sorted(buffers_read(reader), key=lambda b: b.name):
        writers = [b for b in all_blocks(program.body) if buffer in buffers_written(b)]
        own = {reader.name, *(b.name for b in writers)}
        others = [b.name for b in all_blocks(program.body) if buffer in buffers_read(b) and b.name not in own]
        if not intermediate(program, buffer) or not writers:
            continue
        if len(writers) > 1:
            reasons.append(f"`{buffer.name}` has several writers")
        elif others:
            reasons.append(f"`{others[0]}` reads `{buffer.name}` too")
        else:
            return writers[0], buffer
    raise refuse("; ".join(reasons) or f"`{reader.name}` reads no intermediate buffer", BlockRef(reader.name))


def _read_indices(reader: Block, between: Buffer) -> tuple[Expr, ...]:
    found: set[tuple[Expr, ...]] = set()

    def note(node: Read) -> None:
        if node.source == between:
            found.add(node.indices)

    transform_exprs(reader.body, lambda expr: transform_reads(expr, note))
    if len(found) != 1:
        raise refuse(f"`{reader.name}` reads `{between.name}` at several places", BlockRef(reader.name))
    return found.pop()


def _check_whole(program: Program, reader: Block, between: Buffer, indices: tuple[Expr, ...]) -> None:
    """Checks that the reader's domain is exactly the elements of the buffer."""
    ref = BlockRef(reader.name)
    extents: Mapping[Expr, Expr] = {axis.var: axis.extent for axis in reader.axes}
    own = [index for index in indices if index != ZERO]
    if len(set(own)) != len(own) or not all(index in extents for index in own):
        shown = ", ".join(map(str, indices))
        raise refuse(f"`{reader.name}` reads `{between.name}` at [{shown}], not just at its own axes", ref)
    for axis in reader.axes:
        if axis.var not in own and axis.extent != ZERO + 1:
            raise refuse(f"`{reader.name}` reads each element of `{between.name}` for all `{axis.name}`", ref)
    for index, size in zip(indices, between.shape, strict=True):
        if not equivalent(extents.get(index, ZERO + 1), size, program.bounds):
            raise refuse(f"`{reader.name}` reads only a part of `{between.name}`", ref)


def _check_inputs_ready(program: Program, reader: Block, producer: Block, between: Buffer) -> None:
    earlier = before(program, producer.name)
    needed = buffers_read(reader) - {between}
    late = before(program, reader.name) - earlier - {producer.name}
    for other in all_blocks(program.body):
        used = buffers_read(other) | buffers_written(other)
        shared = buffers_written(other) & needed | used & buffers_written(reader)
        if shared and other.name in late:
            names = ", ".join(buffer.name for buffer in shared)
            reason = f"`{other.name}` uses {names} between `{producer.name}` and `{reader.name}`"
            raise refuse(reason, BlockRef(other.name))


def _with_value(expr: Expr, buffer: Buffer, value: Expr) -> Expr:
    """``expr`` with the reads of ``buffer`` replaced by ``value``."""
    return transform_reads(expr, lambda node: value if node.source == buffer else None)


def _without_buffer(program: Program, buffer: Buffer, block: BlockRef) -> Program:
    """The program without the allocation of ``buffer``, which nothing uses any more."""
    body = normalize(unallocated(program.body, buffer))
    if mentions(body, buffer):
        raise refuse(f"`{buffer.name}` is also used outside of blocks", block)
    return dataclasses.replace(program, body=body)
