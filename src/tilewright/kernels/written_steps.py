"""Steps of a contraction's reduction that are written out: counting them, and jumping back, takes instructions.

Where a product and the broadcast of its operand are two instructions, those of a tile fill most of what a core starts
in a cycle, and more than a thread's part of it where two threads share the core.
"""

from collections.abc import Sequence

from tilewright.loops.ir import Block
from tilewright.symbolic.domain import IterKind, IterVar
from tilewright.symbolic.expr import ONE, Const
from tilewright.symbolic.traversal import free_vars


def most_steps(block: Block, rows: int | None, most: int) -> int:
    """How many steps of the last loop of the reduction of ``block`` may be written out: a power of two, which is
    at most ``most``, itself one. 0 if none divides all steps, or their number is known at run time only.

    None either where the axis ``rows`` of a tile slides along that loop, over the taps of a window: what several rows
    read in different steps would be kept in registers that there are not.
    """
    last = last_loop(block)
    if last is None or (rows is not None and _slides(block, block.axes[rows], block.axes[last])):
        return 0
    return _steps(block.axes[last], most)


def last_loop(block: Block) -> int | None:
    """The last axis of the reduction of ``block`` that has more than one step; None if there is none."""
    loops = [p for p, axis in enumerate(block.axes) if axis.kind is IterKind.REDUCE and axis.extent != ONE]
    return loops[-1] if loops else None


def _slides(block: Block, *axes: IterVar) -> bool:
    """Whether ``block`` reads at an index that depends on all of ``axes``."""
    wanted = {axis.var for axis in axes}
    return any(wanted <= free_vars(start) for region in block.reads for start, _ in region.ranges)


def with_written_steps(
    block: Block, reduction: Sequence[int], most: int
) -> tuple[tuple[int, ...], dict[int, int], int]:
    """The order of the loops of the ``reduction`` of ``block``, those of one iteration first; the iterations of the
    part that is split from the innermost one, unless all of it is written out; how many loops are written out."""
    ordered = sorted(reduction, key=lambda place: block.axes[place].extent != ONE)
    innermost = block.axes[ordered[-1]]
    count = _steps(innermost, most)
    is_whole = isinstance(innermost.extent, Const) and int(innermost.extent.value) == count
    parts = {ordered[-1]: count} if count and not is_whole else {}
    return tuple(ordered), parts, 1 if count else 0


def _steps(axis: IterVar, most: int) -> int:
    """The largest power of two that divides the extent of ``axis`` and is at most ``most``; 0 if that is 1. Of other
    numbers of steps LLVM moves all broadcasts before the first product, and then has no registers for them."""
    extent = int(axis.extent.value) if isinstance(axis.extent, Const) else 1
    count = min(extent & -extent, most)
    return count if count > 1 else 0
