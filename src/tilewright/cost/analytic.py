"""Derives the space of a kernel's schedules from its structure, and chooses the one that the model rates best.

It uses neither measurements nor records.
"""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from math import prod

from tilewright.cost.model import best, least_cycles
from tilewright.cost.recurrence import is_recurrent, recurrence
from tilewright.kernels.attention_tiles import AttentionTiles
from tilewright.kernels.block_sums import BlockSums
from tilewright.kernels.contraction import Contraction, Extents, analyze, window
from tilewright.kernels.dot_tiles import by_instruction, instruction_for
from tilewright.kernels.matrix_tiles import MatrixTiles
from tilewright.kernels.nests import Lanes, Nest, Nests, Tiles
from tilewright.kernels.padded_parts import PaddedParts, parts_of
from tilewright.kernels.reductions import (
    LEAST_STRIP,
    adds_rows,
    inline_open_rows,
    reduces_rows,
    schedule_added_rows,
    schedule_columns,
    schedule_reduction,
    schedule_rows,
)
from tilewright.kernels.row_products import RowProducts
from tilewright.kernels.schedules import (
    RUN_TIME,
    drop_unread,
    inline_all,
    is_reduction,
    iterations_of,
    schedule_elementwise,
)
from tilewright.kernels.tile_facts import CALLED, CALLED_FAR, WRITTEN, param_bytes
from tilewright.kernels.transforms import chooses_each, first_stages, schedule_transform
from tilewright.kernels.transposes import shortest_run
from tilewright.kernels.unpacked_tiles import UnpackedTiles, unpacked_panel
from tilewright.loops.ir import Block, Store
from tilewright.schedule.schedule import Schedule
from tilewright.schedule.tree import BlockRef, all_blocks, block_at, consumers
from tilewright.symbolic.domain import IterKind
from tilewright.symbolic.expr import ONE, Binary, Const, Expr, Read, Select, Unary, Var, const
from tilewright.symbolic.linear import polynomial
from tilewright.symbolic.operations import BinaryOp, UnaryOp
from tilewright.symbolic.traversal import free_vars, walk
from tilewright.target.machine import ENOUGH_CHUNKS
from tilewright.target.target import Target


def schedule(s: Schedule, target: Target) -> Schedule:
    """Schedule ``s`` (a naive program) in place, and return it: the model's best candidate of its space."""
    nests = open_space(s, target)
    nests.apply(s, best(nests, target))
    return s


def open_space(s: Schedule, target: Target) -> Nests:
    """Inline blocks in ``s`` (a naive program), in place; return the space of the remaining choices.

    Choices of the nests apply to ``s``, and to copies of it.
    """
    if is_recurrent(s.program):
        return recurrence(s, target)
    attention = AttentionTiles.of(s, target, target.machine.parallel_work)
    if attention is not None:
        return Nests((attention,))
    anchor, stages = _anchor(s), first_stages(s)
    kept = _computed_operands(s, anchor) | _operands_to_keep(s, anchor, target)
    unmade = _multiplied_by_rows(s, anchor, kept, target)
    kept = (kept - unmade) | _padded_rows(s, target)
    inline_all(s, keep=kept | _expensive_shared(s) | stages)
    drop_unread(s)
    if anchor is not None and anchor.name not in {block.name for block in all_blocks(s.program.body)}:
        anchor = None  # simplifying what reads it left nothing that does, as in where(c, x, x)
    sums = BlockSums.of(s, target, target.machine.parallel_work)
    if sums is not None:
        return Nests((sums,))
    reductions = [b for b in all_blocks(s.program.body) if is_reduction(b)]
    rows = _row_products(s, anchor, target) if anchor is not None and unmade else None
    if rows is not None:
        return Nests((*(elementwise(s, other, target) for other in _before(s, rows.anchor)), rows))
    roles = None if anchor is None else analyze(block_at(s.program, anchor).stmt)
    if anchor is not None and roles is not None:  # after inlining it may be none: extents of 1 have no axis
        return Nests(tuple(_contraction(s, anchor, roles, target)))
    if reductions:
        return Nests(tuple(_reductions(s, reductions, target)))
    if _are_stages(s, stages):
        result = all_blocks(s.program.body)[-1]
        channels = Extents(s.program.dims)(result.axes[-1])
        large = is_large(s, result, target)
        return Nests((Lanes.of(s, result, _transform, target, large, _TRANSFORM, channels),))
    return Nests(tuple(elementwise(s, block, target) for block in all_blocks(s.program.body)))


