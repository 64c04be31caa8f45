"""Register tiles computed by dot-product instructions.

The reduction is packed in lanes: one instruction sums over its last axis. The panel is stored in the instruction's
layout (``ops.dot_products``), a register for each step. Otherwise they are ordinary register tiles.
"""

from dataclasses import replace

from tilewright.kernels.contraction import Contraction
from tilewright.kernels.dot_products import LANES, dot_products
from tilewright.kernels.nests import Tiles
from tilewright.loops.ir import Block, Store
from tilewright.schedule.intrinsics import TensorIntrinsic
from tilewright.schedule.tree import depends_on
from tilewright.space.knobs import Knob
from tilewright.symbolic.expr import Const, const
from tilewright.symbolic.traversal import reads_in
from tilewright.target.target import Target


def instruction_for(block: Block, roles: Contraction, target: Target) -> TensorIntrinsic | None:
    """The dot-product instruction of ``target`` for the sums of ``block``, if its panel has the layout of one."""
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


def by_instruction(tiles: Tiles, instruction: TensorIntrinsic) -> Tiles:
    """``tiles``, computed by ``instruction``: a step of the reduction is a group, as wide as an accumulator."""
    group = instruction.description.params[0].shape[-1]
    assert isinstance(group, Const), "intrinsics have constant shapes"
    facts = replace(tiles.facts, reduction=tiles.facts.reduction // int(group.value))
    lanes = tuple(n for n in tiles.values("lanes") if facts.vector % n == 0) or (LANES,)
    knobs = tuple(Knob("lanes", lanes) if knob.name == "lanes" else knob for knob in tiles.knobs)
    return replace(tiles, knobs=knobs, facts=facts, instruction=instruction)
