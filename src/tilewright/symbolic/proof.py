"""Proofs that a polynomial is never negative, by elimination.

To prove ``e >= 0`` at every point of a ``Bounds``, one atom after the other is replaced by the end of its range at
which ``e`` is least: ``v`` by 0 or ``extent - 1``; ``x // b`` and ``x % b`` by their definitions; ``min``, ``max`` and
``select`` by a case for each side. The rest depends on run-time extents only, and is decided by intervals, or by
writing each extent as its least value plus a non-negative term. Known facts ``f >= 0`` are used by proving ``e - k * f
>= 0``.

False means "not proven". The number of steps is bounded.
"""

from collections.abc import Iterator, Sequence

from tilewright.symbolic.bounds import Bounds, contains_data, is_exact, polynomial_interval
from tilewright.symbolic.conditions import inequalities, negated
from tilewright.symbolic.expr import Binary, Const, Expr, Select, Var
from tilewright.symbolic.linear import (
    Monomial,
    Polynomial,
    add_to,
    combine,
    constant_of,
    content,
    multiply,
    order,
    polynomial,
    quotient,
    scaled,
    shifted,
)
from tilewright.symbolic.operations import BinaryOp
from tilewright.symbolic.traversal import free_vars

_STEPS = 64
"""Maximum steps of one proof. Index expressions of real programs need fewer than 20."""
_MAX_TERMS = 48


