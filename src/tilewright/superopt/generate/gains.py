"""The directions of rules in which a search may lower costs.

A rule *pays* if, for some choice of variables as weights, its target has fewer products than its source, or as many and
less other work, in one of several regimes of sizes: all small, all large, or of both kinds. Work is the number of
elementwise operations plus a constant for each operator; terms over weights only are computed at compile time, and are
free. So are they in models: a source that computes something of weights is never found there. Rules between operators
that are fused into others (sums, activations) pay little, and are left out, unless they only move elements and leave
fewer operators. This is a filter, not a cost model.
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
from tilewright.superopt.generate.counting import FUSED, RENAMING, STARTED, WINDOW, arithmetic
from tilewright.superopt.generate.rewriting import turned, variables_in
from tilewright.superopt.generate.windows import data_windows, filters_in
from tilewright.symbolic.expr import Var, const

_REGIMES: Sequence[Sequence[int]] = ((1, 2, 4, 8), (64, 256), (4, 64, 256))
"""Extents: all small, all large, and both."""
_TRIALS = 8
"""Random sizes of each regime."""
_ENOUGH = 2
"""In how many trials of a regime a rule must pay."""
LEADING = 16
"""The number of elements of leading dimensions."""
_LESS = 0.95
"""The maximum ratio of the target's work to the source's."""
_MATMUL, _CONV = require("MatMul"), require("Conv")
_ANCHORS = (FusionKind.CONTRACTION, FusionKind.REDUCTION)
"""Kinds of operators that are not fused into others."""
_SHARING = frozenset({"MatMul", "Conv", "Slice"})
"""Operators several of which read one value in networks."""
_IMAGE = 4
"""The rank of images and filters."""
_JOINING = frozenset({"Slice", "Concat"})
_CONSTANTS = frozenset({"EyeLike", "Expand", "Pad"})
"""Operators that produce constants in the families of terms that are enumerated (``families``). In models, these are
folded, and can't be matched. All three are found in models as functions of data, too: this is no trait of theirs."""


def paying(rule: Rule) -> Iterator[Rule]:
    """``rule`` in the directions that pay, with the variables marked as weights that must be."""
    for directed in (rule, turned(rule)):
        choices = list(_paying_choices(directed)) if can_be_found(directed) else []
        if choices:
            always = frozenset(name for name in choices[0] if all(name in choice for choice in choices))
            yield with_weights(directed, always)


def can_be_found(rule: Rule) -> bool:
    """Whether sources occur in models, and bind all names of the targets."""
    applied = [part for part in subterms(rule.sources) if isinstance(part, Apply)]
    if not all(isinstance(source, Apply) for source in rule.sources) or not _is_connected(rule.sources):
        return False
    if any(part.op.name in _CONSTANTS or _is_doubled(part) or _cuts_batches(part) for part in applied):
        return False
    if _has_identities(rule) or any(map(_is_column, rule.variables)):
        return False
    if _only_moves(rule):
        return variables_in(rule.targets) <= variables_in(rule.sources)
    if not any(part.op.kind in _ANCHORS for part in applied) or any(map(_is_taken_apart, applied)):
        return False
    return variables_in(rule.targets) == variables_in(rule.sources) and not _has_residuals(rule)


def _cuts_batches(term: Apply) -> bool:
    """Whether ``term`` cuts or joins batches of images, which networks do not."""
    axis = term.attribute("axis" if term.op.name == "Concat" else "axes")
    return term.op.name in _JOINING and axis in (0, (0,)) and _rank(term) == _IMAGE


def _is_column(variable: Variable) -> bool:
    """Whether it is a stack of columns: a number for each row, of which rules of this kind say little."""
    ones = [extent == const(1) for extent in variable.shape]
    return len(ones) < _IMAGE and any(ones) and sum(not one for one in ones) > 1


def _has_identities(rule: Rule) -> bool:
    """Whether targets have identity matrices, or one operand twice: such is as well left as it is."""
    applied = (part for part in subterms(rule.targets) if isinstance(part, Apply))
    return any(part.op.name == "EyeLike" or _is_doubled(part) for part in applied)


