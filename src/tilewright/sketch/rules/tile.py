"""``tile``: the loops of a block that uses its operands again are tiled in several levels.

On CPUs the structure is ``SSRSRS``: two levels of tiles over the output, a level of steps of the reduction, a third
level of tiles, the other steps, and tiles that may stay in registers.
"""

from tilewright.loops.ir import Block
from tilewright.schedule.tree import BlockRef, LoopRef
from tilewright.sketch.analysis import extent, has_reuse
from tilewright.sketch.rule import Answer, Draft, Tile
from tilewright.symbolic.domain import IterKind
from tilewright.target.target import Target

STRUCTURE = "SSRSRS"
MOST_INNERMOST = 64
"""Iterations of an innermost loop."""


class TileBlock:
    """A ``SketchRule``."""

    name = "tile"

    def answer(self, draft: Draft, block: Block) -> Answer:
        """See ``SketchRule``."""
        return Answer.APPLY_ALONE if has_reuse(block) else Answer.SKIP

    def variants(self, draft: Draft, block: Block) -> int:
        """See ``SketchRule``."""
        return 1

    def apply(self, draft: Draft, block: Block, variant: int) -> None:
        """See ``SketchRule``."""
        tile_block(draft, block)
        draft.done.add(block.name)


def tile_block(draft: Draft, block: Block) -> Tile:
    """Tile ``block`` by ``STRUCTURE``; the sizes are knobs of ``draft.config``, called by the block and the axis."""
    s, ref = draft.schedule, BlockRef(block.name)
    loops = s.get_loops(ref)
    last = [axis for axis in block.axes if axis.kind is IterKind.SPATIAL][-1]
    levels: list[list[LoopRef]] = [[] for _ in STRUCTURE]
    vector: LoopRef | None = None
    for axis, loop in zip(block.axes, loops, strict=True):
        letter = "S" if axis.kind is IterKind.SPATIAL else "R"
        places = [place for place, own in enumerate(STRUCTURE) if own == letter]
        size = extent(axis.extent)
        least = _least_lanes(size, block, draft.target) if axis == last else 1
        sizes = draft.config.split(
            f"{block.name}.{axis.name}",
            size,
            len(places),
            filter=lambda sizes, least=least: least <= sizes[-1] <= MOST_INNERMOST,
        )
        made = s.split(loop, (None, *sizes[1:]))
        for place, part in zip(places, made, strict=True):
            levels[place].append(part)
        vector = made[-1] if letter == "S" else vector
    s.reorder(*(loop for level in levels for loop in level))
    assert vector is not None
    tile = Tile(tuple(map(tuple, levels)), vector)
    draft.tiles[block.name] = tile
    return tile


def _least_lanes(size: int, block: Block, target: Target) -> int:
    """The least number of lanes for an axis of ``size`` points: half a register, if some factor is as much."""
    most = max(factor for factor in range(1, min(size, MOST_INNERMOST) + 1) if size % factor == 0)
    return min(most, target.lanes(8 * block.writes[0].buffer.dtype.itemsize) // 2)
