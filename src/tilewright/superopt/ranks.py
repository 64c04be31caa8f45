"""Versions of a rule in which leading dimensions are written out."""

from collections.abc import Sequence
from itertools import product

from tilewright.base.errors import BadProgram
from tilewright.ops import Attribute
from tilewright.passes.rules.terms import Apply, Rule, Term, Variable
from tilewright.superopt.generic import point_where
from tilewright.superopt.normal import normal_rule
from tilewright.symbolic.expr import Expr, Var

_MOST = 2


def at_ranks(rule: Rule) -> Sequence[Rule]:
    """``rule`` itself, if its shapes are known whatever the number of leading dimensions.

    Else its versions with up to two extents in the place of each: what is proved of them is claimed of all. One that is
    ill-typed, or whose sides have different shapes, can't be proved: so nothing is claimed of a rank that was left out.
    Raises ``BadProgram`` if shapes are not known and there are no leading dimensions.
    """
    try:
        normal_rule(rule, point_where(rule.needs))
    except BadProgram:
        found = _versions(rule)
        if not found:
            raise
        return found
    return [rule]


def _versions(rule: Rule) -> Sequence[Rule]:
    names = sorted({v.leading for v in rule.variables if v.leading})
    if not names:
        return []
    counts = product(range(_MOST + 1), repeat=len(names))
    return [_written(rule, dict(zip(names, count, strict=True))) for count in counts]


def _written(rule: Rule, counts: dict[str, int]) -> Rule:
    extents = {name: tuple(Var(f"{name}'{place}") for place in range(count)) for name, count in counts.items()}

    def variable(v: Variable) -> Variable:
        return Variable(v.name, (*(extents[v.leading] if v.leading else ()), *v.shape), None, v.is_weight)

    def term(t: Term) -> Term:
        if isinstance(t, Variable):
            return variable(t)
        if not isinstance(t, Apply):
            return t
        attributes = tuple((name, _spread(value, extents)) for name, value in t.attributes)
        return Apply(t.op, tuple(map(term, t.operands)), attributes, t.rest, t.output)

    sides = [tuple(map(term, side)) for side in (rule.sources, rule.targets)]
    return Rule(rule.name, tuple(map(variable, rule.variables)), sides[0], sides[1], rule.needs, rule.proof)


def _spread(value: Attribute, extents: dict[str, tuple[Var, ...]]) -> Attribute:
    if not isinstance(value, tuple):
        return value
    found: list[int | Expr] = []
    for item in value:
        if isinstance(item, Var) and item.name[1:] in extents and item.name.startswith("*"):
            found += extents[item.name[1:]]
        elif isinstance(item, int | Expr):
            found.append(item)
        else:
            return value
    return tuple(found)
