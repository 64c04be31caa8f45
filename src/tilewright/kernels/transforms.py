"""Schedules of linear transforms of small tiles (Winograd's): a tile is fully unrolled, in registers.

Such a kernel has two stages, rows and columns, or one, of tiles of one dimension. Each *chooses* among a few sums by
the value of an axis (``select(a < 1, ..., select(a < 2, ...))``). Unrolled, the choice is made while compiling.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from tilewright.kernels.schedules import is_reduction, ref
from tilewright.loops.ir import Block, Store
from tilewright.loops.memory import LOCAL
from tilewright.loops.program import Program
from tilewright.schedule.schedule import Schedule
from tilewright.schedule.tree import BlockRef, LoopRef, all_blocks, block_at, consumers, loops_of
from tilewright.symbolic.domain import IterVar
from tilewright.symbolic.expr import Binary, Const, Expr, Read, Select, Var
from tilewright.symbolic.operations import BinaryOp
from tilewright.symbolic.traversal import walk


def first_stages(s: Schedule) -> frozenset[str]:
    """The buffers between two choosing stages: inlined, their values would be computed many times."""
    found: set[str] = set()
    for block in all_blocks(s.program.body):
        if _choices(block) and any(_choices(reader) for reader in consumers(s.program, block)):
            found.update(region.buffer.name for region in block.writes)
    return frozenset(found)


def transform_stages(program: Program) -> list[Block]:
    """The blocks that choose another value for each value of an axis, or of its remainder."""
    return [block for block in all_blocks(program.body) if chooses_each(block, block.axes)]


def chooses_each(block: Block, axes: Sequence[IterVar]) -> bool:
    """Whether there is another value for each value of one of ``axes``, which only chooses, or of its remainder."""
    if is_reduction(block) or not isinstance(block.body, Store):
        return False
    indices = {index for node in walk(block.body.value) if isinstance(node, Read) for index in node.indices}
    extents = {axis.var: axis.extent for axis in axes if axis.var not in indices}
    bounds: dict[tuple[Var, int], set[int]] = {}
    for node in walk(block.body.value):
        match node:
            case Select(Binary(BinaryOp.LT, value, Const(int(bound)))):
                for variable, choice in _choosing(value, {*extents}).items():
                    bounds.setdefault((variable, choice.values(extents[variable])), set()).add(bound)
            case _:
                pass
    return any(count > 1 and found.issuperset(range(1, count)) for (_, count), found in bounds.items())


def schedule_transform(s: Schedule, lanes: int, parallel: bool) -> None:
    """The last stage writes the result: tile by tile, ``lanes`` channels at a time; one before it is in registers."""
    *before, last_stage = all_blocks(s.program.body)
    result, stmt = BlockRef(last_stage.name), last_stage
    choices = _choices(stmt)
    for first in before:
        choices |= _passed_on(first, stmt)
    channels = _channels(stmt)
    outer: list[LoopRef] = []
    inner: list[LoopRef] = []
    blocks: list[LoopRef] = []
    loops = dict(
        zip((axis.var for axis in stmt.axes), [ref(loop) for loop in loops_of(s.program, result)], strict=True)
    )
    *others, last = loops
    for variable in others:
        if variable not in choices:
            (blocks if variable in channels else outer).append(loops[variable])
        elif not (choice := choices[variable]).sizes:
            inner.append(loops[variable])
        else:
            parts = [*s.split(loops[variable], (None, *choice.sizes))]
            inner.append(parts.pop(1))
            outer += parts
    block, vector = s.split(loops[last], (None, lanes))
    outer += blocks
    s.reorder(*outer, block, *inner, vector)
    for first in before:
        _put_in_registers(s, BlockRef(first.name), block)
    for loop in inner:
        s.unroll(loop)
    s.vectorize(vector)
    if parallel:
        for loop in outer:
            s.parallel(loop)


def _channels(result: Block) -> set[Var]:
    """The axes along which a tile's points lie side by side in memory: all of them are read for one tile, then for the
    next one, as the points themselves are far apart."""
    assert isinstance(result.body, Store), "a stage stores one value"
    reads = (node for node in walk(result.body.value) if isinstance(node, Read) and len(node.indices) > 1)
    return {variable for node in reads for variable in node.indices[-1].variables}


def _put_in_registers(s: Schedule, first: BlockRef, block: LoopRef) -> None:
    """A tile of the first stage, within ``block``."""
    s.compute_at(first, block)
    s.set_scope(block_at(s.program, first).stmt.writes[0].buffer.name, LOCAL)
    around = [ref(loop) for loop in loops_of(s.program, first)]
    *own, vector = around[around.index(block) + 1 :]
    for loop in own:
        s.unroll(loop)
    s.vectorize(vector)


@dataclass(frozen=True, slots=True)
class _Choice:
    """How an axis selects the computation: by its value, or, with a ``count``, by the remainder of its ``distance``-th
    part."""

    count: int | None = None
    distance: int = 1

    def values(self, extent: Expr) -> int:
        """How many there are to choose by; 0 if that is not known."""
        return self.count or (int(extent.value) if isinstance(extent, Const) else 0)

    @property
    def sizes(self) -> tuple[int, ...]:
        """Those of the inner loops of the axis."""
        return () if self.count is None else (self.count, self.distance)[: 1 + (self.distance > 1)]


def _choices(block: Block) -> dict[Var, _Choice]:
    """The axes whose value selects the computation."""
    if is_reduction(block) or not isinstance(block.body, Store):
        return {}
    axes = {axis.var for axis in block.axes}
    found: dict[Var, _Choice] = {}
    for node in walk(block.body.value):
        if isinstance(node, Select):
            found.update(_compared(node.condition, axes))
    return found


def _passed_on(first: Block, result: Block) -> dict[Var, _Choice]:
    """The axes of ``result`` by which the first stage selects its inputs."""
    assert isinstance(first.body, Store) and isinstance(result.body, Store), "stages store one value"
    chosen = [position for position, axis in enumerate(first.axes) if axis.var in _choices(first)]
    found: dict[Var, _Choice] = {}
    for node in walk(result.body.value):
        if isinstance(node, Read) and node.source == first.body.buffer:
            for position in chosen:
                found.update(_choosing(node.indices[position], {axis.var for axis in result.axes}))
    return found


def _compared(condition: Expr, axes: set[Var]) -> dict[Var, _Choice]:
    match condition:
        case Binary(BinaryOp.LT, value, Const()):
            return _choosing(value, axes)
        case _:
            return {}


def _choosing(value: Expr, axes: set[Var]) -> dict[Var, _Choice]:
    match value:
        case Var() if value in axes:
            return {value: _Choice()}
        case Binary(BinaryOp.MOD, Var() as variable, Const(int(count))) if variable in axes:
            return {variable: _Choice(count)}
        case Binary(BinaryOp.MOD, Binary(BinaryOp.FLOORDIV, Var() as variable, Const(int(part))), Const(int(count))):
            return {variable: _Choice(count, part)} if variable in axes else {}
        case _:
            return {}
