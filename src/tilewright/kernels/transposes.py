"""Transposing blocks, whose reads are contiguous along another axis than their writes.

Such a block works on squares: it reads contiguous rows, and the code generator transposes them in registers as it
stores (``backend/cpu/transposition.py``).
"""

from tilewright.loops.ir import Block, Store
from tilewright.symbolic.domain import IterKind
from tilewright.symbolic.expr import Binary, Const, Expr, Read, Var
from tilewright.symbolic.linear import polynomial
from tilewright.symbolic.operations import BinaryOp
from tilewright.symbolic.traversal import free_vars, walk

LEAST_ROWS = 4
"""The smallest width of a square that is worth transposing: four words are the narrowest registers that there are
(SSE2, NEON)."""


def crossed_axis(block: Block, width: int) -> int | None:
    """The position of the axis along which all reads of ``block`` in its last dimension are contiguous; None if that is
    this dimension itself, or not one axis of about ``width`` points, or if there are few rows."""
    if not isinstance(block.body, Store) or not block.body.indices or block.init is not None:
        return None
    last = block.body.indices[-1]
    spatial = {axis.var: position for position, axis in enumerate(block.axes) if axis.kind is IterKind.SPATIAL}
    if len(spatial) != len(block.axes) or not isinstance(last, Var) or last not in spatial:
        return None
    moved = [node for node in walk(block.body.value) if isinstance(node, Read) and last in free_vars(node)]
    along = {_side_by_side(node.indices[-1], width) for node in moved if last not in free_vars(node.indices[-1])}
    if len(along) != 1 or any(last in free_vars(node.indices[-1]) for node in moved):
        return None
    (var,) = along
    extents = {axis.var: _extent(axis.extent) for axis in block.axes}
    if var is None or var not in spatial or 2 * extents[var] < width or extents[last] < LEAST_ROWS:
        return None
    return spatial[var]


def shortest_run(block: Block) -> int | None:
    """The elements along the last dimension of ``block`` that are side by side in all that it reads, if it reads blocks
    that are narrower than those it writes; else None."""
    if not isinstance(block.body, Store) or not block.body.indices:
        return None
    last = block.body.indices[-1]
    extent = next((_extent(axis.extent) for axis in block.axes if axis.var == last), 0)
    ends = [node.indices[-1] for node in walk(block.body.value) if isinstance(node, Read) and node.indices]
    runs = [run for end in ends if (run := _block_of(end, last))]
    return min((run for run in runs if run < extent), default=None)


def _block_of(index: Expr, last: Expr) -> int:
    """The width of the blocks in which ``index`` is the place of ``last``; 0 if it is none."""
    match index:
        case Binary(BinaryOp.MOD, place, Const(int(width))) if place == last:
            return width
        case _:
            return 0


def _side_by_side(index: Expr, width: int) -> Var | None:
    """The variable along which elements at ``index`` are contiguous, ``width`` at a time."""
    match index:
        case Binary(BinaryOp.MOD, Var() as var, Const(int(modulus))) if modulus % width == 0:
            return var
        case _:
            match [(monomial, factor) for monomial, factor in polynomial(index).items() if monomial]:
                case [((Var() as var,), 1)]:
                    return var
                case _:
                    return None


def _extent(extent: Expr) -> int:
    return int(extent.value) if isinstance(extent, Const) else 0