class Prover:
    """Proves inequalities under ``bounds`` and ``facts`` (polynomials known to be >= 0)."""

    def __init__(self, bounds: Bounds, facts: Sequence[Polynomial]) -> None:
        self.bounds = bounds
        self._facts = tuple(facts)
        self._memo: dict[frozenset[tuple[Monomial, int]], bool] = {}
        self._ranks: dict[Expr, float] = {}
        self._steps = 0

    def nonnegative(self, goal: Polynomial) -> bool:
        """Whether ``goal >= 0`` is proven."""
        lo, hi = polynomial_interval(goal, self.bounds)
        if lo is not None and lo >= 0:
            return True
        if hi is not None and hi < 0:
            return False
        if self._is_box_sum(goal):
            return False
        key = frozenset(goal.items())
        known = self._memo.get(key)
        if known is None:
            self._steps = _STEPS
            known = self._prove(goal, self._facts)
            self._memo[key] = known
        return known

    def within(self, value: Polynomial, limit: Polynomial) -> bool:
        """Whether ``0 <= value < limit`` is proven."""
        return self.nonnegative(value) and self.nonnegative(shifted(combine(limit, value, -1), -1))

    def lower_bound(self, goal: Polynomial) -> Polynomial | None:
        """A polynomial over dims that is a lower bound of ``goal``; the greatest one for sums of loop variables."""
        current = goal
        while True:
            var = self._deepest_var(current)
            if var is None:
                left = any(self._has_loop_var(atom) for monomial in current for atom in monomial)
                return self._numeric_rest(current) if left else current
            coefficient, rest = _split(current, var)
            if coefficient is None:
                return self._numeric_rest(current)
            least, most = self._range_ends(var)
            end = least if self._sign(coefficient) > 0 else most if self._sign(coefficient) < 0 else None
            if end is None:
                return self._numeric_rest(current)
            current = combine(rest, multiply(coefficient, end))

    def _numeric_rest(self, goal: Polynomial) -> Polynomial | None:
        """``goal`` with all terms in loop variables replaced by their least value, if that is known."""
        dims = {m: c for m, c in goal.items() if not any(self._has_loop_var(atom) for atom in m)}
        lo = polynomial_interval(combine(goal, dims, -1), self.bounds).lo
        return None if lo is None else shifted(dims, lo)

    def _has_loop_var(self, atom: Expr) -> bool:
        return any(var not in self.bounds.dims for var in free_vars(atom)) or not free_vars(atom)

    def _is_box_sum(self, goal: Polynomial) -> bool:
        """Whether ``goal`` is a sum of independent variables with numeric ranges: then its interval is exact."""
        bounds = self.bounds
        if self._facts:
            return False
        for monomial in goal:
            if len(monomial) > 1:
                return False
            if monomial:
                atom = monomial[0]
                if not isinstance(atom, Var) or not isinstance(bounds.extents.get(atom), Const):
                    return False
        return True

    def _prove(self, goal: Polynomial, facts: tuple[Polynomial, ...]) -> bool:
        goal = _tightened(goal)
        if self._eliminate(goal, facts):
            return True
        for position, fact in enumerate(facts):
            others = facts[:position] + facts[position + 1 :]
            for reduced in self._cancelled(goal, fact):
                if self._steps <= 0:
                    return False
                self._steps -= 1
                if self._prove(reduced, others):
                    return True
        return False

    def _cancelled(self, goal: Polynomial, fact: Polynomial) -> Iterator[Polynomial]:
        """Each ``k * goal - m * fact`` (k, m >= 0) in which a term of the goal cancels.

        The goal is an integer, so ``k * goal > -k`` implies ``goal >= 0``.
        """
        for monomial, coefficient in goal.items():
            other = fact.get(monomial, 0)
            if monomial and coefficient * other > 0:
                yield shifted(combine(scaled(goal, abs(other)), fact, -abs(coefficient)), abs(other) - 1)
        for monomial, coefficient in goal.items():
            for known, other in fact.items():
                if len(monomial) <= len(known) or not known or coefficient * other <= 0 or coefficient % other:
                    continue
                factor = quotient(monomial, known)
                if factor is not None and self._known_sign({factor: 1}) > 0:
                    yield combine(goal, multiply(fact, {factor: coefficient // other}), -1)

    def _eliminate(self, goal: Polynomial, facts: tuple[Polynomial, ...]) -> bool:
        """One step: decide by numbers, or replace the next atom by the worst case of its range."""
        self._steps -= 1
        if self._steps <= 0 or len(goal) > _MAX_TERMS:
            return False
        goal = _tightened(goal)
        lo, hi = polynomial_interval(goal, self.bounds)
        if lo is not None and lo >= 0:
            return True
        if (hi is not None and hi < 0) or constant_of(goal) is not None:
            return False
        atom = self._next_atom(goal)
        if atom is None:
            return self._nonnegative_over_dims(goal)
        coefficient, rest = _split(goal, atom)
        if coefficient is None:
            return False
        if isinstance(atom, Var):
            return self._eliminate_var(atom, coefficient, rest, facts)
        return self._eliminate_composite(atom, coefficient, rest, facts)

    def _eliminate_var(
        self, var: Var, coefficient: Polynomial, rest: Polynomial, facts: tuple[Polynomial, ...]
    ) -> bool:
        least, most = self._range_ends(var)
        sign = self._sign(coefficient)
        end = least if sign > 0 else most if sign < 0 else None
        if end is not None and self._eliminate(combine(rest, multiply(coefficient, end)), facts):
            return True
        if sign < 0:
            high = self.bounds.high(var)
            return high is not None and self._eliminate(combine(rest, scaled(coefficient, high)), facts)
        return False

    def _range_ends(self, var: Var) -> tuple[Polynomial | None, Polynomial | None]:
        """The least and the largest value of ``var``."""
        bounds = self.bounds
        low, high = bounds.low(var), bounds.high(var)
        least = None if low is None else {(): low} if low else {}
        extent = bounds.extents.get(var)
        if extent is not None and not isinstance(extent, Const):
            return least, shifted(polynomial(extent), -1)
        return least, None if high is None else {(): high} if high else {}

    def _eliminate_composite(
        self, atom: Expr, coefficient: Polynomial, rest: Polynomial, facts: tuple[Polynomial, ...]
    ) -> bool:
        """``coefficient * atom + rest >= 0`` without ``atom``."""

        def holds_at(value: Polynomial, *more: Polynomial) -> bool:
            return self._prove(combine(rest, multiply(coefficient, value)), (*facts, *more))

        bounds = self.bounds
        match atom:
            case Binary() | Select() if contains_data(atom) and not _all_exact(atom, bounds):
                return self._holds_at_end(atom, coefficient, rest, facts)
            case Select(condition, a, b):
                return holds_at(polynomial(a), *inequalities(condition, bounds)) and holds_at(
                    polynomial(b), *inequalities(negated(condition), bounds)
                )
            case Binary(BinaryOp.MIN | BinaryOp.MAX, a, b):
                sign = self._sign(coefficient)
                # min <= each side: with a negative factor, either side suffices; a case split knows nothing of it.
                if sign and (sign < 0) == (atom.op is BinaryOp.MIN):
                    return holds_at(polynomial(a)) or holds_at(polynomial(b))
                return holds_at(polynomial(a)) and holds_at(polynomial(b))
            case Binary(BinaryOp.FLOORDIV, a, b):
                return self._eliminate_floordiv(polynomial(a), polynomial(b), coefficient, rest, facts)
            case Binary(BinaryOp.MOD, a, b):
                return self._eliminate_mod(atom, polynomial(a), polynomial(b), coefficient, rest, facts)
            case _:
                return self._holds_at_end(atom, coefficient, rest, facts)

    def _holds_at_end(
        self, atom: Expr, coefficient: Polynomial, rest: Polynomial, facts: tuple[Polynomial, ...]
    ) -> bool:
        """``coefficient * atom + rest >= 0``, where only the range of ``atom`` is known."""
        low, high = polynomial_interval({(atom,): 1}, self.bounds)
        sign = self._sign(coefficient)
        end = low if sign > 0 else high if sign < 0 else None
        return end is not None and self._prove(combine(rest, scaled(coefficient, end)), facts)

    def _eliminate_floordiv(
        self, a: Polynomial, b: Polynomial, coefficient: Polynomial, rest: Polynomial, facts: tuple[Polynomial, ...]
    ) -> bool:
        """``c * (a // b) + rest >= 0`` for ``b >= 1``, times ``b`` and rounded up (exact if |c| is 1).

        The left side is an integer, so ``b`` times it being ``> -b`` suffices.
        """
        sign = self._sign(coefficient)
        if sign == 0 or not self._positive(b):
            return False
        slack = shifted(b, -1)
        goal = combine(multiply(rest, b), multiply(coefficient, a))
        add_to(goal, slack)
        if sign > 0:
            add_to(goal, multiply(coefficient, slack), -1)
        return self._prove(goal, facts)

    def _eliminate_mod(
        self,
        atom: Expr,
        a: Polynomial,
        b: Polynomial,
        coefficient: Polynomial,
        rest: Polynomial,
        facts: tuple[Polynomial, ...],
    ) -> bool:
        sign = self._sign(coefficient)
        if sign > 0 and self._sign(b) > 0 and self._prove(rest, facts):
            return True
        if sign < 0 and self._positive(b):
            if self._prove(combine(rest, multiply(coefficient, shifted(b, -1))), facts):
                return True
            if self._known_sign(a) > 0 and self._prove(combine(rest, multiply(coefficient, a)), facts):
                return True
        return False

    def _positive(self, value: Polynomial) -> bool:
        lo = polynomial_interval(value, self.bounds).lo
        return (lo is not None and lo >= 1) or self._eliminate(shifted(value, -1), ())

    def _sign(self, value: Polynomial) -> int:
        """1 if ``value >= 0`` is known, -1 if ``value <= 0`` is known, else 0."""
        return self._known_sign(value) or self._proven_sign(value)

    def _known_sign(self, value: Polynomial) -> int:
        lo, hi = polynomial_interval(value, self.bounds)
        return 1 if lo is not None and lo >= 0 else -1 if hi is not None and hi <= 0 else 0

    def _proven_sign(self, value: Polynomial) -> int:
        if constant_of(value) is not None or all(len(monomial) <= 1 and monomial not in value for monomial in value):
            return 0
        return 1 if self._eliminate(value, ()) else -1 if self._eliminate(scaled(value, -1), ()) else 0

    def _deepest_var(self, goal: Polynomial) -> Var | None:
        """The loop variable on which no other one's extent depends."""
        found = {atom for m in goal for atom in m if isinstance(atom, Var) and atom in self.bounds.extents}
        return min(found, key=lambda var: (-self.bounds.ranks[var], var.name), default=None)

    def _next_atom(self, goal: Polynomial) -> Expr | None:
        """The atom to eliminate, independent of the order of ``goal``'s terms.

        It has the highest rank, so that no later step reintroduces it: a variable before those in its extent, and ``x
        // 8`` before ``x``. Run-time extents come last, and only if a known bound helps.
        """
        best: Expr | None = None
        best_key: tuple[float, int, tuple[int, str]] | None = None
        for monomial, coefficient in goal.items():
            for atom in monomial:
                if monomial.count(atom) > 1 or (isinstance(atom, Var) and not self._has_end(atom, coefficient)):
                    continue
                key = (-self._rank(atom), _urgency(atom, coefficient), order(atom))
                if best_key is None or key < best_key:
                    best, best_key = atom, key
        return best

    def _has_end(self, var: Var, coefficient: int) -> bool:
        return var in self.bounds.extents or (coefficient < 0 and self.bounds.high(var) is not None)

    def _rank(self, atom: Expr) -> float:
        if isinstance(atom, Var):
            return self.bounds.ranks.get(atom, 0)
        known = self._ranks.get(atom)
        if known is None:
            ranks = self.bounds.ranks
            self._ranks[atom] = known = 0.5 + max((ranks.get(var, 0) for var in free_vars(atom)), default=0)
        return known

    def _nonnegative_over_dims(self, goal: Polynomial) -> bool:
        """Whether ``goal`` has no negative coefficient when each variable is written as its least value plus a term >=
        0."""
        total: Polynomial = {}
        for monomial, coefficient in goal.items():
            term: Polynomial = {(): coefficient}
            for atom in monomial:
                low = polynomial_interval({(atom,): 1}, self.bounds).lo
                if low is None:
                    return False
                term = multiply(term, {(atom,): 1, (): low} if low else {(atom,): 1})
            add_to(total, term)
        return all(coefficient >= 0 for coefficient in total.values())


def _all_exact(atom: Binary | Select, bounds: Bounds) -> bool:
    """Whether the operands of ``atom`` are integers that did not wrap around."""
    return is_exact(polynomial(atom.a), bounds) and is_exact(polynomial(atom.b), bounds)


def _tightened(goal: Polynomial) -> Polynomial:
    """``goal`` divided by the common factor of its terms; the constant is rounded down, as all others are integers."""
    factor = content(goal)
    if factor <= 1:
        return goal
    return {monomial: q for monomial, coefficient in goal.items() if (q := coefficient // factor)}


def _split(goal: Polynomial, atom: Expr) -> tuple[Polynomial | None, Polynomial]:
    """``goal`` as ``coefficient * atom + rest``; no coefficient if ``atom`` occurs in a power."""
    coefficient: Polynomial = {}
    rest: Polynomial = {}
    for monomial, factor in goal.items():
        if atom not in monomial:
            rest[monomial] = factor
            continue
        position = monomial.index(atom)
        others = monomial[:position] + monomial[position + 1 :]
        if atom in others:
            return None, goal
        coefficient[others] = factor
    return coefficient, rest


def _urgency(atom: Expr, coefficient: int) -> int:
    """Atoms whose cases must all hold come first, and those of which one case suffices last: no early choices."""
    match atom:
        case Select():
            return 0
        case Binary(BinaryOp.MIN):
            return 0 if coefficient > 0 else 2
        case Binary(BinaryOp.MAX):
            return 0 if coefficient < 0 else 2
        case _:
            return 1
