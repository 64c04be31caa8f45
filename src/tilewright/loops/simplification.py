"""Simplifies the indices, extents and conditions of statements."""

from tilewright.loops.ir import If, Loop, Stmt
from tilewright.loops.visit import children, transform_exprs, with_children
from tilewright.symbolic.bounds import Bounds
from tilewright.symbolic.expr import Expr, Read
from tilewright.symbolic.simplify import simplify
from tilewright.symbolic.traversal import transform_reads


def simplify_indices(stmt: Stmt, bounds: Bounds) -> Stmt:
    """``stmt``, which has no blocks, with simplified indices, extents and conditions.

    ``bounds``: known facts around it.
    """

    def change(expr: Expr) -> Expr:
        return simplify(expr, bounds) if expr.dtype.is_int or expr.dtype.is_bool else transform_reads(expr, leave)

    def leave(node: Read) -> Expr:
        return Read(node.source, tuple(map(change, node.indices)))

    inner = bounds
    match stmt:
        case Loop(var, extent, _, _):
            inner = bounds.extended({var: extent})
        case If(condition, then, None):
            return If(change(condition), simplify_indices(then, bounds.assuming(condition)))
        case _:
            if not children(stmt):
                return transform_exprs(stmt, change)
    return with_children(stmt, tuple(simplify_indices(child, inner) for child in children(stmt)))
