"""Estimates the work of a loop's iteration, which decides how often the loop checks for a request to stop.

A check is two loads and a compare; with a check in every n-th iteration, the others test the counter. The cost must be
well below 1 % of the loop's, and the delay until a stop short.
"""

from tilewright.loops.ir import Alloc, If, Loop, LoopKind, Seq, Stmt, Store, Stores
from tilewright.loops.visit import walk
from tilewright.symbolic.expr import Const
from tilewright.target.machine import GUESSED_EXTENT

POLLED_STORES = 512
"""The minimum number of stores between two checks, approximately."""
_LONG = 1 << 20
"""Stores that take some milliseconds: loops with fewer need no check."""
_BUSY = 16
"""Stores of an iteration that make the cost of a counter test negligible, however short the loop is."""
_LANES = 16
"""Maximum elements stored by one vector instruction."""


def look_period(loop: Loop) -> int | None:
    """The interval of checks of a serial loop: 1 each iteration, 4 every fourth (a power of two), None no checks.

    A loop that is known to be over soon has none, but those around it: a check in a loop over a reduction would have
    the sums leave the registers.
    """
    stores = _stores(loop.body, POLLED_STORES)
    lengths = (each.extent for each in walk(loop) if isinstance(each, Loop))
    if all(isinstance(length, Const) for length in lengths) and _stores(loop, _LONG) < _LONG:
        return None
    if stores >= POLLED_STORES:
        return 1
    turns, least = (int(loop.extent.value), _LONG) if isinstance(loop.extent, Const) else (1, _BUSY)
    return 1 << (-(-POLLED_STORES // stores) - 1).bit_length() if turns * stores >= least else None


def _stores(stmt: Stmt, enough: int) -> int:
    """The number of stores that ``stmt`` executes, with all lanes as one; counted up to ``enough``."""
    match stmt:
        case Store():
            return 1
        case Stores(stores):
            return len(stores)
        case Seq(statements):
            total = 0
            for inner in statements:
                total += _stores(inner, enough - total)
                if total >= enough:
                    break
            return total
        case Loop():
            turns = _turns(stmt)
            return turns * _stores(stmt.body, -(-enough // turns)) if turns else 0
        case If(_, then, otherwise):
            return max(_stores(then, enough), 0 if otherwise is None else _stores(otherwise, enough))
        case Alloc():
            return _stores(stmt.body, enough)
        case _:
            return 1


def _turns(loop: Loop) -> int:
    if not isinstance(loop.extent, Const):
        return GUESSED_EXTENT
    extent = max(0, int(loop.extent.value))
    return -(-extent // _LANES) if loop.kind is LoopKind.VECTORIZED else extent
