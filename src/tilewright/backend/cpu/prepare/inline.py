"""Replaces intrinsics without an implementation by their description, except those that only fill a small tile."""

from collections.abc import Mapping
from dataclasses import replace
from math import prod

from tilewright.loops.dissolve import dissolve
from tilewright.loops.ir import Block, Buffer, Call, Callee, Region, Stmt, Store, Stores
from tilewright.loops.program import Intrinsic
from tilewright.loops.visit import perfect_nest, rename_loops, substitute, transform_exprs, transform_stmts
from tilewright.symbolic import traversal as symbolic
from tilewright.symbolic.expr import Const, Expr, Read, Var
from tilewright.symbolic.traversal import transform


def inline_intrinsics(stmt: Stmt, intrinsics: Mapping[str, Intrinsic]) -> Stmt:
    """``stmt``, without blocks, with calls of such intrinsics expanded; their loops get unused names."""
    count = 0

    def leave(node: Stmt) -> Stmt | None:
        nonlocal count
        if not isinstance(node, Call) or node.kind is not Callee.INTRINSIC:
            return None
        known = intrinsics.get(node.callee)
        if known is None or known.implementation or fill_value(known) is not None:
            return None
        count += 1
        suffix = f".{known.name}{count}"
        body = rename_loops(dissolve(known.description.body), lambda name: name + suffix)
        extents = known.extents(node.args)
        params = (_of_shape(param, extents) for param in known.description.params)
        return _on_regions(substitute(body, extents), dict(zip(params, node.args, strict=True)))

    return transform_stmts(stmt, leave)


def _of_shape(param: Buffer, extents: Mapping[Var, Expr]) -> Buffer:
    """A parameter of a description, with its run-time extents in a call."""
    return replace(param, shape=tuple(symbolic.substitute(extent, extents) for extent in param.shape))


MOST_FILLED = 256
"""Maximum elements of a tile that is filled by vector stores, without a loop."""


def fill_value(intrinsic: Intrinsic) -> Const | None:
    """The value that ``intrinsic`` stores to all elements of a small tile, if that is its only effect."""
    program = intrinsic.description
    shape, loops = program.results[0].shape, perfect_nest(program.body)
    block = loops[-1].body if loops else program.body
    if not isinstance(block, Block) or not isinstance(block.body, Store) or not isinstance(block.body.value, Const):
        return None
    is_each = block.body.indices == tuple(axis.var for axis in block.axes)
    is_all = block.bindings == tuple(loop.var for loop in loops) and shape == tuple(loop.extent for loop in loops)
    elements = prod(int(extent.value) if isinstance(extent, Const) else 0 for extent in shape)
    return block.body.value if is_each and is_all and 1 <= elements <= MOST_FILLED else None


def _on_regions(stmt: Stmt, regions: Mapping[Buffer, Region]) -> Stmt:
    """``stmt`` with accesses to the parameters redirected to their regions."""

    def leave(node: Expr) -> Expr | None:
        if isinstance(node, Read) and isinstance(node.source, Buffer) and node.source in regions:
            region = regions[node.source]
            return Read(region.buffer, _shifted(region, node.indices))
        return None

    def move(store: Store) -> Store:
        region = regions.get(store.buffer)
        return store if region is None else Store(region.buffer, _shifted(region, store.indices), store.value)

    def leave_stmt(node: Stmt) -> Stmt | None:
        match node:
            case Store():
                return move(node)
            case Stores(stores):
                return Stores(tuple(map(move, stores)))
            case _:
                return None

    return transform_stmts(transform_exprs(stmt, lambda expr: transform(expr, leave)), leave_stmt)


def _shifted(region: Region, indices: tuple[Expr, ...]) -> tuple[Expr, ...]:
    """Indices of a parameter as indices of the region's buffer; missing leading dimensions have extent 1."""
    starts = [start for start, _ in region.ranges]
    leading = len(starts) - len(indices)
    moved = (start + index for start, index in zip(starts[leading:], indices, strict=True))
    return (*starts[:leading], *moved)
