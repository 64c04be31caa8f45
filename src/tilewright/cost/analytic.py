"""The schedule of a kernel, chosen from its structure and the facts of the target: no measurement, no records."""

from math import prod

from tilewright.base.target import Target
from tilewright.cost.recurrence import is_recurrent, schedule_recurrence
from tilewright.cost.tiles import Problem, choose_tile
from tilewright.kernels.contraction import Contraction, Extents, Tile, analyze, window
from tilewright.kernels.schedules import (
    REGISTERS,
    even,
    inline_all,
    is_reduction,
    schedule_elementwise,
    schedule_reduction,
    schedule_rows,
    schedule_tiles,
)
from tilewright.kernels.transforms import first_stages, schedule_transform
from tilewright.kernels.transposes import crossed_axis
from tilewright.loops.ir import Block, Scope, Store
from tilewright.schedule.schedule import Schedule
from tilewright.schedule.tree import BlockRef, all_blocks, block_at, consumers
from tilewright.symbolic.domain import IterKind
from tilewright.symbolic.expr import ONE, Binary, Expr, Read, Unary
from tilewright.symbolic.operations import BinaryOp, UnaryOp
from tilewright.symbolic.traversal import free_vars, walk

PARALLEL_WORK = 1 << 15
"""Scalar operations below which a parallel region costs more than it saves."""
WINDOW_ROWS = 8
"""Outputs side by side of a reduction over windows: enough to hide the latency of a multiply-add, and to share what
neighbouring windows read."""
WINDOW_TAPS = 32
"""The largest window that is unrolled."""
CROSSED_PANELS = 2
"""The most panels of a tile whose lanes are stored apart: caches and the translation of addresses do not keep up with
many rows that are written a little at a time."""
PACKING_ROWS = 32
"""Rows from which on it pays to copy a panel into packed layout first: each element is then read often enough."""

STREAM_AHEAD = 1 << 14
"""Bytes: at 20 bytes a cycle, more than the latency of memory."""


