"""Crops a padded buffer to the part of it that is read: less is written, and less memory is between what is read."""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from tilewright.loops.ir import Alloc, Block, Buffer, Loop, Stmt, Store
from tilewright.loops.program import Program
from tilewright.loops.visit import transform_stmts, walk
from tilewright.schedule.blocks import bounds_within, redirected, refreshed
from tilewright.schedule.tree import BlockRef, all_blocks, block_at, blocks_in, buffers_read, buffers_written
from tilewright.symbolic.domain import IterVar
from tilewright.symbolic.expr import TRUE, Const, Expr, Select, const, select
from tilewright.symbolic.simplify import prove
from tilewright.symbolic.traversal import all_of, conjuncts, substitute

Kept: TypeAlias = tuple[tuple[int, int], ...]
"""The first element that is kept of each dimension, and the one after the last."""


def cropped(program: Program, buffer: Buffer, kept: Kept) -> Program:
    """``program`` in which ``buffer`` holds only the elements in ``kept``: all that are read.

    Unchanged unless one block reads it, and one with a loop for each dimension writes it.
    """
    blocks = all_blocks(program.body)
    writers = [block for block in blocks if buffer in buffers_written(block)]
    readers = [block for block in blocks if buffer in buffers_read(block)]
    is_private = any(isinstance(stmt, Alloc) and stmt.buffer == buffer for stmt in walk(program.body))
    if len(writers) != 1 or len(readers) != 1 or not is_private or not _is_plain(program, writers[0]):
        return program
    crop = _Crop(program, buffer, writers[0], readers[0], kept)
    return dataclasses.replace(program, body=transform_stmts(program.body, crop.change))


def _is_plain(program: Program, writer: Block) -> bool:
    """Whether each axis of ``writer`` is a dimension of its result, with a loop of its own around this block alone."""
    loops = block_at(program, BlockRef(writer.name)).loops
    if writer.init is not None or writer.predicate != TRUE or not isinstance(writer.body, Store):
        return False
    if writer.bindings != tuple(loop.var for loop in loops) or any(len(blocks_in(loop)) > 1 for loop in loops):
        return False
    return writer.body.indices == tuple(axis.var for axis in writer.axes)


@dataclass(frozen=True, slots=True)
class _Crop:
    program: Program
    buffer: Buffer
    writer: Block
    reader: Block
    kept: Kept

    @property
    def smaller(self) -> Buffer:
        return dataclasses.replace(self.buffer, shape=tuple(const(end - start) for start, end in self.kept))

    def change(self, stmt: Stmt) -> Stmt | None:
        match stmt:
            case Alloc(buffer, body) if buffer == self.buffer:
                return Alloc(self.smaller, body)
            case Loop(var, _, body, kind) if var in self.writer.bindings:
                start, end = self.kept[self.writer.bindings.index(var)]
                return Loop(var, const(end - start), body, kind)
            case Block(name=self.writer.name):
                return self._written()
            case Block(name=self.reader.name):
                body = redirected(stmt.body, self.buffer, self.smaller, self._moved)
                return refreshed(self.program, dataclasses.replace(stmt, body=body))
            case _:
                return None

    def _written(self) -> Block:
        axes = tuple(_shortened(axis, pair) for axis, pair in zip(self.writer.axes, self.kept, strict=True))
        moved = {axis.var: axis.var + start for axis, (start, _) in zip(axes, self.kept, strict=True)}
        store = self.writer.body
        assert isinstance(store, Store), "a padded buffer is written by one store"
        value = _decided(substitute(store.value, moved), self.program, axes)
        block = dataclasses.replace(self.writer, axes=axes, body=Store(self.smaller, store.indices, value))
        return refreshed(self.program, block)

    def _moved(self, indices: tuple[Expr, ...]) -> tuple[Expr, ...]:
        return tuple(index - start for index, (start, _) in zip(indices, self.kept, strict=True))


def _shortened(axis: IterVar, kept: tuple[int, int]) -> IterVar:
    return dataclasses.replace(axis, extent=const(kept[1] - kept[0]))


def _decided(value: Expr, program: Program, axes: Sequence[IterVar]) -> Expr:
    """``value`` without conditions that always hold in the smaller box."""
    if not isinstance(value, Select):
        return value
    bounds = bounds_within(program, axes)
    return select(all_of(*(part for part in conjuncts(value.condition) if not prove(part, bounds))), value.a, value.b)


def whole(buffer: Buffer) -> Kept | None:
    """All elements, if their number is known."""
    if not all(isinstance(extent, Const) for extent in buffer.shape):
        return None
    return tuple((0, int(str(extent))) for extent in buffer.shape)
