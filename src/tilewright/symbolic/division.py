"""Simplifies floor division and remainder of polynomials under known ranges.

``Division.divide(a, b)`` extracts multiples of ``b``, so that the operands of ``//`` and ``%`` become small: ``(i*8 +
j) // 8`` is ``i`` if ``0 <= j < 8``. ``Division.recombined`` rewrites ``(x // 8)*8 + x % 8`` to ``x``. The rules also
hold for symbolic divisors that are known to be at least 1.
"""

from math import gcd
from typing import NamedTuple

from tilewright.symbolic.bounds import Bounds, is_exact, polynomial_interval
from tilewright.symbolic.expr import Binary, Expr, Var
from tilewright.symbolic.linear import (
    Monomial,
    Polynomial,
    add_to,
    combine,
    common_factor,
    constant_of,
    multiply,
    order,
    polynomial,
    quotient,
    scaled,
    shifted,
    to_expr,
)
from tilewright.symbolic.operations import BinaryOp
from tilewright.symbolic.proof import Prover


class Quotient(NamedTuple):
    """``a == quotient * b + remainder`` with ``0 <= remainder < b``."""

    quotient: Polynomial
    remainder: Polynomial


_TWO = 2
"""Numbers and their negatives have the same remainder modulo 2."""


class Division:
    """Division under ``bounds``. Results are cached."""

    def __init__(self, bounds: Bounds, prover: Prover) -> None:
        self._bounds = bounds
        self._prover = prover
        self._memo: dict[tuple[Expr, Expr], Quotient] = {}

    def divide(self, a: Polynomial, b: Polynomial) -> Quotient:
        """``a // b`` and ``a % b``, of sums known not to wrap around."""
        divisor = constant_of(b)
        if divisor is None:
            return self._divide_by_symbols(a, b)
        if divisor == 0:
            return Quotient({}, {})
        if divisor < 0:
            positive = self._divide_by_constant(scaled(a, -1), -divisor)
            return Quotient(positive.quotient, scaled(positive.remainder, -1))
        return self._divide_by_constant(a, divisor)

    def _divide_by_constant(self, a: Polynomial, k: int) -> Quotient:
        whole: Polynomial = {}
        rest: Polynomial = {}
        for monomial, coefficient in a.items():
            # Rounding towards zero keeps `n - i` as it is under `//`; the constant ends in 0 .. k - 1.
            q = coefficient // k if coefficient >= 0 or not monomial else -(-coefficient // k)
            if q:
                whole[monomial] = q
            if coefficient != q * k:
                rest[monomial] = coefficient - q * k
        if not rest:
            return Quotient(whole, rest)
        lo, hi = polynomial_interval(rest, self._bounds)
        if lo is not None and hi is not None and lo // k == hi // k:
            return Quotient(shifted(whole, lo // k), shifted(rest, -k * (lo // k)))
        inner = self._divide_digits(rest, k) or self._provably_small(rest, {(): k}) or self._divide_rest(rest, {(): k})
        return Quotient(combine(whole, inner.quotient), inner.remainder)

    def _divide_digits(self, a: Polynomial, k: int) -> Quotient | None:
        """``(g*x + s) // (g*k)`` is ``x // k`` where ``0 <= s < g``; tries each coefficient as ``g``."""
        candidates = {gcd(coefficient, k) for monomial, coefficient in a.items() if monomial} - {1}
        for g in sorted(candidates, reverse=True):
            high: Polynomial = {}
            low: Polynomial = {}
            for monomial, coefficient in a.items():
                if monomial and coefficient % g == 0:
                    high[monomial] = coefficient // g
                else:
                    low[monomial] = coefficient
            lo, hi = polynomial_interval(low, self._bounds)
            if lo is None or hi is None or lo // g != hi // g or not is_exact(high, self._bounds):
                continue
            inner = self._divide_by_constant(shifted(high, lo // g), k // g)
            digits = combine(scaled(inner.remainder, g), low)
            return Quotient(inner.quotient, shifted(digits, -g * (lo // g)))
        return None

    def _divide_by_symbols(self, a: Polynomial, b: Polynomial) -> Quotient:
        if not a:
            return Quotient({}, {})
        # A divisor b with 0 <= a < b is not zero; other divisors have to be proven nonzero first.
        small = self._provably_small(a, b)
        if small is not None:
            return small
        if not self._prover.nonnegative(shifted(b, -1)):
            return Quotient(*_opaque(a, b))
        whole, rest = _long_division(a, b)
        if not is_exact(rest, self._bounds):
            whole, rest = {}, a
        inner = (
            self._provably_small(rest, b)
            or self._provably_small(rest, b, -1)
            or self._divide_symbolic_digits(rest, b)
            or self._divide_rest(rest, b)
        )
        return Quotient(combine(whole, inner.quotient), inner.remainder)

    def _divide_symbolic_digits(self, a: Polynomial, b: Polynomial) -> Quotient | None:
        """``_divide_digits`` for a divisor that is one monomial."""
        if len(b) != 1:
            return None
        ((product_b, k),) = b.items()
        for monomial, coefficient in a.items():
            unit, factor = common_factor(monomial, product_b), gcd(coefficient, k)
            if factor == 1 and not unit:
                continue
            high, low = _multiples(a, unit, factor)
            step: Polynomial = {unit: factor}
            if not self._prover.within(low, step) or not is_exact(high, self._bounds):
                continue
            remaining = quotient(product_b, unit)
            assert remaining is not None
            inner = self.divide(high, {remaining: k // factor})
            return Quotient(inner.quotient, combine(multiply(inner.remainder, step), low))
        return None

    def _provably_small(self, a: Polynomial, b: Polynomial, times: int = 0) -> Quotient | None:
        """``a // b == times``, if that is proven."""
        rest = combine(a, b, -times) if times else a
        if not self._prover.within(rest, b):
            return None
        return Quotient({(): times} if times else {}, rest)

    def _divide_rest(self, a: Polynomial, b: Polynomial) -> Quotient:
        """Irreducible division: the atoms ``a // b`` and ``a % b``, merged with those inside."""
        if not a:
            return Quotient({}, {})
        q, r = _opaque(a, b)
        outer = _single(a, BinaryOp.MOD)
        merged = self._divide_mod(outer, b) if outer is not None else self._merge_floordiv(a, b)
        if merged is None:
            merged = self._rounded_up(a, b)
        within = self._merge_mod(a, b)
        return Quotient(q if merged is None else merged, r if within is None else self.divide(within, b).remainder)

    def _rounded_up(self, a: Polynomial, b: Polynomial) -> Polynomial | None:
        """``-x // k`` is ``-((x + k - 1) // k)``: the usual form of rounding up."""
        k = constant_of(b)
        if k is None or any(coefficient > 0 for monomial, coefficient in a.items() if monomial):
            return None
        positive = shifted(scaled(a, -1), k - 1)
        return scaled(self.divide(positive, b).quotient, -1) if is_exact(positive, self._bounds) else None

    def _merge_floordiv(self, a: Polynomial, b: Polynomial) -> Polynomial | None:
        """``(x // c + y) // b`` is ``(x + c*y) // (b*c)``."""
        found = [
            (monomial, atom)
            for monomial, coefficient in a.items()
            if coefficient == 1 and len(monomial) == 1
            for atom in monomial
            if isinstance(atom, Binary) and atom.op is BinaryOp.FLOORDIV
        ]
        if len(found) != 1:
            return None
        ((monomial, atom),) = found
        x, c = polynomial(atom.a), polynomial(atom.b)
        if not self._prover.nonnegative(shifted(c, -1)):
            return None
        rest = {m: coefficient for m, coefficient in a.items() if m != monomial}
        merged = combine(x, multiply(rest, c))
        if not (is_exact(merged, self._bounds) and is_exact(x, self._bounds)):
            return None
        return self.divide(merged, multiply(c, b)).quotient

    def _merge_mod(self, a: Polynomial, b: Polynomial) -> Polynomial | None:
        """``a`` with each ``x % c`` that removes multiples of ``b`` replaced by ``x``: the remainder modulo ``b`` is
        the same."""
        result: Polynomial | None = None
        for monomial, coefficient in a.items():
            atom = _one_of(monomial, BinaryOp.MOD)
            if atom is None:
                continue
            x, c = polynomial(atom.a), polynomial(atom.b)
            if is_exact(x, self._bounds) and _is_multiple(scaled(c, coefficient), b):
                result = combine(a if result is None else result, {monomial: coefficient}, -1)
                add_to(result, x, coefficient)
        return result if result is not None and is_exact(result, self._bounds) else None

    def _divide_mod(self, atom: Binary, b: Polynomial) -> Polynomial | None:
        """``(x % (b*c)) // b`` is ``(x // b) % c``."""
        c, rest = _long_division(polynomial(atom.b), b)
        x = polynomial(atom.a)
        if rest or not is_exact(x, self._bounds):
            return None
        return self.divide(self.divide(x, b).quotient, c).remainder

    def recombined(self, a: Polynomial) -> Polynomial:
        """``a`` with digits recombined: ``(x // k)*k + x % k`` is ``x``; ``x - (x // k)*k`` is ``x % k``, and
        ``x - x % k`` is ``(x // k)*k``."""
        atoms = _division_atoms(a)
        if not atoms or len(a) == 1:
            return a
        for monomial, atom in atoms:
            shorter = self._recombine_at(a, monomial, atom, atoms)
            if shorter is not None:
                return self.recombined(shorter)
        return a

    def _recombine_at(
        self, a: Polynomial, monomial: Monomial, atom: Binary, atoms: list[tuple[Monomial, Binary]]
    ) -> Polynomial | None:
        x, k = polynomial(atom.a), polynomial(atom.b)
        if not is_exact(x, self._bounds):
            return None
        others = quotient(monomial, (atom,))
        assert others is not None
        factor: Polynomial = {others: a[monomial]}
        if atom.op is BinaryOp.FLOORDIV:
            return self._recombine_floordiv(a, monomial, factor, x, k)
        whole = multiply(multiply(factor, k), self._quotient_of(atom).quotient)
        if _is_within(whole, a) and self._prover.nonnegative(shifted(k, -1)):
            return combine(combine(combine(a, whole, -1), {monomial: a[monomial]}, -1), multiply(factor, x))
        for same in (x, scaled(x, -1)) if constant_of(k) == _TWO else (x,):
            rounded = self._rounded(a, monomial, factor, same, k)
            if rounded is not None:
                return rounded
        for other_monomial, other in atoms:
            if other.op is BinaryOp.MOD and a[other_monomial] and other is not atom:
                merged = self._merge_digits(a, (monomial, atom), (other_monomial, other))
                if merged is not None:
                    return merged
        return None

    def _rounded(
        self, a: Polynomial, monomial: Monomial, factor: Polynomial, x: Polynomial, k: Polynomial
    ) -> Polynomial | None:
        """``x % k - x`` is ``-(x // k)*k``, which rounds up where ``x`` is negative."""
        taken = scaled(multiply(factor, x), -1)
        if not _is_within(taken, a) or not self._prover.nonnegative(shifted(k, -1)):
            return None
        rest = combine(combine(a, taken, -1), {monomial: a[monomial]}, -1)
        return combine(rest, multiply(multiply(factor, k), self.divide(x, k).quotient), -1)

    def _merge_digits(
        self, a: Polynomial, low: tuple[Monomial, Binary], high: tuple[Monomial, Binary]
    ) -> Polynomial | None:
        """``(x // k % m)*k + x % k`` is ``x % (k*m)``."""
        (low_monomial, x_mod_k), (high_monomial, digit) = low, high
        k, m = polynomial(x_mod_k.b), polynomial(digit.b)
        others = quotient(low_monomial, (x_mod_k,))
        assert others is not None
        stride = multiply({others: a[low_monomial]}, multiply(k, {(digit,): 1}))
        if stride != {high_monomial: a[high_monomial]}:
            return None
        if self._quotient_of(x_mod_k).quotient != polynomial(digit.a):
            return None
        if not (self._prover.nonnegative(shifted(k, -1)) and self._prover.nonnegative(shifted(m, -1))):
            return None
        whole = self.divide(polynomial(x_mod_k.a), multiply(k, m)).remainder
        rest = combine(a, {low_monomial: a[low_monomial], high_monomial: a[high_monomial]}, -1)
        return combine(rest, multiply({others: a[low_monomial]}, whole))

    def _recombine_floordiv(
        self, a: Polynomial, monomial: Monomial, factor: Polynomial, x: Polynomial, k: Polynomial
    ) -> Polynomial | None:
        share, rest = _long_division(factor, k)
        if rest or not share:
            return None
        taken = scaled(multiply(share, x), -1)
        if not _is_within(taken, a) or not self._prover.nonnegative(shifted(k, -1)):
            return None
        remainder = self.divide(x, k).remainder
        rest = combine(combine(a, {monomial: a[monomial]}, -1), taken, -1)
        return combine(rest, multiply(share, remainder), -1)

    def _quotient_of(self, atom: Binary) -> Quotient:
        key = (atom.a, atom.b)
        known = self._memo.get(key)
        if known is None:
            self._memo[key] = known = self.divide(polynomial(atom.a), polynomial(atom.b))
        return known


def _opaque(a: Polynomial, b: Polynomial) -> tuple[Polynomial, Polynomial]:
    left, right = to_expr(a), to_expr(b)
    return {(Binary(BinaryOp.FLOORDIV, left, right),): 1}, {(Binary(BinaryOp.MOD, left, right),): 1}


def _long_division(a: Polynomial, b: Polynomial) -> tuple[Polynomial, Polynomial]:
    """``(q, r)`` with ``a == q*b + r``, by the leading term of ``b``, which divides no term of ``r``."""
    lead, factor = max(b.items(), key=lambda term: (len(term[0]), [order(atom) for atom in term[0]]))
    whole: Polynomial = {}
    rest = a
    for _ in range(16):
        for monomial, coefficient in rest.items():
            step = quotient(monomial, lead)
            times = abs(coefficient) // abs(factor)
            if step is not None and times:
                part: Polynomial = {step: times if (coefficient > 0) == (factor > 0) else -times}
                break
        else:
            return whole, rest
        whole = combine(whole, part)
        rest = combine(rest, multiply(part, b), -1)
    return whole, rest


def _is_multiple(a: Polynomial, b: Polynomial) -> bool:
    return not _long_division(a, b)[1]


def _multiples(a: Polynomial, unit: Monomial, factor: int) -> tuple[Polynomial, Polynomial]:
    """``(high, low)`` with ``a == factor * unit * high + low``."""
    high: Polynomial = {}
    low: Polynomial = {}
    for monomial, coefficient in a.items():
        reduced = quotient(monomial, unit)
        if reduced is not None and coefficient % factor == 0:
            high[reduced] = coefficient // factor
        else:
            low[monomial] = coefficient
    return high, low


def _is_within(part: Polynomial, a: Polynomial) -> bool:
    """Whether all terms of ``part`` except the constant are in ``a``, with the same coefficients."""
    found = False
    for monomial, coefficient in part.items():
        if monomial:
            if a.get(monomial) != coefficient:
                return False
            found = True
    return found


def _one_of(monomial: Monomial, op: BinaryOp) -> Binary | None:
    if len(monomial) == 1:
        atom = monomial[0]
        if isinstance(atom, Binary) and atom.op is op:
            return atom
    return None


def _single(a: Polynomial, op: BinaryOp) -> Binary | None:
    """The atom, if ``a`` is a single ``op``."""
    if len(a) != 1:
        return None
    ((monomial, coefficient),) = a.items()
    return _one_of(monomial, op) if coefficient == 1 else None


def _division_atoms(a: Polynomial) -> list[tuple[Monomial, Binary]]:
    return [
        (monomial, atom)
        for monomial in a
        for atom in monomial
        if not isinstance(atom, Var) and isinstance(atom, Binary) and atom.op in (BinaryOp.FLOORDIV, BinaryOp.MOD)
    ]
