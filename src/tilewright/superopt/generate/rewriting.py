"""Changes terms of rules: the variables, and what is written at operators."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count

from tilewright.ops.operator import map_expressions
from tilewright.passes.rules.terms import Apply, Number, Rule, Term, Variable, Written, subterms
from tilewright.symbolic.expr import Expr, Symbol, Var
from tilewright.symbolic.traversal import substitute

_VARIABLES = "xyzwvutrq"
_LEADING = "stu"


@dataclass(frozen=True, slots=True)
class Attributes:
    """The attributes of an operator: those that are written, and the name of the others."""

    written: Written
    rest: str | None = None


def rebuilt(rule: Rule, variables: Mapping[str, Variable], attributes: Mapping[Term, Attributes]) -> Rule:
    """``rule`` with other ``variables`` of these names, and with other ``attributes`` of these terms."""

    def visit(term: Term) -> Term:
        match term:
            case Variable(name):
                return variables.get(name, term)
            case Number():
                return term
            case Apply():
                own = attributes.get(term, Attributes(term.attributes, term.rest))
                return Apply(term.op, tuple(map(visit, term.operands)), own.written, own.rest, term.output)

    return with_sides(rule, tuple(map(visit, rule.sources)), tuple(map(visit, rule.targets)))


def with_terms(rule: Rule, change: Callable[[Term], Term]) -> Rule:
    """``rule`` with ``change`` applied to each of its sources and targets."""
    return with_sides(rule, tuple(map(change, rule.sources)), tuple(map(change, rule.targets)))


def replaced(term: Term, by: Mapping[Term, Term]) -> Term:
    """``term`` with the keys of ``by`` replaced by their values, outermost first."""
    if term in by:
        return by[term]
    if not isinstance(term, Apply):
        return term
    operands = tuple(replaced(operand, by) for operand in term.operands)
    return Apply(term.op, operands, term.attributes, term.rest, term.output)


def with_sides(rule: Rule, sources: tuple[Term, ...], targets: tuple[Term, ...]) -> Rule:
    """The rule of other terms; its variables are those that occur in them."""
    found = (term for term in subterms((*sources, *targets)) if isinstance(term, Variable))
    return replace(rule, variables=tuple(dict.fromkeys(found)), sources=sources, targets=targets)


def variables_in(terms: Sequence[Term]) -> frozenset[str]:
    """The names of the variables in ``terms``."""
    return frozenset(part.name for part in subterms(terms) if isinstance(part, Variable))


def turned(rule: Rule) -> Rule:
    """``rule`` from its targets to its sources."""
    return replace(rule, name=f"{rule.name}-reversed", sources=rule.targets, targets=rule.sources)


def canonical(rule: Rule) -> Rule:
    """``rule`` with names by order of occurrence, so that rules that differ in names only are equal."""
    order = [part for part in subterms((*rule.sources, *rule.targets)) if isinstance(part, Variable)]
    names = dict(zip((v.name for v in order), _names(_VARIABLES), strict=False))
    leading = dict(zip(dict.fromkeys(v.leading for v in order if v.leading), _LEADING, strict=False))
    extents = _symbols(rule, order)

    def expression(value: Expr) -> Expr:
        return substitute(value, extents)

    changed = {
        v.name: Variable(
            names[v.name],
            tuple(map(expression, v.shape)),
            leading[v.leading] if v.leading else None,
            v.is_weight,
            v.kind,
        )
        for v in order
    }
    stars: dict[Var, Expr] = {Symbol(f"*{old}"): Symbol(f"*{new}") for old, new in leading.items()}
    extents.update(stars)
    attributes: dict[Term, Attributes] = {
        part: Attributes(
            tuple((name, map_expressions(value, expression)) for name, value in part.attributes), part.rest
        )
        for part in subterms((*rule.sources, *rule.targets))
        if isinstance(part, Apply)
    }
    made = rebuilt(rule, changed, attributes)
    return replace(made, needs=tuple(map(expression, rule.needs)))


def _symbols(rule: Rule, variables: Sequence[Variable]) -> dict[Var, Expr]:
    """New names for the symbols of a rule, in order of occurrence."""
    shapes = [extent for variable in variables for extent in variable.shape]
    found = dict.fromkeys(symbol for extent in shapes for symbol in _in_order(extent))
    others = sorted(rule.symbols - found.keys(), key=lambda symbol: symbol.name)
    listed = [*found, *(symbol for symbol in others if not symbol.name.startswith("*"))]
    return {old: Symbol(new) for old, new in zip(listed, _names("abcdefghijklmnop"), strict=False)}


def _in_order(extent: Expr) -> list[Var]:
    return sorted(extent.variables, key=lambda symbol: str(extent).index(symbol.name))


def _names(letters: str) -> Iterator[str]:
    """Letters, then letters with numbers."""
    yield from letters
    for number in count(1):
        yield from (f"{letter}{number}" for letter in letters)
