"""Axioms and goals as egglog programs.

Terms become terms of sort ``T``: one constructor for each operator, count of operands and form of attributes.
Integers are elements of a field (``generic_points``), shapes are lists of sort ``S``, last dimension first: leading
dimensions are the tail of a list, whatever their number. ``(shape t)`` is known for each term: an axiom that makes
terms says their shapes, too.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction

from tilewright.base.errors import BadProgram
from tilewright.ops import Attribute
from tilewright.passes.rules.terms import Apply, Number, Rule, Term, Variable, subterms
from tilewright.superopt.generic_points import MIX, PRIME, element, point_where
from tilewright.superopt.normal_form import Normalizer, normal_rule
from tilewright.superopt.term_shapes import SHAPED, WINDOW, WINDOW_LISTS, Shape, target_shape
from tilewright.symbolic.expr import Binary, Const, Expr, Unary, Var
from tilewright.symbolic.operations import BinaryOp

PRELUDE = """
(datatype S (Nil) (D i64 S) (Leading i64) (Both S S))
(sort T)
(sort Window)
(constructor Unwritten (i64) Window)
(constructor Variable (i64) T)
(constructor Number (i64) T)
(constructor shape (T) S)
(ruleset shapes)
(rewrite (Both s s) s :ruleset shapes)
(rewrite (Both s t) (Both t s) :ruleset shapes)
(rewrite (Both s (Nil)) s :ruleset shapes)
(rewrite (Both s (Both s t)) (Both s t) :ruleset shapes)
(rewrite (Both (D n s) (D n t)) (D n (Both s t)) :ruleset shapes)
(rewrite (Both (D 1 s) (D n t)) (D n (Both s t)) :ruleset shapes)
(rule ((= (D m s) (D n t)) (!= m n)) ((panic "one term has two shapes")) :ruleset shapes)
(rule ((= (Number a) (Number b)) (!= a b)) ((panic "two numbers are equal")) :ruleset shapes)
(rule ((= (Variable a) (Variable b)) (!= a b)) ((panic "two variables are equal")) :ruleset shapes)
(rule ((= (Variable a) (Number b))) ((panic "a variable is a number")) :ruleset shapes)
"""

_CONSTRUCTOR = re.compile(r"\(([\w.]+/\w*)")
"""What ``Signatures.constructor`` writes."""


@dataclass(slots=True)
class Signatures:
    """The constructors that a program needs."""

    declared: dict[str, str] = field(default_factory=dict[str, str])

    def since(self, others: "Signatures") -> list[str]:
        """Declarations of those that ``others`` has not."""
        return [text for name, text in self.declared.items() if name not in others.declared]

    def constructor(self, kind: str, arguments: Sequence[str], sorts: Sequence[str], result: str = "T") -> str:
        """An application of the constructor of this kind and these sorts."""
        name = f"{kind}/{''.join(sort[0] for sort in sorts)}"
        self.declared[name] = f"(constructor {name} ({' '.join(sorts)}) {result})"
        return f"({name} {' '.join(arguments)})"


@dataclass(slots=True)
class _Writer:
    """Writes terms; the functions say what stands for symbols and names."""

    signatures: Signatures
    integer: Callable[[Expr | int], str]
    leading: Callable[[str], str]
    variable: Callable[[str], str]
    window: Callable[[str], str]

    def term(self, term: Term, names: Mapping[Term, str]) -> str:
        if term in names:
            return names[term]
        match term:
            case Variable(name):
                return self.variable(name)
            case Number(value):
                return f"(Number {number_element(value)})"
            case Apply(op, operands, _, _, output):
                arguments = [(self.term(operand, names), "T") for operand in operands]
                arguments += self._attributes(term)
                kind = f"{op.name}.{output}" if output else op.name
                return self.signatures.constructor(
                    kind, [text for text, _ in arguments], [sort for _, sort in arguments]
                )

    def _attributes(self, term: Apply) -> Iterable[tuple[str, str]]:
        """The text and the sort of each."""
        lists: list[str] = []
        for name, value in term.attributes:
            if term.op.name in SHAPED and isinstance(value, tuple):
                yield self.shape(target_shape([item for item in value if isinstance(item, int | Expr)])), "S"
            elif name == WINDOW:
                yield self.window(str(value)), "Window"
            elif name in WINDOW_LISTS and isinstance(value, tuple):
                lists += map(self._attribute, value)
            else:
                for item in value if isinstance(value, tuple) else (value,):
                    yield self._attribute(item), "i64"
        if lists:
            yield self.signatures.constructor("Window", lists, ["i64"] * len(lists), "Window"), "Window"

    def _attribute(self, value: Attribute) -> str:
        if isinstance(value, int | Expr) and not isinstance(value, bool):
            return self.integer(value)
        return str(element(repr(value)))

    def shape(self, shape: Shape) -> str:
        names = [self.leading(name) for name in sorted(shape.leading)]
        text = names.pop() if names else "(Nil)"
        for name in names:
            text = f"(Both {name} {text})"
        for extent in shape.dims:
            text = f"(D {self.integer(extent)} {text})"
        return text


def number_element(value: float) -> int:
    """A literal as an element of the field. Every finite float is a fraction."""
    exact = Fraction(value)
    return exact.numerator * pow(exact.denominator, -1, PRIME) % PRIME


def extent_text(extent: Expr | int, symbol: Callable[[Var], str]) -> str:
    """An extent as an egglog expression that computes what ``Point.value`` does."""
    match extent:
        case int():
            return str(extent % PRIME)
        case Const(value):
            return str(int(value) % PRIME)
        case Var():
            return symbol(extent)
        case Unary(_, a):
            return _modulo(f"(- {PRIME} {extent_text(a, symbol)})")
        case Binary(op, a, b):
            return _operation(op, extent_text(a, symbol), extent_text(b, symbol))
        case _:
            raise BadProgram(f"the extent `{extent}` is no sum, difference, product or quotient")


def _operation(op: BinaryOp, a: str, b: str) -> str:
    match op:
        case BinaryOp.ADD:
            return _modulo(f"(+ {a} {b})")
        case BinaryOp.SUB:
            return _modulo(f"(+ {a} (- {PRIME} {b}))")
        case BinaryOp.MUL:
            return _modulo(f"(* {a} {b})")
        case BinaryOp.FLOORDIV:
            scale, offset = MIX
            curve = _modulo(f"(+ (+ {_modulo(f'(* {a} {a})')} {_modulo(f'(* {scale} {b})')}) {offset})")
            return _modulo(f"(+ {a} (* {_modulo(f'(+ {b} {PRIME - 1})')} {curve}))")
        case _:
            raise BadProgram(f"`{a} {op.value} {b}` is no sum, difference, product or quotient")


def _modulo(text: str) -> str:
    return f"(% {text} {PRIME})"


@dataclass(slots=True)
class _Pattern:
    """One direction of an axiom, as it is compiled: what is to be found, what it binds, what must hold of it."""

    signatures: Signatures
    facts: list[str] = field(default_factory=list[str])
    bound: set[str] = field(default_factory=set[str])
    conditions: list[tuple[str, Expr]] = field(default_factory=list[tuple[str, Expr]])

    def writer(self) -> _Writer:
        bind = self.bind
        return _Writer(
            self.signatures,
            self.integer,
            lambda name: bind(f"s-{name}"),
            lambda name: bind(f"t-{name}"),
            lambda name: bind(f"w-{name}"),
        )

    def integer(self, value: Expr | int) -> str:
        """A literal, the variable of a symbol, or a new variable that must equal an expression."""
        match value:
            case int() | Const():
                return extent_text(value, _symbol)
            case Var():
                return self.bind(_symbol(value))
            case _:
                self.conditions.append((f"c{len(self.conditions)}", value))
                return self.conditions[-1][0]

    def bind(self, name: str) -> str:
        self.bound.add(name)
        return name


def _symbol(symbol: Var) -> str:
    return "i-" + re.sub(r"\W+", "-", symbol.name)


@dataclass(slots=True)
class _Conclusion:
    """What follows, as it is compiled: all that it mentions must be bound."""

    signatures: Signatures
    bound: set[str]
    missing: bool = False

    def writer(self) -> _Writer:
        known = self._known
        return _Writer(
            self.signatures,
            self.integer,
            lambda name: known(f"s-{name}"),
            lambda name: known(f"t-{name}"),
            lambda name: known(f"w-{name}"),
        )

    def integer(self, value: Expr | int) -> str:
        return extent_text(value, lambda symbol: self._known(_symbol(symbol)))

    def _known(self, name: str) -> str:
        self.missing = self.missing or name not in self.bound
        return name


@dataclass(frozen=True, slots=True)
class Clause:
    """One rewrite: where ``facts`` are found, ``actions`` are taken. ``axiom``: the name of what it is of."""

    axiom: str
    facts: tuple[str, ...]
    actions: tuple[str, ...]

    @property
    def constructors(self) -> frozenset[str]:
        """The operators without which it finds nothing."""
        return frozenset(_CONSTRUCTOR.findall(" ".join(self.facts)))

    def text(self, ruleset: str, name: str) -> str:
        """As egglog reads it."""
        return f'(rule ({" ".join(self.facts)}) ({" ".join(self.actions)}) :ruleset {ruleset} :name "{name}")'


def axiom_clauses(axiom: Rule, signatures: Signatures) -> list[Clause]:
    """An axiom as rewrites: from left to right, from right to left, or both.

    A direction is left out if it starts from a bare variable, or would invent variables or integers. Raises
    ``BadProgram`` if the axiom has no shapes that are known here.
    """
    if not all(isinstance(need, Binary) and need.op is BinaryOp.EQ for need in axiom.needs):
        raise BadProgram(f"axiom {axiom.name} can only need that extents are equal")
    pairs, forms = normal_rule(axiom, point_where(axiom.needs))
    directions = (pairs, [(target, source) for source, target in pairs])
    return [made for pairs in directions if (made := _clause(axiom, pairs, forms, signatures)) is not None]


def _clause(
    axiom: Rule, pairs: Sequence[tuple[Term, Term]], forms: Normalizer, signatures: Signatures
) -> Clause | None:
    found, made = [a for a, _ in pairs], [b for _, b in pairs]
    if not all(isinstance(term, Apply) for term in found):
        return None
    pattern = _Pattern(signatures)
    writer = pattern.writer()
    facts = [f"(= e{place} {writer.term(term, {})})" for place, term in enumerate(found)]
    for term in subterms(found):
        if isinstance(term, Variable) or (isinstance(term, Apply) and term.attribute(WINDOW) is not None):
            facts.append(f"(= (shape {writer.term(term, {})}) {writer.shape(forms.shape(term))})")
    conclusion = _Conclusion(signatures, pattern.bound)
    facts += [f"(= {name} {conclusion.integer(value)})" for name, value in pattern.conditions]
    facts += [f"(= {conclusion.integer(a)} {conclusion.integer(b)})" for a, b in forms.point.required]
    actions = list(_making(made, forms, conclusion.writer()))
    if conclusion.missing:
        return None
    return Clause(axiom.name, tuple(facts), tuple(actions))


def _making(terms: Sequence[Term], forms: Normalizer, writer: _Writer) -> Iterable[str]:
    """Make each part, say its shape, and equate the whole with what was found."""
    names: dict[Term, str] = {}
    for part in subterms(terms):
        if isinstance(part, Variable):
            writer.variable(part.name)
            continue
        text, name = writer.term(part, names), f"a{len(names)}"
        names[part] = name
        yield f"(let {name} {text})"
        yield f"(union (shape {name}) {writer.shape(forms.shape(part))})"
    for place, term in enumerate(terms):
        yield f"(union e{place} {writer.term(term, names)})"


@dataclass(frozen=True, slots=True)
class Goal:
    """A rule to be proved: ``program`` enters both sides; ``claims`` are equal if it holds."""

    program: str
    claims: tuple[str, ...]


def goal(rule: Rule, signatures: Signatures) -> Goal:
    """Both sides of ``rule``, its symbols and variables being constants. Raises ``BadProgram`` as ``normal_rule``."""
    point = point_where(rule.needs)
    pairs, forms = normal_rule(rule, point)
    writer = _Writer(
        signatures,
        lambda value: str(point.value(value)),
        lambda name: f"(Leading {element(f'*{name}')})",
        lambda name: f"(Variable {element(name)})",
        lambda name: f"(Unwritten {element(name)})",
    )
    names: dict[Term, str] = {}
    lines: list[str] = []
    for part in subterms([term for pair in pairs for term in pair]):
        text, name = writer.term(part, names), f"$g{len(names)}"
        names[part] = name
        lines += [f"(let {name} {text})", f"(union (shape {name}) {writer.shape(forms.shape(part))})"]
    return Goal("\n".join(lines), tuple(f"(= {names[a]} {names[b]})" for a, b in pairs))
