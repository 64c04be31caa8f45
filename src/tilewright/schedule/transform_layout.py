"""``transform_layout``: changes the layout of an intermediate buffer, ``T[k, j]`` to ``T[j // 32, k, j % 32]``.

So it does with a parameter that is declared constant, whose new layout the program then notes: whoever calls it stores
the constant so, once (``kernels.packing``).

If a factor does not divide an extent, part of the last tile is undefined, and never read. (Layouts as in Liu et al.,
"Optimizing CNN Model Inference on CPUs", ATC 2019.)
"""

import dataclasses
from collections.abc import Collection, Sequence

from tilewright.loops.ir import NOTHING, Alloc, Block, Buffer, Loop, LoopKind, Seq, Stmt, Store
from tilewright.loops.program import Program, layout_key
from tilewright.loops.visit import buffers, transform_stmts
from tilewright.schedule.blocks import Indices, bounds_within, calls_in, guard, moved_accesses
from tilewright.schedule.cache import buffer_named
from tilewright.schedule.index_map import IndexMap
from tilewright.schedule.trace import Primitive, Trace
from tilewright.schedule.tree import (
    BlockRef,
    Location,
    LoopRef,
    all_blocks,
    block_at,
    bounds_at,
    buffers_read,
    buffers_written,
    change_blocks,
    fresh_loop_vars,
    nest,
    refuse,
    rewrite,
)
from tilewright.symbolic.domain import IterKind
from tilewright.symbolic.expr import ONE, TRUE, Const, Expr, Var
from tilewright.symbolic.simplify import equivalent, simplify


def transform_layout(
    program: Program, block: BlockRef, buffer: str, index_map: IndexMap
) -> tuple[Program, tuple[LoopRef, ...]]:
    """Store ``buffer``, which ``block`` reads or writes, packed by ``index_map``, in all blocks.

    If ``block`` writes the buffer in plain loops over its dimensions, they become loops over the packed dimensions,
    which are returned. Refuses parameters that are no constants (pack a ``cache_read`` or ``cache_write`` copy
    instead), or are stored in another layout already, maps that are not injective, and buffers that are passed to
    intrinsics.
    """
    old = buffer_named(program, buffer)
    user = block_at(program, block)
    if old not in buffers_read(user.stmt) | buffers_written(user.stmt):
        raise refuse(f"`{block}` does not use `{buffer}`", block)
    if old in program.params:
        _check_constant(program, old)
    if len(index_map.variables) != len(old.shape):
        raise refuse(f"the map has {len(index_map.variables)} indices, but `{buffer}` has {len(old.shape)} dimensions")
    index_map.inverse(old.shape, index_map.results)
    shape = tuple(simplify(extent, program.bounds) for extent in index_map.shape(old.shape))
    new = dataclasses.replace(old, shape=shape)
    _check_uses(program, old)
    if not equivalent(_count(shape), _count(old.shape), program.bounds):
        _check_elementwise_writers(program, old)
    changed: Program = program
    loops: tuple[LoopRef, ...] = ()
    plain = _plain_nest(user, old)
    if plain is not None:
        changed, loops = _reordered(program, plain, user.stmt, old, new, index_map)
    body = change_blocks(_with_allocation(changed.body, old, new), lambda b: _packed(program, b, old, new, index_map))
    changed = dataclasses.replace(changed, body=body)
    return (_declared(changed, old, new, index_map) if old in program.params else changed), loops


def _check_constant(program: Program, old: Buffer) -> None:
    """Checks that the caller can store the parameter otherwise."""
    if not program.is_constant(old.name):
        raise refuse(
            f"`{old.name}` is a parameter, laid out by the caller; transform a cache_read or cache_write of it, "
            "or declare it constant"
        )
    if known := program.layout(old.name):
        raise refuse(f"`{old.name}` is laid out by `{known}` already; a constant's layout is chosen once")
    if not all(isinstance(extent, Const) for extent in old.shape):
        raise refuse(f"`{old.name}` has run-time extents, so it can't be stored before they are known")


def _declared(program: Program, old: Buffer, new: Buffer, index_map: IndexMap) -> Program:
    """``program`` whose parameter ``old`` is ``new``, with a note of its layout."""
    params = tuple(new if param == old else param for param in program.params)
    note = (layout_key(old.name), str(index_map))
    return dataclasses.replace(program, params=params, annotations=(*program.annotations, note))


