"""A second prover, independent of the first: Z3 (de Moura and Bjørner, TACAS 2008).

Axioms are universally quantified facts, the rule is negated, and Z3 searches for a contradiction (SMT-LIB). The normal
forms and the order of arguments (``writing``) are shared with the first prover; extents are integers here, not elements
of a field, and an axiom's symbols are bound by the shapes of matched terms. The limit is a count of Z3's steps, so that
results are the same on every machine. The answer "unknown" is not a proof.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from tilewright.base.errors import BadInput, BadProgram
from tilewright.passes.rules.generic_points import point_where
from tilewright.passes.rules.normal_form import Normalizer, normal_rule
from tilewright.passes.rules.term_shapes import WINDOW, Shape
from tilewright.passes.rules.terms import Apply, Kind, Rule, Term, Variable, subterms
from tilewright.superopt.evaluate.ranks import at_ranks
from tilewright.superopt.prove.axioms import axioms, usable
from tilewright.superopt.prove.writing import Named, Writer
from tilewright.symbolic.expr import Const, Expr, Var
from tilewright.symbolic.operations import BinaryOp

LIMIT = 20_000_000
"""Maximum steps of Z3 for one rule: some seconds."""

_PRELUDE = """
(declare-sort T 0)
(declare-sort Window 0)
(declare-datatypes ((S 0)) (((Nil) (D (head Int) (tail S)) (Leading (name Int)))))
(declare-fun Both (S S) S)
(declare-fun shape (T) S)
(declare-fun scale (T) Bool)
(declare-fun Number (Real) T)
(declare-fun quotient (Int Int) Int)
(assert (forall ((n Int)) (! (= (quotient n 1) n) :pattern ((quotient n 1)))))
(assert (forall ((s S)) (! (= (Both s s) s) :pattern ((Both s s)))))
(assert (forall ((s S)) (! (= (Both s Nil) s) :pattern ((Both s Nil)))))
(assert (forall ((s S) (t S)) (! (= (Both s t) (Both t s)) :pattern ((Both s t)))))
(assert (forall ((s S) (t S)) (! (= (Both s (Both s t)) (Both s t)) :pattern ((Both s (Both s t))))))
(assert (forall ((n Int) (s S) (t S))
  (! (= (Both (D n s) (D n t)) (D n (Both s t))) :pattern ((Both (D n s) (D n t))))))
(assert (forall ((n Int) (s S) (t S))
  (! (= (Both (D 1 s) (D n t)) (D n (Both s t))) :pattern ((Both (D 1 s) (D n t))))))
