"""``cross_thread``: the threads of a block share the steps of a reduction, and one of them combines what they have.

For few elements with long sums. A consumer is a launch of its own.
"""

from tilewright.loops.ir import Block
from tilewright.sketch.analysis import has_reuse, is_reduction, points
from tilewright.sketch.rule import Answer, Draft
from tilewright.symbolic.domain import IterKind


class CrossThread:
    """A ``SketchRule``."""

    name = "cross_thread"

    def answer(self, draft: Draft, block: Block) -> Answer:
        """See ``SketchRule``."""
        wanted = block.name not in draft.cached and block.name not in draft.tiles and _wants(draft, block)
        return Answer.APPLY if wanted else Answer.SKIP

    def variants(self, draft: Draft, block: Block) -> int:
        """See ``SketchRule``."""
        return 1

    def apply(self, draft: Draft, block: Block, variant: int) -> None:
        """See ``SketchRule``."""
        warp, most = draft.structure.warp, draft.structure.threads
        threads = draft.config.choice(f"{block.name}.threads", _powers(warp, most))
        draft.shared[block.name] = threads
        draft.done.add(block.name)


def _powers(least: int, most: int) -> list[int]:
    return [least << n for n in range((most // least).bit_length())]


def _wants(draft: Draft, block: Block) -> bool:
    if not is_reduction(block) or len(block.writes) != 1:
        return False
    space, steps = points(block, IterKind.SPATIAL), points(block, IterKind.REDUCE)
    if has_reuse(block):
        return space <= draft.structure.threads and space < steps
    return steps > draft.structure.warp
