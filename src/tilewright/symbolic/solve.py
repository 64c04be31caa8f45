"""Solves a guard for a loop variable: the limits at which a loop is partitioned.

All functions take a condition, one of its variables, and bounds. They quantify over every loop variable of the bounds
except ``var``, and return an expression over run-time extents (a literal, if there are none); put a variable that may
occur in the result into the ``dims`` of the bounds. The result is valid within the range of ``var``, and not clipped to
it. None means that no limit was found. Limits are tight where the condition is linear and the ranges of the variables
are independent; they are always safe.
"""

from collections.abc import Callable

from tilewright.symbolic.bounds import Bounds
from tilewright.symbolic.conditions import inequalities
from tilewright.symbolic.expr import FALSE, TRUE, ZERO, Binary, Const, Expr, Var
from tilewright.symbolic.linear import Polynomial, combine, constant_of, literal, scaled, shifted, to_expr
from tilewright.symbolic.operations import BinaryOp
from tilewright.symbolic.proof import Prover
from tilewright.symbolic.simplify import simplifier, simplify
from tilewright.symbolic.traversal import conjuncts, free_vars


def solve_upper(condition: Expr, var: Var, bounds: Bounds) -> Expr | None:
    """The largest ``b`` such that ``condition`` holds wherever ``var < b``."""
    simple = simplify(condition, bounds)
    if simple in (TRUE, FALSE):
        return bounds.extents.get(var) if simple == TRUE else ZERO
    return _limit_of_all(simple, var, bounds, _true_below, BinaryOp.MIN)


def solve_lower(condition: Expr, var: Var, bounds: Bounds) -> Expr | None:
    """The smallest ``b`` such that ``condition`` holds wherever ``var >= b``."""
    simple = simplify(condition, bounds)
    if simple in (TRUE, FALSE):
        return ZERO if simple == TRUE else bounds.extents.get(var)
    return _limit_of_all(simple, var, bounds, _true_from, BinaryOp.MAX)


def solve_false_from(condition: Expr, var: Var, bounds: Bounds) -> Expr | None:
    """The smallest ``b`` such that ``condition`` is false wherever ``var >= b``: the loop may stop there."""
    simple = simplify(condition, bounds)
    if simple in (TRUE, FALSE):
        return ZERO if simple == FALSE else None
    return _limit_of_any(simple, var, bounds, _true_from, BinaryOp.MIN)


_Limit = Callable[[Polynomial, int, Prover], Polynomial | None]
"""The limit of ``var`` from ``rest + coefficient * var >= 0``, with a literal coefficient."""


def _true_below(rest: Polynomial, coefficient: int, prover: Prover) -> Polynomial | None:
    """``b`` such that the inequality holds if ``var < b``."""
    if coefficient >= 0:
        return None
    least = prover.lower_bound(rest)
    return None if least is None else shifted(_floor(least, -coefficient, prover), 1)


def _true_from(rest: Polynomial, coefficient: int, prover: Prover) -> Polynomial | None:
    """``b`` such that the inequality holds if ``var >= b``."""
    if coefficient <= 0:
        return None
    least = prover.lower_bound(rest)
    return None if least is None else scaled(_floor(least, coefficient, prover), -1)


def _floor(value: Polynomial, divisor: int, prover: Prover) -> Polynomial:
    constant = constant_of(value)
    if constant is not None:
        return shifted({}, constant // divisor)
    # Outside the loops only the dims are known.
    outside = simplifier(Bounds({}, prover.bounds.dims))
    return outside.polynomial(Binary(BinaryOp.FLOORDIV, to_expr(value), literal(divisor)))


def _limit_of_all(condition: Expr, var: Var, bounds: Bounds, limit: _Limit, op: BinaryOp) -> Expr | None:
    """The limit beyond which every part holds; None if ``var`` does not decide one of the parts."""
    limits: list[Polynomial] = []
    for part in conjuncts(condition):
        found = inequalities(part, bounds)
        if not found:
            return None
        for inequality in found:
            one = _limit(inequality, var, bounds, limit)
            if one is not None:
                limits.append(one)
            elif not simplifier(bounds).prover.nonnegative(inequality):
                return None
    return _combined(limits, var, bounds, op)


def _limit_of_any(condition: Expr, var: Var, bounds: Bounds, limit: _Limit, op: BinaryOp) -> Expr | None:
    """The limit beyond which some part fails: ``e >= 0`` fails where ``-e - 1 >= 0``."""
    limits: list[Polynomial] = []
    for part in conjuncts(condition):
        for inequality in inequalities(part, bounds):
            one = _limit(shifted(scaled(inequality, -1), -1), var, bounds, limit)
            if one is not None:
                limits.append(one)
    return _combined(limits, var, bounds, op)


def _limit(inequality: Polynomial, var: Var, bounds: Bounds, limit: _Limit) -> Polynomial | None:
    coefficient = inequality.get((var,), 0)
    rest = combine(inequality, {(var,): coefficient}, -1) if coefficient else inequality
    if any(var in free_vars(atom) for monomial in rest for atom in monomial):
        return None
    return limit(rest, coefficient, simplifier(bounds).prover)


def _combined(limits: list[Polynomial], var: Var, bounds: Bounds, op: BinaryOp) -> Expr | None:
    if not limits:
        return None
    result = to_expr(limits[0])
    for other in limits[1:]:
        result = Binary(op, result, to_expr(other))
    if isinstance(result, Const):
        return result
    return None if var in free_vars(result) else simplify(result, Bounds({}, bounds.dims))