def _has_residuals(rule: Rule) -> bool:
    """Whether a source uses a variable twice, other than in operators of one kind that share it."""
    users: dict[str, list[str]] = {}
    for part in subterms(rule.sources):
        for operand in part.operands if isinstance(part, Apply) else ():
            if isinstance(operand, Variable):
                assert isinstance(part, Apply), "it has operands"
                users.setdefault(operand.name, []).append(part.op.name)
    return any(len(names) > 1 and not set(names) <= _SHARING for names in users.values())


def _only_moves(rule: Rule) -> bool:
    """Whether ``rule`` says what is cut and joined with what is cut, joined or a function of elements."""
    source, target = ([p for p in subterms(side) if isinstance(p, Apply)] for side in (rule.sources, rule.targets))
    root = rule.sources[0]
    if len(rule.sources) > 1 or not isinstance(root, Apply) or root.op.name not in _JOINING or len(target) > 2:
        return False
    below = {part.op for part in source if part is not root}
    flat = all(isinstance(operand, Variable) for part in source if part is not root for operand in part.operands)
    simple = all(op.name in _JOINING or (op.has(Trait.ELEMENTWISE) and op.kind not in _ANCHORS) for op in below)
    ones = all(len(part.operands) == 1 or part.op.name in _JOINING for part in source)
    return flat and simple and ones and len(below) == 1 and len(target) < len(source)


def _is_doubled(term: Apply) -> bool:
    """Whether ``term`` has one operand twice: networks have no such sums and concatenations."""
    return len(set(term.operands)) < len(term.operands)


def _is_taken_apart(term: Apply) -> bool:
    """Whether ``term`` takes a part of a concatenation below it."""
    operand = term.operands[0]
    return term.op.name == "Slice" and any(
        isinstance(part, Apply) and part.op.name == "Concat" for part in subterms([operand])
    )


def _is_connected(sources: Sequence[Term]) -> bool:
    """Whether each source shares a variable with the first one; unrelated sources match everywhere."""
    return all(variables_in([sources[0]]) & variables_in([source]) for source in sources[1:])


def _paying_choices(rule: Rule) -> Iterator[frozenset[str]]:
    """Sets of variables for which ``rule`` pays if they are weights."""
    try:
        pairs, forms = normal_rule(rule, point_where(rule.needs))
    except BadProgram:
        return
    sides = [list(subterms([pair[side] for pair in pairs])) for side in (0, 1)]
    given, data = weights_of(rule), frozenset[str]().union(*map(_data, rule.sources))
    others = [variable.name for variable in rule.variables if variable.name not in given | data]
    works = [[[_works(side, forms, sizes) for side in sides] for sizes in regime] for regime in regimes(rule)]
    for count in range(len(others) + 1):
        for chosen in (given.union(names) for names in combinations(others, count)):
            if has_computed_weights(rule, chosen):
                continue
            kept = [{part for part in side if not variables_in([part]) <= chosen} for side in sides]
            if any(_pays(kept[0], kept[1], regime) for regime in works):
                yield chosen


def is_rare(rule: Rule) -> bool:
    """Whether ``rule`` is about parts or transpositions of products or windows, which networks hardly ever have."""
    applied = [part for part in subterms(rule.sources) if isinstance(part, Apply)]
    roots = {source.op.name for source in rule.sources if isinstance(source, Apply)}
    has_anchor = any(part.op.kind in _ANCHORS for part in applied)
    return has_anchor and (any(part.op.name == "Slice" for part in applied) or "Transpose" in roots)


def _data(term: Term) -> frozenset[str]:
    """The variables that networks compute: what products and windows are taken of, and what has its rank."""
    match term:
        case Variable(name):
            return frozenset([name])
        case Apply(op, operands) if op.kind in _ANCHORS:
            return _data(operands[0])
        case Apply(_, operands):
            rank = max(map(_rank, operands))
            return frozenset[str]().union(*(_data(operand) for operand in operands if _rank(operand) == rank))
        case _:
            return frozenset()