_TRANSFORM = 36
"""Values that a transform holds in registers at a time: the 6 x 6 points of Winograd's largest tile."""


def _transform(s: Schedule, _: BlockRef, lanes: int, parallel: bool) -> None:
    schedule_transform(s, lanes, parallel)


def elementwise(s: Schedule, block: Block, target: Target) -> Lanes:
    """The nest of an elementwise block, whose lanes read elements that are side by side."""
    run = shortest_run(block)
    nest = Lanes.of(s, block, schedule_elementwise, target, is_large(s, block, target), most=run)
    return replace(nest, width=run) if run is not None and run < nest.width <= 2 * run else nest


def _are_stages(s: Schedule, first: frozenset[str]) -> bool:
    """Whether these are exactly the stages of a transform, ``first`` and the last one, with channels for lanes."""
    blocks = all_blocks(s.program.body)
    if not blocks or not blocks[-1].axes or Extents(s.program.dims)(blocks[-1].axes[-1]) <= 1:
        return False
    return len(blocks) == 2 if first else len(blocks) == 1 and chooses_each(blocks[0], blocks[0].axes[:-1])


def _anchor(s: Schedule) -> BlockRef | None:
    """The contraction of a kernel that has exactly one reduction."""
    reductions = [b for b in all_blocks(s.program.body) if is_reduction(b)]
    if len(reductions) != 1 or analyze(reductions[0]) is None:
        return None
    return BlockRef(reductions[0].name)


def _computed_operands(s: Schedule, anchor: BlockRef | None) -> frozenset[str]:
    """The producers of the contraction's operands that do more than move elements: padding, or arithmetic.

    The contraction reads every element many times, so each is computed once.
    """
    if anchor is None:
        return frozenset()
    needed = {region.buffer.name for region in block_at(s.program, anchor).stmt.reads}
    found: set[str] = set()
    for block in reversed(_before(s, anchor)):
        made = block.writes[0].buffer.name
        if made not in needed:
            continue  # what is added to the sums is computed where these are finished
        needed.update(region.buffer.name for region in block.reads)
        if not (isinstance(block.body, Store) and isinstance(block.body.value, Read)):
            found.add(made)
    return frozenset(found)


def _padded_rows(s: Schedule, target: Target) -> frozenset[str]:
    """Padded data that a window slides over along its lanes: a large one, as their masks would be made anew for each
    tap; or any if lanes are then side by side. And data that it reads so often that padding takes little time: then
    taps in the padding may be left out, too."""
    found: set[str] = set()
    padded = [b for b in all_blocks(s.program.body) if isinstance(b.body, Store) and isinstance(b.body.value, Select)]
    for block in padded:
        (reader, *others) = consumers(s.program, block) or (block,)
        taps, roles = [axis for axis in reader.axes if axis.kind is IterKind.REDUCE], window(reader)
        points, data = Extents(s.program.dims).points, block.writes[0].buffer
        if roles is None or others:
            continue
        lanes = reader.axes[roles.vector].var
        starts = [polynomial(region.ranges[-1][0]) for region in reader.reads if region.buffer == data]
        slides = any((lanes,) in start and any((axis.var,) in start for axis in taps) for start in starts)
        is_wide = points(taps) > target.machine.unrolled_taps
        is_often = is_wide and points(reader.axes) >= target.machine.padded_reads * points(block.axes)
        if is_often or (slides and (is_wide or _is_sampled(block))):
            found.add(data.name)
    return frozenset(found)


def _is_sampled(block: Block) -> bool:
    """Whether elements that are apart along rows of what ``block`` reads are side by side in what it makes."""
    along = (block.axes[-1].var,)
    return any(polynomial(region.ranges[-1][0]).get(along, 1) > 1 for region in block.reads if region.ranges)


def _before(s: Schedule, anchor: BlockRef) -> tuple[Block, ...]:
    """The blocks before ``anchor``, in order."""
    blocks = all_blocks(s.program.body)
    return blocks[: [block.name for block in blocks].index(anchor.name)]


def _expensive_shared(s: Schedule) -> frozenset[str]:
    """Results of expensive operations that several blocks read, or one reads several times."""
    found: set[str] = set()
    for block in all_blocks(s.program.body):
        readers = consumers(s.program, block)
        often = len(readers) > 1 or any(_points(s, reader) > _points(s, block) for reader in readers)
        if often and isinstance(block.body, Store) and _is_expensive(block.body.value):
            found.add(block.writes[0].buffer.name)
    return frozenset(found)


