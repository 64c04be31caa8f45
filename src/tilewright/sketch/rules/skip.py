"""``skip``: a block stays as it is; where it is computed, and its lanes, are left to the annotation."""

from tilewright.loops.ir import Block
from tilewright.sketch.rule import Answer, Draft


class Skip:
    """A ``SketchRule``."""

    name = "skip"

    def answer(self, draft: Draft, block: Block) -> Answer:
        """See ``SketchRule``."""
        return Answer.APPLY

    def variants(self, draft: Draft, block: Block) -> int:
        """See ``SketchRule``."""
        return 1

    def apply(self, draft: Draft, block: Block, variant: int) -> None:
        """See ``SketchRule``."""
        draft.done.add(block.name)
