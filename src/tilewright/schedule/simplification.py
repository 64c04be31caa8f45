"""Keeping bindings, predicates and extents in canonical form after loops have changed."""

import dataclasses

from tilewright.loops.ir import Block, If, Loop, Stmt
from tilewright.loops.visit import children, with_children
from tilewright.symbolic.bounds import Bounds
from tilewright.symbolic.expr import Expr
from tilewright.symbolic.simplify import prove, simplify
from tilewright.symbolic.traversal import all_of, conjuncts


def simplified(stmt: Stmt, bounds: Bounds) -> Stmt:
    """``stmt`` with simple bindings and extents, and without the conditions that are proven; blocks stay closed.

    ``bounds`` is what is known around ``stmt``.
    """
    match stmt:
        case Block():
            bindings = tuple(simplify(binding, bounds) for binding in stmt.bindings)
            return dataclasses.replace(stmt, bindings=bindings, predicate=unproven(stmt.predicate, bounds))
        case Loop():
            extent = simplify(stmt.extent, bounds)
            body = simplified(stmt.body, bounds.extended({stmt.var: extent}))
            return dataclasses.replace(stmt, extent=extent, body=body)
        case If():
            condition = simplify(stmt.condition, bounds)
            then = simplified(stmt.then, bounds.assuming(condition))
            otherwise = None if stmt.otherwise is None else simplified(stmt.otherwise, bounds)
            return If(condition, then, otherwise)
        case _:
            return with_children(stmt, tuple(simplified(child, bounds) for child in children(stmt)))


def unproven(condition: Expr, bounds: Bounds) -> Expr:
    """The conjuncts of ``condition``, each once, that do not follow from ``bounds``."""
    left = dict.fromkeys(simplify(part, bounds) for part in conjuncts(condition) if not prove(part, bounds))
    return all_of(*left)
