"""Bindings of the names of a rule: values, integers, leading dimensions, attributes.

A ``Binding`` is immutable, for backtracking. Equations that can't be solved yet (an extent ``n1 + n2`` with both
unknown) are collected, and solved at the end.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from tilewright.base.exact import Exact
from tilewright.graph import Node, Value
from tilewright.ops import Attribute, Operator
from tilewright.ops.shapes import Shape, same_extent, same_shape, simplified
from tilewright.passes.rules.terms import Apply, Rule, Term, Variable, symbols_of
from tilewright.symbolic.bounds import Bounds
from tilewright.symbolic.expr import Const, Expr, Var, const
from tilewright.symbolic.simplify import prove
from tilewright.symbolic.traversal import substitute

Attributes = tuple[tuple[str, Attribute], ...]

_AXES = frozenset({"axes", "axis"})
_FLATTEN = "Flatten"
"""Attributes whose axis may be one beyond the last."""


@dataclass(frozen=True, slots=True)
class Binding:
    """The bindings so far."""

    values: Mapping[Term, Value] = field(default_factory=dict[Term, Value])
    symbols: Mapping[Var, Expr] = field(default_factory=dict[Var, Expr])
    leading: Mapping[str, Shape] = field(default_factory=dict[str, Shape])
    rests: Mapping[str, Attributes] = field(default_factory=dict[str, Attributes])
    open: tuple[tuple[Expr, Expr], ...] = ()
    """Expressions over symbols, and the values that they equal."""

    def with_value(self, term: Term, value: Value) -> "Binding":
        """Extended by ``term`` being ``value``."""
        return replace(self, values={**self.values, term: value})

    def with_shape(self, variable: Variable, shape: Shape) -> "Binding | None":
        """Extended by ``variable`` having ``shape``; None if impossible."""
        count = len(shape) - len(variable.shape)
        if count < 0 or (count and variable.leading is None):
            return None
        leading = self.leading
        if variable.leading is not None:
            known = leading.get(variable.leading)
            if known is None:
                leading = {**leading, variable.leading: shape[:count]}
            elif not same_shape(known, shape[:count]):
                return None
        equations = _Equations(dict(self.symbols), list(self.open))
        if not all(map(equations.add, variable.shape, shape[count:])):
            return None
        return replace(self, leading=leading, symbols=equations.symbols, open=tuple(equations.open))

    def with_attributes(self, term: Apply, node: Node) -> "Binding | None":
        """Extended by the attributes of ``node`` matching ``term``; None if they do not."""
        given, equations = dict(node.attributes), _Equations(dict(self.symbols), list(self.open))
        written = frozenset(name for name, _ in term.attributes)
        for name, attribute in term.attributes:
            pattern = spliced(attribute, self.leading)
            actual = given.get(name, node.op.defaults.get(name))
            if name in _AXES and node.op.name != _FLATTEN:
                rank = max(len(value.shape) for value in (*node.inputs[:1], node.outputs[0]) if value is not None)
                pattern, actual = _from_front(pattern, rank), _from_front(actual, rank)
            if not equations.add_attribute(pattern, actual):
                return None
        bound = replace(self, symbols=equations.symbols, open=tuple(equations.open))
        others = tuple((name, value) for name, value in node.attributes if name not in written)
        if term.rest is None:
            left = {name: value for name, value in node.op.defaults.items() if name not in written}
            return bound if all(Exact(left.get(n)) == Exact(v) for n, v in others) else None
        known = bound.rests.get(term.rest)
        if known is None:
            return replace(bound, rests={**bound.rests, term.rest: others})
        return bound if _written(node.op, known) == _written(node.op, others) else None

    def solved(self, rule: Rule, bounds: Bounds) -> "Binding | None":
        """With all equations solved; None if they do not hold, or ``rule``'s conditions are not proven."""
        equations = _Equations(dict(self.symbols), list(self.open))
        if not equations.solve():
            return None
        symbols = equations.symbols
        if any(not self._is_bound(symbol, symbols) for symbol in rule.symbols):
            return None
        extents = frozenset[Var]().union(*map(symbols_of, rule.variables))
        conditions = [*(symbols[extent] >= 0 for extent in extents), *(substitute(n, symbols) for n in rule.needs)]
        return replace(self, symbols=symbols, open=()) if all(prove(c, bounds) for c in conditions) else None

    def _is_bound(self, symbol: Var, symbols: Mapping[Var, Expr]) -> bool:
        return symbol in symbols or (symbol.name.startswith("*") and symbol.name[1:] in self.leading)

    def attribute(self, value: Attribute) -> Attribute:
        """An attribute of a term with its symbols substituted."""
        value = spliced(value, self.leading)
        if isinstance(value, tuple):
            integers = [part for part in value if isinstance(part, int | Expr)]
            return tuple(map(self._integer, integers)) if len(integers) == len(value) else value
        return self._integer(value) if isinstance(value, Expr) else value

    def _integer(self, value: int | Expr) -> int | Expr:
        if isinstance(value, int):
            return value
        found = simplified(substitute(value, self.symbols))
        return int(found.value) if isinstance(found, Const) else found


