"""Recurrences: whether the steps of an ordered axis are independent in the buffers that they write."""

from collections.abc import Set

from tilewright.loops.ir import Block, Buffer
from tilewright.symbolic.domain import IterVar
from tilewright.symbolic.expr import ONE, Binary, Const, Expr, Var
from tilewright.symbolic.operations import BinaryOp


def selects_a_row(block: Block, axis: IterVar, buffers: Set[Buffer]) -> bool:
    """Whether the steps of an ordered axis write different elements of ``buffers``, so that one step completes its own.

    True if the axis, plus a constant, is an index of each write.
    """
    own = [region for region in block.writes if region.buffer in buffers]
    return all(any(_follows(start, axis.var) and extent == ONE for start, extent in region.ranges) for region in own)


def _follows(start: Expr, var: Var) -> bool:
    match start:
        case Binary(BinaryOp.ADD | BinaryOp.SUB, a, Const()):
            return a == var
        case _:
            return start == var
