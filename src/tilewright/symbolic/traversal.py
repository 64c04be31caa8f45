"""Walking and rewriting scalar expressions; conjunctions taken apart and put together."""

from collections.abc import Callable, Iterator, Mapping

from tilewright.base import dtypes
from tilewright.symbolic.expr import (
    TRUE,
    Binary,
    Cast,
    Const,
    Expr,
    ExprLike,
    Read,
    Select,
    Unary,
    Var,
    as_expr,
    binary,
    cast,
    select,
    unary,
)
from tilewright.symbolic.operations import BinaryOp


def children(expr: Expr) -> tuple[Expr, ...]:
    """The direct operands."""
    # The most frequent kinds first: this is called for every node that any pass looks at.
    if isinstance(expr, Binary):
        return (expr.a, expr.b)
    if isinstance(expr, Var | Const):
        return ()
    if isinstance(expr, Read):
        return expr.indices
    if isinstance(expr, Unary | Cast):
        return (expr.a,)
    if isinstance(expr, Select):
        return (expr.condition, expr.a, expr.b)
    return ()


def walk(expr: Expr) -> Iterator[Expr]:
    """``expr`` and all that is in it, parents first."""
    stack = [expr]
    while stack:
        node = stack.pop()
        yield node
        stack.extend(reversed(children(node)))


def free_vars(expr: Expr) -> frozenset[Var]:
    """The variables in ``expr``."""
    if isinstance(expr, Const):
        return frozenset()
    if isinstance(expr, Var):
        return frozenset((expr,))
    return frozenset(node for node in walk(expr) if isinstance(node, Var))


def rebuild(expr: Expr, operands: tuple[Expr, ...]) -> Expr:
    """``expr`` with other operands (literals folded)."""
    match expr:
        case Unary(op, _):
            return unary(op, operands[0])
        case Cast(_, dtype):
            return cast(operands[0], dtype)
        case Binary(op, _, _):
            return binary(op, operands[0], operands[1])
        case Select():
            return select(operands[0], operands[1], operands[2])
        case Read(source, _):
            return Read(source, operands)
        case _:
            return expr


def transform(expr: Expr, leave: Callable[[Expr], Expr | None]) -> Expr:
    """Rewrite bottom-up: ``leave`` sees each node with its operands rewritten, and returns another one or None."""
    memo: dict[Expr, Expr] = {}

    def go(node: Expr) -> Expr:
        if isinstance(node, Var | Const):
            result = leave(node)
            return node if result is None else result
        known = memo.get(node)
        if known is not None:
            return known
        before = children(node)
        after = tuple(go(child) for child in before)
        rebuilt = node if all(x is y for x, y in zip(before, after, strict=True)) else rebuild(node, after)
        result = leave(rebuilt)
        memo[node] = final = rebuilt if result is None else result
        return final

    return go(expr)


def substitute(expr: Expr, values: Mapping[Var, Expr]) -> Expr:
    """``expr`` with variables replaced."""
    if not values:
        return expr
    return transform(expr, lambda node: values.get(node) if isinstance(node, Var) else None)


def all_of(*conditions: ExprLike) -> Expr:
    """The conjunction; true of nothing."""
    result: Expr = TRUE
    for condition in conditions:
        result = binary(BinaryOp.AND, result, as_expr(condition, dtypes.boolean))
    return result


def conjuncts(condition: Expr) -> tuple[Expr, ...]:
    """The conditions whose conjunction ``condition`` is; none for true."""
    if condition == TRUE:
        return ()
    if isinstance(condition, Binary) and condition.op is BinaryOp.AND and condition.dtype.is_bool:
        return conjuncts(condition.a) + conjuncts(condition.b)
    return (condition,)
