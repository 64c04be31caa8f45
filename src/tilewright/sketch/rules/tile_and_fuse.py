"""``tile_and_fuse``: a block is tiled, and its one consumer is computed on each tile, at one of two levels."""

from tilewright.loops.ir import Block
from tilewright.schedule.tree import BlockRef
from tilewright.sketch.analysis import fusible_consumer, has_reuse
from tilewright.sketch.rule import Answer, Draft
from tilewright.sketch.rules.tile import tile_block

LEVELS = (0, 1)
"""Levels of tiles in whose loops the consumer may be, both outside of the reduction."""


class TileAndFuse:
    """A ``SketchRule``."""

    name = "tile_and_fuse"

    def answer(self, draft: Draft, block: Block) -> Answer:
        """See ``SketchRule``."""
        if not has_reuse(block) or fusible_consumer(draft.schedule.program, block) is None:
            return Answer.SKIP
        return Answer.APPLY_ALONE if block.name in draft.cached else Answer.APPLY

    def variants(self, draft: Draft, block: Block) -> int:
        """See ``SketchRule``."""
        return len(LEVELS)

    def apply(self, draft: Draft, block: Block, variant: int) -> None:
        """See ``SketchRule``."""
        consumer = fusible_consumer(draft.schedule.program, block)
        assert consumer is not None
        tile = tile_block(draft, block)
        draft.schedule.reverse_compute_at(BlockRef(consumer.name), tile.levels[LEVELS[variant]][-1])
        draft.done |= {block.name, consumer.name}
        draft.fixed.add(consumer.name)
