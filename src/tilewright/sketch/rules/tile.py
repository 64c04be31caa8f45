"""``tile``: the loops of a block that uses its operands again are tiled in several levels.

On CPUs the structure is ``SSRSRS``: two levels of tiles over the output, a level of steps of the reduction, a third
level of tiles, the other steps, and tiles that may stay in registers. With blocks and threads it is ``SSSRRSRS``;
threads then run inside of the outer steps of the reduction, so that all of them can fetch together.
"""

from collections.abc import Sequence

from tilewright.loops.ir import Block
from tilewright.schedule.tree import BlockRef, LoopRef
from tilewright.sketch.analysis import extent, has_reuse
from tilewright.sketch.rule import Answer, Draft, Tile
from tilewright.symbolic.domain import IterKind, IterVar
from tilewright.target.target import Target

MOST_INNERMOST = 64
"""Iterations of an innermost loop."""


class TileBlock:
    """A ``SketchRule``."""

    name = "tile"

    def answer(self, draft: Draft, block: Block) -> Answer:
        """See ``SketchRule``."""
        wanted = has_reuse(block) and block.name not in draft.tiles
        return Answer.APPLY_ALONE if wanted else Answer.SKIP

    def variants(self, draft: Draft, block: Block) -> int:
        """See ``SketchRule``."""
        return 1

    def apply(self, draft: Draft, block: Block, variant: int) -> None:
        """See ``SketchRule``."""
        tile_block(draft, block)
        if not draft.structure.has_threads:  # else its operands are fetched first
            draft.done.add(block.name)


def tile_block(draft: Draft, block: Block) -> Tile:
    """Tile ``block`` by ``draft.structure``; the sizes are knobs of ``draft.config``, called by the block and the axis.

    What an intrinsic computes stays whole, inside of all levels.
    """
    s, structure, instruction = draft.schedule, draft.structure.levels, draft.instructions.get(block.name)
    levels: list[list[LoopRef]] = [[] for _ in structure]
    whole: list[LoopRef] = []
    vector: LoopRef | None = None
    for axis, loop in zip(block.axes, s.get_loops(BlockRef(block.name)), strict=True):
        letter = "S" if axis.kind is IterKind.SPATIAL else "R"
        places = [place for place, own in enumerate(structure) if own == letter]
        unit = instruction.unit(block, axis) if instruction else 1
        sizes = _sizes(draft, block, axis, len(places), unit)
        if letter == "S":
            places = _by_stride(places, len(draft.structure.bound))
            sizes = _by_stride(sizes, len(draft.structure.bound))
        made = s.split(loop, (None, *sizes[1:], *([unit] if unit > 1 else ())))
        for place, part in zip(places, made, strict=False):
            levels[place].append(part)
        whole += made[len(places) :]
        vector = made[len(places) - 1] if letter == "S" else vector
    order = _order(structure, len(draft.structure.bound))
    s.reorder(*(loop for place in order for loop in levels[place]), *whole)
    assert vector is not None
    tile = Tile(tuple(map(tuple, levels)), whole[0] if whole else vector, instruction=instruction)
    draft.tiles[block.name] = tile
    return tile


def _sizes(draft: Draft, block: Block, axis: IterVar, parts: int, unit: int) -> tuple[int, ...]:
    """Sizes of the parts of an axis, in units. Lanes of elements in registers are half a register at least."""
    most = max(1, MOST_INNERMOST // unit)
    last = [axis for axis in block.axes if axis.kind is IterKind.SPATIAL][-1]
    is_lanes = axis == last and unit == 1 and not draft.structure.has_threads
    least = _least_lanes(extent(axis.extent), block, draft.target) if is_lanes else 1
    return draft.config.split(
        f"{block.name}.{axis.name}",
        extent(axis.extent) // unit,
        parts,
        filter=lambda sizes: least <= sizes[-1] <= most,
    )


def _least_lanes(size: int, block: Block, target: Target) -> int:
    """The least number of lanes for an axis of ``size`` points: half a register, if some factor is as much."""
    most = max(factor for factor in range(1, min(size, MOST_INNERMOST) + 1) if size % factor == 0)
    return min(most, target.lanes(8 * block.writes[0].buffer.dtype.itemsize) // 2)


def _by_stride(levels: Sequence[int], bound: int) -> list[int]:
    """The levels of an axis, those with large steps first: virtual threads of a thread are side by side."""
    return [levels[0], levels[2], levels[1], *levels[3:]] if bound else list(levels)


def _order(structure: str, bound: int) -> list[int]:
    """The levels, outermost first: threads, and in them virtual ones, are inside of the first steps of a reduction."""
    order = list(range(len(structure)))
    return [0, structure.index("R"), 2, 1, *range(4, len(structure))] if bound else order
