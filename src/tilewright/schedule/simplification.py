"""Keeps bindings, predicates and extents in canonical form after loops have changed."""

import operator

from tilewright.loops.ir import Block, If, Loop, Stmt
from tilewright.loops.visit import children, perfect_nest, with_children, with_place
from tilewright.symbolic.bounds import Bounds
from tilewright.symbolic.expr import Const, Expr, Var
from tilewright.symbolic.simplify import prove, simplify
from tilewright.symbolic.traversal import all_of, conjuncts


def simplified(stmt: Stmt, bounds: Bounds) -> Stmt:
    """``stmt`` with simplified bindings and extents, and without proven conditions; blocks are not entered.

    ``bounds``: facts around ``stmt``.
    """
    match stmt:
        case Block():
            bindings = tuple([simplify(binding, bounds) for binding in stmt.bindings])
            return with_place(stmt, bindings, unproven(stmt.predicate, bounds))
        case Loop():
            return _simplified_nest(stmt, bounds)
        case If():
            condition = simplify(stmt.condition, bounds)
            then = simplified(stmt.then, bounds.assuming(condition))
            otherwise = None if stmt.otherwise is None else simplified(stmt.otherwise, bounds)
            return If(condition, then, otherwise)
        case _:
            before = children(stmt)
            after = tuple([simplified(child, bounds) for child in before])
            return stmt if all(map(operator.is_, before, after)) else with_children(stmt, after)


def _simplified_nest(outermost: Loop, bounds: Bounds) -> Stmt:
    """Directly nested loops are handled together: the facts between them matter only for unusual extents."""
    loops = perfect_nest(outermost)
    extents: dict[Var, Expr] = {}
    for loop in loops:
        is_plain = isinstance(loop.extent, Const)
        extents[loop.var] = loop.extent if is_plain else simplify(loop.extent, bounds.extended(extents))
    new = simplified(loops[-1].body, bounds.extended(extents))
    for loop in reversed(loops):
        extent = extents[loop.var]
        new = loop if new is loop.body and extent is loop.extent else Loop(loop.var, extent, new, loop.kind)
    return new


def unproven(condition: Expr, bounds: Bounds) -> Expr:
    """The conjuncts of ``condition``, each once, that do not follow from ``bounds``."""
    left = dict.fromkeys(simplify(part, bounds) for part in conjuncts(condition) if not prove(part, bounds))
    return all_of(*left)
