"""``special_location``: what a sum with constants reads is computed at its innermost place, in registers.

For targets with blocks and threads; on CPUs, the annotation asks for that place among others.
"""

from tilewright.loops.ir import Block
from tilewright.schedule.tree import BlockRef, consumers
from tilewright.sketch.analysis import is_ordered, is_reduction, is_result
from tilewright.sketch.rule import Answer, Draft


class SpecialLocation:
    """A ``SketchRule``."""

    name = "special_location"

    def answer(self, draft: Draft, block: Block) -> Answer:
        """See ``SketchRule``."""
        readers = consumers(draft.schedule.program, block)
        is_plain = not (is_reduction(block) or is_ordered(block) or is_result(draft.schedule.program, block))
        wanted = is_plain and len(readers) == 1 and readers[0].name in draft.written
        return Answer.APPLY_ALONE if wanted else Answer.SKIP

    def variants(self, draft: Draft, block: Block) -> int:
        """See ``SketchRule``."""
        return 1

    def apply(self, draft: Draft, block: Block, variant: int) -> None:
        """See ``SketchRule``."""
        (reader,) = consumers(draft.schedule.program, block)
        outer, _, inner, *_ = draft.tiles[reader.name].levels
        draft.schedule.compute_at(BlockRef(block.name), [*outer, *inner][-1])
        draft.fixed.add(block.name)
        draft.done.add(block.name)
