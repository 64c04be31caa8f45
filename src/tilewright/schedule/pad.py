"""``pad``: rounds the iteration domain of a block up to multiples, so that it splits without predicates.

Reads beyond a buffer's end come from a copy with zeros (or the reducer's identity) there; writes beyond the end of an
output go to a larger buffer, whose valid part is copied. (``pad_einsum`` of TensorIR.)
"""

import dataclasses
from collections.abc import Mapping, Sequence

from tilewright.loops.access import region_over
from tilewright.loops.ir import Alloc, Block, Buffer, Loop, Region, Stmt
from tilewright.loops.program import Program
from tilewright.loops.visit import replace_buffers, seq, transform_stmts
from tilewright.schedule.blocks import bounds_within, copy_nest, refreshed
from tilewright.schedule.cache import around, check_defined, redirected_blocks
from tilewright.schedule.combiner import combiner_of
from tilewright.schedule.placing import intermediate
from tilewright.schedule.tree import (
    BlockRef,
    LoopRef,
    all_blocks,
    block_at,
    blocks_in,
    buffers_read,
    buffers_written,
    depends_on,
    fresh_block_name,
    fresh_buffer_name,
    loop_at,
    refuse,
)
from tilewright.symbolic.bounds import Bounds
from tilewright.symbolic.domain import IterKind, IterVar
from tilewright.symbolic.expr import TRUE, Binary, Cast, Const, Expr, Read, Select, Var, const, maximum, select
from tilewright.symbolic.folding import Scalar
from tilewright.symbolic.operations import BinaryOp
from tilewright.symbolic.simplify import prove, simplify
from tilewright.symbolic.traversal import all_of


def pad(program: Program, block: BlockRef, multiples: Sequence[int]) -> tuple[Program, tuple[BlockRef, ...]]:
    """Round the extent of each axis of ``block`` up to a multiple (1: unchanged); returns the new copying blocks.

    Refuses if an axis has no loop of its own (pad before ``split``), and if padded points of a reduction would change
    its result: each must read a padded element in every factor of a product, or be a bare read.
    """
    place = block_at(program, block)
    old = place.stmt
    if len(multiples) != len(old.axes) or any(m < 1 for m in multiples):
        raise refuse(f"`{block}` has {len(old.axes)} axes; give a multiple of at least 1 for each", block)
    axes = tuple(_rounded(program, axis, m) for axis, m in zip(old.axes, multiples, strict=True))
    grown = {a.var: a for a, b in zip(axes, old.axes, strict=True) if a.extent != b.extent}
    if not grown:
        return program, ()
    for axis, binding in zip(old.axes, old.bindings, strict=True):
        if axis.var in grown:
            _check_own_loop(program, old, axis, binding)
    updated = buffers_read(old) & buffers_written(old)
    if old.init is None and updated and any(axis.kind is not IterKind.REDUCE for axis in grown.values()):
        names = ", ".join(sorted(buffer.name for buffer in updated))
        raise refuse(f"`{block}` updates {names}, which nothing initializes at padded points", block)
    return _Padding(program, old, axes, grown).result()