def schedule(s: Schedule, target: Target) -> Schedule:
    """Schedule ``s`` (a naive program) in place, and return it."""
    if is_recurrent(s.program):
        schedule_recurrence(s, target)
        return s
    anchor, stages = _anchor(s), first_stages(s)
    inline_all(s, keep=_computed_operands(s, anchor) | _panel_to_keep(s, anchor) | _expensive_shared(s) | stages)
    if anchor is not None:
        _contraction(s, anchor, target)
    reductions = [b for b in all_blocks(s.program.body) if is_reduction(b)]
    if anchor is None and reductions:
        _reductions(s, reductions, target)
    elif anchor is None and stages and _are_stages(s):
        result = all_blocks(s.program.body)[-1]
        schedule_transform(s, _lanes(result, target) // REGISTERS, _is_large(s, result))
    elif anchor is None:
        for block in all_blocks(s.program.body):
            schedule_elementwise(s, BlockRef(block.name), _lanes(block, target), _is_large(s, block))
    return s


def _are_stages(s: Schedule) -> bool:
    """Whether there are the two stages of a transform and nothing else, with channels for lanes."""
    blocks = all_blocks(s.program.body)
    return len(blocks) == 2 and Extents(s.program.dims)(blocks[-1].axes[-1]) > 1


def _anchor(s: Schedule) -> BlockRef | None:
    """The contraction of a kernel that has exactly one reduction."""
    reductions = [b for b in all_blocks(s.program.body) if is_reduction(b)]
    if len(reductions) != 1 or analyze(reductions[0]) is None:
        return None
    return BlockRef(reductions[0].name)


def _computed_operands(s: Schedule, anchor: BlockRef | None) -> frozenset[str]:
    """What comes before the contraction and is more than an element found elsewhere: padding, or arithmetic.

    The contraction reads every element many times, so it is computed once.
    """
    blocks = all_blocks(s.program.body)
    if anchor is None:
        return frozenset()
    before = blocks[: [b.name for b in blocks].index(anchor.name)]
    computed = [b for b in before if not (isinstance(b.body, Store) and isinstance(b.body.value, Read))]
    return frozenset(b.writes[0].buffer.name for b in computed)


def _expensive_shared(s: Schedule) -> frozenset[str]:
    """Results of expensive operations that are read by several blocks, or several times by one."""
    found: set[str] = set()
    for block in all_blocks(s.program.body):
        readers = consumers(s.program, block)
        often = len(readers) > 1 or any(_points(s, reader) > _points(s, block) for reader in readers)
        if often and isinstance(block.body, Store) and _is_expensive(block.body.value):
            found.add(block.writes[0].buffer.name)
    return frozenset(found)


def _points(s: Schedule, block: Block) -> int:
    return prod(Extents(s.program.dims)(axis) for axis in block.axes)


_CHEAP = frozenset({UnaryOp.NEG, UnaryOp.NOT, UnaryOp.ABS})


def _is_expensive(value: Expr) -> bool:
    for node in walk(value):
        if isinstance(node, Unary) and node.op not in _CHEAP:
            return True
        if isinstance(node, Binary) and node.op in (BinaryOp.DIV, BinaryOp.POW) and node.dtype.is_float:
            return True
    return False


def _panel_to_keep(s: Schedule, anchor: BlockRef | None) -> frozenset[str]:
    """The panel's buffer, if reading through to where it comes from would break its rows apart (a transpose, say)."""
    if anchor is None:
        return frozenset()
    before = analyze(block_at(s.program, anchor).stmt)
    if before is None or not before.panel_is_contiguous:
        return frozenset()
    trial = s.copy()
    later = [b for b in all_blocks(s.program.body) if not _comes_before(s, b, anchor)]
    inline_all(trial, keep=_computed_operands(s, anchor) | {r.buffer.name for b in later for r in b.writes})
    after = analyze(block_at(trial.program, anchor).stmt)
    return frozenset() if after is not None and after.panel_is_contiguous else frozenset({before.panel})


def _contraction(s: Schedule, anchor: BlockRef, target: Target) -> None:
    block = block_at(s.program, anchor).stmt
    roles = analyze(block)
    if roles is None:
        return
    problem = _problem(s, block, roles)
    tile = choose_tile(problem, target)
    for other in all_blocks(s.program.body):
        if _comes_before(s, other, anchor):
            schedule_elementwise(s, BlockRef(other.name), _lanes(other, target), _is_large(s, other))
    if _wants_packing(s, block, roles, tile):
        _pack_panel(s, anchor, roles, tile)
    schedule_tiles(s, anchor, roles, tile, _is_large(s, block), outermost=_kept_longest(s, anchor, roles, tile, target))
    if problem.is_streamed(target):
        s.prefetch(roles.panel, STREAM_AHEAD)


def _kept_longest(s: Schedule, anchor: BlockRef, roles: Contraction, tile: Tile, target: Target) -> frozenset[int]:
    """The axes of the panel, if it is better to read the other operand again for each tile of the panel, than the whole
    panel again for each place. What fits in the second cache is read again for nothing."""
    block = block_at(s.program, anchor).stmt
    extents = {position: Extents(s.program.dims)(axis) for position, axis in enumerate(block.axes)}
    spatial = {position for position, axis in enumerate(block.axes) if axis.kind is IterKind.SPATIAL}
    tiled = {roles.vector: tile.lanes, roles.panels: tile.panels}
    tiles = prod(-(-extents[axis] // tiled.get(axis, 1)) for axis in roles.panel_axes)
    places = prod(extents[axis] for axis in spatial - roles.panel_axes - {roles.rows})
    again = [
        0 if size <= target.l2_bytes else size * times
        for size, times in ((_bytes(s, roles.panel), places), (_bytes(s, roles.broadcast), tiles))
    ]
    return roles.panel_axes if again[1] < again[0] else frozenset()


def _bytes(s: Schedule, buffer: str) -> int:
    """The size of a buffer that the program reads or writes."""
    found = next(r.buffer for b in all_blocks(s.program.body) for r in (*b.reads, *b.writes) if r.buffer.name == buffer)
    return found.dtype.itemsize * prod(Extents(s.program.dims).of(extent) for extent in found.shape)


def _problem(s: Schedule, block: Block, roles: Contraction) -> Problem:
    def extent(axis: int | None) -> int:
        return 1 if axis is None else Extents(s.program.dims)(block.axes[axis])

    again = {p for p, a in enumerate(block.axes) if a.kind is IterKind.SPATIAL} - roles.panel_axes - {roles.rows}
    is_read_once = any(p.name == roles.panel for p in s.program.params) and all(extent(p) == 1 for p in again)
    size = _bytes(s, roles.panel) if is_read_once else 0
    itemsize = block.writes[0].buffer.dtype.itemsize
    panels = min(extent(roles.panels), CROSSED_PANELS) if _is_stored_across(s, block) else extent(roles.panels)
    return Problem(extent(roles.vector), extent(roles.rows), panels, itemsize, size)


def _is_stored_across(s: Schedule, block: Block) -> bool:
    """Whether what ``block`` makes is transposed as it is stored: each lane of a tile is then a row of its own."""
    return any(crossed_axis(reader, 1) is not None for reader in consumers(s.program, block))


def _comes_before(s: Schedule, block: Block, anchor: BlockRef) -> bool:
    names = [b.name for b in all_blocks(s.program.body)]
    return names.index(block.name) < names.index(anchor.name)


def _wants_packing(s: Schedule, block: Block, roles: Contraction, tile: Tile) -> bool:
    """A matrix that comes row-major at run time, with rows longer than a panel, is copied into panels first."""
    if roles.rows is None or not roles.panel_is_contiguous or roles.panels is not None:
        return False
    is_parameter = any(p.name == roles.panel and len(p.shape) == 2 for p in s.program.params)
    rows = Extents(s.program.dims)(block.axes[roles.rows])
    return is_parameter and rows >= PACKING_ROWS and Extents(s.program.dims)(block.axes[roles.vector]) > tile.lanes


def _pack_panel(s: Schedule, anchor: BlockRef, roles: Contraction, tile: Tile) -> None:
    copy = s.cache_read(anchor, roles.panel, Scope.GLOBAL)
    packed = block_at(s.program, copy).stmt.writes[0].buffer.name
    s.transform_layout(copy, packed, f"k, n -> n // {tile.lanes}, k, n % {tile.lanes}")
    schedule_elementwise(s, copy, tile.lanes, parallel=True)


def _reductions(s: Schedule, reductions: list[Block], target: Target) -> None:
    """Row by row where the last axis is reduced; else lanes along the last axis, and the reduction around them."""
    blocks = all_blocks(s.program.body)
    result = blocks[-1]
    whole = all(block.name == result.name or _keeps_its_axis(block) for block in reductions)
    by_rows = s.program.outputs == 1 and whole and all(map(_reduces_last, reductions))
    if by_rows and _rows_of(result) == _rows_of(reductions[0]):
        schedule_rows(s, BlockRef(result.name), _lanes(result, target), _is_large(s, reductions[0]))
        return
    if len(reductions) == 1 and _window(s, reductions[0], target):
        return
    for block in blocks:
        if is_reduction(block):
            schedule_reduction(s, BlockRef(block.name), _lanes(block, target), _is_large(s, block))
        else:
            schedule_elementwise(s, BlockRef(block.name), _lanes(block, target), _is_large(s, block))


def _window(s: Schedule, block: Block, target: Target) -> bool:
    """A reduction over windows, if ``block`` is one: tiles in registers, small windows unrolled."""
    roles = window(block)
    blocks = all_blocks(s.program.body)
    if roles is None or blocks[0].name != block.name or len(blocks) > 2:
        return False
    lanes = target.vector_bits // (8 * max(region.buffer.dtype.itemsize for region in block.writes))
    extent = 1 if roles.rows is None else Extents(s.program.dims)(block.axes[roles.rows])
    tile = Tile(lanes, even(extent, WINDOW_ROWS))
    taps = prod(Extents(s.program.dims)(axis) for axis in block.axes if axis.kind is IterKind.REDUCE)
    schedule_tiles(s, BlockRef(block.name), roles, tile, _is_large(s, block), unroll_reduction=taps <= WINDOW_TAPS)
    return True


def _reduces_last(block: Block) -> bool:
    """Whether the one reduction axis is the last dimension of what is read along it."""
    reduced = [axis.var for axis in block.axes if axis.kind is IterKind.REDUCE]
    if len(reduced) != 1:
        return False
    along = [r for r in block.reads if any(reduced[0] in free_vars(start) for start, _ in r.ranges)]
    return bool(along) and all(region.ranges[-1][0] == reduced[0] for region in along)


def _keeps_its_axis(block: Block) -> bool:
    """Whether the reduced axis is still there, as 1: then the other axes are rows."""
    spatial = [axis.extent for axis in block.axes if axis.kind is IterKind.SPATIAL]
    return bool(spatial) and spatial[-1] == ONE


def _rows_of(block: Block) -> tuple[object, ...]:
    """The extents of the leading axes: all spatial ones but the last, without those that a reduction keeps as 1."""
    spatial = [axis.extent for axis in block.axes if axis.kind is IterKind.SPATIAL]
    return tuple(spatial[:-1])


def _lanes(block: Block, target: Target) -> int:
    """Lanes of a vector loop."""
    widest = max(region.buffer.dtype.itemsize for region in (*block.reads, *block.writes))
    return max(1, REGISTERS * target.vector_bits // (8 * widest))


def _is_large(s: Schedule, block: Block) -> bool:
    return _points(s, block) >= PARALLEL_WORK
