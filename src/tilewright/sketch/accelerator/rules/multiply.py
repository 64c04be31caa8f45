"""``multiply``: products are summed up for each tile of the result, in stages, by GEMM.

Knobs: how many positions of each summed axis a stage has. What a stage reads is loaded by then (``load``).
"""

from dataclasses import dataclass

from tilewright.backend.vta.config import Config
from tilewright.backend.vta.memories import gemm
from tilewright.backend.vta.schedules.tiling import parts
from tilewright.loops.ir import Block
from tilewright.schedule.tree import BlockRef, LoopRef
from tilewright.sketch.accelerator.computation import Computation, Kind
from tilewright.sketch.accelerator.rules.compute import tile_of
from tilewright.sketch.rule import Answer, Draft, Instruction, Tile


@dataclass(frozen=True, slots=True)
class Multiply:
    """A ``SketchRule``."""

    computation: Computation
    config: Config
    name = "multiply"

    def answer(self, draft: Draft, block: Block) -> Answer:
        """See ``SketchRule``."""
        applies = self.computation.named[block.name].kind is Kind.PRODUCT
        return Answer.APPLY_ALONE if applies else Answer.SKIP

    def variants(self, draft: Draft, block: Block) -> int:
        """See ``SketchRule``."""
        return 1

    def apply(self, draft: Draft, block: Block, variant: int) -> None:
        """See ``SketchRule``."""
        s, summed = draft.schedule, self.computation.named[block.name].summed
        own = s.compute_at(BlockRef(block.name), tile_of(draft, self.computation))
        *outer, row, column = own[: len(own) - len(summed) - 1]
        *among, element = own[len(own) - len(summed) - 1 :]
        stages: list[LoopRef] = []
        rest: list[LoopRef] = []
        for at, (loop, size) in enumerate(zip(among, summed, strict=True)):
            stage, inside = s.split(loop, (None, draft.config.choice(depth_knob(block.name, at), parts(size))))
            stages.append(stage)
            rest.append(inside)
        s.reorder(*stages, *outer, *rest, row, column, element)
        levels, instruction = ((), (), tuple(stages), (*outer, *rest)), Instruction(gemm(self.config))
        draft.tiles[block.name] = Tile(levels, row if self.config.batch > 1 else column, instruction=instruction)
        draft.done.add(block.name)


def depth_knob(block: str, summed: int) -> str:
    """The name of the knob for the positions of a summed axis in a stage."""
    return f"{block}.depth_{summed}"