"""

_ARITHMETIC: Mapping[BinaryOp, str] = {
    BinaryOp.ADD: "+",
    BinaryOp.SUB: "-",
    BinaryOp.MUL: "*",
    BinaryOp.FLOORDIV: "quotient",
}


class _Missing(Exception):
    """The result of a rewrite has a name that its pattern does not bind, so that this direction is unusable."""


def agrees(rule: Rule, names: Collection[str], limit: int = LIMIT, own: tuple[Rule, ...] = ()) -> bool:
    """Whether Z3 proves ``rule`` from the axioms called ``names`` in at most ``limit`` steps.

    ``own``: axioms of a user, beside the built-in ones.

    Raises ``BadInput`` if Z3 is not installed, ``BadProgram`` if the rule has no shapes that are known.
    """
    known = [axioms(own)[name] for name in usable(rule, dict.fromkeys(names), own)]
    return all(_is_contradiction(question(version, known), limit) for version in at_ranks(rule))


def question(rule: Rule, known: Sequence[Rule]) -> str:
    """A problem in SMT-LIB that is unsatisfiable if the axioms ``known`` prove ``rule``."""
    functions: dict[str, str] = {}
    facts = [fact for axiom in known for fact in _facts(axiom, functions)]
    denial = list(_denial(rule, functions))
    return "\n".join([_PRELUDE, *functions.values(), *facts, *denial])


def _is_contradiction(text: str, limit: int) -> bool:
    try:
        import z3
    except ImportError as error:
        raise BadInput("Z3 is not installed: pip install 'tilewright[superopt]'") from error
    solver = z3.SimpleSolver()
    solver.set("mbqi", False)  # it searches for models, which are not needed
    solver.set("rlimit", limit)
    solver.from_string(text)
    return solver.check() == z3.unsat


_SORTS = {Named.TERM: "T", Named.INTEGER: "Int", Named.LEADING: "S", Named.WINDOW: "Window"}


@dataclass(slots=True)
class _Writer(Writer):
    """Writes SMT-LIB; ``names`` are those of bound symbols, variables, leading dimensions and windows."""

    unknown: Callable[[str, str], str] = field(kw_only=True)
    """Called for an unbound name of some sort."""
    names: dict[str, str] = field(default_factory=dict[str, str])

    def named(self, what: Named, name: str) -> str:
        key = f"{what.value} {name}"
        if key not in self.names:
            self.names[key] = self.unknown(key, _SORTS[what])
        return self.names[key]

    def term(self, term: Term) -> str:
        if term not in self.texts:
            self.texts[term] = Writer.term(self, term)
        return self.texts[term]

    def number(self, value: float) -> str:
        return f"(Number {_real(value)})"

    def literal(self, value: int) -> str:
        return str(value) if value >= 0 else f"(- {-value})"

    def arithmetic(self, op: BinaryOp, a: str, b: str) -> str:
        if op not in _ARITHMETIC:
            raise BadProgram(f"`{a} {op.value} {b}` is no sum, difference, product or quotient")
        return f"({_ARITHMETIC[op]} {a} {b})"

    def declared(self, kind: str, sorts: Sequence[str], result: str) -> str:
        name = f"|{kind}/{''.join(sort[0] for sort in sorts)}|"
        self.functions[name] = f"(declare-fun {name} ({' '.join(sorts)}) {result})"
        return name


def _real(value: float) -> str:
    numerator, denominator = abs(value).as_integer_ratio()
    fraction = f"(/ {numerator}.0 {denominator}.0)"
    return f"(- {fraction})" if value < 0 else fraction


# Axioms


def _facts(axiom: Rule, functions: dict[str, str]) -> Iterator[str]:
    """An axiom as facts: from left to right and from right to left, where usable."""
    pairs, forms = normal_rule(axiom, point_where(axiom.needs))
    for directed in (pairs, [(target, source) for source, target in pairs]):
        if all(isinstance(found, Apply) for found, _ in directed):
            try:
                yield _Fact(functions).text(directed, forms)
            except _Missing:
                continue


@dataclass(slots=True)
class _Pattern(_Writer):
    """A pattern of a fact: integers are names, with conditions on their values."""

    expected: list[tuple[str, Expr]] = field(default_factory=list[tuple[str, Expr]])
    targets: list[tuple[str, Shape]] = field(default_factory=list[tuple[str, Shape]])

    def integer(self, value: Expr | int) -> str:
        if isinstance(value, int | Const | Var):
            return Writer.integer(self, value)
        self.expected.append((self.unknown(f"c {len(self.expected)}", "Int"), value))
        return self.expected[-1][0]

    def target(self, shape: Shape) -> str:
        self.targets.append((self.unknown(f"u {len(self.targets)}", "S"), shape))
        return self.targets[-1][0]


@dataclass(slots=True)
class _Fact:
    """One direction of an axiom."""

    functions: dict[str, str]
    quantified: list[str] = field(default_factory=list[str])
    conditions: list[str] = field(default_factory=list[str])

    def text(self, pairs: Sequence[tuple[Term, Term]], forms: Normalizer) -> str:
        """Raises ``_Missing``."""
        found, made = [a for a, _ in pairs], [b for _, b in pairs]
        pattern = _Pattern(self.functions, unknown=self._quantify)
        texts = list(map(pattern.term, found))
        for name, shape in pattern.targets:
            self._read(pattern, name, shape)
        for part in subterms(found):
            if isinstance(part, Variable) or (isinstance(part, Apply) and part.attribute(WINDOW) is not None):
                self._read(pattern, f"(shape {pattern.term(part)})", forms.shape(part))
        self.conditions += [f"(scale {pattern.term(part)})" for part in subterms(found) if _is_scale(part)]
        conclusion = _Writer(self.functions, unknown=_missing, names=pattern.names)
        self.conditions += [f"(= {name} {conclusion.integer(value)})" for name, value in pattern.expected]
        self.conditions += [f"(= {conclusion.integer(a)} {conclusion.integer(b)})" for a, b in forms.point.required]
        follows = [f"(= {text} {conclusion.term(term)})" for text, term in zip(texts, made, strict=True)]
        follows += [
            f"(= (shape {conclusion.term(part)}) {conclusion.shape(forms.shape(part))})" for part in subterms(made)
        ]
        return self._asserted(texts, follows)

    def _asserted(self, texts: Sequence[str], follows: Sequence[str]) -> str:
        body = f"(=> (and true {' '.join(self.conditions)}) (and {' '.join(follows)}))"
        if not self.quantified:
            return f"(assert {body})"
        return f"(assert (forall ({' '.join(self.quantified)}) (! {body} :pattern ({' '.join(texts)}))))"

    def _quantify(self, name: str, sort: str) -> str:
        self.quantified.append(f"(|{name}| {sort})")
        return f"|{name}|"

    def _read(self, pattern: _Pattern, text: str, shape: Shape) -> None:
        """Bind the unbound names of ``shape`` to parts of the shape ``text``."""
        for extent in reversed(shape.dims):
            self.conditions.append(f"((_ is D) {text})")
            if isinstance(extent, Var) and f"i {extent.name}" not in pattern.names:
                pattern.names[f"i {extent.name}"] = f"(head {text})"
            else:
                pattern.expected.append((f"(head {text})", extent))
            text = f"(tail {text})"
        if len(shape.leading) == 1 and f"s {min(shape.leading)}" not in pattern.names:
            pattern.names[f"s {min(shape.leading)}"] = text
        else:
            self.conditions.append(f"(= {text} {pattern.shape(Shape((), shape.leading))})")


def _is_scale(term: Term) -> bool:
    return isinstance(term, Variable) and term.kind is Kind.SCALE


def _missing(name: str, sort: str) -> str:
    raise _Missing(f"{name} of sort {sort}")


# Rules


def _denial(rule: Rule, functions: dict[str, str]) -> Iterator[str]:
    """The negated rule: its values exist and have their shapes, and the sides of an equation differ."""
    pairs, forms = normal_rule(rule, point_where(rule.needs))
    constants: list[str] = []

    def declared(name: str, sort: str) -> str:
        constants.append(f"(declare-const |{name}| {sort})")
        return f"|{name}|"

    writer = _Writer(functions, unknown=declared)
    facts = [f"(= {writer.integer(a)} {writer.integer(b)})" for a, b in forms.point.required]
    for part in subterms([term for pair in pairs for term in pair]):
        facts.append(f"(= (shape {writer.term(part)}) {writer.shape(forms.shape(part))})")
        if _is_scale(part):
            facts.append(f"(scale {writer.term(part)})")
    facts.append(f"(not (and {' '.join(f'(= {writer.term(a)} {writer.term(b)})' for a, b in pairs)}))")
    yield from constants
    yield from (f"(assert {fact})" for fact in facts)
