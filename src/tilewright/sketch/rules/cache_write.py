"""``cache_write``: a tiled block that nothing can be fused with gets a copy for a consumer, and sums in a cache."""

from tilewright.loops.ir import Block
from tilewright.loops.memory import GLOBAL, LOCAL
from tilewright.schedule.tree import BlockRef
from tilewright.sketch.analysis import fusible_consumer, has_reuse
from tilewright.sketch.rule import Answer, Draft


class CacheWrite:
    """A ``SketchRule``."""

    name = "cache_write"

    def answer(self, draft: Draft, block: Block) -> Answer:
        """See ``SketchRule``."""
        is_alone = fusible_consumer(draft.schedule.program, block, draft.placed) is None
        if block.name in draft.cached or not (has_reuse(block) and is_alone and len(block.writes) == 1):
            return Answer.SKIP
        return Answer.APPLY_ALONE if draft.structure.has_threads else Answer.APPLY

    def variants(self, draft: Draft, block: Block) -> int:
        """See ``SketchRule``."""
        return 1

    def apply(self, draft: Draft, block: Block, variant: int) -> None:
        """See ``SketchRule``."""
        memory = LOCAL if draft.structure.has_threads else GLOBAL
        copy = draft.schedule.cache_write(BlockRef(block.name), block.writes[0].buffer.name, memory)
        draft.cached.add(block.name)
        draft.done.add(copy.name)
