"""Builds blocks: regions from the body, redirected accesses, loops around a block."""

import dataclasses
from collections.abc import Callable, Iterable, Sequence

from tilewright.loops.access import point, regions
from tilewright.loops.ir import Alloc, Block, Buffer, Call, Loop, Region, Stmt, Store, Stores
from tilewright.loops.program import Program
from tilewright.loops.visit import seq, transform_exprs, transform_stmts, walk
from tilewright.schedule.tree import fresh_loop_vars, fresh_name, nest
from tilewright.symbolic import traversal as symbolic
from tilewright.symbolic.bounds import Bounds, interval
from tilewright.symbolic.domain import IterKind, IterVar
from tilewright.symbolic.expr import ONE, ZERO, Const, Expr, Read, Var
from tilewright.symbolic.simplify import equivalent, linear_form, prove, simplify
from tilewright.symbolic.traversal import all_of

Indices = tuple[Expr, ...]
ChangeIndices = Callable[[Indices], Indices]


def bounds_within(program: Program, axes: Iterable[IterVar]) -> Bounds:
    """Known facts inside a block with these ``axes``."""
    return Bounds({axis.var: axis.extent for axis in axes}, {dim.var: dim.bound for dim in program.dims})


def parts(block: Block) -> Stmt:
    """The init (if any) and the body of ``block``, in sequence."""
    return block.body if block.init is None else seq(block.init, block.body)


def map_parts(block: Block, change: Callable[[Stmt], Stmt]) -> Block:
    """``block`` with ``change`` applied to its init and its body."""
    init = None if block.init is None else change(block.init)
    return dataclasses.replace(block, init=init, body=change(block.body))


def unallocated(body: Stmt, buffer: Buffer) -> Stmt:
    """``body`` without the allocation of ``buffer``."""
    return transform_stmts(body, lambda s: s.body if isinstance(s, Alloc) and s.buffer == buffer else None)


def refreshed(program: Program, block: Block) -> Block:
    """``block`` with its read and write regions recomputed from its init and body."""
    found = regions(parts(block), bounds_within(program, block.axes))
    return dataclasses.replace(block, reads=found.reads, writes=found.writes)


def only_where_points_are(program: Program, block: Block) -> Block:
    """``block``, which runs in some of another block's loops, guarded along the axes that none of them drives.

    An empty loop leaves such an axis at a constant, and may be missing in the loops.
    """
    undriven = [(a, b) for a, b in zip(block.axes, block.bindings, strict=True) if not symbolic.free_vars(b)]
    predicate = all_of(block.predicate, *(binding < axis.extent for axis, binding in undriven))
    return dataclasses.replace(block, predicate=simplify(predicate, program.bounds))


def redirected(stmt: Stmt, old: Buffer, new: Buffer, change: ChangeIndices = lambda indices: indices) -> Stmt:
    """``stmt`` (the inside of a block) with every access to ``old`` redirected to ``new``, at changed indices.

    In regions of calls, the starts are changed.
    """

    def moved_read(node: Read) -> Expr | None:
        return Read(new, change(node.indices)) if node.source == old else None

    def moved_store(store: Store) -> Store:
        return Store(new, change(store.indices), store.value) if store.buffer == old else store

    def moved_region(region: Region) -> Region:
        if region.buffer != old:
            return region
        starts = change(tuple(start for start, _ in region.ranges))
        extents = (extent for _, extent in region.ranges)
        return Region(new, tuple(zip(starts, extents, strict=True)))

    def leave(node: Stmt) -> Stmt:
        match node:
            case Store():
                return moved_store(node)
            case Stores(stores):
                return Stores(tuple(map(moved_store, stores)))
            case Call():
                return dataclasses.replace(node, args=tuple(map(moved_region, node.args)))
            case _:
                return node

    return transform_stmts(transform_exprs(stmt, lambda expr: symbolic.transform_reads(expr, moved_read)), leave)


def moved_accesses(
    program: Program, block: Block, old: Buffer, new: Buffer, change: ChangeIndices = lambda indices: indices
) -> Block:
    """``block`` with its accesses to ``old`` redirected to ``new``, at changed indices."""
    return refreshed(program, map_parts(block, lambda inside: redirected(inside, old, new, change)))


def recovered(block: Block, variable: Var, modulus: Expr, bounds: Bounds) -> Expr | None:
    """``variable % modulus``, over the axes of ``block`` in loops of ``bounds``; None if no axis determines it."""
    if modulus == ONE:
        return ZERO
    for axis, binding in zip(block.axes, block.bindings, strict=True):
        factor = linear_form(binding, bounds).coefficient(variable)
        if factor > 0 and equivalent(binding // factor % modulus, variable % modulus, bounds):
            return axis.var // factor % modulus
    return None


def bindings_by_kind(block: Block) -> tuple[list[Expr], list[Expr]]:
    """The bindings of the spatial axes, and the other ones."""
    pairs = list(zip(block.axes, block.bindings, strict=True))
    spatial = [binding for axis, binding in pairs if axis.kind is IterKind.SPATIAL]
    return spatial, [binding for axis, binding in pairs if axis.kind is not IterKind.SPATIAL]


def calls_in(stmt: Stmt) -> tuple[Call, ...]:
    """All calls in ``stmt``."""
    return tuple(node for node in walk(stmt) if isinstance(node, Call))


def axis_vars(program: Program, wanted: Sequence[str], used: Iterable[str] = ()) -> tuple[Var, ...]:
    """New variables for the axes of a block, with names different from all loops and extents and from the axes
    ``used``."""
    taken = {*used, *(dim.var.name for dim in program.dims)}
    taken.update(node.var.name for node in walk(program.body) if isinstance(node, Loop))
    found: list[Var] = []
    for name in wanted:
        found.append(Var(fresh_name(name, taken)))
        taken.add(found[-1].name)
    return tuple(found)


def copy_nest(
    program: Program,
    name: str,
    target: Buffer,
    source: Buffer,
    change: Callable[[Expr, tuple[Var, ...]], Expr] = lambda value, _: value,
) -> Stmt:
    """``target[...] = source[...]`` over all elements: the block ``name`` in new loops.

    ``change`` transforms the value that is read, given the indices.
    """
    rank = range(len(target.shape))
    loops = fresh_loop_vars(program, [f"{name}_{d}" for d in rank])
    variables = axis_vars(program, [f"v{d}" for d in rank])
    axes = tuple(IterVar(v, e, IterKind.SPATIAL) for v, e in zip(variables, target.shape, strict=True))
    body = Store(target, variables, change(Read(source, variables), variables))
    block = Block(name, axes, loops, (point(source, variables),), (point(target, variables),), body)
    return nest([Loop(v, e, body) for v, e in zip(loops, target.shape, strict=True)], block)


def guard(values: Iterable[tuple[Expr, Expr]], bounds: Bounds) -> Expr:
    """The condition that each value lies in ``0 <= value < extent``, without proven parts."""
    conditions: list[Expr] = []
    for value, extent in values:
        exact = simplify(value, bounds)
        low, high = interval(exact, bounds)
        # Intervals usually decide it, far faster than a proof.
        if (low is None or low < 0) and not prove(starts := exact >= ZERO, bounds):
            conditions.append(starts)
        is_below = high is not None and isinstance(extent, Const) and high < extent.value
        if not is_below and not prove(ends := exact < extent, bounds):
            conditions.append(ends)
    return all_of(*conditions)
