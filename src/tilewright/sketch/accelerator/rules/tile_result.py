"""``tile_result``: the result is cut into tiles, of which some are computed by turns, by virtual threads.

Knobs: the sizes of tiles, the order of the loops around them, along which dimension virtual threads follow each other,
and how many there are.
"""

from dataclasses import dataclass

from tilewright.backend.vta.schedules.tiling import parts
from tilewright.loops.ir import Block, LoopKind
from tilewright.schedule.tree import BlockRef, LoopRef
from tilewright.sketch.accelerator.computation import Computation, Kind
from tilewright.sketch.rule import Answer, Draft, Tile
from tilewright.space.config import extent


@dataclass(frozen=True, slots=True)
class TileResult:
    """A ``SketchRule``."""

    computation: Computation
    name = "tile_result"

    def answer(self, draft: Draft, block: Block) -> Answer:
        """See ``SketchRule``."""
        applies = self.computation.named[block.name].kind is Kind.RESULT
        return Answer.APPLY_ALONE if applies else Answer.SKIP

    def variants(self, draft: Draft, block: Block) -> int:
        """See ``SketchRule``."""
        return 1

    def apply(self, draft: Draft, block: Block, variant: int) -> None:
        """See ``SketchRule``."""
        s, config = draft.schedule, draft.config
        *loops, row, element = s.get_loops(BlockRef(block.name))
        sizes = [config.choice(size_knob(block.name, at), parts(extent(s, loop))) for at, loop in enumerate(loops)]
        axis = config.choice(axis_knob(block.name), range(len(loops)))
        most = draft.structure.virtual_threads
        threads = config.choice(threads_knob(block.name), [2, *(count for count in range(1, most + 1) if count != 2)])
        outer: list[LoopRef] = []
        turns: list[LoopRef] = []
        inner: list[LoopRef] = []
        for at, (loop, size) in enumerate(zip(loops, sizes, strict=True)):
            count = min(threads, -(-extent(s, loop) // size)) if at == axis else 1
            for levels, part in zip((outer, turns, inner), s.split(loop, (None, count, size)), strict=True):
                levels.append(part)
        order = config.reorder(order_knob(block.name), outer)
        s.reorder(*order, *turns, *inner, row, element)
        if extent(s, turns[axis]) > 1:
            s.bind(turns[axis], LoopKind.VIRTUAL_THREAD.value)
        draft.tiles[block.name] = Tile((tuple(outer), tuple(turns), (), tuple(inner)), row)
        draft.done.add(block.name)


def size_knob(block: str, dimension: int) -> str:
    """The name of the knob for the size of a tile along a dimension."""
    return f"{block}.tile_{dimension}"


def axis_knob(block: str) -> str:
    """The name of the knob for the dimension along which virtual threads follow each other."""
    return f"{block}.thread_axis"


def threads_knob(block: str) -> str:
    """The name of the knob for the number of virtual threads."""
    return f"{block}.threads"


def order_knob(block: str) -> str:
    """The name of the knob for the order of the loops around tiles."""
    return f"{block}.order"
