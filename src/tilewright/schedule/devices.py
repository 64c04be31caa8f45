"""Primitives for targets with a grid of threads or explicit memories. Every one of them is refused so far.

They are here so that a schedule written for such a target fails where it says so, and says why.
"""

from tilewright.loops.program import Program
from tilewright.schedule.tree import BlockRef, LoopRef, block_at, loop_at, refuse


def bind(program: Program, loop: LoopRef, thread: str) -> tuple[Program, None]:
    """Run the iterations of ``loop`` as ``thread`` of a grid (``blockIdx.x``, ``threadIdx.x``, ``vthread`` ...)."""
    loop_at(program, loop)
    raise refuse(f"binding a loop to {thread} needs a GPU target, and there is none; use parallel or vectorize", loop)


def double_buffer(program: Program, block: BlockRef) -> tuple[Program, None]:
    """Compute what ``block`` writes one iteration ahead, in a second buffer."""
    block_at(program, block)
    raise refuse("double buffering needs a target with asynchronous copies, and there is none", block)


def storage_align(
    program: Program, block: BlockRef, buffer: str, axis: int, factor: int, offset: int
) -> tuple[Program, None]:
    """Pad the stride of dimension ``axis`` of ``buffer`` to ``offset`` modulo ``factor`` elements."""
    block_at(program, block)
    raise refuse(
        f"aligning dimension {axis} of `{buffer}` to {factor} * n + {offset} needs a target with memory banks, and"
        " there is none; transform_layout can pad",
        block,
    )