def _points(s: Schedule, block: Block) -> int:
    return Extents(s.program.dims).points(block.axes)


_CHEAP = frozenset({UnaryOp.NEG, UnaryOp.NOT, UnaryOp.ABS})


def _is_expensive(value: Expr) -> bool:
    for node in walk(value):
        if isinstance(node, Unary) and node.op not in _CHEAP:
            return True
        if isinstance(node, Binary) and node.op in (BinaryOp.DIV, BinaryOp.POW) and node.dtype.is_float:
            return True
    return False


def _operands_to_keep(s: Schedule, anchor: BlockRef | None, target: Target) -> frozenset[str]:
    """The panel's buffer, if inlining its producer would make its rows non-contiguous (such as a transpose); of what an
    instruction multiplies, the panel in its order, and data whose neighbours would not be neighbours."""
    if anchor is None:
        return frozenset()
    block = block_at(s.program, anchor).stmt
    before = analyze(block)
    if before is None:
        return frozenset()
    panel = frozenset({before.panel})
    if instruction_for(block, before, target) is not None:
        return panel if _is_instruction(s, anchor, panel, target) else panel | {before.broadcast}
    if not before.panel_is_contiguous:
        return frozenset()
    after = analyze(_without_producers(s, anchor, frozenset()))
    return frozenset() if after is not None and after.panel_is_contiguous else panel


def _is_instruction(s: Schedule, anchor: BlockRef, kept: frozenset[str], target: Target) -> bool:
    """Whether ``target`` has an instruction for the sums, if what is not ``kept`` is inlined."""
    block = _without_producers(s, anchor, kept)
    roles = analyze(block)
    return roles is not None and instruction_for(block, roles, target) is not None


def _without_producers(s: Schedule, anchor: BlockRef, kept: frozenset[str]) -> Block:
    """The block of the sums that reads through what only moves elements, unless it is ``kept``."""
    trial = s.copy()
    later = all_blocks(s.program.body)[len(_before(s, anchor)) :]
    inline_all(trial, keep=kept | _computed_operands(s, anchor) | {r.buffer.name for b in later for r in b.writes})
    return block_at(trial.program, anchor).stmt


def _multiplied_by_rows(s: Schedule, anchor: BlockRef | None, kept: frozenset[str], target: Target) -> frozenset[str]:
    """The panel among ``kept`` that is not to be made, if sums of products of rows take less time than a copy of it and
    tiles over that copy."""
    before = None if anchor is None else analyze(block_at(s.program, anchor).stmt)
    if anchor is None or before is None or before.panel not in kept:
        return frozenset()
    panel, by_rows, by_tiles = frozenset({before.panel}), s.copy(), s.copy()
    inline_all(by_rows, keep=kept - panel)
    inline_all(by_tiles, keep=kept)
    rows, roles = _row_products(by_rows, anchor, target), analyze(block_at(by_tiles.program, anchor).stmt)
    if rows is None or roles is None:
        return frozenset()
    copy = next(block for block in _before(by_tiles, anchor) if block.writes[0].buffer.name in panel)
    vectors = _points(by_tiles, copy) / target.lanes(copy.writes[0].buffer.dtype.bits)
    *_, tiles = _contraction(by_tiles, anchor, roles, target)
    by_copy = least_cycles(tiles, target) + target.machine.crossed_cycles * vectors
    return panel if least_cycles(rows, target) < by_copy else frozenset()


def _row_products(s: Schedule, anchor: BlockRef, target: Target) -> RowProducts | None:
    return RowProducts.of(s, anchor, target, is_large(s, block_at(s.program, anchor).stmt, target))


