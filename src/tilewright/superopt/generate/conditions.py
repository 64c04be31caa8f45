"""Conditions on sizes for rules that pay in both directions: each is applied where its target takes fewer products.

The multiplications of products are polynomials of the extents. Without a condition, a search would turn such a rule
over and over, and an e-graph would have all orders of a chain of products.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import reduce

from tilewright.base.errors import BadProgram
from tilewright.ops.operator import require
from tilewright.passes.rules.generic_points import point_where
from tilewright.passes.rules.normal_form import Normalizer, normal_rule
from tilewright.passes.rules.terms import Apply, Rule, Term, subterms
from tilewright.superopt.generate.gains import weights_of
from tilewright.superopt.generate.rewriting import variables_in
from tilewright.symbolic.expr import Expr, const

_MATMUL = require("MatMul")


def with_conditions(rules: Sequence[Rule]) -> list[Rule]:
    """``rules``; those with products of matrices only, of which the reversed one is there, get a condition."""
    sides = {(rule.sources, rule.targets) for rule in rules}
    return [_needing(rule) if _is_there(rule, sides) else rule for rule in rules]


def _is_there(rule: Rule, sides: set[tuple[tuple[Term, ...], tuple[Term, ...]]]) -> bool:
    """Whether some rule leads back, but for names."""
    return any(_shape(rule.targets) == _shape(a) and _shape(rule.sources) == _shape(b) for a, b in sides)


def _shape(terms: Sequence[Term]) -> str:
    """The operators of ``terms``, without names."""
    return ";".join(map(_operators, terms))


def _operators(term: Term) -> str:
    return f"{term.op.name}({','.join(map(_operators, term.operands))})" if isinstance(term, Apply) else "."


def _needing(rule: Rule) -> Rule:
    applied = [part for part in subterms((*rule.sources, *rule.targets)) if isinstance(part, Apply)]
    if rule.needs or any(part.op is not _MATMUL for part in applied):
        return rule
    try:
        pairs, forms = normal_rule(rule, point_where(()))
    except BadProgram:
        return rule
    before, after = (_multiplications([pair[side] for pair in pairs], rule, forms) for side in (0, 1))
    return replace(rule, needs=(after < before,))


def _multiplications(terms: Sequence[Term], rule: Rule, forms: Normalizer) -> Expr:
    """The multiplications of products of data, for one element of leading dimensions."""
    weights = weights_of(rule)
    counts: list[Expr] = []
    for part in subterms(terms):
        if isinstance(part, Apply) and part.op is _MATMUL and not variables_in([part]) <= weights:
            first, second = (forms.shape(operand) for operand in part.operands)
            counts.append(first.extent(-2) * first.extent(-1) * second.extent(-1))
    return reduce(lambda a, b: a + b, counts, const(0))
