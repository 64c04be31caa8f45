"""Decides whether the values of index expressions determine that of a loop variable."""

from collections.abc import Iterable, Iterator, Sequence

from tilewright.symbolic.bounds import Bounds, interval
from tilewright.symbolic.expr import ONE, ZERO, Binary, Const, Expr, Var
from tilewright.symbolic.operations import BinaryOp
from tilewright.symbolic.simplify import linear_form, prove, simplify
from tilewright.symbolic.traversal import free_vars, substitute


def determines(indices: Iterable[Expr], variable: Var, varying: Sequence[Var], bounds: Bounds) -> bool:
    """Whether ``indices`` determine ``variable``, if the ``varying`` variables vary and all others are fixed.

    True is proven, by these rules: a sum determines its terms if each step of a term is larger than all smaller terms
    together (mixed radix); ``r + e // c`` and ``e % c`` together determine ``r * c + e``; a sum that increases with the
    variable, for any values of the others, determines it.
    """
    return not undetermined(indices, (variable,), varying, bounds)


def undetermined(indices: Iterable[Expr], wanted: Sequence[Var], varying: Sequence[Var], bounds: Bounds) -> list[Var]:
    """Those of the ``wanted`` variables that ``indices`` do not determine (``determines``)."""
    left, known = list(wanted), set[Expr]()
    moving: list[Expr] = []
    # Indices with these variables come first: they nearly always suffice.
    for index in sorted(indices, key=lambda index: free_vars(index).isdisjoint(wanted)):
        moving.append(_moving(simplify(index, bounds), varying))
        left = _learned(moving[-1:], left, known, bounds)
        if not left:
            return left
    left = [v for v in left if not any(_rises(index, v, varying, bounds) for index in moving)]
    while left and (fresh := [e for e in _combined(known, bounds) if e not in known]):
        left = _learned(fresh, left, known, bounds)
    return left


def _learned(indices: Iterable[Expr], wanted: Iterable[Var], known: set[Expr], bounds: Bounds) -> list[Var]:
    """Those of ``wanted`` that are not ``known`` given ``indices`` and their digits, which are added to ``known``."""
    for index in indices:
        known.add(index)
        known.update(_digits(index, bounds))
    return [variable for variable in wanted if variable not in known]


def _moving(index: Expr, varying: Sequence[Var]) -> Expr:
    """``index`` with the fixed variables at 0, if they are only added to it."""
    still = free_vars(index).difference(varying)
    if not still or any(not still.isdisjoint(free_vars(node)) for node in _nonlinear(index)):
        return index
    return substitute(index, dict.fromkeys(still, ZERO))


def _nonlinear(expr: Expr) -> Iterator[Expr]:
    """The parts of ``expr`` that are not sums, differences or multiples."""
    match expr:
        case Binary(BinaryOp.ADD | BinaryOp.SUB, a, b):
            yield from _nonlinear(a)
            yield from _nonlinear(b)
        case Binary(BinaryOp.MUL, a, Const()) | Binary(BinaryOp.MUL, Const(), a):
            yield from _nonlinear(a)
        case Const() | Var():
            pass
        case _:
            yield expr


def _rises(index: Expr, variable: Var, varying: Sequence[Var], bounds: Bounds) -> bool:
    """Whether ``index`` at ``variable + 1`` is larger than at ``variable``, for all values of the others at both."""
    if variable not in free_vars(index):
        return False
    others = [v for v in varying if v != variable and v in free_vars(index)]
    again = {v: Var(f"{v.name}'") for v in others}
    both = bounds.extended({again[v]: bounds.extents[v] for v in others})
    later = substitute(index, {variable: variable + ONE, **again})
    return prove(later > index, both)


def _digits(expr: Expr, bounds: Bounds) -> tuple[Expr, ...]:
    """The atoms of the sum ``expr`` that its value determines: all or none."""
    if isinstance(expr, (Var, Const)):
        return ()
    reach = 0
    terms = sorted(linear_form(expr, bounds).terms, key=lambda term: abs(term[1]))
    for position, (atom, factor) in enumerate(terms):
        if abs(factor) <= reach:
            return ()
        low, high = interval(atom, bounds)
        if low is not None and high is not None:
            reach += abs(factor) * (high - low)
        elif position < len(terms) - 1:
            return ()
    return tuple(atom for atom, _ in terms)


def _combined(known: Iterable[Expr], bounds: Bounds) -> Iterator[Expr]:
    """``r * c + e`` for known ``r + e // c`` and ``e % c``."""
    for remainder in known:
        if isinstance(remainder, Binary) and remainder.op is BinaryOp.MOD:
            dividend, divisor = remainder.a, remainder.b
            quotient = simplify(dividend // divisor, bounds)
            if isinstance(quotient, Const):
                yield dividend
            for index in known:
                if linear_form(index, bounds).coefficient(quotient) == 1:
                    yield simplify((index - quotient) * divisor + dividend, bounds)
