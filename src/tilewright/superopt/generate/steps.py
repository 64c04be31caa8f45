"""Sources from which a step leads to the sources of another rule.

A step's target has a part that another rule's source is an instance of: with the operands of that source put in the
place of the step's variables, the step's source is a graph in which the other rule matches after the step only.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from tilewright.base.errors import BadProgram
from tilewright.ops.operator import map_expressions
from tilewright.passes.rules.generic_points import point_where
from tilewright.passes.rules.normal_form import normal_rule
from tilewright.passes.rules.terms import Apply, Rule, Term, Variable, subterms
from tilewright.superopt.generate.rewriting import Attributes, rebuilt, replaced, with_sides, with_terms
from tilewright.symbolic.expr import Expr, Symbol, Var
from tilewright.symbolic.traversal import substitute


def leading_to(rule: Rule, step: Rule) -> Iterator[Rule]:
    """``step`` with the sources of ``rule`` below its target; both have one source, and literal windows."""
    (source,) = rule.sources if len(rule.sources) == 1 else (None,)
    if source is None or len(step.sources) > 1:
        return
    own = _apart(step)
    root = own.targets[0]
    for part in subterms([root]):
        if isinstance(part, Apply) and part is not root:
            binding = _Binding()
            if binding.matches(part, source):
                made = _instance(own, rule, binding)
                if made is not None:
                    yield made


def _apart(step: Rule) -> Rule:
    """``step`` with names that no other rule has."""
    symbols: dict[Var, Expr] = {symbol: Symbol(f"{symbol.name}'") for symbol in step.symbols}

    def renamed(value: Expr) -> Expr:
        return substitute(value, symbols)

    variables = {v.name: replace(v, name=f"{v.name}'", shape=tuple(map(renamed, v.shape))) for v in step.variables}
    attributes: dict[Term, Attributes] = {
        part: Attributes(tuple((name, map_expressions(value, renamed)) for name, value in part.attributes), part.rest)
        for part in subterms((*step.sources, *step.targets))
        if isinstance(part, Apply)
    }
    return rebuilt(step, variables, attributes)


@dataclass(slots=True)
class _Binding:
    """The terms for variables."""

    terms: dict[Term, Term] = field(default_factory=dict[Term, Term])

    def matches(self, pattern: Term, term: Term) -> bool:
        """Whether ``term`` is an instance of ``pattern``."""
        if isinstance(pattern, Variable):
            return (not pattern.is_weight or isinstance(term, Variable)) and self.terms.setdefault(
                pattern, term
            ) == term
        if not isinstance(pattern, Apply) or not isinstance(term, Apply):
            return pattern == term
        same = (pattern.op, pattern.attributes, pattern.output) == (term.op, term.attributes, term.output)
        return (
            same
            and len(pattern.operands) == len(term.operands)
            and all(map(self.matches, pattern.operands, term.operands))
        )


def _instance(step: Rule, rule: Rule, binding: _Binding) -> Rule | None:
    """``step`` with the bound terms for its variables; None if their shapes do not fit."""
    try:
        _, forms = normal_rule(rule, point_where(()))
    except BadProgram:
        return None
    symbols: dict[Var, Expr] = {}
    for variable, term in binding.terms.items():
        dims = forms.shape(forms.normal(term)).dims
        if not isinstance(variable, Variable) or len(dims) != len(variable.shape):
            return None
        symbols |= {old: new for old, new in zip(variable.shape, dims, strict=True) if isinstance(old, Var)}
    return _substituted(step, binding.terms, symbols)


def _substituted(step: Rule, terms: Mapping[Term, Term], symbols: Mapping[Var, Expr]) -> Rule:
    made = with_terms(step, lambda term: replaced(term, terms))
    bound = {v.name for term in terms.values() for v in _variables(term)}
    variables = {
        v.name: replace(v, shape=tuple(substitute(extent, symbols) for extent in v.shape))
        for v in _variables(*made.sources)
        if v.name not in bound
    }
    return rebuilt(with_sides(made, made.sources, made.targets), variables, {})


def _variables(*terms: Term) -> Sequence[Variable]:
    return [part for part in subterms(terms) if isinstance(part, Variable)]