def _rounded(program: Program, axis: IterVar, multiple: int) -> IterVar:
    extent = simplify((axis.extent + (multiple - 1)) // multiple * multiple, program.bounds)
    return axis if prove(extent <= axis.extent, program.bounds) else IterVar(axis.var, extent, axis.kind)


def _check_own_loop(program: Program, block: Block, axis: IterVar, binding: Expr) -> None:
    ref = BlockRef(block.name)
    if axis.kind is IterKind.ORDERED:
        raise refuse(f"`{axis.name}` is ordered: its last step is the recurrence's last", ref)
    if not isinstance(binding, Var) or block.predicate != TRUE:
        raise refuse(f"the axis `{axis.name}` is driven by `{binding}`; pad before its loop is split or fused", ref)
    loop = loop_at(program, LoopRef(binding.name)).stmt
    if len(blocks_in(loop)) != 1:
        raise refuse(f"other blocks than `{block.name}` are inside of its loop", LoopRef(binding.name))


class _Padding:
    """``block`` with the axes ``axes``, of which those in ``grown`` are larger than before."""

    def __init__(self, program: Program, block: Block, axes: tuple[IterVar, ...], grown: Mapping[Var, IterVar]) -> None:
        self._program = program
        self._block = block
        # The regions of an axis of extent 1 do not mention it, so they are recomputed.
        self._padded = refreshed(program, dataclasses.replace(block, axes=axes))
        self._grown = grown

    def result(self) -> tuple[Program, tuple[BlockRef, ...]]:
        value = self._pad_value()
        program = self._with_loops()
        made: list[BlockRef] = []
        for region in self._padded.reads:
            shape = self._needed(region)
            if region.buffer in buffers_written(self._block):
                continue
            if shape != region.buffer.shape:
                program, ref = _padded_read(program, self._block.name, region.buffer, shape, value)
                made.append(ref)
            elif any(depends_on(start, list(self._grown)) for start, _ in region.ranges):
                check_defined(program, region.buffer)
        for region in self._padded.writes:
            shape = self._needed(region)
            if shape != region.buffer.shape:
                self._check_only_writer(region.buffer)
                program, refs = _padded_write(program, region.buffer, shape)
                made.extend(refs)
        return program, tuple(made)

    def _check_only_writer(self, buffer: Buffer) -> None:
        """Checks that no other block initializes the buffer, as it would not initialize padded elements."""
        for other in all_blocks(self._program.body):
            if buffer in buffers_written(other) and other.name != self._block.name:
                reason = f"`{buffer.name}` is written by `{other.name}` too, which is not padded"
                raise refuse(reason, BlockRef(other.name))

    def _with_loops(self) -> Program:
        """The program with the block's axes and loops grown."""
        padded = self._padded
        extents = {b: a.extent for a, b in zip(padded.axes, padded.bindings, strict=True) if a.var in self._grown}

        def leave(node: Stmt) -> Stmt | None:
            if isinstance(node, Loop) and node.var in extents:
                return dataclasses.replace(node, extent=extents[node.var])
            return padded if isinstance(node, Block) and node.name == padded.name else None

        return dataclasses.replace(self._program, body=transform_stmts(self._program.body, leave))

    def _reach(self, region: Region, block: Block) -> Region:
        """``region`` over all points of the axes of ``block``."""
        return region_over(region, bounds_within(self._program, block.axes), [axis.var for axis in block.axes])

    def _needed(self, region: Region) -> tuple[Expr, ...]:
        """The shape of the region's buffer that contains the grown domain."""
        known = self._program.bounds
        whole, old = self._reach(region, self._padded), self._reach(region, self._block)
        for (start, _), (old_start, _) in zip(whole.ranges, old.ranges, strict=True):
            if not prove(start >= old_start, known):
                raise refuse(f"padded points would use `{region.buffer.name}` from {start} on, not from {old_start}")
        ends = (simplify(start + extent, known) for start, extent in whole.ranges)
        pairs = zip(ends, region.buffer.shape, strict=True)
        return tuple(size if prove(end <= size, known) else simplify(maximum(end, size), known) for end, size in pairs)

    def _pad_value(self) -> Scalar:
        """The value of padded elements: one that leaves the result of a reduction unchanged."""
        reduced = [axis for axis in self._block.axes if axis.kind is IterKind.REDUCE and axis.var in self._grown]
        if not reduced:
            return 0
        combiner = combiner_of(self._block)
        identity = combiner.identities[0]
        ref = BlockRef(self._block.name)
        if len(combiner.sources) != 1 or not isinstance(identity, Const):
            raise refuse(f"`{self._block.name}` reduces several values together, which padding would change", ref)
        source = combiner.sources[0]
        for axis in reduced:
            is_neutral = _is_padded(source, axis) or (identity == const(0, identity.dtype) and _is_zero(source, axis))
            if not is_neutral:
                raise refuse(f"padded points of `{axis.name}` would not combine {identity}, but {source}", ref)
        return identity.value


def _is_padded(expr: Expr, axis: IterVar) -> bool:
    """Whether ``expr`` reads a padded element at the padded points of ``axis``."""
    if not isinstance(expr, Read):
        return False
    return any(i == axis.var and size == axis.extent for i, size in zip(expr.indices, expr.source.shape, strict=True))


def _is_zero(expr: Expr, axis: IterVar) -> bool:
    """Whether ``expr`` is 0 at the padded points of ``axis``, if padded elements are. (0 * inf is not.)"""
    match expr:
        case Binary(BinaryOp.MUL, a, b) if expr.dtype.is_float:
            return _is_zero(a, axis) and _is_zero(b, axis)
        case Binary(BinaryOp.MUL, a, b):
            return _is_zero(a, axis) or _is_zero(b, axis)
        case Cast(a, _):
            return _is_zero(a, axis)
        case Const(value):
            return value == 0
        case Select(_, a, b):
            return _is_zero(a, axis) and _is_zero(b, axis)
        case _:
            return _is_padded(expr, axis)


def _padded_read(
    program: Program, reader: str, source: Buffer, shape: tuple[Expr, ...], value: Scalar
) -> tuple[Program, BlockRef]:
    """The block ``reader`` with a copy of ``source`` of the larger ``shape``, filled with ``value``."""
    check_defined(program, source)
    name = fresh_buffer_name(program, f"{source.name}_pad")
    target = Buffer(name, source.dtype, shape, source.memory)
    block = fresh_block_name(program, name)
    copy = _padding_nest(program, block, target, source, value)

    def change(stmt: Stmt) -> Stmt:
        return Alloc(target, seq(copy, redirected_blocks(program, stmt, {reader}, source, target)))

    return around(program, source, {reader}, change), BlockRef(block)


def _padding_nest(program: Program, name: str, target: Buffer, source: Buffer, value: Scalar) -> Stmt:
    """``target[...] = source[...]``, or ``value`` beyond its shape."""

    def padded(read: Expr, indices: tuple[Var, ...]) -> Expr:
        known = Bounds(dict(zip(indices, target.shape, strict=True)), {d.var: d.bound for d in program.dims})
        inside = (i < size for i, size in zip(indices, source.shape, strict=True))
        return select(all_of(*(c for c in inside if not prove(c, known))), read, const(value, source.dtype))

    return copy_nest(program, name, target, source, padded)


def _padded_write(program: Program, buffer: Buffer, shape: tuple[Expr, ...]) -> tuple[Program, tuple[BlockRef, ...]]:
    """The blocks that write ``buffer`` write a larger one; its valid part is copied to an output."""
    if intermediate(program, buffer):
        larger = dataclasses.replace(buffer, shape=shape)
        return dataclasses.replace(program, body=replace_buffers(program.body, {buffer: larger})), ()
    target = Buffer(fresh_buffer_name(program, f"{buffer.name}_pad"), buffer.dtype, shape, buffer.memory)
    block = fresh_block_name(program, f"{buffer.name}_copy")
    copy = copy_nest(program, block, buffer, target)
    writers = {other.name for other in all_blocks(program.body) if buffer in buffers_written(other)}

    def change(stmt: Stmt) -> Stmt:
        return Alloc(target, seq(redirected_blocks(program, stmt, writers, buffer, target), copy))

    return around(program, buffer, writers, change), (BlockRef(block),)
