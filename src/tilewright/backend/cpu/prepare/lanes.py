"""Rewrites the bodies of vectorized loops so that each statement works on vectors.

A buffer allocated inside one exists per iteration, so it gets a last dimension over the lanes. Statements without a
vector form (calls of intrinsics) make the loop serial; parallel loops inside lanes become serial.
"""

from tilewright.loops.ir import Alloc, Buffer, Call, Loop, LoopKind, Stmt, Store, Stores
from tilewright.loops.visit import transform_exprs, transform_stmts, walk
from tilewright.symbolic.expr import Const, Expr, Read, Var
from tilewright.symbolic.traversal import transform


def fit_lanes(stmt: Stmt) -> Stmt:
    """``stmt``, without blocks, with vectorized loops that the code generator can turn into lanes."""

    def leave(node: Stmt) -> Stmt | None:
        if not isinstance(node, Loop) or node.kind is not LoopKind.VECTORIZED:
            return None
        if not isinstance(node.extent, Const) or any(isinstance(inner, Call) for inner in walk(node.body)):
            return Loop(node.var, node.extent, node.body)
        return Loop(node.var, node.extent, _own_buffers(_serial_inside(node.body), node.var, node.extent), node.kind)

    return transform_stmts(stmt, leave)


def _serial_inside(body: Stmt) -> Stmt:
    def leave(node: Stmt) -> Stmt | None:
        if isinstance(node, Loop) and node.kind in (LoopKind.PARALLEL, LoopKind.VECTORIZED):
            return Loop(node.var, node.extent, node.body)
        return None

    return transform_stmts(body, leave)


def _own_buffers(body: Stmt, lane: Var, lanes: Const) -> Stmt:
    """``body`` with one copy per lane of the buffers allocated in it."""
    old = [node.buffer for node in walk(body) if isinstance(node, Alloc)]
    new = {b: Buffer(b.name, b.dtype, (*b.shape, lanes), b.memory) for b in old}

    def leave(node: Expr) -> Expr | None:
        if isinstance(node, Read) and isinstance(node.source, Buffer) and node.source in new:
            return Read(new[node.source], (*node.indices, lane))
        return None

    def own(store: Store) -> Store:
        found = new.get(store.buffer)
        return store if found is None else Store(found, (*store.indices, lane), store.value)

    def leave_stmt(node: Stmt) -> Stmt | None:
        match node:
            case Alloc(buffer, inside):
                return Alloc(new[buffer], inside)
            case Store():
                return own(node)
            case Stores(stores):
                return Stores(tuple(map(own, stores)))
            case _:
                return None

    return transform_stmts(transform_exprs(body, lambda expr: transform(expr, leave)), leave_stmt) if new else body
