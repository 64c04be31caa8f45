"""Shortens serial loops to the iterations for which their guards hold.

``for i in range(4): for ii in range(16): if i*16 + ii < 56`` becomes ``for ii in range(min(16, 56 - i*16))``: one body
without the guard, while splitting ``i`` (``partition``) would give two.
"""

from collections.abc import Mapping
from functools import reduce

from tilewright.backend.cpu.prepare.guards import Guards
from tilewright.loops.ir import Alloc, If, Loop, LoopKind, Seq, Stmt
from tilewright.loops.visit import children, transform_stmts, with_children
from tilewright.symbolic.bounds import Bounds, interval
from tilewright.symbolic.expr import Const, Expr, Var, minimum
from tilewright.symbolic.solve import solve_false_from, solve_upper
from tilewright.symbolic.traversal import all_of, conjuncts


def limit_loops(stmt: Stmt, bounds: Bounds) -> Stmt:
    """``stmt``, without blocks, with extents in place of guards; ``bounds``: facts around it."""
    return _limited(stmt, bounds, Guards())


def _limited(stmt: Stmt, bounds: Bounds, guards: Guards) -> Stmt:
    """``bounds`` with the loops around whose variables have no known value as dims: extents may contain them."""
    if not guards.of(stmt):
        return stmt
    inside = bounds
    if isinstance(stmt, Loop):
        if stmt.kind is LoopKind.SERIAL and isinstance(stmt.extent, Const) and _may_stop(stmt, guards):
            stmt = _stopped(stmt, bounds)
        inside = _inside(stmt, bounds)
    return with_children(stmt, tuple([_limited(child, inside, guards) for child in children(stmt)]))


def _may_stop(loop: Loop, guards: Guards) -> bool:
    """Whether the loop's variable is in guards, and in no selection: for the latter, loops are split."""
    concerned = [guard for guard in guards.of(loop.body) if loop.var in guard.source.variables]
    return bool(concerned) and not any(guard.selects for guard in concerned)


def _inside(loop: Loop, bounds: Bounds) -> Bounds:
    if loop.kind not in (LoopKind.SERIAL, LoopKind.PARALLEL):
        return bounds.extended({loop.var: loop.extent})
    most = interval(loop.extent, bounds).hi
    return Bounds(bounds.extents, {**bounds.dims, loop.var: None if most is None else max(most - 1, 0)})


def _stopped(loop: Loop, bounds: Bounds) -> Loop:
    """``loop`` up to where its whole body stops, without the guards of that."""
    stops = _stops(loop.body, loop.var, bounds.extended({loop.var: loop.extent}))
    if not stops:
        return loop
    met = {condition for conditions in stops.values() for condition in conditions}
    extent = reduce(minimum, stops, loop.extent)
    return Loop(loop.var, extent, transform_stmts(loop.body, lambda node: _unguarded(node, met)), loop.kind)


Stops = Mapping[Expr, frozenset[Expr]]
"""Where a statement stops for good: a number of iterations, and the conditions that hold in those only."""


def _stops(stmt: Stmt, var: Var, bounds: Bounds) -> Stops:
    """Numbers of iterations of the loop over ``var`` after which nothing in ``stmt`` runs."""
    match stmt:
        case Loop(inner, extent, body):
            return _stops(body, var, bounds.extended({inner: extent}))
        case Alloc(_, body):
            return _stops(body, var, bounds)
        case Seq(statements) if statements:
            return reduce(_common, [_stops(inner, var, bounds) for inner in statements])
        case If(condition, then, None):
            found = dict(_stops(then, var, bounds))
            for part in conjuncts(condition):
                if (end := _end(part, var, bounds)) is not None:
                    found[end] = found.get(end, frozenset()) | {part}
            return found
        case _:
            return {}


def _common(one: Stops, other: Stops) -> Stops:
    return {end: conditions | other[end] for end, conditions in one.items() if end in other}


def _end(condition: Expr, var: Var, bounds: Bounds) -> Expr | None:
    """For how many iterations ``condition`` holds from the start, if never later, as an expression of loops around."""
    if var not in condition.variables:
        return None
    end = solve_false_from(condition, var, bounds)
    return None if isinstance(end, Const) or end != solve_upper(condition, var, bounds) else end


def _unguarded(stmt: Stmt, met: set[Expr]) -> Stmt | None:
    match stmt:
        case If(condition, then, None):
            parts = [part for part in conjuncts(condition) if part not in met]
            return If(all_of(*parts), then) if parts else then
        case _:
            return None
