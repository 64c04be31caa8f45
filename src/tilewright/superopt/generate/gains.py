"""The directions of rules in which a search may lower costs.

A rule *pays* if, for some choice of variables as weights, its target has fewer products than its source, or as many and
less other work, at most of some random sizes. Rules between operators that are fused into others (sums, activations,
slices) pay little, and are left out. Work is the number of elementwise operations plus a constant for each operator;
terms over weights only are computed at compile time, and are free. This is a filter, not a cost model.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from math import prod
from random import Random

from tilewright.base.errors import BadProgram
from tilewright.ops import FusionKind, Trait
from tilewright.ops.operator import require
from tilewright.passes.rules.generic_points import point_where
from tilewright.passes.rules.normal_form import Normalizer, normal_rule
from tilewright.passes.rules.terms import Apply, Rule, Term, Variable, subterms
from tilewright.superopt.evaluate.instances import Instance
from tilewright.symbolic.expr import Var

_EXTENTS = (4, 64)
_TRIALS = 15
_LEADING = 16
"""The number of elements of leading dimensions."""
_STARTED, _FUSED = 64, 16
"""The constant work of an operator, in elements; and that of a fused operator."""
_LESS = 0.95
"""The maximum ratio of the target's work to the source's."""
_MATMUL = require("MatMul")
_WINDOW = 9
"""Points of a window."""
_ANCHORS = (FusionKind.CONTRACTION, FusionKind.REDUCTION)
"""Kinds of operators that are not fused into others."""
_RENAMING = (Trait.REGROUPS, Trait.ELEMENTWISE | Trait.MOVES)
"""Traits of operators that only reinterpret their operand, without any work."""
_CONSTANTS = frozenset({"EyeLike", "Expand", "Pad"})
"""Operators that produce constants in the families of terms that are enumerated (``families``). In models, these are
folded, and can't be matched. All three are found in models as functions of data, too: this is no trait of theirs."""


def paying(rule: Rule) -> Iterator[Rule]:
    """``rule`` in the directions that pay, with the variables marked as weights that must be."""
    for directed in (
        rule,
        replace(rule, name=f"{rule.name}-reversed", sources=rule.targets, targets=rule.sources),
    ):
        if _can_be_found(directed):
            choices = list(_paying_choices(directed))
            if choices:
                yield _with_weights(
                    directed, frozenset(name for name in choices[0] if all(name in choice for choice in choices))
                )


def _can_be_found(rule: Rule) -> bool:
    """Whether sources occur in models, and bind all names of the targets."""
    applied = [part for part in subterms(rule.sources) if isinstance(part, Apply)]
    if not all(isinstance(source, Apply) for source in rule.sources):
        return False
    if not any(part.op.kind in _ANCHORS for part in applied):
        return False
    if any(part.op.name in _CONSTANTS or _is_taken_apart(part) for part in applied):
        return False
    return _variables(rule.targets) <= _variables(rule.sources) and _is_connected(rule.sources)


def _is_taken_apart(term: Apply) -> bool:
    """Whether ``term`` takes a part of a concatenation below it."""
    operand = term.operands[0]
    return term.op.name == "Slice" and isinstance(operand, Apply) and operand.op.name == "Concat"


def _is_connected(sources: Sequence[Term]) -> bool:
    """Whether each source shares a variable with the first one; unrelated sources match everywhere."""
    return all(_variables([sources[0]]) & _variables([source]) for source in sources[1:])


def _variables(terms: Sequence[Term]) -> frozenset[str]:
    return frozenset(part.name for part in subterms(terms) if isinstance(part, Variable))


def _paying_choices(rule: Rule) -> Iterator[frozenset[str]]:
    """Sets of variables for which ``rule`` pays if they are weights."""
    try:
        pairs, forms = normal_rule(rule, point_where(rule.needs))
    except BadProgram:
        return
    sides = [list(subterms([pair[side] for pair in pairs])) for side in (0, 1)]
    names = [variable.name for variable in rule.variables]
    works = [[_works(side, forms, sizes) for side in sides] for sizes in _sizes(rule)]
    for count in range(len(names)):
        for chosen in map(frozenset, combinations(names, count)):
            kept = [{part for part in side if not _variables([part]) <= chosen} for side in sides]
            if _pays(kept[0], kept[1], works):
                yield chosen


def _pays(source: set[Term], target: set[Term], works: Sequence[Sequence[Mapping[Term, int]]]) -> bool:
    """Whether the target has fewer products, or as many and less work at most sizes."""
    before, after = _products(source), _products(target)
    less = sum(_total(made, target) < _LESS * _total(found, source) for found, made in works)
    return after < before or (after == before and 3 * less > 2 * _TRIALS)


def _products(terms: set[Term]) -> int:
    """The number of products: operators that take most of the time."""
    return sum(isinstance(term, Apply) and term.op.kind is FusionKind.CONTRACTION for term in terms)


def _total(works: Mapping[Term, int], kept: set[Term]) -> int:
    return sum(work for term, work in works.items() if term in kept)


def _sizes(rule: Rule) -> Iterator[Mapping[Var, int]]:
    random = Random(rule.name)
    symbols = sorted(rule.symbols, key=lambda symbol: symbol.name)
    for _ in range(_TRIALS):
        yield {symbol: random.choice(_EXTENTS) for symbol in symbols}


def _works(side: Sequence[Term], forms: Normalizer, sizes: Mapping[Var, int]) -> dict[Term, int]:
    counter = _Counter(forms, Instance(sizes))
    return {part: counter.work(part) for part in side if isinstance(part, Apply)}


@dataclass(frozen=True, slots=True)
class _Counter:
    """Counts the work of terms in normal form at some sizes."""

    forms: Normalizer
    sizes: Instance

    def work(self, term: Apply) -> int:
        """The work of the operator at the root."""
        if any(map(term.op.has, _RENAMING)):
            return 0
        if term.op.kind in (FusionKind.VIEW, FusionKind.INJECTIVE) and term.op.name != "Concat":
            return _FUSED
        return _STARTED + self._elements(term) * self._per_element(term)

    def _elements(self, term: Term) -> int:
        shape = self.forms.shape(term)
        return prod(map(self.sizes.integer, shape.dims)) * (_LEADING if shape.leading else 1)

    def _per_element(self, term: Apply) -> int:
        if term.op.has(Trait.SUMS_CHANNELS):
            return prod(map(self.sizes.integer, self.forms.shape(term.operands[1]).dims[1:]))
        if term.op == _MATMUL:
            return self.sizes.integer(self.forms.shape(term.operands[0]).extent(-1))
        return _WINDOW if term.op.has(Trait.POOLS) else 1


def _with_weights(rule: Rule, names: frozenset[str]) -> Rule:
    """``rule`` with the variables ``names`` marked as weights."""
    return rule.with_variables(lambda variable: replace(variable, is_weight=variable.name in names))