def _contraction(s: Schedule, anchor: BlockRef, roles: Contraction, target: Target) -> Iterator[Nest]:
    """The nests of the elementwise producers, then of the contraction with all its consumers."""
    block, producers = block_at(s.program, anchor).stmt, _before(s, anchor)
    instruction, large = instruction_for(block, roles, target), is_large(s, block, target)
    are_near = sum(param_bytes(s.program, {roles.panel})) <= target.l2_bytes
    skipping = WRITTEN if instruction is None else CALLED if are_near else CALLED_FAR
    tiles = Tiles.of(s, anchor, roles, target, large, may_unroll=False, skipping=skipping)
    if len(producers) == 1 and tiles.facts.panel_width and unpacked_panel(producers[0], roles):
        yield UnpackedTiles.around(tiles, producers[0].name, target)
        return
    matrix = MatrixTiles.of(tiles, block, target, all_rows=_moves_rows(s, block, roles))
    if instruction is not None:
        tiles = by_instruction(tiles, instruction)
    parts = _padded_parts(s, tiles, producers[0], roles, target) if len(producers) == 1 else None
    plain = tiles.without("slices")  # data that are padded part by part are near without slices
    nests = [nest for nest in (parts, plain, matrix) if nest is not None]
    chosen = nests[0] if len(nests) == 1 else min(nests, key=lambda nest: least_cycles(nest, target))
    if chosen is not parts:
        yield from (elementwise(s, other, target) for other in producers)
    yield tiles if chosen is plain else chosen


def _padded_parts(s: Schedule, tiles: Tiles, padding: Block, roles: Contraction, target: Target) -> PaddedParts | None:
    """Tiles that pad image by image, or group by group; None if there are too few parts to share among threads."""
    sums = block_at(s.program, tiles.anchor).stmt
    axes = parts_of(s.program, padding, sums, roles)
    chunks = prod(iterations_of(sums.axes[axis]) for axis in axes if isinstance(sums.axes[axis].extent, Const))
    if not axes or (tiles.parallel and chunks < min(2 * target.cores, ENOUGH_CHUNKS)):
        return None
    return PaddedParts.around(tiles, s.program, padding, sums, axes)


def _moves_rows(s: Schedule, block: Block, roles: Contraction) -> bool:
    """Whether consumers read rows of the result of ``block`` at other places: then they need all of them."""
    if roles.rows is None or not isinstance(block.body, Store):
        return False
    place, result = block.body.indices.index(block.axes[roles.rows].var), block.writes[0].buffer
    read = (region for reader in consumers(s.program, block) for region in reader.reads if region.buffer == result)
    return any(not isinstance(region.ranges[place][0], Var) for region in read)


def _reductions(s: Schedule, reductions: list[Block], target: Target) -> Iterator[Nest]:
    """Row by row if the last axis is reduced; else lanes along the last axis, with the reduction around them."""
    blocks = all_blocks(s.program.body)
    result = blocks[-1]
    whole = all(block.name == result.name or _keeps_its_axis(block) for block in reductions)
    by_rows = s.program.outputs == 1 and whole and all(map(_reduces_last, reductions))
    is_row = by_rows and _rows_of(result) == _rows_of(reductions[0])
    if is_row and inline_open_rows(s, BlockRef(result.name)):
        large, most = is_large(s, reductions[0], target), _most_lanes(result, target)
        yield Lanes.of(s, result, schedule_rows, target, large, most=most)
        return
    axis = _axis_of_columns(s, reductions)
    if axis is not None and iterations_of(result.axes[-1]) >= target.lanes(result.writes[0].buffer.dtype.bits):
        how = partial(schedule_columns, axis=axis)
        yield Lanes.of(s, result, how, target, is_large(s, reductions[0], target))
        return
    if len(reductions) == 1 and _adds_far_rows(s, reductions[0], target):
        how = partial(schedule_added_rows, cores=target.cores)
        yield Lanes.of(s, reductions[0], how, target, is_large(s, reductions[0], target))
        return
    nest = _window(s, reductions[0], target) if len(reductions) == 1 else None
    if nest is not None:
        yield from (elementwise(s, other, target) for other in _before(s, nest.anchor))
        yield nest
        return
    for block in blocks:
        how = schedule_reduction if is_reduction(block) else schedule_elementwise
        yield Lanes.of(s, block, how, target, is_large(s, block, target))


_MANY_ROWS = 16
"""Rows that lie apart from which on no processor foresees what a tile reads of them."""


def _adds_far_rows(s: Schedule, block: Block, target: Target) -> bool:
    """Whether many long rows, which the first cache does not hold, are combined to a row; at most an elementwise step
    of this row follows."""
    *before, result = all_blocks(s.program.body)
    if not adds_rows(block) or len(before) > 1 or _kept_extents(result) != _kept_extents(block):
        return False
    itemsize = max(region.buffer.dtype.itemsize for region in block.reads)
    *_, last = (axis for axis in block.axes if axis.kind is IterKind.SPATIAL)
    rows = prod(iterations_of(axis) for axis in block.axes if axis.kind is IterKind.REDUCE)
    columns = iterations_of(last)
    is_known = rows < RUN_TIME and columns < RUN_TIME
    is_far = rows >= _MANY_ROWS and columns >= LEAST_STRIP and rows * columns * itemsize > target.l1_bytes
    return is_known and is_far


