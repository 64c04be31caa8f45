"""``Bounds``: ranges of variables and known conditions; and the intervals of expressions under them.

``Bounds`` holds for a place in a program: the loops around it (``0 <= v < extent``), the run-time extents (``>= 0``,
and at most their bound) and conditions that were tested on the way there. As the place is inside its loops, their
extents are at least 1. Everything derived from a ``Bounds`` is cached in it, so reuse one rather than making it anew.
"""

from collections.abc import Mapping
from typing import NamedTuple

from tilewright.base.dtypes import index
from tilewright.symbolic.check import Check
from tilewright.symbolic.expr import Binary, Cast, Const, Expr, ExprLike, Extent, Select, Unary, Var, as_expr
from tilewright.symbolic.linear import Polynomial, polynomial
from tilewright.symbolic.operations import COMPARISONS, BinaryOp, UnaryOp
from tilewright.symbolic.traversal import conjuncts, free_vars


class Interval(NamedTuple):
    """``lo <= x <= hi``; None means unbounded."""

    lo: int | None
    hi: int | None


UNLIMITED = Interval(None, None)
_ATOMIC_LIMIT = 1 << 63


class Bounds:
    """Known facts at one place of a program. Immutable, with equality and hash by value.

    ``extents``: the loop variables, outermost first: ``0 <= v < extent``. ``dims``: run-time extents with an inclusive
    upper bound or None; variables that only occur in ``extents`` are dims too. ``facts``: conditions that hold.
    """

    __slots__ = ("_highs", "_inner", "_lows", "_origin", "dims", "engine", "extents", "facts", "intervals", "ranks")

    def __init__(
        self,
        extents: Mapping[Var, ExprLike] | None = None,
        dims: Mapping[Var, int | None] | None = None,
        facts: tuple[Expr, ...] = (),
    ) -> None:
        given = (extents or {}).items()
        self.extents: Mapping[Var, Expr] = {v: e if isinstance(e, Expr) else as_expr(e) for v, e in given}
        symbolic = [e for e in self.extents.values() if not isinstance(e, Const)]
        inner = {v for e in symbolic for v in free_vars(e) if v not in self.extents}
        self.dims: Mapping[Var, int | None] = {
            **dict.fromkeys(sorted(inner, key=lambda v: v.unique)),
            **(dims or {}),
        }
        self.facts = facts
        self.ranks: Mapping[Var, int] = self._rank_all() if symbolic else dict.fromkeys(self.extents, 1)
        self.engine: object = None
        """Cache of ``simplify``: results under these bounds."""
        self._origin: Bounds | None = None if facts else self
        self._lows: dict[Var, int] = {}
        self._highs: dict[Var, int] = {}
        self.intervals: dict[Expr, Interval] = {}
        """Cache of ``interval``: results under these bounds."""
        self._inner: dict[tuple[tuple[Var, ExprLike], ...], Bounds] = {}
        for extent in symbolic:
            self._note_at_least(extent, 1)
        for fact in facts:
            self._note_fact(fact)

    def extended(self, extents: Mapping[Var, ExprLike], dims: Mapping[Var, int | None] | None = None) -> "Bounds":
        """These bounds inside more loops. A known variable gets the new extent."""
        if dims:
            return Bounds({**self.extents, **extents}, {**self.dims, **dims}, self.facts)
        key = tuple(extents.items())
        found = self._inner.get(key) if key else self
        if found is None:
            self._inner[key] = found = Bounds({**self.extents, **extents}, self.dims, self.facts)
        return found

    def assuming(self, *conditions: Expr) -> "Bounds":
        """These bounds with ``conditions`` as further facts, such as on one side of a guard."""
        known = set(self.facts)
        fresh = [part for condition in conditions for part in conjuncts(condition) if part not in known]
        if not fresh:
            return self
        result = Bounds(self.extents, self.dims, (*self.facts, *fresh))
        result._origin = self._origin
        return result

    @property
    def origin(self) -> "Bounds":
        """These bounds without their facts."""
        if self._origin is None:
            self._origin = Bounds(self.extents, self.dims)
        return self._origin

    def _key(self) -> tuple[frozenset[tuple[Var, Expr]], frozenset[tuple[Var, int | None]], frozenset[Expr]]:
        return frozenset(self.extents.items()), frozenset(self.dims.items()), frozenset(self.facts)

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, Bounds) and self._key() == other._key())

    def __hash__(self) -> int:
        return hash(self._key())

    def __repr__(self) -> str:
        ranges = [f"0 <= {v} < {e}" for v, e in self.extents.items()]
        dims = [f"{_least(v)} <= {v}" if b is None else f"{_least(v)} <= {v} <= {b}" for v, b in self.dims.items()]
        return f"Bounds({', '.join([*ranges, *dims, *map(str, self.facts)])})"

    def low(self, var: Var) -> int | None:
        """The least value of ``var``, if it is a known number."""
        if var in self._lows:
            return self._lows[var]
        if var in self.extents or var in self.dims:
            return _least(var)
        return None

    def high(self, var: Var) -> int | None:
        """The largest value of ``var``, if it is a known number."""
        limit = self._highs.get(var)
        if var in self.extents:
            top = interval(self.extents[var], self).hi
            own = None if top is None else max(top - 1, 0)
        else:
            own = self.dims.get(var)
        return own if limit is None else limit if own is None else min(limit, own)

    def fixed(self) -> dict[Var, int]:
        """Variables with exactly one value, such as those of loops with one iteration."""
        values = {v: 0 for v, extent in self.extents.items() if isinstance(extent, Const) and extent.value == 1}
        for var in self._lows.keys() | self._highs.keys():
            low = self.low(var)
            if low is not None and low == self.high(var):
                values[var] = low
        return values

    def _rank_all(self) -> dict[Var, int]:
        """The nesting depth of each variable's extent: eliminating by falling rank meets each variable once."""
        ranks: dict[Var, int] = {}

        def rank(var: Var, limit: int) -> int:
            extent = self.extents.get(var)
            if extent is None or limit == 0:
                return 0
            if var not in ranks:
                inside = () if isinstance(extent, Const) else free_vars(extent)
                ranks[var] = 1 + max((rank(v, limit - 1) for v in inside), default=0)
            return ranks[var]

        for var in self.extents:
            rank(var, len(self.extents))
        return ranks

    def _note_at_least(self, expr: Expr, least: int) -> None:
        """Record the bounds of single variables that ``expr >= least`` implies."""
        match expr:
            case Const():
                pass
            case Var():
                self._lows[expr] = max(least, self._lows.get(expr, least), self.low(expr) or least)
            case Binary(BinaryOp.FLOORDIV, a, Const(divisor)) if int(divisor) > 0:
                self._note_at_least(a, least * int(divisor))
            case Binary(BinaryOp.MIN, a, b):
                self._note_at_least(a, least)
                self._note_at_least(b, least)
            case Binary(BinaryOp.ADD | BinaryOp.SUB | BinaryOp.MUL):
                self._note_polynomial(polynomial(expr), least)
            case _:
                pass

    def _note_polynomial(self, terms: Polynomial, least: int) -> None:
        """The same for ``a * x + b >= least``, and for products of dims, of which each is then at least 1."""
        rest = least - terms.get((), 0)
        single = [(monomial, coefficient) for monomial, coefficient in terms.items() if monomial]
        if len(single) != 1:
            return
        (monomial, coefficient), *_ = single
        if len(monomial) > 1:
            if coefficient > 0 and rest > 0 and all(atom in self.dims for atom in monomial):
                for atom in monomial:
                    self._note_at_least(atom, 1)
            return
        for atom in monomial:
            if coefficient < 0:
                self._note_at_most(atom, rest // coefficient)
            else:
                self._note_at_least(atom, -(-rest // coefficient))

    def _note_at_most(self, atom: Expr, most: int) -> None:
        if isinstance(atom, Var):
            self._highs[atom] = min(most, self._highs.get(atom, most))

    def _note_fact(self, fact: Expr) -> None:
        if not isinstance(fact, Binary) or fact.op not in COMPARISONS or fact.a.dtype != index:
            return
        a, b = fact.a, fact.b
        if contains_data(a) or contains_data(b):
            return
        match fact.op:
            case BinaryOp.LT:
                self._note_difference(b, a, 1)
            case BinaryOp.LE:
                self._note_difference(b, a, 0)
            case BinaryOp.GT:
                self._note_difference(a, b, 1)
            case BinaryOp.GE:
                self._note_difference(a, b, 0)
            case BinaryOp.EQ:
                self._note_difference(a, b, 0)
                self._note_difference(b, a, 0)
            case _:
                pass

    def _note_difference(self, a: Expr, b: Expr, least: int) -> None:
        self._note_polynomial(polynomial(Binary(BinaryOp.SUB, a, b)), least)


def _least(var: Var) -> int:
    return var.least if isinstance(var, Extent) else 0


def interval(expr: Expr, bounds: Bounds) -> Interval:
    """The range of ``expr``, an integer or bool; sound, and tight where variables occur once.

    ``index`` arithmetic on loop variables does not overflow; all other integer arithmetic wraps around, and so has the
    range of its dtype where it might.
    """
    known = bounds.intervals.get(expr)
    if known is None:
        bounds.intervals[expr] = known = _interval(expr, bounds)
    return known


def _interval(expr: Expr, bounds: Bounds) -> Interval:
    if isinstance(expr, Const):
        return UNLIMITED if expr.dtype.is_float else Interval(int(expr.value), int(expr.value))
    if expr.dtype == index:
        if isinstance(expr, Var):
            return Interval(bounds.low(expr), bounds.high(expr))
        terms = polynomial(expr)
        if len(terms) != 1 or (expr,) not in terms:
            return polynomial_interval(terms, bounds)
        return _atom_interval(expr, bounds)
    return _wrapping_interval(expr, bounds)


def polynomial_interval(terms: Polynomial, bounds: Bounds) -> Interval:
    """The range of a sum, each term on its own; unlimited where data may make it wrap around."""
    lo: int | None = 0
    hi: int | None = 0
    for monomial, coefficient in terms.items():
        if not monomial:
            low = high = 1
        else:
            low, high = interval(monomial[0], bounds)
            for atom in monomial[1:]:
                low, high = _times(Interval(low, high), interval(atom, bounds))
        if coefficient < 0:
            low, high = high, low
        lo = None if lo is None or low is None else lo + coefficient * low
        hi = None if hi is None or high is None else hi + coefficient * high
        if lo is None and hi is None:
            return UNLIMITED
    if (lo is None or hi is None or not -_ATOMIC_LIMIT <= lo <= hi < _ATOMIC_LIMIT) and _has_sum_of_data(terms):
        return UNLIMITED
    return Interval(lo, hi)


def is_exact(terms: Polynomial, bounds: Bounds) -> bool:
    """Whether the sum is known not to wrap around; index arithmetic never does."""
    for monomial in terms:
        for atom in monomial:
            if atom.__class__ is not Var and contains_data(atom):
                return not _has_sum_of_data(terms) or polynomial_interval(terms, bounds) != UNLIMITED
    return True


def _has_sum_of_data(terms: Polynomial) -> bool:
    """Whether ``terms`` has data, and is more than one bare atom."""
    if len(terms) == 1:
        ((monomial, coefficient),) = terms.items()
        if coefficient == 1 and len(monomial) == 1:
            return False
    return any(contains_data(atom) for monomial in terms for atom in monomial)


_INDEX_OPS = frozenset(
    {
        BinaryOp.ADD,
        BinaryOp.SUB,
        BinaryOp.MUL,
        BinaryOp.FLOORDIV,
        BinaryOp.MOD,
        BinaryOp.TRUNCDIV,
        BinaryOp.TRUNCMOD,
        BinaryOp.MIN,
        BinaryOp.MAX,
    }
)


def contains_data(expr: Expr) -> bool:
    """Whether ``expr`` contains more than index arithmetic: reads, casts, shifts ..."""
    match expr:
        case Const() | Var():
            return False
        case Binary(op, a, b):
            return op not in _INDEX_OPS or contains_data(a) or contains_data(b)
        case Select(_, a, b):
            return contains_data(a) or contains_data(b)
        case Unary(UnaryOp.NEG | UnaryOp.ABS, a):
            return contains_data(a)
        case _:
            return True


def _times(a: Interval, b: Interval) -> Interval:
    if a.lo is not None and a.hi is not None and b.lo is not None and b.hi is not None:
        corners = (a.lo * b.lo, a.lo * b.hi, a.hi * b.lo, a.hi * b.hi)
        return Interval(min(corners), max(corners))
    if a.lo is not None and b.lo is not None and a.lo >= 0 and b.lo >= 0:
        return Interval(a.lo * b.lo, 0 if a.hi == 0 or b.hi == 0 else None)
    return UNLIMITED


def _atom_interval(expr: Expr, bounds: Bounds) -> Interval:
    """The range of an ``index`` expression that is not a sum."""
    match expr:
        case Binary(op, a, b) if op in _BINARY_RANGES:
            return _BINARY_RANGES[op](interval(a, bounds), interval(b, bounds))
        case Select(_, a, b):
            return _union(interval(a, bounds), interval(b, bounds))
        case Cast(a, _) if not a.dtype.is_float:
            found = interval(a, bounds)
            fits = found.hi is not None and found.hi < _ATOMIC_LIMIT
            return found if fits else UNLIMITED
        case Check(_, extent):
            most = interval(extent, bounds).hi
            return Interval(0, None if most is None else max(most - 1, 0))
        case Unary(UnaryOp.ABS, a):
            lo, hi = interval(a, bounds)
            if lo is not None and lo >= 0:
                return Interval(lo, hi)
            # The most negative integer is its own absolute value, so a limit is needed on that side.
            return UNLIMITED if lo is None else Interval(0, None if hi is None else max(-lo, hi))
        case _:
            return UNLIMITED


def _wrapping_interval(expr: Expr, bounds: Bounds) -> Interval:
    """The range of a non-index integer or bool: the exact one if it fits in the dtype."""
    dtype = expr.dtype
    if dtype.is_float:
        return UNLIMITED
    least, most = int(dtype.min), int(dtype.max)
    match expr:
        case Binary(op, a, b) if op in _BINARY_RANGES and dtype.is_int:
            found = _BINARY_RANGES[op](interval(a, bounds), interval(b, bounds))
        case Select(_, a, b):
            found = _union(interval(a, bounds), interval(b, bounds))
        case Cast(a, _) if not a.dtype.is_float and dtype.is_int:
            found = interval(a, bounds)
        case _:
            return Interval(least, most)
    fits = found.lo is not None and found.hi is not None and least <= found.lo and found.hi <= most
    return found if fits else Interval(least, most)


def _union(a: Interval, b: Interval) -> Interval:
    lo = None if a.lo is None or b.lo is None else min(a.lo, b.lo)
    hi = None if a.hi is None or b.hi is None else max(a.hi, b.hi)
    return Interval(lo, hi)


def _add(a: Interval, b: Interval) -> Interval:
    lo = None if a.lo is None or b.lo is None else a.lo + b.lo
    hi = None if a.hi is None or b.hi is None else a.hi + b.hi
    return Interval(lo, hi)


def _subtract(a: Interval, b: Interval) -> Interval:
    return _add(a, Interval(None if b.hi is None else -b.hi, None if b.lo is None else -b.lo))


def _floordiv(a: Interval, b: Interval) -> Interval:
    """The quotient for a divisor >= 0; division by zero gives 0."""
    if b.lo is None or b.lo < 0:
        return UNLIMITED
    least, most = max(b.lo, 1), b.hi
    lo = hi = None
    if a.lo is not None:
        lo = a.lo // least if a.lo < 0 else 0 if most is None or b.lo == 0 else a.lo // max(most, 1)
    if a.hi is not None:
        hi = a.hi // least if a.hi >= 0 else 0 if b.lo == 0 else -1 if most is None else a.hi // max(most, 1)
    return Interval(lo, hi)


def _mod(a: Interval, b: Interval) -> Interval:
    if b.lo is None or b.lo < 0:
        return UNLIMITED
    top = None if b.hi is None else max(b.hi - 1, 0)
    if a.lo is not None and a.lo >= 0 and a.hi is not None:
        if a.hi < b.lo:
            return a
        top = a.hi if top is None else min(a.hi, top)
    return Interval(0, top)


def _truncdiv(a: Interval, b: Interval) -> Interval:
    """The quotient rounded towards zero: never larger than ``a``, but for the most negative integer by -1."""
    if a.lo is None or a.hi is None or a.lo <= -_ATOMIC_LIMIT:
        return UNLIMITED
    if a.lo >= 0 and b.lo is not None and b.lo >= 0:
        return _floordiv(a, b)
    most = max(-a.lo, a.hi)
    return Interval(-most, most)


def _truncmod(a: Interval, _: Interval) -> Interval:
    """The remainder with the sign of ``a``, and never larger."""
    return Interval(None if a.lo is None else min(a.lo, 0), None if a.hi is None else max(a.hi, 0))


def _smaller(a: Interval, b: Interval) -> Interval:
    lo = None if a.lo is None or b.lo is None else min(a.lo, b.lo)
    his = [hi for hi in (a.hi, b.hi) if hi is not None]
    return Interval(lo, min(his, default=None))


def _larger(a: Interval, b: Interval) -> Interval:
    los = [lo for lo in (a.lo, b.lo) if lo is not None]
    hi = None if a.hi is None or b.hi is None else max(a.hi, b.hi)
    return Interval(max(los, default=None), hi)


_BINARY_RANGES = {
    BinaryOp.ADD: _add,
    BinaryOp.SUB: _subtract,
    BinaryOp.MUL: _times,
    BinaryOp.FLOORDIV: _floordiv,
    BinaryOp.MOD: _mod,
    BinaryOp.TRUNCDIV: _truncdiv,
    BinaryOp.TRUNCMOD: _truncmod,
    BinaryOp.MIN: _smaller,
    BinaryOp.MAX: _larger,
}
