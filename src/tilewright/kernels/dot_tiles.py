"""Register tiles computed by dot-product instructions.

The reduction is packed in lanes: one instruction sums over its last axis. The panel is stored in the instruction's
layout (``ops.dot_products``), a register for each step. Otherwise they are ordinary register tiles.
"""

from collections.abc import Sequence
from dataclasses import replace

from tilewright.kernels.contraction import Contraction
from tilewright.kernels.dot_descriptions import WORD, group_of, has_limits, lanes_of, types_of
from tilewright.kernels.dot_products import dot_products
from tilewright.kernels.narrowing import factors
from tilewright.kernels.nests import VECTORS, Tiles
from tilewright.kernels.packing import Group
from tilewright.kernels.panel_rows import Pack
from tilewright.kernels.relayout import Layouts, blocked, operations
from tilewright.kernels.tiling import Unroll
from tilewright.loops.ir import Block, Store
from tilewright.ops.build import tensor as tensor_of
from tilewright.schedule.index_map import IndexMap, digit
from tilewright.schedule.intrinsics import TensorIntrinsic
from tilewright.schedule.tree import depends_on
from tilewright.space.knobs import Knob
from tilewright.symbolic.bounds import Bounds
from tilewright.symbolic.domain import IterVar
from tilewright.symbolic.expr import ONE, ZERO, Binary, Const, Expr, Read, Var, const
from tilewright.symbolic.operations import BinaryOp
from tilewright.symbolic.simplify import simplify
from tilewright.symbolic.traversal import reads_in
from tilewright.target.target import Target
from tilewright.tensor.ir import Compute, Operation, Tensor, inputs_of


def instruction_for(block: Block, roles: Contraction, target: Target) -> TensorIntrinsic | None:
    """The dot-product instruction of ``target`` for the sums of ``block``, if its panel has the layout of one."""
    if not isinstance(block.body, Store):
        return None
    panel = next((read for read in reads_in(block.body.value) if read.source.name == roles.panel), None)
    broadcast = next((read for read in reads_in(block.body.value) if read.source.name == roles.broadcast), None)
    if panel is None or broadcast is None:
        return None
    group, vector = block.axes[-1], block.axes[roles.vector]
    if len(panel.indices) < 2 or panel.indices[-1] != group.var:
        return None
    if not any(depends_on(index, (group.var,)) for index in broadcast.indices[-1:]):
        return None
    types = (broadcast.dtype, panel.dtype, block.writes[0].buffer.dtype)
    known = (one for one in dot_products(target).intrinsics if types_of(one) == types)
    alike = (one for one in known if has_limits(one.block) == has_limits(block))
    fitting = (one for one in alike if group.extent == const(group_of(one)))
    return next((one for one in fitting if _is_whole(panel.indices[-2], vector, lanes_of(one))), None)


def _is_whole(place: Expr, vector: IterVar, lanes: int) -> bool:
    """Whether ``place`` is the position on the axis ``vector`` in panels of whole registers."""
    match place:
        case Var():
            return place == vector.var and isinstance(vector.extent, Const) and int(vector.extent.value) % lanes == 0
        case Binary(BinaryOp.MOD, Var() as inner, Const(int(width))):
            return inner == vector.var and width % lanes == 0
        case _:
            return False


def groups_of(op: Operation, weight: Tensor, layouts: Layouts, target: Target) -> Group | None:
    """The groups in which ``target`` has an instruction for the products of ``op``, a sum over ``weight`` and data.

    Neighbours in a group must be neighbours in the data, too: along the last dimension that these are stored in.
    """
    if not isinstance(op, Compute):
        return None
    operands, reduction = factors(op), op.reduction
    if operands is None or reduction is None or weight.dtype == reduction.sources[0].dtype:
        return None
    data, own = operands if operands[1].source is weight else operands[::-1]
    if own.source is not weight or not isinstance(data.source, Tensor):
        return None
    types = (data.dtype, weight.dtype, reduction.sources[0].dtype)
    size = next((group_of(one) for one in dot_products(target).intrinsics if types_of(one) == types), 0)
    bounds = Bounds({axis.var: axis.extent for axis in (*op.axes, *op.reduce_axis)})
    for axis in op.reduce_axis if size else ():
        is_divided = isinstance(axis.extent, Const) and int(axis.extent.value) % size == 0
        if is_divided and axis.var in own.indices and _is_last(axis.var, data, bounds, layouts, size):
            return Group(axis.var, size)
    return None


