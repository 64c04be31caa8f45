"""Annotation: what all sketches leave open (Zheng et al., OSDI 2020, section 4.2).

First everything is asked, in an order that depends on the sketch alone: where each block that no rule has placed is
computed, how many lanes it has, what is unrolled, how much is parallel. Then the schedule is made of the answers: first
its structure (``place``), then lanes, unrolled and parallel loops, which depend on how long loops are (``finish``).
"""

from dataclasses import dataclass, replace
from math import prod

from tilewright.kernels.schedules import extent_of, ref
from tilewright.loops.ir import Block, Loop
from tilewright.loops.program import Program
from tilewright.schedule.schedule import Schedule
from tilewright.schedule.tree import (
    BlockRef,
    LoopRef,
    all_blocks,
    block_at,
    consumers,
    loops_of,
)
from tilewright.sketch.analysis import is_reduction, is_result, is_stencil, overlaps
from tilewright.sketch.packing import Operand, operands
from tilewright.sketch.rule import Asked, Draft, Factored
from tilewright.symbolic.domain import IterKind
from tilewright.symbolic.traversal import free_vars
from tilewright.target.target import Target

INLINED, ROOT = 0, 1
"""A block's place: in its consumers; outside of all loops; and more: in one of the loops around all consumers."""
VECTORS = (1, 2, 4)
"""Registers that the lanes of a loop fill."""
UNROLLED = (0, 16, 64, 512)
"""Vector operations that may be written out."""
ROWS = (1, 2, 4, 8)
"""Rows of a stencil that are computed side by side, so that what they have in common is loaded once."""
PARTS = (1, 2, 4, 8, 16, 32, 64)
"""Iterations of the first loop of a stencil for which what it reads may be computed together."""
MOST_REPEATED = 2
"""How many times as often as needed a block may run, because parts of what is read overlap."""


@dataclass(frozen=True, slots=True)
class Decided:
    """The answers, by the names of blocks."""

    places: dict[str, int]
    vectors: dict[str, int]
    unrolled: dict[str, int]
    packed: dict[Operand, int]
    rows: dict[str, int]
    parts: dict[str, int]
    parallel: dict[str, int]
    partial: frozenset[str] = frozenset()
    """Blocks that partial results were made of, whose last loop is their lanes: by ``place``."""


def place(draft: Draft) -> Decided:
    """Ask ``draft.config``, move blocks to where they are computed, and make partial results.

    Raises ``ScheduleError`` if answers do not go together.
    """
    decided = _ask(draft)
    for name, size in decided.parts.items():
        _part(draft.schedule, name, size)
    for name, chosen in decided.places.items():
        _place(draft, name, chosen)
    lanes = register_lanes(draft.schedule.program, draft.target)
    partial: list[str] = []
    for name in [name for name in draft.names() if name in draft.factored]:
        partial += _factor(draft, name, draft.factored[name], lanes)
    return replace(decided, partial=frozenset(partial))


def register_lanes(program: Program, target: Target) -> int:
    """Elements of a register, by the widest type of a parameter."""
    return target.lanes(8 * max(buffer.dtype.itemsize for buffer in program.params))


# --- asking ------------------------------------------------------------------------------------------------------


def _ask(draft: Draft) -> Decided:
    program, config = draft.schedule.program, draft.config
    blocks = all_blocks(program.body)
    stencils = [block for block in blocks if block.name not in draft.tiles and is_stencil(block)]
    parted = [block for block in stencils if not overlaps(block) <= set(program.params)]
    parts = {block.name: config.choice(f"{block.name}.part", PARTS) for block in parted}
    deepest = max((_spatial_loops(draft, block) + (block in parted) for block in blocks), default=0)
    places: dict[str, int] = {}
    for block in reversed(blocks):
        if block.name in draft.tiles or block.name in draft.fixed or is_result(program, block):
            continue
        least = ROOT if is_reduction(block) else INLINED
        places[block.name] = config.choice(f"{block.name}.at", range(least, ROOT + deepest + 1))
    plain = [block for block in blocks if block.name not in draft.tiles]
    vectors = {block.name: config.choice(f"{block.name}.vectors", VECTORS) for block in plain}
    unrolled = {
        block.name: config.choice(f"{block.name}.unroll", UNROLLED)
        for block in blocks
        if is_reduction(block) or block.name in draft.tiles
    }
    packed = {operand: config.choice(operand.knob, operand.places) for operand in operands(draft)}
    rows = {block.name: config.choice(f"{block.name}.rows", ROWS) for block in stencils}
    parallel: dict[str, int] = {}
    if draft.target.cores > 1:
        for block in blocks:
            most = _spatial_loops(draft, block)
            parallel[block.name] = config.choice(f"{block.name}.parallel", range(most, -1, -1))
    return Decided(places, vectors, unrolled, packed, rows, parts, parallel)


def _spatial_loops(draft: Draft, block: Block) -> int:
    """The loops around ``block`` outside of its reduction: those of the first two levels, if it is tiled."""
    if block.name in draft.tiles:
        return sum(map(len, draft.tiles[block.name].levels[:2]))
    return sum(axis.kind is IterKind.SPATIAL for axis in block.axes)


# --- places ------------------------------------------------------------------------------------------------------


