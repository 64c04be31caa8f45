"""``load``: where what comes from device memory is loaded.

Knob: a factor of products is loaded for each of their stages, or whole, where it stays the same while tiles follow each
other; it is then loaded less often, and takes more room. Everything else is loaded where it stays the same.
"""

from dataclasses import dataclass

from tilewright.loops.ir import Block
from tilewright.schedule.tree import BlockRef, LoopRef
from tilewright.sketch.accelerator.computation import Computation, Kind
from tilewright.sketch.accelerator.rules.compute import tile_of
from tilewright.sketch.rule import Answer, Draft
from tilewright.space.config import extent


@dataclass(frozen=True, slots=True)
class Load:
    """A ``SketchRule``."""

    computation: Computation
    name = "load"

    def answer(self, draft: Draft, block: Block) -> Answer:
        """See ``SketchRule``."""
        applies = self.computation.named[block.name].kind is Kind.LOADED
        return Answer.APPLY_ALONE if applies else Answer.SKIP

    def variants(self, draft: Draft, block: Block) -> int:
        """See ``SketchRule``."""
        return 1

    def apply(self, draft: Draft, block: Block, variant: int) -> None:
        """See ``SketchRule``."""
        product = self.computation.product_of(self.computation.named[block.name])
        is_kept = product is None or bool(draft.config.choice(kept_knob(block.name), (0, 1)))
        if product is not None and not is_kept:
            stages = draft.tiles[product.name].levels[2]
            loop: LoopRef | None = stages[-1] if stages else tile_of(draft, self.computation)
        else:
            loop = self._around(draft, block)
        if loop is not None:
            draft.schedule.compute_at(BlockRef(block.name), loop)
        draft.done.add(block.name)

    def _around(self, draft: Draft, block: Block) -> LoopRef | None:
        """The outermost loop in which what a tile needs stays the same; None: outside of all.

        The tile's own, if it is another one in all loops: results can then take its place.
        """
        s, result = draft.schedule, self.computation.result.name
        dimensions = {loop: at for level in draft.tiles[result].levels[:2] for at, loop in enumerate(level)}
        loops = [loop for loop in s.get_loops(BlockRef(result)) if loop in dimensions and extent(s, loop) > 1]
        moving = self.computation.dependence[self.computation.named[block.name].buffer]
        own = [loop for loop in loops if dimensions[loop] in moving]
        if len(own) == len(loops):
            return tile_of(draft, self.computation)
        return own[-1] if own else None


def kept_knob(block: str) -> str:
    """The name of the knob for whether a factor is loaded in no stage."""
    return f"{block}.kept"