def whole_columns(
    outputs: Sequence[Tensor], layouts: Layouts, target: Target
) -> tuple[list[Tensor], dict[Tensor, IndexMap]]:
    """``outputs``, and layouts of the products that an instruction computes and whose columns are no whole tiles: with
    columns in blocks of a register, of which the last may not be full. A tile is then of several blocks, some less at
    the end; the widest tile that divides the columns would have fewer accumulators, which wait for themselves. So are
    columns that are read as blocks of channels: a tile's sums are then complete where they are read."""
    found = dict(layouts)
    results, lanes = list(outputs), target.lanes(WORD)
    regrouped = {source for op, made in operations(outputs) if made[0] in layouts for source in inputs_of(op)}
    for op, tensors in operations(outputs):
        (tensor, *others) = tensors
        weights = [source for source in inputs_of(op) if groups_of(op, source, layouts, target)] if not others else []
        columns = tensor.shape[-1] if tensor.shape else ONE
        if (
            weights
            and tensor not in layouts
            and isinstance(columns, Const)
            and (tensor in regrouped or not _are_tiles(int(columns.value), lanes))
        ):
            found[tensor] = blocked(tensor.ndim, lanes, tensor.ndim - 1)
            results = [_copy(t) if t is tensor else t for t in results]
    return results, found


def _are_tiles(columns: int, lanes: int) -> bool:
    """Whether ``columns`` are one tile, or tiles of the most registers."""
    return columns in {lanes * count for count in VECTORS} or columns % (lanes * max(VECTORS)) == 0


def _copy(x: Tensor) -> Tensor:
    return tensor_of(x.shape, lambda index: x[index])


def _is_last(axis: Var, data: Read, bounds: Bounds, layouts: Layouts, size: int) -> bool:
    """Whether whole groups along ``axis`` are neighbours in memory."""
    index_map = layouts.get(data.source) if isinstance(data.source, Tensor) else None
    if index_map is None:
        return bool(data.indices) and data.indices[-1] == axis
    last = digit(index_map.results[-1])
    at = dict(zip(index_map.variables, data.indices, strict=True))
    if last is None or last.scale != 1 or (last.modulus or size) % size != 0:
        return False
    return (
        simplify((at[last.var] - axis) % size, bounds) == ZERO
    )  # channels of a group come after those of the groups before


def by_instruction(tiles: Tiles, instruction: TensorIntrinsic) -> Tiles:
    """``tiles``, computed by ``instruction``: a step of the reduction is a group, as wide as an accumulator."""
    steps = tiles.facts.reduction // group_of(instruction) * instruction.multiply_adds
    facts, own = replace(tiles.facts, reduction=steps, steps=0), lanes_of(instruction)
    lanes = tuple(n for n in tiles.values("lanes") if facts.vector % n == 0) or (own,)
    packs = tuple(way for way in tiles.values("pack") if way != Pack.STRIPS.value)
    changed = {"lanes": lanes, "unroll": (Unroll.NOTHING.value,), "pack": packs, "slices": (1,)}
    knobs = tuple(Knob(knob.name, changed.get(knob.name, knob.values)) for knob in tiles.knobs)
    registers = replace(tiles.registers, count=tiles.registers.count - instruction.temporaries)
    return replace(tiles, knobs=knobs, facts=facts, registers=registers, instruction=instruction)
