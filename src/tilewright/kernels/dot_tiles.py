"""Register tiles that are made by dot-product instructions.

The reduction is packed in lanes: its last axis is what one instruction sums up. The panel is stored as the instruction
reads it (``ops.dot_products``), a register for each step. Everything else is as for other register tiles.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from tilewright.kernels.contraction import Contraction
from tilewright.kernels.dot_products import LANES, dot_products
from tilewright.kernels.nests import Tiles
from tilewright.kernels.schedules import driving_loop, extent_of
from tilewright.kernels.tiling import Order, finish_tiles, outer_order, privatized
from tilewright.loops.ir import Block, Store
from tilewright.schedule.intrinsics import TensorIntrinsic
from tilewright.schedule.schedule import Schedule
from tilewright.schedule.tree import LoopRef, block_at, depends_on
from tilewright.space.knobs import Knob
from tilewright.symbolic.domain import IterKind
from tilewright.symbolic.expr import Const, const
from tilewright.symbolic.traversal import reads_in
from tilewright.target.target import Target


def instruction_for(block: Block, roles: Contraction, target: Target) -> TensorIntrinsic | None:
    """The dot-product instruction of ``target`` that makes the sums of ``block``, if its panel is stored for one."""
    if not isinstance(block.body, Store):
        return None
    panel = next((read for read in reads_in(block.body.value) if read.source.name == roles.panel), None)
    broadcast = next((read for read in reads_in(block.body.value) if read.source.name == roles.broadcast), None)
    if panel is None or broadcast is None:
        return None
    group, vector = block.axes[-1], block.axes[roles.vector]
    places = (vector.var, vector.var % LANES) if vector.extent == const(LANES) else (vector.var % LANES,)
    is_packed = any(panel.indices[-2:] == (place, group.var) for place in places)
    if not is_packed or not any(depends_on(index, (group.var,)) for index in broadcast.indices[-1:]):
        return None
    types = (broadcast.dtype, panel.dtype, block.writes[0].buffer.dtype)
    for intrinsic in dot_products(target).intrinsics:
        a, b, c = intrinsic.description.params
        if types == (a.dtype, b.dtype, c.dtype) and group.extent == b.shape[-1]:
            return intrinsic
    return None


@dataclass(frozen=True, slots=True)
class DotTiles(Tiles):
    """A register tile whose vectors are accumulators of ``instruction``; for knobs see ``Tiles``."""

    instruction: TensorIntrinsic

    @staticmethod
    def over(tiles: Tiles, instruction: TensorIntrinsic) -> "DotTiles":
        """``tiles``, made by ``instruction``: a step of the reduction is a group, as wide as an accumulator."""
        group = instruction.description.params[0].shape[-1]
        assert isinstance(group, Const), "intrinsics have constant shapes"
        facts = replace(tiles.facts, reduction=tiles.facts.reduction // int(group.value))
        lanes = tuple(n for n in tiles.values("lanes") if facts.vector % n == 0) or (LANES,)
        knobs = tuple(Knob("lanes", lanes) if knob.name == "lanes" else knob for knob in tiles.knobs)
        own = (tiles.roles, facts, tiles.registers, tiles.parallel, tiles.stream_ahead)
        return DotTiles(tiles.name, knobs, *own, instruction)

    def schedule(self, s: Schedule, values: Mapping[str, int]) -> None:
        """As the class says."""
        roles, lanes = self.roles, values["lanes"]
        epilogue = privatized(s, self.anchor)
        axes = block_at(s.program, self.anchor).stmt.axes
        loops = [driving_loop(s, self.anchor, position) for position in range(len(axes))]
        *reduced, group = [loops[p] for p, axis in enumerate(axes) if axis.kind is IterKind.REDUCE]
        outer = {p: loops[p] for p, axis in enumerate(axes) if axis.kind is IterKind.SPATIAL}
        outer[roles.vector], strip = s.split(loops[roles.vector], (None, lanes))
        vector, lane = s.split(strip, (None, LANES))
        inside: list[LoopRef] = [vector]
        if roles.rows is not None:
            outer[roles.rows], row = s.split(loops[roles.rows], (None, values["rows"]))
            inside = [row, vector]
        around = [outer[axis] for axis in outer_order(outer, roles, Order(values["order"]))]
        around.sort(key=lambda loop: extent_of(s, loop) > 1)
        s.reorder(*around, *reduced, *inside, lane, group)
        for loop in inside:
            s.unroll(loop)
        may_be_parallel = finish_tiles(s, self.anchor, epilogue, around, lanes)
        s.tensorize(lane, self.instruction)
        for loop in may_be_parallel if self.parallel else ():
            if extent_of(s, loop) > 1:
                s.parallel(loop)
        if values["prefetch"] and isinstance(roles, Contraction):
            s.prefetch(roles.panel, self.stream_ahead, values["prefetch"])
