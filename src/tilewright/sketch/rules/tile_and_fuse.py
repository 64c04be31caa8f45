"""``tile_and_fuse``: a block is tiled, and its one consumer is computed on each tile, at one of the levels for it."""

from tilewright.loops.ir import Block
from tilewright.schedule.tree import BlockRef
from tilewright.sketch.analysis import fusible_consumer, has_reuse
from tilewright.sketch.rule import Answer, Draft
from tilewright.sketch.rules.tile import tile_block


class TileAndFuse:
    """A ``SketchRule``."""

    name = "tile_and_fuse"

    def answer(self, draft: Draft, block: Block) -> Answer:
        """See ``SketchRule``."""
        is_done = not has_reuse(block) or block.name in draft.tiles
        if is_done or fusible_consumer(draft.schedule.program, block, draft.placed) is None:
            return Answer.SKIP
        is_forced = block.name in draft.cached or draft.structure.has_threads
        return Answer.APPLY_ALONE if is_forced else Answer.APPLY

    def variants(self, draft: Draft, block: Block) -> int:
        """See ``SketchRule``."""
        return len(draft.structure.fused)

    def apply(self, draft: Draft, block: Block, variant: int) -> None:
        """See ``SketchRule``."""
        consumer = fusible_consumer(draft.schedule.program, block, draft.placed)
        assert consumer is not None
        tile = tile_block(draft, block)
        draft.schedule.reverse_compute_at(BlockRef(consumer.name), tile.levels[draft.structure.fused[variant]][-1])
        if not draft.structure.has_threads:  # else its operands are fetched first
            draft.done.add(block.name)
        draft.done.add(consumer.name)
        draft.fixed.add(consumer.name)
        draft.followers[consumer.name] = block.name
