"""``tensorize``: the innermost tile of a block is an instruction of the target, if it computes what the block does.

Each intrinsic that matches is a variant. The block is tiled by the rules after this one, around the intrinsic.
"""

from tilewright.base.errors import ScheduleError
from tilewright.kernels.dot_products import dot_products
from tilewright.loops.ir import Block
from tilewright.schedule.intrinsics import IntrinsicSet, TensorIntrinsic
from tilewright.schedule.tree import BlockRef
from tilewright.sketch.analysis import extent, has_reuse
from tilewright.sketch.rule import Answer, Draft, Instruction


class Tensorize:
    """A ``SketchRule``. ``intrinsics``: by default the dot products of the target."""

    name = "tensorize"

    def __init__(self, intrinsics: IntrinsicSet | None = None) -> None:
        self.intrinsics = intrinsics

    def answer(self, draft: Draft, block: Block) -> Answer:
        """See ``SketchRule``."""
        is_new = block.name not in draft.instructions and block.name not in draft.cached
        return Answer.APPLY if is_new and self._matching(draft, block) else Answer.SKIP

    def variants(self, draft: Draft, block: Block) -> int:
        """See ``SketchRule``."""
        return len(self._matching(draft, block))

    def apply(self, draft: Draft, block: Block, variant: int) -> None:
        """See ``SketchRule``."""
        draft.instructions[block.name] = Instruction(self._matching(draft, block)[variant])

    def _matching(self, draft: Draft, block: Block) -> list[TensorIntrinsic]:
        known = dot_products(draft.target) if self.intrinsics is None else self.intrinsics
        return [one for one in known.intrinsics if has_reuse(block) and _matches(draft, block, Instruction(one))]


def _matches(draft: Draft, block: Block, instruction: Instruction) -> bool:
    """Whether a tile of ``block`` is what the instruction computes: the primitive decides, on a copy."""
    own = instruction.intrinsic.block
    dtypes = {region.buffer.dtype for region in block.reads}
    if block.init is None or dtypes != {region.buffer.dtype for region in own.reads}:
        return False
    units = [instruction.unit(block, axis) for axis in block.axes]
    if any(extent(axis.extent) % unit for axis, unit in zip(block.axes, units, strict=True)):
        return False
    tried = draft.schedule.copy()
    loops = tried.get_loops(BlockRef(block.name))
    try:
        parts = [tried.split(loop, (None, unit)) for loop, unit in zip(loops, units, strict=True) if unit > 1]
        others = [loop for loop, unit in zip(loops, units, strict=True) if unit == 1]
        tried.reorder(*others, *(outer for outer, _ in parts), *(inner for _, inner in parts))
        tried.tensorize(parts[0][1], instruction.intrinsic)
    except ScheduleError:
        return False
    return True
