"""Proofs about run-time extents by cases: each extent is 0, or at least 1, or beyond numbers where a minimum changes.

What a model computes of its shapes is often only equal where something is left: ``max(min(2*n, n + 1) - 1, 0)`` is
``n``, which takes a look at ``n = 0`` and at ``n >= 1``, where ``min(2*n, n + 1)`` is ``n + 1``. And
``max(n - 5, 0) + min(n, 5)`` is ``n``, from 5 on and below.

    equal_by_cases(maximum(n - 1, ZERO) * n, (n - 1) * n)     # True
"""

from collections.abc import Iterator, Mapping
from functools import lru_cache
from itertools import product
from math import prod

from tilewright.symbolic.bounds import Bounds
from tilewright.symbolic.expr import Binary, Const, Expr, Extent, Var, const
from tilewright.symbolic.linear import Polynomial, polynomial, to_expr
from tilewright.symbolic.operations import BinaryOp
from tilewright.symbolic.simplify import equivalent, simplify
from tilewright.symbolic.traversal import substitute, transform, walk

MOST_VARIABLES = 4
"""Maximum variables of a case analysis: there are two cases for each, or more."""
MOST_CASES = 64
"""Maximum cases of all variables together."""
_POLYNOMIAL = frozenset({BinaryOp.ADD, BinaryOp.SUB, BinaryOp.MUL})

_Case = tuple[Mapping[Var, Expr], Bounds]
"""The extents that have one value, and the facts about the others."""
_Cuts = frozenset[tuple[Var, int]]
"""Numbers from which on a variable is another case."""


@lru_cache(maxsize=256)
def _cases(variables: frozenset[Var], cuts: _Cuts = frozenset()) -> tuple[_Case, ...]:
    """All cases; in the first one, all extents are as large as they can be."""
    ordered = sorted(variables, key=lambda variable: variable.unique)
    ranges = [_ranges(variable, cuts) for variable in ordered]
    found: list[_Case] = []
    for chosen in product(*ranges):
        known = dict(zip(ordered, chosen, strict=True))
        values: dict[Var, Expr] = {variable: const(low) for variable, (low, high) in known.items() if low == high}
        others = {variable: at for variable, at in known.items() if variable not in values}
        dims = {variable: high for variable, (_, high) in others.items()}
        facts = tuple(variable >= const(low) for variable, (low, _) in others.items())
        found.append((values, Bounds(dims=dims, facts=facts)))
    return tuple(found)


def _ranges(variable: Var, cuts: _Cuts) -> list[tuple[int, int | None]]:
    """Ranges of a variable from above, with their last numbers: 0 is one of its own."""
    least = variable.least if isinstance(variable, Extent) else 0
    starts = sorted({least, max(least, 1), *(number for cut, number in cuts if cut == variable and number > least)})
    ends = [*(start - 1 for start in starts[1:]), None]
    return list(zip(starts, ends, strict=True))[::-1]


def _cuts(*expressions: Expr) -> _Cuts:
    """Where the larger of two operands of a minimum or maximum changes, if one variable decides."""
    differences = (
        polynomial(node.a - node.b)
        for expr in expressions
        for node in walk(expr)
        if isinstance(node, Binary) and node.op in (BinaryOp.MIN, BinaryOp.MAX)
    )
    return frozenset(cut for terms in differences if (cut := _root(terms)) is not None)


def _root(terms: Polynomial) -> tuple[Var, int] | None:
    """The variable and the first number from which on ``k * variable + constant`` has another sign."""
    match [monomial for monomial in terms if monomial]:
        case [(Var() as variable,) as monomial]:
            return variable, -(terms.get((), 0) // terms[monomial])
        case _:
            return None


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
    return any(
        all(_equal(substitute(a, values), substitute(b, values), bounds) for values, bounds in cases)
        for cases in _analyses(variables, _cuts(a, b))
    )


def _analyses(variables: frozenset[Var], cuts: _Cuts) -> Iterator[tuple[_Case, ...]]:
    """The cases of empty and other extents, and finer ones, unless these are too many."""
    yield _cases(variables)
    if cuts and prod(len(_ranges(variable, cuts)) for variable in variables) <= MOST_CASES:
        yield _cases(variables, cuts)


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
    """The form that ``expr`` has where all extents are large, if it is proven to be equal for all; else ``expr``."""
    variables = expr.variables
    if not variables or len(variables) > MOST_VARIABLES or _is_polynomial(expr):
        return expr
    forms = (simplify(expr, cases[0][1]) for cases in _analyses(variables, _cuts(expr)))
    return next((plain for plain in forms if plain != expr and equal_by_cases(plain, expr)), expr)
