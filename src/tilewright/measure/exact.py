"""What is right where float32 is not enough: long sums of a reference are added up in float64.

A naive program adds a million numbers one by one, and is off by more than a candidate with partial sums may be. So the
programs that say what is right keep such sums in wider buffers, and round them once.
"""

from contextlib import suppress
from dataclasses import replace
from math import prod

from tilewright.base.dtypes import DType, Kind
from tilewright.loops.ir import Block, Buffer, Stmt, Store
from tilewright.loops.memory import GLOBAL
from tilewright.loops.program import Program
from tilewright.loops.visit import transform_exprs, transform_stmts
from tilewright.schedule.cache import cache_write
from tilewright.schedule.tree import BlockRef, Refusal, all_blocks, block_at
from tilewright.symbolic.domain import IterKind
from tilewright.symbolic.expr import Binary, Const, Expr, Read, cast
from tilewright.symbolic.operations import BinaryOp
from tilewright.symbolic.traversal import transform_reads

LONG = 1 << 12
"""Additions from which on a chain counts as long. (A million squares of normal numbers, added one by one, are off by
2.2e-4: more than the tolerance of ``workload``.)"""
_WIDE = DType(Kind.FLOAT, 64)


def with_exact_sums(naive: Program) -> Program:
    """``naive``, in which each element that is a sum of ``LONG`` numbers or more is added up in float64."""
    result = naive
    for block in all_blocks(naive.body):
        if _is_long_sum(block):
            with suppress(Refusal):  # what is not written by this block alone stays as it is
                result = _widened(result, BlockRef(block.name), block.writes[0].buffer)
    return result


def _is_long_sum(block: Block) -> bool:
    steps = [axis.extent for axis in block.axes if axis.kind is IterKind.REDUCE]
    match block.body:
        case Store(buffer, indices, Binary(BinaryOp.ADD, Read(source, read), _)) if (source, read) == (buffer, indices):
            is_float = buffer.dtype.kind is Kind.FLOAT and buffer.dtype.bits < _WIDE.bits
        case _:
            return False
    return is_float and prod(int(step.value) for step in steps if isinstance(step, Const)) >= LONG


def _widened(program: Program, block: BlockRef, buffer: Buffer) -> Program:
    """``program`` in which ``block`` writes a copy of ``buffer`` in float64, which is then rounded."""
    cached, _ = cache_write(program, block, buffer.name, GLOBAL)
    narrow = block_at(cached, block).stmt.writes[0].buffer
    wide = replace(narrow, dtype=_WIDE)

    def exact(stmt: Stmt) -> Stmt | None:
        match stmt:
            case Store(written, indices, Binary(BinaryOp.ADD, Read(source) as before, added)) if source == narrow:
                return Store(written, indices, Read(wide, before.indices) + cast(added, _WIDE))
            case Store(written, indices, value) if written == narrow:
                return Store(written, indices, cast(value, _WIDE))
            case _:
                return None

    def rounded(expr: Expr) -> Expr:
        return transform_reads(expr, lambda read: _rounded(read, narrow, wide))

    body = transform_exprs(transform_stmts(cached.body, exact), rounded, lambda b: wide if b == narrow else b)
    return replace(cached, body=body)


def _rounded(read: Read, narrow: Buffer, wide: Buffer) -> Expr | None:
    return cast(Read(wide, read.indices), narrow.dtype) if read.source == narrow else None
