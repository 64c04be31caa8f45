"""``rfactor``: turns a loop of a reduction into a spatial axis of partial results, which a second block combines.

``s = sum(A[ko * 8 + ki])`` with ``ki`` factored out: ``P[ki] = sum over ko``, then ``s = sum over ki of P[ki]``. The
partial sums can run in parallel or in lanes. (Suriana et al., CGO 2017; Chen et al., OSDI 2018.)
"""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

from tilewright.loops.ir import Alloc, Block, Buffer, If, Loop, LoopKind, Stmt
from tilewright.loops.program import Program
from tilewright.loops.visit import perfect_nest, seq
from tilewright.loops.visit import substitute as substitute_stmt
from tilewright.schedule.blocks import (
    Indices,
    axis_vars,
    bindings_by_kind,
    only_where_points_are,
    redirected,
    refreshed,
)
from tilewright.schedule.combiner import Combiner, combiner_of
from tilewright.schedule.compact import compact
from tilewright.schedule.tree import (
    BlockRef,
    Location,
    LoopRef,
    blocks_in,
    depends_on,
    fresh_block_name,
    fresh_buffer_name,
    fresh_loop_vars,
    loop_at,
    nest,
    refuse,
    rewrite,
)
from tilewright.symbolic.domain import IterKind, IterVar
from tilewright.symbolic.expr import ONE, TRUE, ZERO, Expr, Read, Var
from tilewright.symbolic.traversal import all_of, conjuncts, substitute


def rfactor(program: Program, loop: LoopRef, axis: int) -> tuple[Program, BlockRef]:
    """Factor ``loop`` out of its reduction; returns the block of the partial results.

    The partial results get ``loop`` as dimension ``axis`` of their buffer; the original block combines them. Refuses if
    the loop does not drive a reduction (or drives spatial axes too), if other blocks are inside of the reduction's
    loops, and if the reducer can't be recovered.
    """
    nest_of = _reduction_around(program, loop)
    block = nest_of.block
    combiner = combiner_of(block)
    rank = len(combiner.stores[0].indices)
    if not 0 <= axis <= rank:
        raise refuse(f"`{block.name}` has {rank} dimensions, so axis {axis} can't be inserted", BlockRef(block.name))
    partial = {
        store.buffer: _partial_buffer(program, store.buffer, nest_of.factored, axis) for store in combiner.stores
    }
    first = _partial_block(program, nest_of, partial, axis)
    second = _combining_nest(program, nest_of, combiner, partial, axis)
    reduced = nest(nest_of.inside, first)
    body: Stmt = seq(reduced, second)
    for buffer in partial.values():
        body = Alloc(buffer, body)
    result = rewrite(program, nest_of.outermost, body)
    for buffer in partial.values():
        result = compact(result, buffer.name)
    return result, BlockRef(first.name)


@dataclass(frozen=True, slots=True)
class _ReductionNest:
    """A reduction and its loops."""

    outermost: Location[Loop]
    """The outermost loop that drives a reduction axis."""
    inside: tuple[Loop, ...]
    """It and all loops in it, down to the block."""
    factored: Loop
    driving: tuple[Var, ...]
    """The loops that drive reduction axes."""
    block: Block


def _reduction_around(program: Program, loop: LoopRef) -> _ReductionNest:
    place = loop_at(program, loop)
    found = blocks_in(place.stmt)
    if len(found) != 1:
        raise refuse(f"there are {len(found)} blocks inside; factor a loop around one reduction only", loop)
    (block,) = found
    ref = BlockRef(block.name)
    around = [*place.loops, *perfect_nest(place.stmt)]
    spatial, reducing = bindings_by_kind(block)
    if any(axis.kind is IterKind.ORDERED for axis in block.axes):
        raise refuse(f"`{block.name}` is a recurrence, not a reduction", ref)
    # A loop of one iteration may have been simplified out of the bindings.
    unit = place.stmt.var if place.stmt.extent == ONE else None
    driving = tuple(o.var for o in around if o.var == unit or any(depends_on(b, [o.var]) for b in reducing))
    if place.stmt.extent == ZERO:
        raise refuse("the loop never runs, so there is nothing to factor", loop)
    if place.stmt.var not in driving:
        raise refuse(f"the loop drives no reduction axis of `{block.name}`", loop)
    both = [v for v in driving if any(depends_on(b, [v]) for b in spatial)]
    if both:
        raise refuse(f"`{both[0]}` drives spatial axes of `{block.name}` too", LoopRef(both[0].name))
    outermost = loop_at(program, LoopRef(driving[0].name))
    inside = perfect_nest(outermost.stmt)
    if inside[-1].body != block:
        raise refuse(f"the loops from `{driving[0]}` on hold more than `{block.name}`", LoopRef(driving[0].name))
    return _ReductionNest(outermost, inside, place.stmt, driving, block)


