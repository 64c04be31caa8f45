"""``inline``: a block that computes a cheap value from the same place disappears into the blocks that read it.

Not what a stencil reads, which would be computed again for each of its points: that is left to the annotation. Small
matrices of constants are inlined too, and, where there are threads, all values that are no sums.
"""

from tilewright.base.errors import ScheduleError
from tilewright.loops.ir import Block
from tilewright.schedule.tree import BlockRef, buffers_written, consumers
from tilewright.sketch.analysis import (
    is_constant,
    is_ordered,
    is_reduction,
    is_result,
    is_strictly_inlinable,
    operations,
    overlaps,
)
from tilewright.sketch.rule import Answer, Draft


class Inline:
    """A ``SketchRule``."""

    name = "inline"

    def answer(self, draft: Draft, block: Block) -> Answer:
        """See ``SketchRule``."""
        program = draft.schedule.program
        if is_result(program, block):
            return Answer.SKIP
        if is_constant(program, block) or (draft.structure.has_threads and _may_be(draft, block)):
            return Answer.APPLY_ALONE
        if not is_strictly_inlinable(block):
            return Answer.SKIP
        is_repeated = any(buffers_written(block) & overlaps(reader) for reader in consumers(program, block))
        return Answer.SKIP if is_repeated and operations(block) else Answer.APPLY_ALONE

    def variants(self, draft: Draft, block: Block) -> int:
        """See ``SketchRule``."""
        return 1

    def apply(self, draft: Draft, block: Block, variant: int) -> None:
        """See ``SketchRule``."""
        draft.schedule.compute_inline(BlockRef(block.name))


def _may_be(draft: Draft, block: Block) -> bool:
    """Whether the primitive takes it."""
    if is_reduction(block) or is_ordered(block):
        return False
    try:
        draft.schedule.copy().compute_inline(BlockRef(block.name))
    except ScheduleError:
        return False
    return True
