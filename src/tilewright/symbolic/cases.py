"""Proofs about run-time extents by cases: each extent is 0, or at least 1.

What a model computes of its shapes is often only equal where something is left: ``max(min(2*n, n + 1) - 1, 0)`` is
``n``, which takes a look at ``n = 0`` and at ``n >= 1``, where ``min(2*n, n + 1)`` is ``n + 1``.

    equal_by_cases(maximum(n - 1, ZERO) * n, (n - 1) * n)     # True
"""

from collections.abc import Mapping
from functools import lru_cache
from itertools import product

from tilewright.symbolic.bounds import Bounds
from tilewright.symbolic.expr import ONE, ZERO, Binary, Const, Expr, Extent, Var
from tilewright.symbolic.linear import Polynomial, polynomial, to_expr
from tilewright.symbolic.operations import BinaryOp
from tilewright.symbolic.simplify import equivalent, simplify
from tilewright.symbolic.traversal import substitute, transform, walk

MOST_VARIABLES = 4
"""Maximum variables of a case analysis: there are two cases for each."""
_POLYNOMIAL = frozenset({BinaryOp.ADD, BinaryOp.SUB, BinaryOp.MUL})

_Case = tuple[Mapping[Var, Expr], Bounds]
"""The extents that are 0, and the facts about the others."""


@lru_cache(maxsize=256)
def _cases(variables: frozenset[Var]) -> tuple[_Case, ...]:
    """All cases; in the first one, all extents are at least 1."""
    ordered = sorted(variables, key=lambda variable: variable.unique)
    may_be_empty = [not (isinstance(variable, Extent) and variable.least) for variable in ordered]
    found: list[_Case] = []
    for empty in product(*((False, True) if may_be else (False,) for may_be in may_be_empty)):
        zeros = {variable: ZERO for variable, is_zero in zip(ordered, empty, strict=True) if is_zero}
        others = [variable for variable in ordered if variable not in zeros]
        found.append((zeros, Bounds(dims=dict.fromkeys(others), facts=tuple(other >= ONE for other in others))))
    return tuple(found)


def _is_polynomial(expr: Expr) -> bool:
    """Whether ``expr`` is made of sums and products: then its canonical form decides, and cases add nothing."""
    return all(
        isinstance(node, Const | Var) or (isinstance(node, Binary) and node.op in _POLYNOMIAL) for node in walk(expr)
    )


def equal_by_cases(a: Expr, b: Expr) -> bool:
    """Whether two expressions over extents that are not negative are proven to be equal in each case."""
    variables = a.variables | b.variables
    if not variables or len(variables) > MOST_VARIABLES or (_is_polynomial(a) and _is_polynomial(b)):
        return False
    return all(_equal(substitute(a, zeros), substitute(b, zeros), bounds) for zeros, bounds in _cases(variables))


def _equal(a: Expr, b: Expr, bounds: Bounds) -> bool:
    return equivalent(a, b, bounds) or _by_quotients(a, bounds) == _by_quotients(b, bounds)


def _by_quotients(expr: Expr, bounds: Bounds) -> Polynomial:
    """``expr`` with each remainder ``x % k`` as ``x - x // k * k``, so that sums of them may be multiplied out."""
    return polynomial(transform(simplify(expr, bounds), _as_quotient))


def _as_quotient(node: Expr) -> Expr | None:
    match node:
        case Binary(BinaryOp.MOD, a, Const(k)) if k > 0:
            return a - a // int(k) * int(k)
        case Binary(BinaryOp.FLOORDIV, a, Const(k)) if k > 0:
            terms = polynomial(a)
            is_multiple = all(coefficient % int(k) == 0 for coefficient in terms.values())
            return to_expr({m: coefficient // int(k) for m, coefficient in terms.items()}) if is_multiple else None
        case _:
            return None


def simplify_by_cases(expr: Expr) -> Expr:
    """The form that ``expr`` has where no extent is 0, if it is proven to be equal for all; else ``expr``."""
    variables = expr.variables
    if not variables or len(variables) > MOST_VARIABLES or _is_polynomial(expr):
        return expr
    (_, inhabited), *_ = _cases(variables)
    plain = simplify(expr, inhabited)
    return plain if plain != expr and equal_by_cases(plain, expr) else expr