_MASKED_BITS = 512
"""Registers from which on the masks of lanes are registers of their own (AVX-512)."""


def _most_lanes(result: Block, target: Target) -> int | None:
    """A register for rows of three: LLVM puts the masks of 48 lanes together bit by bit, which takes longer than all
    else. Rows of five and seven registers are not concerned."""
    width = target.lanes(result.writes[0].buffer.dtype.bits)
    has_masks = target.vector_bits >= _MASKED_BITS
    return width if has_masks and result.axes[-1].extent == const(3 * width) else None


def _window(s: Schedule, block: Block, target: Target) -> Tiles | None:
    """A reduction over windows, if ``block`` is one: tiles in registers; small windows may be unrolled."""
    roles = window(block)
    blocks = all_blocks(s.program.body)
    behind = len(blocks) - len(_before(s, BlockRef(block.name)))
    if roles is None or behind > 2 or reduces_rows(block):
        return None
    taps = Extents(s.program.dims).points(axis for axis in block.axes if axis.kind is IterKind.REDUCE)
    anchor = BlockRef(block.name)
    may_unroll = taps <= target.machine.unrolled_taps
    return Tiles.of(s, anchor, roles, target, is_large(s, block, target), may_unroll)


def _reduces_last(block: Block) -> bool:
    """Whether the only reduction axis is the last dimension of the buffer that it indexes."""
    reduced = [axis.var for axis in block.axes if axis.kind is IterKind.REDUCE]
    if len(reduced) != 1:
        return False
    along = [r for r in block.reads if any(reduced[0] in free_vars(start) for start, _ in r.ranges)]
    return bool(along) and all(region.ranges[-1][0] == reduced[0] for region in along)


def _axis_of_columns(s: Schedule, reductions: list[Block]) -> int | None:
    """The axis before the last one along which all of several ``reductions`` work, if they keep it with one element:
    what becomes of a column then depends on this column only. None if there is none."""
    *_, result = blocks = all_blocks(s.program.body)
    rows, axes = _kept_extents(result), {_kept_axis(block) for block in reductions}
    if s.program.outputs != 1 or len(reductions) < 2 or len(axes) != 1 or is_reduction(result):
        return None
    (axis,) = axes
    if axis is None or axis >= len(rows) - 1 or not isinstance(rows[axis], Const):
        return None
    others = [_without(_kept_extents(block), axis) for block in blocks]
    return axis if all(extents == others[-1] for extents in others) else None


def _kept_axis(block: Block) -> int | None:
    """The dimension along which ``block`` reads what it reduces, by its only axis of reduction, if it is kept with one
    element."""
    reduced, extents = [axis.var for axis in block.axes if axis.kind is IterKind.REDUCE], _kept_extents(block)
    starts = [[start for start, _ in region.ranges] for region in block.reads]
    found = {place for places in starts for place, start in enumerate(places) if reduced[0] in free_vars(start)}
    if len(reduced) != 1 or len(found) != 1:
        return None
    (axis,) = found
    return axis if axis < len(extents) and extents[axis] == ONE else None


def _kept_extents(block: Block) -> tuple[Expr, ...]:
    return tuple(axis.extent for axis in block.axes if axis.kind is IterKind.SPATIAL)


def _without(extents: tuple[Expr, ...], axis: int) -> tuple[Expr, ...]:
    return (*extents[:axis], *extents[axis + 1 :])


def _keeps_its_axis(block: Block) -> bool:
    """Whether the reduced axis is kept with extent 1: then the other axes are rows."""
    kept = _kept_extents(block)
    return bool(kept) and kept[-1] == ONE


def _rows_of(block: Block) -> tuple[Expr, ...]:
    """The extents of the leading axes: all spatial ones except the last and those that a reduction keeps as 1."""
    return _kept_extents(block)[:-1]


def is_large(s: Schedule, block: Block, target: Target) -> bool:
    """Whether distributing ``block`` over workers saves time."""
    return _points(s, block) >= target.machine.parallel_work