def _rank(term: Term) -> int:
    """The rank of a term in a rule of one rank; approximately, as some operators add or drop dimensions."""
    match term:
        case Variable(_, shape):
            return len(shape)
        case Apply(_, operands):
            return max(map(_rank, operands))
        case _:
            return 0


def weights_of(rule: Rule) -> frozenset[str]:
    """The variables that are weights already, filters, scalars and vectors: nobody computes these of data."""
    windows = data_windows((*rule.sources, *rule.targets))
    filters = {variable.name for term in windows if term.op is _CONV for variable in filters_in(term)}
    known = {variable.name for variable in rule.variables if variable.is_weight or _is_small(variable)}
    return frozenset(filters | known)


def _is_small(variable: Variable) -> bool:
    """Whether it is a number, or one for each column or channel: these are constants in networks."""
    return bool(variable.leading is None and sum(extent != const(1) for extent in variable.shape) <= 1)


def has_computed_weights(rule: Rule, weights: frozenset[str]) -> bool:
    """Whether a source computes something of ``weights``, which is folded in models."""
    return any(isinstance(part, Apply) and variables_in([part]) <= weights for part in subterms(rule.sources))


def _pays(source: set[Term], target: set[Term], works: Sequence[Sequence[Mapping[Term, float]]]) -> bool:
    """Whether the target has fewer products, or as many and less work at some sizes of a regime."""
    before, after = _products(source), _products(target)
    less = sum(_total(made, target) < _LESS * _total(found, source) for found, made in works)
    return after < before or (after == before and less >= _ENOUGH)


def _products(terms: set[Term]) -> int:
    """The number of products: operators that take most of the time."""
    return sum(isinstance(term, Apply) and term.op.kind is FusionKind.CONTRACTION for term in terms)


def _total(works: Mapping[Term, float], kept: set[Term]) -> float:
    return sum(work for term, work in works.items() if term in kept)


def regimes(rule: Rule) -> list[list[Mapping[Var, int]]]:
    """Random sizes of the symbols of ``rule``, for each regime."""
    symbols = sorted(rule.symbols, key=lambda symbol: symbol.name)
    found: list[list[Mapping[Var, int]]] = []
    for extents in _REGIMES:
        random = Random(f"{rule.name} {extents}")
        found.append([{symbol: random.choice(extents) for symbol in symbols} for _ in range(_TRIALS)])
    return found


def _works(side: Sequence[Term], forms: Normalizer, sizes: Mapping[Var, int]) -> dict[Term, float]:
    counter = _Counter(forms, Instance(sizes))
    return {part: counter.work(part) for part in side if isinstance(part, Apply)}


@dataclass(frozen=True, slots=True)
class _Counter:
    """Counts the work of terms in normal form at some sizes."""

    forms: Normalizer
    sizes: Instance

    def work(self, term: Apply) -> float:
        """The work of the operator at the root."""
        if any(map(term.op.has, RENAMING)):
            return 0
        if term.op.kind in (FusionKind.VIEW, FusionKind.INJECTIVE):
            each = 1.0 if term.op.name == "Concat" else arithmetic(term.op, len(term.operands))
            return FUSED + self._elements(term) * each
        return STARTED + self._elements(term) * self._per_element(term)

    def _elements(self, term: Term) -> int:
        shape = self.forms.shape(term)
        return prod(map(self.sizes.integer, shape.dims)) * (LEADING if shape.leading else 1)

    def _per_element(self, term: Apply) -> int:
        if term.op.has(Trait.SUMS_CHANNELS):
            return prod(map(self.sizes.integer, self.forms.shape(term.operands[1]).dims[1:]))
        if term.op == _MATMUL:
            return self.sizes.integer(self.forms.shape(term.operands[0]).extent(-1))
        if term.op.kind is FusionKind.REDUCTION and not term.op.has(Trait.POOLS):
            return max(1, self._elements(term.operands[0]) // max(1, self._elements(term)))
        return WINDOW if term.op.has(Trait.POOLS) else 1


def with_weights(rule: Rule, names: frozenset[str]) -> Rule:
    """``rule`` with the variables ``names`` marked as weights."""
    return rule.with_variables(lambda variable: replace(variable, is_weight=variable.name in names))
