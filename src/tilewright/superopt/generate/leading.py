"""Generalizes rules of matrices to any leading dimensions, from the rank of discovery.

``general`` lists the rules with leading dimensions, most general first: each matrix with leading dimensions of its own,
then those of the right operands of products as one list, then all as one, then of data only. Whoever tests and proves
them keeps the first that holds.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from tilewright.base.errors import BadProgram
from tilewright.ops import Attribute
from tilewright.ops.operator import require
from tilewright.passes.rules.generic_points import point_where
from tilewright.passes.rules.normal_form import Normalizer, normal_rule
from tilewright.passes.rules.terms import Apply, Rule, Term, Variable, Written, subterms
from tilewright.superopt.generate.rewriting import Attributes, rebuilt

_MATMUL, _TRANSPOSE = require("MatMul"), require("Transpose")
_MATRIX = 2
_DEEPEST = 3
"""The largest rank whose first dimensions are leading ones; operands of rank 4 are images."""
_AXES = ("axes", "axis")


def general(rule: Rule) -> Iterator[Rule]:
    """``rule`` with leading dimensions where it has matrices, then ``rule`` itself; the most general first."""
    matrices = [variable for variable in rule.variables if len(variable.shape) >= _MATRIX]
    if matrices and max(len(variable.shape) for variable in matrices) <= _DEEPEST and not _is_permuted(rule):
        axes = _from_the_end(rule)
        for names in _leading(rule, matrices) if axes is not None else ():
            variables = {v.name: _with_leading(v, names.get(v.name)) for v in matrices}
            yield rebuilt(rule, variables, axes or {})
    yield rule


def _is_permuted(rule: Rule) -> bool:
    return any(isinstance(part, Apply) and part.op is _TRANSPOSE for part in subterms((*rule.sources, *rule.targets)))


def _leading(rule: Rule, matrices: Sequence[Variable]) -> Iterator[Mapping[str, str]]:
    """Names of leading dimensions, by variable."""
    right = _right_operands(rule)
    left = [v.name for v in matrices if v.name not in right]
    names = [v.name for v in matrices]
    yield {name: f"of-{name}" for name in names}
    yield {name: "t" if name in right else "s" for name in names}
    yield dict.fromkeys(names, "s")
    yield dict.fromkeys(left, "s")


def _right_operands(rule: Rule) -> frozenset[str]:
    """The variables below a right operand of a product, and below no left one."""
    left: set[str] = set()
    right: set[str] = set()

    def visit(term: Term, side: set[str]) -> None:
        if isinstance(term, Variable):
            side.add(term.name)
        elif isinstance(term, Apply) and term.op is _MATMUL:
            visit(term.operands[0], side)
            visit(term.operands[1], right)
        elif isinstance(term, Apply):
            for operand in term.operands:
                visit(operand, side)

    for term in (*rule.sources, *rule.targets):
        visit(term, left)
    return frozenset(right - left)


def _with_leading(variable: Variable, leading: str | None) -> Variable:
    return replace(variable, shape=variable.shape[-_MATRIX:], leading=leading)


def _from_the_end(rule: Rule) -> dict[Term, Attributes] | None:
    """The attributes of all terms with axes that count from the end; None if one is no matrix dimension."""
    try:
        _, forms = normal_rule(rule, point_where(rule.needs))
    except BadProgram:
        return None
    found: dict[Term, Attributes] = {}
    for part in subterms((*rule.sources, *rule.targets)):
        if isinstance(part, Apply) and any(name in _AXES for name, _ in part.attributes):
            written = _counted(part, forms)
            if written is None:
                return None
            found[part] = Attributes(written, part.rest)
    return found


def _counted(term: Apply, forms: Normalizer) -> Written | None:
    rank = forms.shape(forms.normal(term.operands[0])).rank
    written: list[tuple[str, Attribute]] = []
    for name, value in term.attributes:
        if name not in _AXES:
            written.append((name, value))
            continue
        axes = [axis for axis in (value if isinstance(value, tuple) else (value,)) if isinstance(axis, int)]
        counted = tuple(axis if axis < 0 else axis - rank for axis in axes)
        if min(counted) < -min(rank, _MATRIX):
            return None
        written.append((name, counted if isinstance(value, tuple) else counted[0]))
    return tuple(written)
