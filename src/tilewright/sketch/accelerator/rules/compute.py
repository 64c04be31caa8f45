"""``compute_tile``: what ALU computes is computed for each tile of the result, on accumulators."""

from dataclasses import dataclass

from tilewright.loops.ir import Block
from tilewright.schedule.tree import BlockRef, LoopRef
from tilewright.sketch.accelerator.computation import Computation, Kind
from tilewright.sketch.rule import Answer, Draft


@dataclass(frozen=True, slots=True)
class ComputeTile:
    """A ``SketchRule``."""

    computation: Computation
    name = "compute_tile"

    def answer(self, draft: Draft, block: Block) -> Answer:
        """See ``SketchRule``."""
        applies = self.computation.named[block.name].kind is Kind.COMPUTED
        return Answer.APPLY_ALONE if applies else Answer.SKIP

    def variants(self, draft: Draft, block: Block) -> int:
        """See ``SketchRule``."""
        return 1

    def apply(self, draft: Draft, block: Block, variant: int) -> None:
        """See ``SketchRule``."""
        draft.schedule.compute_at(BlockRef(block.name), tile_of(draft, self.computation))
        draft.done.add(block.name)


def tile_of(draft: Draft, computation: Computation) -> LoopRef:
    """The innermost loop around a tile of the result."""
    return draft.tiles[computation.result.name].levels[1][-1]