def layouts_of(trace: Trace, constants: Collection[str]) -> dict[str, IndexMap]:
    """The layouts that the steps of ``trace`` give to ``constants``, by name."""
    found: dict[str, IndexMap] = {}
    for step in trace.steps:
        match step.primitive, step.arguments:
            case Primitive.TRANSFORM_LAYOUT, (_, str(buffer), IndexMap() as index_map) if buffer in constants:
                found[buffer] = index_map
            case _:
                pass
    return found


def _check_uses(program: Program, old: Buffer) -> None:
    """Checks that all accesses are plain reads and stores inside of blocks."""
    bare = transform_stmts(program.body, lambda stmt: Seq(()) if isinstance(stmt, Block) else None)
    without = transform_stmts(bare, lambda stmt: stmt.body if isinstance(stmt, Alloc) else None)
    if old in buffers(without):
        raise refuse(f"`{old.name}` is used outside of blocks")
    for block in all_blocks(program.body):
        if any(region.buffer == old for call in calls_in(block) for region in call.args):
            raise refuse(f"`{block.name}` passes `{old.name}` to an intrinsic", BlockRef(block.name))


def _count(shape: Sequence[Expr]) -> Expr:
    count: Expr = ONE
    for extent in shape:
        count = count * extent
    return count


def _check_elementwise_writers(program: Program, old: Buffer) -> None:
    """Checks that no block declares whole ranges as written, as padding stays undefined."""
    for block in all_blocks(program.body):
        if any(region.buffer == old and any(extent != ONE for _, extent in region.ranges) for region in block.writes):
            reason = f"`{block.name}` writes ranges of `{old.name}`, which the layout would pad"
            raise refuse(reason, BlockRef(block.name))


def _with_allocation(stmt: Stmt, old: Buffer, new: Buffer) -> Stmt:
    def leave(node: Stmt) -> Stmt | None:
        return Alloc(new, node.body) if isinstance(node, Alloc) and node.buffer == old else None

    return transform_stmts(stmt, leave)


def _packed(program: Program, block: Block, old: Buffer, new: Buffer, index_map: IndexMap) -> Block:
    if old not in buffers_read(block) | buffers_written(block):
        return block
    bounds = bounds_within(program, block.axes)

    def change(indices: Indices) -> Indices:
        return tuple(simplify(result, bounds) for result in index_map.apply(indices))

    return moved_accesses(program, block, old, new, change)


# The loops of the writer ---------------------------------------------------------------------------------------------


def _plain_nest(user: Location[Block], buffer: Buffer) -> Location[Loop] | None:
    """The outermost of the loops that run exactly over the dimensions of ``buffer``, around its writer."""
    block = user.stmt
    store = block.body
    if not isinstance(store, Store) or store.buffer != buffer or block.init is not None or block.predicate != TRUE:
        return None
    rank = len(buffer.shape)
    loops = [a for a in user.ancestors[len(user.ancestors) - rank :] if isinstance(a, Loop)]
    own = {axis.var: axis.extent for axis in block.axes}
    is_plain = (
        0 < rank == len(loops) == len(own) == len(set(store.indices))
        and {loop.var for loop in loops} == set(block.bindings)
        and all(loop.kind is LoopKind.SERIAL for loop in loops)
        and all(isinstance(i, Var) and own.get(i) == size for i, size in zip(store.indices, buffer.shape, strict=True))
        and all(axis.kind is IterKind.SPATIAL for axis in block.axes)
    )
    outermost = len(user.ancestors) - rank
    return Location(loops[0], user.ancestors[:outermost], user.path[:outermost]) if is_plain else None


def _reordered(
    program: Program, place: Location[Loop], block: Block, old: Buffer, new: Buffer, index_map: IndexMap
) -> tuple[Program, tuple[LoopRef, ...]]:
    """``block`` (which stores at its own axes, not packed yet) in loops over the packed dimensions."""
    assert isinstance(block.body, Store)
    without = rewrite(program, place, NOTHING)
    variables = fresh_loop_vars(without, [f"{block.name}_{d}" for d in range(len(new.shape))])
    bounds = bounds_at(program, place).extended(dict(zip(variables, new.shape, strict=True)))
    inverse = index_map.inverse(old.shape, variables)
    values = dict(zip(block.body.indices, (simplify(v, bounds) for v in inverse), strict=True))
    bindings = tuple(values[axis.var] for axis in block.axes)
    predicate = guard([(values[axis.var], axis.extent) for axis in block.axes], bounds)
    moved = dataclasses.replace(block, bindings=bindings, predicate=predicate)
    loops = [Loop(v, e, moved) for v, e in zip(variables, new.shape, strict=True)]
    return rewrite(program, place, nest(loops, moved)), tuple(LoopRef(v.name) for v in variables)
