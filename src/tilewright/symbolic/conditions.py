"""Conditions: implied polynomial inequalities, negation, conjunctions and disjunctions."""

from collections.abc import Sequence

from tilewright.base.dtypes import index
from tilewright.symbolic.bounds import Bounds, is_exact, polynomial_interval
from tilewright.symbolic.expr import FALSE, TRUE, Binary, Const, Expr, Unary
from tilewright.symbolic.linear import Polynomial, combine, polynomial, scaled, shifted
from tilewright.symbolic.operations import COMPARISONS, NEGATED, BinaryOp, UnaryOp
from tilewright.symbolic.traversal import walk


def inequalities(condition: Expr, bounds: Bounds) -> list[Polynomial]:
    """Polynomials that are >= 0 where ``condition`` holds; none if it is not about index arithmetic."""
    if isinstance(condition, Binary) and condition.dtype.is_bool and condition.a.dtype == index:
        if condition.op not in COMPARISONS:
            return []
        a, b = polynomial(condition.a), polynomial(condition.b)
        if not (is_exact(a, bounds) and is_exact(b, bounds)):
            return []
        return _inequalities(condition.op, combine(b, a, -1), bounds)
    if isinstance(condition, Binary) and condition.op is BinaryOp.AND:
        return inequalities(condition.a, bounds) + inequalities(condition.b, bounds)
    return []


def _inequalities(op: BinaryOp, difference: Polynomial, bounds: Bounds) -> list[Polynomial]:
    """The same for ``0 op difference``."""
    match op:
        case BinaryOp.LT:
            return [shifted(difference, -1)]
        case BinaryOp.LE:
            return [difference]
        case BinaryOp.GT:
            return [shifted(scaled(difference, -1), -1)]
        case BinaryOp.GE:
            return [scaled(difference, -1)]
        case BinaryOp.EQ:
            return [difference, scaled(difference, -1)]
        case _:
            lo, hi = polynomial_interval(difference, bounds)
            if lo is not None and lo >= 0:
                return [shifted(difference, -1)]
            return [shifted(scaled(difference, -1), -1)] if hi is not None and hi <= 0 else []


def negated(condition: Expr) -> Expr:
    """``not condition``, pushed inwards as far as possible (with NaN, a float comparison and its inverse are both
    false)."""
    match condition:
        case Const(value):
            return FALSE if value else TRUE
        case Unary(UnaryOp.NOT, a):
            return a
        case Binary(op, a, b) if op in NEGATED and not (a.dtype.is_float and op not in _EXACT_NEGATION):
            return Binary(NEGATED[op], a, b)
        case Binary(BinaryOp.AND, a, b):
            return Binary(BinaryOp.OR, negated(a), negated(b))
        case Binary(BinaryOp.OR, a, b):
            return Binary(BinaryOp.AND, negated(a), negated(b))
        case _:
            return Unary(UnaryOp.NOT, condition)


_EXACT_NEGATION = frozenset({BinaryOp.EQ, BinaryOp.NE})


def joined(op: BinaryOp, parts: Sequence[Expr], neutral: Expr) -> Expr:
    """``parts`` joined by ``AND`` or ``OR``; ``neutral`` for none."""
    if not parts:
        return neutral
    result = parts[0]
    for part in parts[1:]:
        result = Binary(op, result, part)
    return result


def disjuncts(condition: Expr) -> list[Expr]:
    """The disjuncts of ``condition``."""
    if isinstance(condition, Binary) and condition.op is BinaryOp.OR and condition.dtype.is_bool:
        return [*disjuncts(condition.a), *disjuncts(condition.b)]
    return [condition]


def compares_indices(expr: Expr) -> bool:
    """Whether ``expr`` compares indices."""
    return any(isinstance(node, Binary) and node.op in COMPARISONS and node.a.dtype == index for node in walk(expr))
