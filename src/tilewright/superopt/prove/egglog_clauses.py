"""Axioms and goals as egglog programs.

Operators (``writing``) are constructors; integers are elements of a field (``generic_points``). ``(shape t)`` is known
for each term: an axiom that creates terms also sets their shapes.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from tilewright.base.errors import BadProgram
from tilewright.passes.rules.generic_points import LITERALS, MIX, Point, element, point_where
from tilewright.passes.rules.normal_form import Normalizer, normal_rule
from tilewright.passes.rules.term_shapes import WINDOW
from tilewright.passes.rules.terms import Apply, Kind, Rule, Term, Variable, subterms
from tilewright.superopt.prove.writing import Named, Writer
from tilewright.symbolic.expr import Binary, Const, Expr, Var
from tilewright.symbolic.operations import BinaryOp
from tilewright.tensor.domains import PRIME, Modular

PRELUDE = """
(datatype S (Nil) (D i64 S) (Leading i64) (Both S S))
(sort T)
(sort Window)
(constructor Unwritten (i64) Window)
(constructor Variable (i64) T)
(constructor Number (i64) T)
(constructor shape (T) S)
(relation scale (T))
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
"""Matches the names that ``_Egglog.declared`` writes."""


_CONSTANTS: Mapping[Named, str] = {Named.TERM: "Variable", Named.LEADING: "Leading", Named.WINDOW: "Unwritten"}
"""Constructors of the constants for names in a goal; integers are numbers there."""


@dataclass(slots=True)
class _Egglog(Writer):
    """Writes constructors, and integers modulo a prime, as ``Point.value`` computes them."""

    INTEGER: ClassVar[str] = "i64"
    NIL: ClassVar[str] = "(Nil)"

    def number(self, value: float) -> str:
        return f"(Number {Modular().constant(value)})"

    def literal(self, value: int) -> str:
        return str(value % PRIME)

    def arithmetic(self, op: BinaryOp, a: str, b: str) -> str:
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
                unknown = _modulo(f"(+ {a} (* {_modulo(f'(+ {b} {PRIME - 1})')} {curve}))")
                is_unknown = f"(min 1 (/ (max {a} {b}) {LITERALS}))"
                return f"(+ (* {is_unknown} {unknown}) (* (- 1 {is_unknown}) (/ {a} (max 1 {b}))))"
            case _:
                raise BadProgram(f"`{a} {op.value} {b}` is no sum, difference, product or quotient")

    def declared(self, kind: str, sorts: Sequence[str], result: str) -> str:
        name = f"{kind}/{''.join(sort[0] for sort in sorts)}"
        self.functions[name] = f"(constructor {name} ({' '.join(sorts)}) {result})"
        return name

    def kind(self, term: Apply) -> str:
        return Writer.kind(self, term) if term.output else term.op.name

    def entered(self, terms: Sequence[Term], forms: Normalizer, prefix: str) -> Iterator[str]:
        """Create each of ``terms``, set its shape, and name it."""
        for term in terms:
            text, name = self.term(term), f"{prefix}{len(self.texts)}"
            self.texts[term] = name
            yield f"(let {name} {text})"
            yield f"(union (shape {name}) {self.shape(forms.shape(term))})"


def _modulo(text: str) -> str:
    return f"(% {text} {PRIME})"


def _called(what: Named, name: str) -> str:
    """A variable of an egglog rule."""
    plain = re.sub(r"\W+", "-", name) if what is Named.INTEGER else name
    return f"{what.value}-{plain}"


@dataclass(slots=True)
class _Pattern(_Egglog):
    """The left side of a rewrite: the pattern, its bindings and its conditions."""

    bound: set[str] = field(default_factory=set[str])
    conditions: list[tuple[str, Expr]] = field(default_factory=list[tuple[str, Expr]])

    def named(self, what: Named, name: str) -> str:
        self.bound.add(_called(what, name))
        return _called(what, name)

    def integer(self, value: Expr | int) -> str:
        """A literal, the variable of a symbol, or a new variable with the condition that it equals an expression."""
        if isinstance(value, int | Const | Var):
            return Writer.integer(self, value)
        self.conditions.append((f"c{len(self.conditions)}", value))
        return self.conditions[-1][0]


@dataclass(slots=True)
class _Conclusion(_Egglog):
    """The right side of a rewrite: all its names must be bound."""

    bound: set[str] = field(default_factory=set[str])
    missing: bool = False

    def named(self, what: Named, name: str) -> str:
        self.missing = self.missing or _called(what, name) not in self.bound
        return _called(what, name)


