"""The one simplifier of index expressions, and proofs about them.

Quasi-affine integer expressions (sums, products, ``//``, ``%``, ``min``, ``max``, ``select``, comparisons, ``&``,
``|``, ``not``) over variables with known ranges have a canonical form: a sum of sorted terms (``linear.py``), where
division is reduced (``division.py``) and comparisons are decided if proven (``proof.py``). Expressions that are equal
as polynomials become structurally equal.

Values of all other dtypes keep their shape: only the indices, conditions and literals inside are simplified. Floats are
never reassociated, and integers other than ``index`` wrap around. Results hold at places inside all loops of the
``Bounds``, so loop extents count as at least 1.
"""

from collections.abc import Sequence
from math import gcd

from tilewright.base.dtypes import index
from tilewright.symbolic.bounds import Bounds, contains_data, interval, is_exact, polynomial_interval
from tilewright.symbolic.check import Check, checked
from tilewright.symbolic.conditions import compares_indices, disjuncts, inequalities, joined, negated
from tilewright.symbolic.division import Division
from tilewright.symbolic.expr import (
    FALSE,
    TRUE,
    Binary,
    Cast,
    Const,
    Expr,
    Read,
    Select,
    Unary,
    Var,
    cast,
    select,
    unique_text,
)
from tilewright.symbolic.folding import wrap
from tilewright.symbolic.linear import (
    LinearForm,
    Polynomial,
    add_to,
    combine,
    content,
    linear_form_of,
    literal,
    multiply,
    order,
    polynomial,
    scaled,
    shifted,
    to_expr,
    truncated_constant,
)
from tilewright.symbolic.operations import COMPARISONS, BinaryOp, UnaryOp
from tilewright.symbolic.proof import Prover
from tilewright.symbolic.traversal import conjuncts, rebuild


def simplify(expr: Expr, bounds: Bounds) -> Expr:
    """``expr`` in canonical form: the same value wherever ``bounds`` hold. Idempotent."""
    return simplifier(bounds).simplify(expr)


def prove(condition: Expr, bounds: Bounds) -> bool:
    """Whether ``condition`` is proven to hold everywhere in ``bounds``; False means "not proven"."""
    return simplifier(bounds).simplify(condition) == TRUE


def equivalent(a: Expr, b: Expr, bounds: Bounds) -> bool:
    """Whether ``a`` and ``b`` are proven to be equal everywhere in ``bounds``."""
    if a == b:
        return True
    if a.dtype != b.dtype:
        return False
    own = simplifier(bounds)
    left, right = own.simplify(a), own.simplify(b)
    if left == right:
        return True
    return a.dtype == index and own.simplify(Binary(BinaryOp.EQ, left, right)) == TRUE


def linear_form(expr: Expr, bounds: Bounds) -> LinearForm:
    """``expr`` (of dtype ``index``) as a constant plus simplified atoms with integer factors."""
    return linear_form_of(simplifier(bounds).polynomial(expr))


def simplifier(bounds: Bounds) -> "Simplifier":
    """The simplifier of ``bounds``, with its cached results."""
    if not isinstance(bounds.engine, Simplifier):
        bounds.engine = Simplifier(bounds)
    return bounds.engine


_PASSES = 4
"""Maximum passes over a conjunction until it is stable; nearly always two suffice."""