def _partial_buffer(program: Program, buffer: Buffer, loop: Loop, axis: int) -> Buffer:
    shape = (*buffer.shape[:axis], loop.extent, *buffer.shape[axis:])
    return dataclasses.replace(buffer, name=fresh_buffer_name(program, f"{buffer.name}_rf"), shape=shape)


def _partial_block(program: Program, own: _ReductionNest, partial: dict[Buffer, Buffer], axis: int) -> Block:
    """The block of the partial results: each reduction loop is an axis, that of ``own.factored`` a spatial one."""
    block = own.block
    spatial = [(a, b) for a, b in zip(block.axes, block.bindings, strict=True) if a.kind is IterKind.SPATIAL]
    loops = {loop.var: loop.extent for loop in own.inside}
    fresh = axis_vars(program, [f"v{v.name}" for v in own.driving], [a.name for a, _ in spatial])
    inner: dict[Var, Expr] = dict(zip(own.driving, fresh, strict=True))
    added = [
        IterVar(new, loops[v], IterKind.SPATIAL if v == own.factored.var else IterKind.REDUCE)
        for v, new in zip(own.driving, fresh, strict=True)
    ]
    reduced: dict[Var, Expr] = {
        a.var: substitute(b, inner)
        for a, b in zip(block.axes, block.bindings, strict=True)
        if a.kind is IterKind.REDUCE
    }
    outer, guarding = _parted(own)
    condition = substitute(guarding, inner)
    body = substitute_stmt(block.body, reduced)
    body = body if condition == TRUE else If(condition, body)
    assert block.init is not None
    init = substitute_stmt(block.init, reduced)
    position = inner[own.factored.var]
    for old, new in partial.items():
        body = redirected(body, old, new, lambda indices: _inserted(indices, axis, position))
        init = redirected(init, old, new, lambda indices: _inserted(indices, axis, position))
    return refreshed(
        program,
        dataclasses.replace(
            block,
            name=fresh_block_name(program, f"{block.name}_rf"),
            axes=(*(a for a, _ in spatial), *added),
            bindings=(*(b for _, b in spatial), *own.driving),
            predicate=outer,
            body=body,
            init=init,
        ),
    )


def _inserted(indices: Indices, axis: int, index: Expr) -> Indices:
    return (*indices[:axis], index, *indices[axis:])


def _parted(own: _ReductionNest) -> tuple[Expr, Expr]:
    """The predicate, as the part over spatial loops and the part over reduction loops."""
    spatial: list[Expr] = []
    reducing: list[Expr] = []
    others = [loop.var for loop in own.inside if loop.var not in own.driving]
    for condition in conjuncts(own.block.predicate):
        if not depends_on(condition, own.driving):
            spatial.append(condition)
        elif depends_on(condition, others):
            raise refuse(f"the guard {condition} mixes spatial and reduction loops", BlockRef(own.block.name))
        else:
            reducing.append(condition)
    return all_of(*spatial), all_of(*reducing)


def _combining_nest(
    program: Program, own: _ReductionNest, combiner: Combiner, partial: dict[Buffer, Buffer], axis: int
) -> Stmt:
    """The original block, which now combines the partial results, in new loops."""
    block = own.block
    spatial = [(a, b) for a, b in zip(block.axes, block.bindings, strict=True) if a.kind is IterKind.SPATIAL]
    old = [loop for loop in own.inside if loop.var not in own.driving]
    variables = fresh_loop_vars(program, [*(loop.var.name for loop in old), own.factored.var.name])
    renamed: dict[Var, Expr] = dict(zip([loop.var for loop in old], variables, strict=False))
    (reduced,) = axis_vars(program, [f"v{variables[-1].name}"], [a.name for a, _ in spatial])
    sources = [Read(partial[store.buffer], _inserted(store.indices, axis, reduced)) for store in combiner.stores]
    combining = dataclasses.replace(
        block,
        axes=(*(a for a, _ in spatial), IterVar(reduced, own.factored.extent, IterKind.REDUCE)),
        bindings=(*(substitute(b, renamed) for _, b in spatial), variables[-1]),
        predicate=substitute(_parted(own)[0], renamed),
        body=combiner.body(sources),
    )
    extents = [*(loop.extent for loop in old), own.factored.extent]
    return _loops(variables, extents, refreshed(program, only_where_points_are(program, combining)))


def _loops(variables: Sequence[Var], extents: Sequence[Expr], block: Block) -> Stmt:
    return nest([Loop(v, e, block, LoopKind.SERIAL) for v, e in zip(variables, extents, strict=True)], block)