@dataclass(slots=True)
class _Equations:
    """Symbols, and equations between expressions over them and their values."""

    symbols: dict[Var, Expr]
    open: list[tuple[Expr, Expr]]

    def add(self, pattern: Expr, actual: Expr) -> bool:
        """Whether ``pattern`` can equal ``actual``."""
        if isinstance(pattern, Var):
            return same_extent(self.symbols.setdefault(pattern, actual), actual)
        if not pattern.variables:
            return same_extent(pattern, actual)
        self.open.append((pattern, actual))
        return True

    def add_attribute(self, pattern: Attribute, actual: Attribute) -> bool:
        """Whether the attribute ``pattern`` can equal ``actual``."""
        if isinstance(pattern, tuple) and isinstance(actual, tuple):
            return len(pattern) == len(actual) and all(map(self.add_attribute, pattern, actual))
        wanted, found = _as_extent(pattern), _as_extent(actual)
        if wanted is not None and found is not None:
            return self.add(wanted, found)
        return Exact(pattern) == Exact(actual)

    def solve(self) -> bool:
        """Whether all equations hold; solves one for its only unknown symbol, if it is linear in it."""
        while self.open:
            left: list[tuple[Expr, Expr]] = []
            for pattern, actual in self.open:
                unknown = [symbol for symbol in pattern.variables if symbol not in self.symbols]
                if not unknown and not same_extent(substitute(pattern, self.symbols), actual):
                    return False
                if unknown and not (len(unknown) == 1 and self._follows(unknown[0], pattern, actual)):
                    left.append((pattern, actual))
            if len(left) == len(self.open):
                return False
            self.open = left
        return True

    def _follows(self, symbol: Var, pattern: Expr, actual: Expr) -> bool:
        known = {name: value for name, value in self.symbols.items() if name != symbol}
        at_zero, at_one, at_two = (substitute(pattern, {**known, symbol: const(i)}) for i in range(3))
        slope = simplified(at_one - at_zero)
        if not isinstance(slope, Const) or slope.value == 0 or not same_extent(at_two - at_one, slope):
            return False
        self.symbols[symbol] = simplified((actual - at_zero) // slope)
        return same_extent(substitute(pattern, self.symbols), actual)


def spliced(value: Attribute, leading: Mapping[str, Shape]) -> Attribute:
    """``value`` with names of leading dimensions (``*b``) replaced by their extents."""
    if not isinstance(value, tuple) or not any(isinstance(part, Var) for part in value):
        return value
    parts: list[int | Expr] = []
    for part in value:
        if isinstance(part, Var) and part.name[1:] in leading and part.name.startswith("*"):
            parts += leading[part.name[1:]]
        elif isinstance(part, int | Expr):
            parts.append(part)
    return tuple(parts)


def _as_extent(value: Attribute) -> Expr | None:
    """``value`` if it is an integer, as an expression."""
    if isinstance(value, Expr):
        return value
    return const(value) if isinstance(value, int) and not isinstance(value, bool) else None


def _from_front(axes: Attribute, rank: int) -> Attribute:
    """``axes`` counted from the front."""
    if isinstance(axes, tuple):
        integers = [axis for axis in axes if isinstance(axis, int)]
        return tuple(axis + rank if axis < 0 else axis for axis in integers) if len(integers) == len(axes) else axes
    return axes + rank if isinstance(axes, int) and axes < 0 else axes


def _written(op: Operator, attributes: Attributes) -> Mapping[str, Exact[Attribute]]:
    """``attributes`` and, where one is not among them, its default."""
    return {name: Exact(value) for name, value in {**op.defaults, **dict(attributes)}.items()}
