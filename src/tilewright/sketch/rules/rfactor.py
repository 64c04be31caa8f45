"""``rfactor``: a reduction gets partial results: in lanes, or in parallel and in lanes.

It is rewritten when it is decided where the block is computed (``annotate``).
"""

from tilewright.loops.ir import Block
from tilewright.sketch.analysis import points, wants_rfactor
from tilewright.sketch.rule import Answer, Draft, Factored
from tilewright.symbolic.domain import IterKind

OUTER, INNER = 0, 1
"""The variants: which of the two loops over a reduction becomes one over partial results."""
MOST_OUTER, MOST_LANES = 64, 256


class FactorReduction:
    """A ``SketchRule``."""

    name = "rfactor"

    def answer(self, draft: Draft, block: Block) -> Answer:
        """See ``SketchRule``."""
        is_taken = block.name in draft.cached or block.name in draft.instructions
        wanted = not is_taken and wants_rfactor(block, draft.target.cores)
        return Answer.APPLY if wanted else Answer.SKIP

    def variants(self, draft: Draft, block: Block) -> int:
        """See ``SketchRule``."""
        return 2

    def apply(self, draft: Draft, block: Block, variant: int) -> None:
        """See ``SketchRule``."""
        steps = points(block, IterKind.REDUCE)
        factors = [number for number in range(2, MOST_LANES + 1) if steps % number == 0] or [1]
        lanes = draft.config.choice(f"{block.name}.lanes", factors)
        # Of the rest, so many parts as nearly divide it: a tail is cut off.
        outer = 1
        if variant == OUTER:
            outer = draft.config.choice(f"{block.name}.partial", [2**n for n in range(1, MOST_OUTER.bit_length())])
        draft.factored[block.name] = Factored(outer, lanes)
        draft.done.add(block.name)
