"""``inline``: a block that computes a cheap value from the same place disappears into the blocks that read it."""

from tilewright.loops.ir import Block
from tilewright.schedule.tree import BlockRef
from tilewright.sketch.analysis import is_result, is_strictly_inlinable
from tilewright.sketch.rule import Answer, Draft


class Inline:
    """A ``SketchRule``."""

    name = "inline"

    def answer(self, draft: Draft, block: Block) -> Answer:
        """See ``SketchRule``."""
        kept = is_result(draft.schedule.program, block) or not is_strictly_inlinable(block)
        return Answer.SKIP if kept else Answer.APPLY_ALONE

    def variants(self, draft: Draft, block: Block) -> int:
        """See ``SketchRule``."""
        return 1

    def apply(self, draft: Draft, block: Block, variant: int) -> None:
        """See ``SketchRule``."""
        draft.schedule.compute_inline(BlockRef(block.name))