class Simplifier:
    """Simplifies under fixed bounds; results are cached by structure."""

    def __init__(self, bounds: Bounds) -> None:
        self.bounds = bounds
        self._fixed = bounds.fixed()
        self._known, facts = _digest_facts(bounds)
        self.prover = Prover(bounds, facts)
        self._division = Division(bounds, self.prover)
        self._simplified: dict[Expr, Expr] = {}
        self._polynomials: dict[Expr, Polynomial] = {}
        self._assumed: dict[tuple[Expr, ...], Simplifier] = {}

    def assuming(self, *conditions: Expr) -> "Simplifier":
        """The simplifier where ``conditions`` hold too; those that are not comparisons of indices are ignored."""
        found = self._assumed.get(conditions)
        if found is None:
            telling = [condition for condition in conditions if compares_indices(condition)]
            found = simplifier(self.bounds.assuming(*telling)) if telling else self
            self._assumed[conditions] = found
        return found

    def simplify(self, expr: Expr) -> Expr:
        """See ``simplify``."""
        if isinstance(expr, Const) or (isinstance(expr, Var) and expr not in self._fixed):
            return self._known.get(expr, expr)
        found = self._simplified.get(expr)
        if found is None:
            found = to_expr(self.polynomial(expr)) if expr.dtype == index else self._value(expr)
            if found == expr:
                found = expr
            self._simplified[expr] = self._simplified[found] = found
        return found

    # Sums

    def polynomial(self, expr: Expr) -> Polynomial:
        """``expr`` (of dtype ``index``) as a polynomial over canonical atoms."""
        found = self._polynomials.get(expr)
        if found is None:
            terms: Polynomial = {}
            self._accumulate(expr, 1, terms)
            self._polynomials[expr] = found = self._division.recombined(terms)
        return found

    def _accumulate(self, expr: Expr, scale: int, target: Polynomial) -> None:
        # No ``match``: this is the innermost loop of the simplifier.
        if isinstance(expr, Var):
            add_to(target, {(): scale * self._fixed[expr]} if expr in self._fixed else {(expr,): scale})
        elif isinstance(expr, Const):
            add_to(target, {(): scale * int(expr.value)})
        elif isinstance(expr, Binary) and (expr.op is BinaryOp.ADD or expr.op is BinaryOp.SUB):
            self._accumulate(expr.a, scale, target)
            self._accumulate(expr.b, scale if expr.op is BinaryOp.ADD else -scale, target)
        elif isinstance(expr, Binary) and expr.op is BinaryOp.MUL:
            if isinstance(expr.b, Const):
                self._accumulate(expr.a, scale * int(expr.b.value), target)
            else:
                add_to(target, multiply(self.polynomial(expr.a), self.polynomial(expr.b)), scale)
        elif isinstance(expr, Unary) and expr.op is UnaryOp.NEG:
            self._accumulate(expr.a, -scale, target)
        else:
            add_to(target, self._nonlinear(expr), scale)

    def _nonlinear(self, expr: Expr) -> Polynomial:
        found = self._polynomials.get(expr)
        if found is None:
            self._polynomials[expr] = found = self._nonlinear_uncached(expr)
        return found

    def _nonlinear_uncached(self, expr: Expr) -> Polynomial:
        match expr:
            case Binary(BinaryOp.FLOORDIV | BinaryOp.MOD, a, b):
                return self._divided(expr.op, self.polynomial(a), self.polynomial(b))
            case Binary(BinaryOp.TRUNCDIV | BinaryOp.TRUNCMOD, a, b):
                return self._truncated(expr.op, self.polynomial(a), self.polynomial(b))
            case Binary(BinaryOp.MIN | BinaryOp.MAX, a, b):
                left, right = self.polynomial(a), self.polynomial(b)
                return self._extreme(expr.op, [*self._operands(expr.op, left), *self._operands(expr.op, right)])
            case Binary(BinaryOp.SHL | BinaryOp.SHR, a, Const(value)) if 0 <= int(value) < index.bits - 1:
                power: Polynomial = {(): 1 << int(value)}
                if expr.op is BinaryOp.SHL:
                    return multiply(self.polynomial(a), power)
                return self._divided(BinaryOp.FLOORDIV, self.polynomial(a), power)
            case Unary(UnaryOp.ABS, a):
                return self._absolute(self.polynomial(a))
            case Select():
                return self._as_polynomial(self._select(expr))
            case Check():
                return self._checked(expr)
            case _:
                return self._as_polynomial(self._rebuilt(expr))

    def _as_polynomial(self, expr: Expr) -> Polynomial:
        """An expression whose operands are canonical already."""
        return {(expr,): 1} if isinstance(expr, (Select, Read, Cast)) else polynomial(expr)

    def _checked(self, check: Check) -> Polynomial:
        """An index known to be within its extent needs no check."""
        position, extent = self.polynomial(check.index), self.polynomial(check.extent)
        left = combine(extent, shifted(position, 1), -1)
        if self._exact_nonnegative(position) and self._exact_nonnegative(left):
            return position
        return polynomial(checked(to_expr(position), to_expr(extent), check.origin, from_end=check.from_end))

    # Division

    def _divided(self, op: BinaryOp, a: Polynomial, b: Polynomial) -> Polynomial:
        if not (is_exact(a, self.bounds) and is_exact(b, self.bounds)):
            return polynomial(rebuild(Binary(op, to_expr(a), to_expr(b)), (to_expr(a), to_expr(b))))
        result = self._division.divide(a, b)
        return result.quotient if op is BinaryOp.FLOORDIV else result.remainder

    def _truncated(self, op: BinaryOp, a: Polynomial, b: Polynomial) -> Polynomial:
        """Division towards zero: equal to floor division if nothing is negative."""
        if self._exact_nonnegative(a) and self._exact_nonnegative(b):
            return self._divided(BinaryOp.FLOORDIV if op is BinaryOp.TRUNCDIV else BinaryOp.MOD, a, b)
        left, right = to_expr(a), to_expr(b)
        if isinstance(left, Const) and isinstance(right, Const):
            return truncated_constant(op, int(left.value), int(right.value))
        return {(Binary(op, left, right),): 1}

    def _exact_nonnegative(self, a: Polynomial) -> bool:
        return is_exact(a, self.bounds) and self.prover.nonnegative(a)

    def _absolute(self, a: Polynomial) -> Polynomial:
        if self._exact_nonnegative(a):
            return a
        if self._exact_nonnegative(scaled(a, -1)):
            return scaled(a, -1)
        return {(Unary(UnaryOp.ABS, to_expr(a)),): 1}

    # Minimum and maximum

    def _operands(self, op: BinaryOp, terms: Polynomial) -> list[Polynomial]:
        """The operands of nested ``min`` or ``max``: ``min(a, b)*2 + x`` is ``min(a*2 + x, b*2 + x)``."""
        for monomial, coefficient in terms.items():
            atom = monomial[0] if len(monomial) == 1 else None
            if isinstance(atom, Binary) and atom.op is (op if coefficient > 0 else _OPPOSITE[op]):
                sides = [polynomial(atom.a), polynomial(atom.b)]
                if contains_data(atom) and (len(terms) > 1 or coefficient != 1):
                    continue
                rest = combine(terms, {monomial: coefficient}, -1)
                return [one for side in sides for one in self._operands(op, combine(rest, side, coefficient))]
        return [terms]

    def _extreme(self, op: BinaryOp, operands: list[Polynomial]) -> Polynomial:
        exact = all(is_exact(operand, self.bounds) for operand in operands)
        if exact:
            operands = self._undominated(op, operands)
        if len(operands) == 1:
            return operands[0]
        if not exact or any(contains_data(atom) for operand in operands for m in operand for atom in m):
            return {(_chain(op, operands),): 1}
        common = _common_terms(operands)
        rest = [combine(operand, common, -1) for operand in operands]
        factor = gcd(*(c for operand in rest for c in operand.values()))
        atom = _chain(op, [{m: c // factor for m, c in operand.items()} for operand in rest])
        return combine(common, {(atom,): factor})

    def _undominated(self, op: BinaryOp, operands: list[Polynomial]) -> list[Polynomial]:
        """The operands that may be the result. Of two equal ones, the first stays."""
        kept: list[Polynomial] = []
        for operand in operands:
            if any(self._decides(op, other, operand) for other in kept):
                continue
            kept = [other for other in kept if not self._decides(op, operand, other)]
            kept.append(operand)
        return kept

    def _decides(self, op: BinaryOp, a: Polynomial, b: Polynomial) -> bool:
        difference = combine(b, a, -1)
        return self.prover.nonnegative(difference if op is BinaryOp.MIN else scaled(difference, -1))

    # Conditions

    def _compared(self, op: BinaryOp, a: Expr, b: Expr) -> Expr:
        left, right = self.polynomial(a), self.polynomial(b)
        if op in (BinaryOp.GT, BinaryOp.GE):
            left, right = right, left
            op = BinaryOp.LT if op is BinaryOp.GT else BinaryOp.LE
        difference = combine(right, left, -1)
        if op in (BinaryOp.EQ, BinaryOp.NE):
            return self._compared_equal(op, left, right, difference)
        if not (is_exact(left, self.bounds) and is_exact(right, self.bounds)):
            if not difference:
                return TRUE if op is BinaryOp.LE else FALSE
            return Binary(op, to_expr(left), to_expr(right))
        result = self._at_least_zero(shifted(difference, -1) if op is BinaryOp.LT else difference)
        if isinstance(result, Binary) and any(contains_data(atom) for m in difference for atom in m):
            # Terms of data moved to the other side might wrap around there.
            moved = (polynomial(result.a), polynomial(result.b))
            if not all(is_exact(side, self.bounds) for side in moved):
                return Binary(op, to_expr(left), to_expr(right))
        return result

    def _at_least_zero(self, a: Polynomial) -> Expr:
        """The condition ``a >= 0``, decided or canonical."""
        a = self._division.recombined(a)
        if self.prover.nonnegative(a):
            return TRUE
        if self.prover.nonnegative(shifted(scaled(a, -1), -1)):
            return FALSE
        leading = self._leading_digits(a)
        return self._inequality(a) if leading is a else self._at_least_zero(leading)

    def _leading_digits(self, a: Polynomial) -> Polynomial:
        """``g*x + s >= 0`` with ``0 <= s < g`` is equivalent to ``x >= 0``."""
        for g in sorted({abs(c) for m, c in a.items() if m} - {1}, reverse=True):
            low = {m: c for m, c in a.items() if m and c % g}
            lo, hi = polynomial_interval(shifted(low, a.get((), 0) % g), self.bounds)
            if lo is not None and hi is not None and lo // g == hi // g:
                high = {m: c // g for m, c in a.items() if m and c % g == 0}
                return self._leading_digits(shifted(high, a.get((), 0) // g + lo // g))
        return a

    def _inequality(self, a: Polynomial) -> Expr:
        """``a >= 0`` with negative terms on the left."""
        constant = a.get((), 0)
        left = {m: -c for m, c in a.items() if m and c < 0}
        right = {m: c for m, c in a.items() if m and c > 0}
        if not left:
            condition = Binary(BinaryOp.GE, to_expr(right), literal(-constant))
        elif not right or constant >= 0:
            condition = Binary(BinaryOp.LT, to_expr(left), to_expr(shifted(right, constant + 1)))
        else:
            condition = Binary(BinaryOp.LT, to_expr(shifted(left, -constant - 1)), to_expr(right))
        return self._known.get(condition, condition)

    def _compared_equal(self, op: BinaryOp, left: Polynomial, right: Polynomial, difference: Polynomial) -> Expr:
        holds, fails = (TRUE, FALSE) if op is BinaryOp.EQ else (FALSE, TRUE)
        difference = self._division.recombined(difference)
        if not difference:
            return holds
        if not (is_exact(left, self.bounds) and is_exact(right, self.bounds)):
            return self._equation(op, left, right)
        factor = content(difference)
        if factor and difference.get((), 0) % factor:
            return fails
        negative = scaled(difference, -1)
        if self.prover.nonnegative(shifted(difference, -1)) or self.prover.nonnegative(shifted(negative, -1)):
            return fails
        if self.prover.nonnegative(difference) and self.prover.nonnegative(negative):
            return holds
        if factor:
            difference = {m: c // factor for m, c in difference.items()}
        if _lead_coefficient(difference) < 0:
            difference = scaled(difference, -1)
        first = {m: c for m, c in difference.items() if m and c > 0}
        return self._equation(op, first, combine(first, difference, -1))

    def _equation(self, op: BinaryOp, left: Polynomial, right: Polynomial) -> Expr:
        condition = Binary(op, to_expr(left), to_expr(right))
        return self._known.get(condition, condition)

    def _conjunction(self, condition: Expr) -> Expr:
        """Each part simplified under those before it; without reads, also under those after it."""
        result = condition
        for _ in range(_PASSES):
            parts = self._in_turn(conjuncts(result))
            if any(part.has_reads for part in parts):
                return joined(BinaryOp.AND, parts, TRUE)
            before, result = result, joined(BinaryOp.AND, sorted(self._needed(parts), key=unique_text), TRUE)
            if result == before:
                break
        return result

    def _in_turn(self, conditions: Sequence[Expr]) -> list[Expr]:
        """Each condition simplified under those before it; only ``FALSE`` if one can't hold."""
        parts: list[Expr] = []
        known = self
        for condition in conditions:
            simple = known.simplify(condition)
            if simple == FALSE:
                return [FALSE]
            fresh = [one for one in conjuncts(simple) if one not in parts]
            if fresh:
                parts.extend(fresh)
                known = known.assuming(*fresh)
        return parts

    def _needed(self, parts: list[Expr]) -> list[Expr]:
        """The parts that do not follow from all others; only ``FALSE`` if one contradicts them."""
        kept = parts
        for part in parts:
            others = [other for other in kept if other is not part]
            simple = self.assuming(*others).simplify(part) if others else part
            if simple == FALSE:
                return [FALSE]
            if simple == TRUE:
                kept = others
        return kept

    def _disjunction(self, condition: Expr) -> Expr:
        parts: list[Expr] = []
        for part in disjuncts(condition):
            simple = self.simplify(part)
            if simple == TRUE and not any(one.has_reads for one in parts):
                return TRUE
            parts.extend(one for one in disjuncts(simple) if one not in parts)
        parts = [part for part in parts if part != FALSE]
        if not any(part.has_reads for part in parts):
            parts.sort(key=unique_text)
        return joined(BinaryOp.OR, parts, FALSE)

    # Values

    def _value(self, expr: Expr) -> Expr:
        """A non-index expression: a condition, or a value whose parts are simplified."""
        match expr:
            case Binary(op, a, b) if op in COMPARISONS and a.dtype == index:
                result = self._compared(op, a, b)
            case Binary(BinaryOp.AND, a, _) if a.dtype.is_bool:
                result = self._conjunction(expr)
            case Binary(BinaryOp.OR, a, _) if a.dtype.is_bool:
                result = self._disjunction(expr)
            case Unary(UnaryOp.NOT, a) if a.dtype.is_bool:
                inner = self.simplify(a)
                opposite = negated(inner)
                result = opposite if opposite == Unary(UnaryOp.NOT, inner) else self.simplify(opposite)
            case Select():
                result = self._select(expr)
            case _:
                result = self._rebuilt(expr)
        return self._known.get(result, result)

    def _select(self, expr: Select) -> Expr:
        if expr.a == expr.b:
            return self.simplify(expr.a)
        condition = self.simplify(expr.condition)
        if isinstance(condition, Const):
            return self.simplify(expr.a if condition.value else expr.b)
        a = self.assuming(condition).simplify(expr.a)
        b = self.assuming(negated(condition)).simplify(expr.b)
        return a if a == b else select(condition, a, b)

    def _rebuilt(self, expr: Expr) -> Expr:
        before = expr.operands()
        after = tuple(self.simplify(child) for child in before)
        if isinstance(expr, Cast):
            return self._cast(after[0], expr)
        foldable = isinstance(expr, Binary) and any(isinstance(operand, Const) for operand in after)
        if not foldable and all(x is y for x, y in zip(before, after, strict=True)):
            return expr
        return rebuild(expr, after)

    def _cast(self, a: Expr, expr: Cast) -> Expr:
        """A cast: literals are converted; an index that fits in a narrower integer survives a round trip."""
        dtype = expr.dtype
        if isinstance(a, Const) and not a.dtype.is_float and dtype.is_int:
            return Const(wrap(int(a.value), dtype), dtype)
        if isinstance(a, Cast) and a.a.dtype == dtype and dtype.is_int and a.dtype.is_int:
            lo, hi = interval(a.a, self.bounds)
            if lo is not None and hi is not None and a.dtype.min <= lo and hi <= a.dtype.max:
                return a.a
        return expr if a is expr.a else cast(a, dtype)


def _digest_facts(bounds: Bounds) -> tuple[dict[Expr, Expr], list[Polynomial]]:
    """The facts in canonical form: known conditions, and polynomials known to be >= 0."""
    known: dict[Expr, Expr] = {}
    facts = [shifted(polynomial(e), -1) for e in bounds.extents.values() if not isinstance(e, (Const, Var))]
    if bounds.facts:
        plain = simplifier(bounds.origin)
        for fact in bounds.facts:
            for part in conjuncts(plain.simplify(fact)):
                known[part] = TRUE
                known[plain.simplify(negated(part))] = FALSE
                facts.extend(inequalities(part, bounds))
        known.pop(TRUE, None)
        known.pop(FALSE, None)
    return known, facts


def _common_terms(operands: list[Polynomial]) -> Polynomial:
    """The terms that all operands share, and the least constant where none of them is a literal."""
    first, *others = operands
    common = {m: c for m, c in first.items() if m and all(other.get(m) == c for other in others)}
    if all(len(operand) > len(common) + (() in operand) for operand in operands):
        least = min(operand.get((), 0) for operand in operands)
        return shifted(common, least)
    return common


_OPPOSITE = {BinaryOp.MIN: BinaryOp.MAX, BinaryOp.MAX: BinaryOp.MIN}


def _lead_coefficient(a: Polynomial) -> int:
    """The coefficient that decides on which side of an equation all terms go."""
    lead = min((m for m in a if m), key=lambda m: (-len(m), -abs(a[m]), [order(atom) for atom in m]))
    return a[lead]


def _chain(op: BinaryOp, operands: list[Polynomial]) -> Expr:
    """``min`` or ``max`` of all operands, literals last."""
    exprs = sorted((to_expr(operand) for operand in operands), key=lambda e: (isinstance(e, Const), str(e)))
    result = exprs[0]
    for expr in exprs[1:]:
        result = Binary(op, result, expr)
    return result
