"""``decompose_reduction``: moves the initialization of a reduction into a block of its own, before one of its loops."""

import dataclasses

from tilewright.loops.ir import Alloc, Block, Loop, Stmt
from tilewright.loops.program import Program
from tilewright.loops.visit import seq
from tilewright.schedule.blocks import only_where_points_are, refreshed
from tilewright.schedule.tree import (
    BlockRef,
    LoopRef,
    block_at,
    buffers_written,
    change_blocks,
    depends_on,
    fresh_block_name,
    fresh_loop_vars,
    loop_at,
    nest,
    refuse,
    rewrite,
)
from tilewright.symbolic.domain import IterKind
from tilewright.symbolic.expr import ZERO, Expr, Var
from tilewright.symbolic.traversal import free_vars, substitute


def decompose_reduction(program: Program, block: BlockRef, loop: LoopRef) -> tuple[Program, BlockRef]:
    """Move the init of ``block`` to just before ``loop``; returns the new block, which has loops of its own.

    ``block`` keeps its name and only updates from then on. Refuses if ``block`` has no init, if ``loop`` is not around
    it, and if a loop outside of ``loop`` drives a reduction axis (the init would run repeatedly).
    """
    place = block_at(program, block)
    target = loop_at(program, loop)
    around = [own.var for own in place.loops]
    if place.stmt.init is None:
        raise refuse(f"`{block}` has no init (any more)", block)
    if target.stmt.var not in around:
        raise refuse(f"the loop is not around `{block}`", loop)
    outside, inside = place.loops[: around.index(target.stmt.var)], place.loops[around.index(target.stmt.var) :]
    pairs = list(zip(place.stmt.axes, place.stmt.bindings, strict=True))
    reducing = [binding for axis, binding in pairs if axis.kind is IterKind.REDUCE]
    others = [binding for axis, binding in pairs if axis.kind is not IterKind.REDUCE]
    for own in outside:
        if any(depends_on(binding, [own.var]) for binding in reducing):
            raise refuse(f"`{own.var}`, outside of `{loop}`, drives the reduction", LoopRef(own.var.name))
    driving = [own for own in inside if any(depends_on(binding, [own.var]) for binding in reducing)]
    for own in driving:
        if any(depends_on(binding, [own.var]) for binding in others):
            raise refuse(f"`{own.var}` drives other axes too, as it was fused", LoopRef(own.var.name))
    for ancestor in place.ancestors[len(target.ancestors) :]:
        if isinstance(ancestor, Alloc) and ancestor.buffer in buffers_written(place.stmt):
            raise refuse(f"`{ancestor.buffer.name}` is allocated inside of the loop", loop)
    init = _init_nest(program, place.stmt, inside, {own.var for own in driving})
    update = refreshed(program, dataclasses.replace(place.stmt, init=None))
    body = change_blocks(target.stmt, lambda b: update if b.name == block.name else b)
    made = f"{block.name}_init"
    return rewrite(program, target, seq(init, body)), BlockRef(fresh_block_name(program, made))


def _init_nest(program: Program, block: Block, inside: tuple[Loop, ...], driving: set[Var]) -> Stmt:
    """The init of ``block`` in copies of the loops in ``inside`` that it needs."""
    zero: dict[Var, Expr] = dict.fromkeys(driving, ZERO)
    pairs = [(a, b) for a, b in zip(block.axes, block.bindings, strict=True) if a.kind is not IterKind.REDUCE]
    predicate = substitute(block.predicate, zero)
    used = free_vars(predicate).union(*(free_vars(binding) for _, binding in pairs))
    copied = [loop for loop in inside if loop.var in used]
    fresh = fresh_loop_vars(program, [loop.var.name for loop in copied])
    renamed: dict[Var, Expr] = dict(zip([loop.var for loop in copied], fresh, strict=True))
    assert block.init is not None
    init = Block(
        fresh_block_name(program, f"{block.name}_init"),
        tuple(axis for axis, _ in pairs),
        tuple(substitute(binding, renamed) for _, binding in pairs),
        (),
        (),
        block.init,
        predicate=substitute(predicate, renamed),
    )
    loops = [dataclasses.replace(loop, var=v) for loop, v in zip(copied, fresh, strict=True)]
    return nest(loops, refreshed(program, only_where_points_are(program, init)))
