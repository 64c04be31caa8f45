"""Polynomials over index expressions: the normal form behind the simplifier.

A ``Polynomial`` maps monomials to integer coefficients; a monomial is a sorted tuple of *atoms* (``()`` for the
constant term), and an atom is any ``index`` expression other than a sum, a product or a literal: a variable, ``x //
8``, ``min(a, b)``, a read. No coefficient is zero. Polynomials are treated as immutable once they are built.

Integers modulo 2**64 are a ring, so everything in this file is exact under wrap-around too; only order (``<``, ``//``,
``%``, ``min``) assumes that nothing overflows.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from math import gcd
from typing import TypeAlias

from tilewright.base import dtypes
from tilewright.symbolic.expr import ZERO, Binary, Const, Expr, Unary, Var, unique_text
from tilewright.symbolic.folding import wrap
from tilewright.symbolic.operations import BinaryOp, UnaryOp

Monomial: TypeAlias = tuple[Expr, ...]
Polynomial: TypeAlias = dict[Monomial, int]


@dataclass(frozen=True, slots=True)
class LinearForm:
    """``constant + sum(coefficient * atom)``; a product of symbols (``i*n``) counts as one atom. Terms are sorted."""

    constant: int
    terms: tuple[tuple[Expr, int], ...]

    def coefficient(self, atom: Expr) -> int:
        """The coefficient of ``atom``; 0 if it does not occur."""
        return next((factor for term, factor in self.terms if term == atom), 0)


def add_to(target: Polynomial, other: Mapping[Monomial, int], scale: int = 1) -> None:
    """``target += scale * other``, in place: for a polynomial under construction."""
    for monomial, coefficient in other.items():
        total = target.get(monomial, 0) + scale * coefficient
        if total:
            target[monomial] = total
        else:
            target.pop(monomial, None)


def combine(a: Polynomial, b: Mapping[Monomial, int], scale: int = 1) -> Polynomial:
    """``a + scale * b``."""
    result = a.copy()
    add_to(result, b, scale)
    return result


def scaled(a: Polynomial, factor: int) -> Polynomial:
    """``factor * a``."""
    return {monomial: coefficient * factor for monomial, coefficient in a.items()} if factor else {}


def shifted(a: Polynomial, constant: int) -> Polynomial:
    """``a + constant``."""
    return combine(a, {(): constant})


def multiply(a: Polynomial, b: Polynomial) -> Polynomial:
    """``a * b``, expanded."""
    if len(b) == 1 and () in b:
        return scaled(a, b[()])
    result: Polynomial = {}
    for left, x in a.items():
        for right, y in b.items():
            monomial = product(left, right)
            result[monomial] = result.get(monomial, 0) + x * y
    return {monomial: coefficient for monomial, coefficient in result.items() if coefficient}


def product(a: Monomial, b: Monomial) -> Monomial:
    """The monomial ``a * b``."""
    if not a:
        return b
    return tuple(sorted(a + b, key=order)) if b else a


def quotient(a: Monomial, b: Monomial) -> Monomial | None:
    """The monomial ``a / b``, if ``b`` divides ``a``."""
    if not b:
        return a
    if len(b) > len(a):
        return None
    rest = list(a)
    for atom in b:
        if atom not in rest:
            return None
        rest.remove(atom)
    return tuple(rest)


def common_factor(a: Monomial, b: Monomial) -> Monomial:
    """The greatest common divisor of two monomials."""
    rest = list(b)
    shared: list[Expr] = []
    for atom in a:
        if atom in rest:
            rest.remove(atom)
            shared.append(atom)
    return tuple(shared)


def constant_of(a: Polynomial) -> int | None:
    """The value, if there are no other terms."""
    if not a:
        return 0
    return a.get(()) if len(a) == 1 else None


def content(a: Polynomial) -> int:
    """The greatest common divisor of all coefficients except the constant term (0 if there are none)."""
    return gcd(*(coefficient for monomial, coefficient in a.items() if monomial))


def truncated_constant(op: BinaryOp, a: int, b: int) -> Polynomial:
    """``a op b`` of literals, for the divisions that round towards zero."""
    if b == 0:
        return {}
    magnitude = abs(a) // abs(b)
    ratio = magnitude if (a < 0) == (b < 0) else -magnitude
    value = ratio if op is BinaryOp.TRUNCDIV else a - ratio * b
    return {(): value} if value else {}


def polynomial(expr: Expr) -> Polynomial:
    """``expr`` (of dtype ``index``) with sums and products expanded; all other nodes are atoms, left as they are."""
    result: Polynomial = {}
    _accumulate(expr, 1, result)
    return result


def _accumulate(expr: Expr, scale: int, target: Polynomial) -> None:
    match expr:
        case Const(value):
            add_to(target, {(): int(value)}, scale)
        case Binary(BinaryOp.ADD, a, b):
            _accumulate(a, scale, target)
            _accumulate(b, scale, target)
        case Binary(BinaryOp.SUB, a, b):
            _accumulate(a, scale, target)
            _accumulate(b, -scale, target)
        case Binary(BinaryOp.MUL, a, Const(value)):
            _accumulate(a, scale * int(value), target)
        case Binary(BinaryOp.MUL, a, b):
            add_to(target, multiply(polynomial(a), polynomial(b)), scale)
        case Unary(UnaryOp.NEG, a):
            _accumulate(a, -scale, target)
        case _:
            add_to(target, {(expr,): 1}, scale)


def order(atom: Expr) -> tuple[int, str]:
    """The sort key of atoms: variables by name first, then all others by their text."""
    return (0, atom.unique) if isinstance(atom, Var) else (1, _text(atom))


@lru_cache(maxsize=1 << 14)
def _text(atom: Expr) -> str:
    return unique_text(atom)


def _term_order(term: tuple[Monomial, int]) -> tuple[bool, int, int, list[tuple[int, str]]]:
    monomial, coefficient = term
    return coefficient < 0, -len(monomial), -abs(coefficient), [order(atom) for atom in monomial]


def sorted_terms(a: Polynomial) -> list[tuple[Monomial, int]]:
    """The terms except the constant: positive ones first, then by falling degree and stride, then by name."""
    terms = [item for item in a.items() if item[0]]
    if len(terms) > 1:
        terms.sort(key=_term_order)
    return terms


def linear_form_of(a: Polynomial) -> LinearForm:
    """``a`` as the public type."""
    return LinearForm(a.get((), 0), tuple((monomial_expr(m), coefficient) for m, coefficient in sorted_terms(a)))


def to_expr(a: Polynomial) -> Expr:
    """The canonical expression of ``a``: equal polynomials give equal expressions."""
    constant = a.get((), 0)
    terms = sorted_terms(a)
    if not terms:
        return literal(constant)
    result: Expr | None = None
    if terms[0][1] < 0 and constant > 0:
        result, constant = literal(constant), 0
    for monomial, coefficient in terms:
        magnitude = abs(coefficient)
        term = monomial_expr(monomial)
        if result is None:
            result = term if coefficient == 1 else Binary(BinaryOp.MUL, term, literal(coefficient))
            continue
        if magnitude != 1:
            term = Binary(BinaryOp.MUL, term, literal(magnitude))
        result = Binary(BinaryOp.ADD if coefficient > 0 else BinaryOp.SUB, result, term)
    assert result is not None
    if constant:
        result = Binary(BinaryOp.ADD if constant > 0 else BinaryOp.SUB, result, literal(abs(constant)))
    return result


def monomial_expr(monomial: Monomial) -> Expr:
    """The product of the atoms."""
    result = monomial[0]
    for atom in monomial[1:]:
        result = Binary(BinaryOp.MUL, result, atom)
    return result


_LITERALS: tuple[Const, ...] = (ZERO, *(Const(value, dtypes.index) for value in range(1, 1025)))


def literal(value: int) -> Const:
    """The ``index`` literal ``value`` (wrapped around, as coefficients of data may have any size)."""
    return _LITERALS[value] if 0 <= value <= 1024 else Const(wrap(value, dtypes.index), dtypes.index)