def _part(s: Schedule, name: str, size: int) -> None:
    """Cut the first loop of a block into parts of ``size`` iterations, in which what it reads may be computed."""
    first, *_ = s.get_loops(name)
    if 1 < size < extent_of(s, first):
        s.split(first, (None, size))


def _place(draft: Draft, name: str, place: int) -> None:
    """Compute a block where it is decided; as far in as its consumers have loops in common, at most, and in none where
    most of it would be computed again and again."""
    s, block = draft.schedule, BlockRef(name)
    if place == INLINED:
        s.compute_inline(block)
        return
    around = _common_loops(draft, consumers(s.program, block_at(s.program, block).stmt), place)
    once = _points(s, block)
    for loop in reversed(around):
        tried = s.copy()
        tried.compute_at(block, loop)
        is_kept = _points(tried, block) <= MOST_REPEATED * once
        draft.asked.append(Asked(len(s.trace.steps), loop, block, is_kept))
        if is_kept:
            s.program, s.trace = tried.program, tried.trace
            return


def _points(s: Schedule, block: BlockRef) -> int:
    """How often a block runs."""
    return prod(extent_of(s, ref(loop)) for loop in loops_of(s.program, block))


def _common_loops(draft: Draft, blocks: tuple[Block, ...], place: int) -> list[LoopRef]:
    """The loops around all of ``blocks`` that no reduction of theirs runs over, outermost first; no more than ``place``
    is inside of."""
    s = draft.schedule
    common: list[LoopRef] | None = None
    for block in blocks:
        reducing = {loop.var.name for loop in reducing_loops(s, block.name)}
        steps = draft.steps(block.name)
        own: list[LoopRef] = []
        for loop in map(ref, loops_of(s.program, BlockRef(block.name))):
            if loop in steps and place <= ROOT + len(own):
                break
            if loop in steps:
                draft.asked.append(Asked(len(s.trace.steps), loop, None, loop.name not in reducing))
            if loop.name in reducing or place <= ROOT + len(own):
                break
            own.append(loop)
        common = own if common is None else [loop for loop in common if loop in own]
    return common or []


def reducing_loops(s: Schedule, name: str) -> list[Loop]:
    """The loops that drive reduction axes of a block."""
    place = block_at(s.program, BlockRef(name))
    driven = {
        var
        for axis, binding in zip(place.stmt.axes, place.stmt.bindings, strict=True)
        if axis.kind is not IterKind.SPATIAL
        for var in free_vars(binding)
    }
    return [loop for loop in place.loops if loop.var in driven]


def own_loops(s: Schedule, name: str) -> list[Loop]:
    """The serial loops around one block only, outermost first."""
    own = loops_of(s.program, BlockRef(name))
    others = {
        loop.var
        for other in all_blocks(s.program.body)
        if other.name != name
        for loop in loops_of(s.program, BlockRef(other.name))
    }
    return [loop for loop in own if loop.var not in others and loop.kind.value == "serial"]


# --- partial results ---------------------------------------------------------------------------------------------


def _factor(draft: Draft, name: str, wanted: Factored, lanes: int) -> list[str]:
    """Partial results of a reduction: ``wanted.outer`` of them, and of each of these ``wanted.lanes``.

    If these fill several registers, the registers are added up first. Returns the blocks whose last loop is such lanes.
    """
    s = draft.schedule
    if 1 < wanted.outer < _steps(s, name):
        outer, _ = s.split(_loop_over(s, name, wanted.outer, 0), (wanted.outer, None))
        name = s.rfactor(outer, 0).name
        if draft.target.cores > 1:
            s.parallel(outer)
    partial: list[str] = []
    for width in (wanted.lanes, lanes):
        if 1 < width < _steps(s, name):
            _, inner = s.split(_loop_over(s, name, width, -1), (None, width))
            partial.append(s.rfactor(inner, len(block_at(s.program, BlockRef(name)).stmt.writes[0].ranges)).name)
    return partial


def _loop_over(s: Schedule, name: str, parts: int, place: int) -> LoopRef:
    """The first (0) or last (-1) loop over what a block reduces, if ``parts`` divide it; else one over all of it."""
    reducing = reducing_loops(s, name)
    extent = extent_of(s, ref(reducing[place]))
    return ref(reducing[place]) if extent % parts == 0 else _one_reducing_loop(s, name)


def _steps(s: Schedule, name: str) -> int:
    """How many iterations all loops over a reduction have together."""
    return prod(extent_of(s, ref(loop)) for loop in reducing_loops(s, name))


def _one_reducing_loop(s: Schedule, name: str) -> LoopRef:
    """The innermost loop, which runs over all that a block reduces."""
    reducing = [ref(loop) for loop in reducing_loops(s, name)]
    others = [loop for loop in s.get_loops(name) if loop not in reducing]
    s.reorder(*[loop for loop in others if _is_inside(s, name, reducing[0], loop)], *reducing)
    return s.fuse(*reducing) if len(reducing) > 1 else reducing[0]


def _is_inside(s: Schedule, name: str, outer: LoopRef, loop: LoopRef) -> bool:
    loops = list(s.get_loops(name))
    return loops.index(loop) > loops.index(outer)
