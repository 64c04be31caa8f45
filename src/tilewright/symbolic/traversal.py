"""Traverses and rewrites scalar expressions; splits and builds conjunctions."""

import operator
from collections.abc import Callable, Iterable, Iterator, KeysView, Mapping

from tilewright.base import dtypes
from tilewright.symbolic.expr import (
    TRUE,
    Binary,
    Cast,
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


def walk(expr: Expr) -> Iterator[Expr]:
    """``expr`` and all its subexpressions, parents first."""
    stack = [expr]
    while stack:
        node = stack.pop()
        yield node
        stack.extend(reversed(node.operands()))


def free_vars(expr: Expr) -> frozenset[Var]:
    """The variables in ``expr``."""
    return expr.variables


def vars_in(exprs: Iterable[Expr]) -> frozenset[Var]:
    """The variables in any of ``exprs``."""
    return frozenset[Var]().union(*(expr.variables for expr in exprs))


def reads_in(expr: Expr) -> Iterator[Read]:
    """All reads in ``expr``, outer ones first."""
    stack = [expr] if expr.has_reads else []
    while stack:
        node = stack.pop()
        if isinstance(node, Read):
            yield node
        stack.extend([operand for operand in reversed(node.operands()) if operand.has_reads])


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
            return expr.with_operands(operands)


def transform(
    expr: Expr, leave: Callable[[Expr], Expr | None], concerns: Callable[[Expr], bool] = lambda _: True
) -> Expr:
    """Rewrite bottom-up: ``leave`` gets each node with its operands rewritten, and returns a replacement or None.

    Parts of ``expr`` that the rewrite can't change are not visited.
    """
    return _transformed(expr, leave, concerns, {})


def transform_reads(expr: Expr, change: Callable[[Read], Expr | None]) -> Expr:
    """``expr`` with every read, its indices rewritten first, replaced by ``change`` of it (None: unchanged)."""
    return transform(expr, lambda node: change(node) if isinstance(node, Read) else None, lambda node: node.has_reads)


def substitute(expr: Expr, values: Mapping[Var, Expr]) -> Expr:
    """``expr`` with variables replaced."""
    return _substituted(expr, values, values.keys(), {})


def _substituted(node: Expr, values: Mapping[Var, Expr], replaced: KeysView[Var], memo: dict[int, Expr]) -> Expr:
    """``substitute``; ``memo`` is keyed by identity, as all parts live as long as the whole."""
    if replaced.isdisjoint(node.variables):
        return node
    if isinstance(node, Var):
        return values[node]
    known = memo.get(id(node))
    if known is None:
        operands = tuple([_substituted(operand, values, replaced, memo) for operand in node.operands()])
        is_binary = isinstance(node, Binary)
        memo[id(node)] = known = binary(node.op, *operands) if is_binary else rebuild(node, operands)
    return known


def _transformed(
    node: Expr, leave: Callable[[Expr], Expr | None], concerns: Callable[[Expr], bool], memo: dict[int, Expr]
) -> Expr:
    """``transform``; ``memo`` is keyed by identity, as all parts live as long as the whole."""
    if not concerns(node):
        return node
    before = node.operands()
    if not before:
        result = leave(node)
        return node if result is None else result
    known = memo.get(id(node))
    if known is not None:
        return known
    after = tuple([_transformed(operand, leave, concerns, memo) for operand in before])
    rebuilt = node if all(map(operator.is_, before, after)) else rebuild(node, after)
    result = leave(rebuilt)
    memo[id(node)] = final = rebuilt if result is None else result
    return final


def all_of(*conditions: ExprLike) -> Expr:
    """The conjunction; true if empty."""
    result: Expr = TRUE
    for condition in conditions:
        result = binary(BinaryOp.AND, result, as_expr(condition, dtypes.boolean))
    return result


def conjuncts(condition: Expr) -> tuple[Expr, ...]:
    """The conjuncts of ``condition``; none for true."""
    if condition == TRUE:
        return ()
    if isinstance(condition, Binary) and condition.op is BinaryOp.AND and condition.dtype.is_bool:
        return conjuncts(condition.a) + conjuncts(condition.b)
    return (condition,)
