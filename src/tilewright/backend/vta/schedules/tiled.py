"""The schedule of a program for sizes of tiles."""

from collections.abc import Sequence
from dataclasses import dataclass

from tilewright.backend.vta.config import Config
from tilewright.backend.vta.memories import Memories, gemm, memories
from tilewright.backend.vta.schedules.roles import Roles, parameters_read, roles_of
from tilewright.backend.vta.schedules.tiling import Tiles
from tilewright.base.errors import ScheduleError, Unsupported
from tilewright.loops.ir import Block, LoopKind, Store
from tilewright.schedule.schedule import Schedule
from tilewright.schedule.tree import LoopRef
from tilewright.space.config import extent
from tilewright.symbolic.domain import IterKind
from tilewright.symbolic.expr import Var
from tilewright.symbolic.traversal import free_vars, reads_in

VIRTUAL_THREAD = LoopKind.VIRTUAL_THREAD.value


def schedule_tiles(s: Schedule, tiles: Tiles, config: Config) -> None:
    """Compute the result in ``tiles``, the factors of products in stages.

    Raises ``ScheduleError`` for programs that the accelerator has no schedule for, and sizes that are none.
    """
    try:
        roles = roles_of(s.program)
    except Unsupported as error:
        raise ScheduleError(f"{error}\n\n{s.program}") from error
    on_chip = memories(config)
    if not roles.is_copy:
        s.cache_write(roles.last.name, roles.last.writes[0].buffer.name, on_chip.acc)
        roles = roles_of(s.program)
    copies = _placed(s, roles, on_chip)
    cut = _cut(s, roles.last, tiles)
    for block in reversed(roles.computing):
        s.compute_at(block.name, cut.tile)
    factors = [] if roles.anchor is None or roles.factors is None else _factors(roles, copies)
    for name, buffer in copies:
        if name not in factors and (loop := cut.around(_dimensions(roles, buffer))) is not None:
            s.compute_at(name, loop)
    if roles.anchor is not None and factors:
        _multiply(s, roles.anchor, factors, tiles.depth, config)


def _placed(s: Schedule, roles: Roles, on_chip: Memories) -> list[tuple[str, str]]:
    """Set the scopes of all buffers; the blocks that copy to the chip, each with the buffer that it writes."""
    first, second = (factor.source.name for factor in roles.factors) if roles.factors is not None else ("", "")
    scopes = {first: on_chip.inp, second: on_chip.wgt}
    copies: list[tuple[str, str]] = []
    for block in roles.computing:
        s.set_scope(block.writes[0].buffer.name, on_chip.acc)
    for block in roles.fetching:
        written = block.writes[0].buffer.name
        s.set_scope(written, scopes.get(written, on_chip.acc))
        copies.append((block.name, written))
    for block in roles.computing:
        for buffer in parameters_read(block, s.program):
            made = s.cache_read([block.name], buffer.name, scopes.get(buffer.name, on_chip.acc))
            copies.append((made.name, buffer.name))
    return copies


def _factors(roles: Roles, copies: Sequence[tuple[str, str]]) -> list[str]:
    """The blocks that copy the factors of the anchor; what they copy, or write, is named in its products."""
    assert roles.factors is not None
    named = {factor.source.name for factor in roles.factors}
    return [block for block, buffer in copies if buffer in named]


def _dimensions(roles: Roles, buffer: str) -> frozenset[int]:
    """Along which dimensions of the result the elements of a buffer differ that ALU reads."""
    found: set[int] = set()
    for block in roles.computing:
        spatial = [axis.var for axis in block.axes if axis.kind is IterKind.SPATIAL]
        stores = [stmt for stmt in (block.init, block.body) if isinstance(stmt, Store)]
        for read in (read for store in stores for read in reads_in(store.value) if read.source.name == buffer):
            moving = frozenset[Var]().union(*map(free_vars, read.indices))
            found.update(place for place, var in enumerate(spatial) if var in moving)
    return frozenset(found)


@dataclass(frozen=True, slots=True)
class _Cut:
    """The loops around a tile, outermost first, each with its dimension; the innermost one is of one tile.

    Loops that run once are left out.
    """

    loops: tuple[tuple[int, LoopRef], ...]
    tile: LoopRef

    def around(self, dimensions: frozenset[int]) -> LoopRef | None:
        """The outermost loop in which elements along ``dimensions`` are the same; None: outside of all.

        The tile's own, if they differ in all loops: results can then take their place.
        """
        own = [loop for dimension, loop in self.loops if dimension in dimensions]
        if len(own) == len(self.loops):
            return self.tile
        return own[-1] if own else None


def _cut(s: Schedule, last: Block, tiles: Tiles) -> _Cut:
    """Cut the result into tiles, and give those that follow each other to virtual threads."""
    *loops, row, element = s.get_loops(last.name)
    if len(loops) != len(tiles.sizes):
        raise ScheduleError(f"{tiles}: the result has {len(loops)} dimensions of tiles\n\n{s.program}")
    pairs = [s.split(loop, (None, size)) for loop, size in zip(loops, tiles.sizes, strict=True)]
    outer, inner = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
    s.reorder(*outer, *inner, row, element)
    counts = [extent(s, loop) for loop in outer]
    around = [(place, loop) for place, (loop, count) in enumerate(zip(outer, counts, strict=True)) if count > 1]
    threads = min(tiles.threads, max(counts))
    if threads == 1:
        return _Cut(tuple(around), outer[-1])
    even = [place for place, count in enumerate(counts) if count % threads == 0]
    chosen = even[-1] if even else counts.index(max(counts))  # without a partner, a tile hides nothing
    group, thread = s.split(outer.pop(chosen), (None, threads))
    s.reorder(*outer, group, thread)
    s.bind(thread, VIRTUAL_THREAD)
    others = [(place, loop) for place, loop in around if place != chosen]
    return _Cut((*others, (chosen, thread)), thread)


def _multiply(s: Schedule, anchor: Block, factors: Sequence[str], depth: int, config: Config) -> None:
    """Sum products in stages: in each, the factors of ``depth`` iterations of the first reduced axis are loaded."""
    own = s.get_loops(anchor.name)[-len(anchor.axes) :]
    spatial, reduced = own[: -_reductions(anchor)], own[-_reductions(anchor) :]
    *outer, row, column = spatial
    *among, element = reduced
    stage, *rest = (*s.split(among[0], (None, depth)), *among[1:])
    s.reorder(stage, *outer, *rest, row, column, element)
    for copy in factors:
        s.compute_at(copy, stage)
    s.tensorize(row if config.batch > 1 else column, gemm(config))


def _reductions(anchor: Block) -> int:
    return sum(axis.kind is IterKind.REDUCE for axis in anchor.axes)
