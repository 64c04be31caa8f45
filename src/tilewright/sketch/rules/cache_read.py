"""``cache_read``: the threads of a block fetch together, in each outer step, what a tile reads."""

from tilewright.loops.ir import Block
from tilewright.loops.memory import SHARED
from tilewright.schedule.tree import BlockRef, buffers_written
from tilewright.sketch.rule import Answer, Draft


class CacheRead:
    """A ``SketchRule``."""

    name = "cache_read"

    def answer(self, draft: Draft, block: Block) -> Answer:
        """See ``SketchRule``."""
        return Answer.APPLY_ALONE if block.name in draft.tiles else Answer.SKIP

    def variants(self, draft: Draft, block: Block) -> int:
        """See ``SketchRule``."""
        return 1

    def apply(self, draft: Draft, block: Block, variant: int) -> None:
        """See ``SketchRule``."""
        s, levels = draft.schedule, draft.tiles[block.name].levels
        step = [*levels[0], *levels[draft.structure.levels.index("R")]][-1]
        own = {buffer.name for buffer in buffers_written(block)}
        for name in dict.fromkeys(region.buffer.name for region in block.reads if region.buffer.name not in own):
            copy = s.cache_read(BlockRef(block.name), name, SHARED)
            s.compute_at(copy, step)
            draft.fetched[copy.name] = block.name
            draft.done.add(copy.name)
        draft.done.add(block.name)