@dataclass(slots=True)
class _Question(_Egglog):
    """A goal: a rule with constants for symbols and variables."""

    point: Point = field(default_factory=Point)

    def named(self, what: Named, name: str) -> str:
        return f"({_CONSTANTS[what]} {element(f'*{name}' if what is Named.LEADING else name)})"

    def integer(self, value: Expr | int) -> str:
        return str(self.point.value(value))


@dataclass(frozen=True, slots=True)
class Clause:
    """One rewrite: where ``facts`` match, ``actions`` are performed. ``axiom``: the name of its axiom."""

    axiom: str
    facts: tuple[str, ...]
    actions: tuple[str, ...]

    @property
    def constructors(self) -> frozenset[str]:
        """The operators that must exist for it to match."""
        return frozenset(_CONSTRUCTOR.findall(" ".join(self.facts)))

    def text(self, ruleset: str, name: str) -> str:
        """The rewrite in egglog's syntax."""
        return f'(rule ({" ".join(self.facts)}) ({" ".join(self.actions)}) :ruleset {ruleset} :name "{name}")'


def axiom_clauses(axiom: Rule, functions: dict[str, str]) -> list[Clause]:
    """An axiom as rewrites: from left to right, from right to left, or both. Declarations are added to ``functions``.

    A direction is left out if its pattern is a bare variable, or if its result has unbound variables or integers.
    Raises ``BadProgram`` if shapes of the axiom are unknown.
    """
    if not all(isinstance(need, Binary) and need.op is BinaryOp.EQ for need in axiom.needs):
        raise BadProgram(f"axiom {axiom.name} can only need that extents are equal")
    pairs, forms = normal_rule(axiom, point_where(axiom.needs))
    directions = (pairs, [(target, source) for source, target in pairs])
    return [made for pairs in directions if (made := _clause(axiom, pairs, forms, functions)) is not None]


def _is_scale(term: Term) -> bool:
    return isinstance(term, Variable) and term.kind is Kind.SCALE


def _clause(
    axiom: Rule, pairs: Sequence[tuple[Term, Term]], forms: Normalizer, functions: dict[str, str]
) -> Clause | None:
    found, made = [a for a, _ in pairs], [b for _, b in pairs]
    if not all(isinstance(term, Apply) for term in found):
        return None
    pattern = _Pattern(functions)
    facts = [f"(= e{place} {pattern.term(term)})" for place, term in enumerate(found)]
    for term in subterms(found):
        if isinstance(term, Variable) or (isinstance(term, Apply) and term.attribute(WINDOW) is not None):
            facts.append(f"(= (shape {pattern.term(term)}) {pattern.shape(forms.shape(term))})")
    facts += [f"(scale {pattern.term(term)})" for term in subterms(found) if _is_scale(term)]
    conclusion = _Conclusion(functions, bound=pattern.bound)
    facts += [f"(= {name} {conclusion.integer(value)})" for name, value in pattern.conditions]
    facts += [f"(= {conclusion.integer(a)} {conclusion.integer(b)})" for a, b in forms.point.required]
    actions = list(conclusion.entered([t for t in subterms(made) if not isinstance(t, Variable)], forms, "a"))
    actions += [f"(union e{place} {conclusion.term(term)})" for place, term in enumerate(made)]
    return None if conclusion.missing else Clause(axiom.name, tuple(facts), tuple(actions))


@dataclass(frozen=True, slots=True)
class Goal:
    """A rule to be proved: ``program`` creates both sides; ``claims`` are the equalities to show."""

    program: str
    claims: tuple[str, ...]


def goal(rule: Rule, functions: dict[str, str]) -> Goal:
    """The goal for ``rule``, with constants for its symbols and variables. Raises ``BadProgram`` as ``normal_rule``."""
    point = point_where(rule.needs)
    pairs, forms = normal_rule(rule, point)
    writer = _Question(functions, point=point)
    terms = list(subterms([term for pair in pairs for term in pair]))
    lines = list(writer.entered(terms, forms, "$g"))
    lines += [f"(scale {writer.term(term)})" for term in terms if _is_scale(term)]
    return Goal("\n".join(lines), tuple(f"(= {writer.texts[a]} {writer.texts[b]})" for a, b in pairs))
