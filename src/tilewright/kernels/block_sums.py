"""Sums over blocks, each of which is a sum of products that is finished in registers (``ops.weight_products``).

The kernel has two reductions: dot-product instructions sum up a block in i32, and the other one scales these sums and
adds them up. A tile of the result stays in registers over all blocks, and the accumulators of a block in each of them.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from tilewright.base.dtypes import DType
from tilewright.kernels.contraction import Extents, Roles, Tile, window
from tilewright.kernels.dot_descriptions import lanes_of
from tilewright.kernels.dot_products import dot_products
from tilewright.kernels.nests import Nest, Registers
from tilewright.kernels.schedules import driving_loop, extent_of, is_reduction
from tilewright.kernels.tiling import Order, Plan, axes_of, outer_order, schedule_tiles
from tilewright.loops.ir import Block, Store
from tilewright.loops.memory import LOCAL
from tilewright.schedule.intrinsics import TensorIntrinsic
from tilewright.schedule.schedule import Schedule
from tilewright.schedule.tree import BlockRef, LoopRef, all_blocks, consumers
from tilewright.space.knobs import Knob
from tilewright.space.population import BoolArray, Population
from tilewright.symbolic.domain import IterKind, IterVar
from tilewright.symbolic.expr import Binary, Const
from tilewright.symbolic.operations import BinaryOp
from tilewright.symbolic.traversal import free_vars, reads_in
from tilewright.target.target import Target

WRITTEN_OUT = 8
"""Most steps of a block that are written out."""


@dataclass(frozen=True, slots=True)
class BlockFacts:
    """What determines the time of a tile."""

    columns: int
    rows: int
    blocks: int
    steps: int
    """Of a block."""
    groups: int
    """Instructions of a step for one accumulator."""
    sums: int
    """Of a block, for each element of the result."""


@dataclass(frozen=True, slots=True)
class BlockSums(Nest):
    """A register tile of scaled sums over blocks. Knobs: ``lanes`` and ``rows`` of the tile."""

    products: str
    """The block of the sums of products."""
    roles: Roles
    facts: BlockFacts
    registers: Registers
    instruction: TensorIntrinsic
    parallel: bool

    @staticmethod
    def of(s: Schedule, target: Target, parallel: int) -> "BlockSums | None":
        """The nest of a kernel of two such reductions, if it is one; ``parallel``: the work worth several cores."""
        reductions = [block for block in all_blocks(s.program.body) if is_reduction(block)]
        if len(reductions) != 2 or all_blocks(s.program.body)[0] != reductions[0]:
            return None
        inner, outer = reductions
        instruction, roles = _instruction(inner, target), window(outer)
        is_used_once = consumers(s.program, inner) == (outer,) and len(axes_of(outer, IterKind.REDUCE)) == 1
        if instruction is None or roles is None or not is_used_once or not _is_packed(inner, lanes_of(instruction)):
            return None
        extents = Extents(s.program.dims)
        facts = _facts(inner, outer, roles, instruction, extents)
        registers, own = Registers.of(outer, target), lanes_of(instruction)
        lanes = tuple(n * own for n in (4, 2, 1) if facts.columns % (n * own) == 0)
        rows = tuple(range(1, min(max(facts.rows, 1), registers.count // (1 + facts.sums)) + 1))
        knobs = Knob("lanes", lanes or (own,)), Knob("rows", rows)
        is_large = extents.points(inner.axes) >= parallel
        return BlockSums(outer.name, knobs, inner.name, roles, facts, registers, instruction, is_large)

    def allowed(self, population: Population) -> BoolArray:
        """Checks that the accumulators, those of a block, and a step of the panel fit in the registers."""
        vectors = population.column("lanes") // lanes_of(self.instruction)
        tiles = population.column("rows") * (1 + self.facts.sums) + self.facts.groups
        return np.less_equal(vectors * tiles + 1, self.registers.count - self.instruction.temporaries)

    def schedule(self, s: Schedule, values: Mapping[str, int]) -> None:
        """See ``Nest``."""
        anchor = BlockRef(self.name)
        block = _block(s, self.name)
        (position,) = axes_of(block, IterKind.REDUCE)
        over_blocks = driving_loop(s, anchor, position)
        outer = outer_order(axes_of(block, IterKind.SPATIAL), self.roles, Order.COLUMNS_ROWS)
        plan = Plan(Tile(values["lanes"], values["rows"]), outer, (position,))
        schedule_tiles(s, anchor, self.roles, plan, self.parallel)
        self._schedule_products(s, over_blocks)

    def _schedule_products(self, s: Schedule, over_blocks: LoopRef) -> None:
        """Sum up a block in registers: a vector of the panel is used for all rows and digits."""
        made = _block(s, self.products)
        buffer, summed = made.writes[0].buffer.name, len(_reduced(self.instruction))
        loops = s.compute_at(BlockRef(self.products), over_blocks)
        assert len(loops) == len(made.axes), "the products have loops of their own"
        spatial = [loop for loop, axis in zip(loops, made.axes, strict=True) if axis.kind is IterKind.SPATIAL]
        reduced = [loop for loop, axis in zip(loops, made.axes, strict=True) if axis.kind is IterKind.REDUCE]
        steps, at_once = reduced[:-summed], reduced[-summed:]
        vector, lanes = s.split(spatial[-1], (None, lanes_of(self.instruction)))
        tile = [vector, *spatial[:-1]]
        s.reorder(*steps, *tile, lanes, *at_once)
        for loop in (*(step for step in steps if extent_of(s, step) <= WRITTEN_OUT), *tile):
            s.unroll(loop)
        s.tensorize(lanes, self.instruction)
        s.set_scope(buffer, LOCAL)


def _facts(inner: Block, outer: Block, roles: Roles, instruction: TensorIntrinsic, extents: Extents) -> BlockFacts:
    def points(block: Block, kind: IterKind) -> int:
        return extents.points(axis for axis in block.axes if axis.kind is kind)

    columns, blocks = extents(outer.axes[roles.vector]), points(outer, IterKind.REDUCE)
    results = points(outer, IterKind.SPATIAL)
    steps = points(inner, IterKind.REDUCE) // extents.points(_reduced(instruction))
    sums = points(inner, IterKind.SPATIAL) // max(1, results * blocks)
    groups = len(instruction.description.inputs) - 1
    return BlockFacts(columns, results // columns, blocks, steps, groups, sums)


def _instruction(block: Block, target: Target) -> TensorIntrinsic | None:
    """The instruction for products of as many operands of the same types, that sums over the last axis of ``block``."""
    if not isinstance(block.body, Store):
        return None
    last = block.axes[-1]
    for intrinsic in dot_products(target).intrinsics:
        if _operands(block) == _operands(intrinsic.block) and [a.extent for a in _reduced(intrinsic)] == [last.extent]:
            return intrinsic
    return None


def _is_packed(block: Block, lanes: int) -> bool:
    """Whether what ``block`` multiplies by is stored in the registers of the instruction, of so many ``lanes``."""
    assert isinstance(block.body, Store), "see `_instruction`"
    spatial = [axis for axis in block.axes if axis.kind is IterKind.SPATIAL]
    reads = [read for read in reads_in(block.body.value) if len(read.indices) > 1]
    panel = next((read for read in reads if spatial and spatial[-1].var in free_vars(read.indices[-2])), None)
    if panel is None:
        return False
    vector = spatial[-1]
    is_whole = isinstance(vector.extent, Const) and int(vector.extent.value) % lanes == 0
    match panel.indices[-2:]:
        case (Binary(BinaryOp.MOD, place, Const(int(width))), group):
            return is_whole and place == vector.var and width % lanes == 0 and group == block.axes[-1].var
        case (place, group):
            return is_whole and place == vector.var and group == block.axes[-1].var
        case _:
            return False


def _operands(block: Block) -> list[DType]:
    """The types of what ``block`` reads and adds up, and of the sum."""
    assert isinstance(block.body, Store), "a reduction of one value"
    written = block.writes[0].buffer
    reads = reads_in(block.body.value)
    return [*(read.dtype for read in reads if read.source != written), written.dtype]


def _reduced(intrinsic: TensorIntrinsic) -> list[IterVar]:
    return [axis for axis in intrinsic.block.axes if axis.kind is IterKind.REDUCE]


def _block(s: Schedule, name: str) -> Block:
    return next(block for block in all_blocks(s.program.body) if block.name == name)
