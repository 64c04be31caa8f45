"""``inline``: a block that computes a cheap value from the same place disappears into the blocks that read it.

Not what a stencil reads, which would be computed again for each of its points: that is left to the annotation.
"""

from tilewright.loops.ir import Block
from tilewright.schedule.tree import BlockRef, buffers_written, consumers
from tilewright.sketch.analysis import is_result, is_strictly_inlinable, operations, overlaps
from tilewright.sketch.rule import Answer, Draft


class Inline:
    """A ``SketchRule``."""

    name = "inline"

    def answer(self, draft: Draft, block: Block) -> Answer:
        """See ``SketchRule``."""
        program, written = draft.schedule.program, buffers_written(block)
        if is_result(program, block) or not is_strictly_inlinable(block):
            return Answer.SKIP
        is_repeated = any(written & overlaps(reader) for reader in consumers(program, block))
        return Answer.SKIP if is_repeated and operations(block) else Answer.APPLY_ALONE

    def variants(self, draft: Draft, block: Block) -> int:
        """See ``SketchRule``."""
        return 1

    def apply(self, draft: Draft, block: Block, variant: int) -> None:
        """See ``SketchRule``."""
        draft.schedule.compute_inline(BlockRef(block.name))
