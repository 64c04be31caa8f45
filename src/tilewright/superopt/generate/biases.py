"""Gives convolutions of a rule biases: those of its sources become variables, those of its targets are looked for.

Rules are found for convolutions without a bias; in networks whose normalizations were folded, all have one. ``biased``
lists for a rule the sources with biases and, for each, targets in which each convolution has a bias that is a small
term over the biases and filters of the sources: a bias, their sum, their concatenation, a part of one, or what the
filters make of it. Whoever tests and proves them keeps the first that holds.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product

from tilewright.ops.operator import require
from tilewright.passes.rules.terms import Apply, Rule, Term, Variable, subterms
from tilewright.superopt.generate.operations import apply
from tilewright.superopt.generate.rewriting import replaced, with_sides
from tilewright.superopt.generate.windows import CONV, data_windows, filters_in
from tilewright.symbolic.expr import Expr, const

_SLICE, _ADD = require("Slice"), require("Add")
_NAMES = ("a'", "b'", "c'")


@dataclass(frozen=True, slots=True)
class Biased:
    """Sources with biases, and rules with these sources, those with the smallest biases first."""

    name: str
    sources: tuple[Term, ...]
    rules: tuple[Rule, ...]


def biased(rule: Rule) -> Iterator[Biased]:
    """``rule`` with biases for all convolutions of its sources; for a sum of two, also for the first one only; for one
    after another, also with what the border sees of the first bias."""
    convolutions = _of_data(rule.sources)
    plain = all(len(c.operands) == len(("x", "weight")) and isinstance(c.operands[1], Variable) for c in convolutions)
    if not plain or not 0 < len(convolutions) <= len(_NAMES):
        return
    yield _with_biases("with-biases", rule, convolutions)
    root = rule.sources[0]
    if len(convolutions) == len(rule.sources) + 1 and isinstance(root, Apply) and root.op is _ADD:
        yield _with_biases("with-bias", rule, convolutions[:1])
    bordered = _with_border(rule, convolutions)
    if bordered is not None:
        yield bordered


def _of_data(terms: Sequence[Term]) -> list[Apply]:
    return [term for term in data_windows(terms) if term.op is CONV]


def _with_biases(name: str, rule: Rule, convolutions: Sequence[Apply]) -> Biased:
    sources, biases = _sources(rule, convolutions)
    return Biased(name, sources, tuple(with_sides(rule, sources, made) for made in _targets(rule, biases)))


def _sources(rule: Rule, convolutions: Sequence[Apply]) -> tuple[tuple[Term, ...], list[Variable]]:
    """The sources with biases, and these."""
    biases: list[Variable] = []
    by: dict[Term, Term] = {}
    for name, term in zip(_NAMES, convolutions, strict=False):
        (filters,) = filters_in(term)
        biases.append(Variable(name, filters.shape[:1], None, is_weight=True))
        by[term] = _with_bias(term, biases[-1], by)
    return tuple(replaced(source, by) for source in rule.sources), biases


def _with_border(rule: Rule, convolutions: Sequence[Apply]) -> Biased | None:
    """A convolution after another one, whose padding does not have the bias of the first: what it makes of an image of
    this bias is added, which is known at compile time. None for other rules, and for kernels of one tap."""
    outer, target = rule.sources[0], rule.targets[0]
    if not isinstance(target, Apply) or target.op is not CONV or not _follows(outer, convolutions):
        return None
    (x, *_), (_, filters, *_) = (term.operands for term in convolutions)
    assert isinstance(x, Variable) and isinstance(filters, Variable), "what a convolution reads is an image"
    if all(extent == const(1) for extent in filters.shape[2:]):
        return None
    sources, (first, second) = _sources(rule, convolutions)
    image = apply(
        "Expand", apply("Reshape", first, shape=(1, *first.shape, 1, 1)), shape=(1, *first.shape, *x.shape[2:])
    )
    border = Apply(CONV, (image, filters), convolutions[1].attributes, convolutions[1].rest)
    made = apply("Add", _with_bias(target, second, {}), border)
    return Biased("with-border", sources, (with_sides(rule, sources, (made,)),))


def _follows(outer: Term, convolutions: Sequence[Apply]) -> bool:
    """Whether ``outer`` is a convolution of a convolution of a variable."""
    if len(convolutions) != 2 or convolutions[1] != outer:
        return False
    first, second = convolutions
    return second.operands[0] == first and isinstance(first.operands[0], Variable)


def _with_bias(term: Apply, bias: Term, by: dict[Term, Term]) -> Apply:
    data, filters = term.operands[:2]
    return Apply(term.op, (replaced(data, by), filters, bias), term.attributes, term.rest, term.output)


def _targets(rule: Rule, biases: Sequence[Variable]) -> Iterator[tuple[Term, ...]]:
    """The targets with a bias for each of their convolutions, or added to their results."""
    convolutions = _of_data(rule.targets)
    for chosen in product(*(_terms(term, biases) for term in convolutions)):
        by: dict[Term, Term] = {}
        for term, bias in zip(convolutions, chosen, strict=True):  # inner ones come first
            made = replaced(term, by) if bias is None else _with_bias(term, bias, by)
            by[term] = made
        yield tuple(replaced(target, by) for target in rule.targets)
    if len(rule.targets) == 1:
        for bias in biases:
            column = apply("Reshape", bias, shape=(bias.shape[0], 1, 1))
            yield (apply("Add", rule.targets[0], column),)


def _terms(term: Apply, biases: Sequence[Variable]) -> list[Term | None]:
    """Terms for the bias of ``term``, from small to large; None if it stays as it is."""
    if len(term.operands) > len(("x", "weight")):
        return [apply("Add", term.operands[2], bias) for bias in biases]
    seen: list[Term | None] = [*biases]
    seen += [Apply(_SLICE, (bias,), cut.attributes) for cut in _cuts(term) for bias in biases]
    sums = [_summed(filters, bias) for filters in filters_in(term) for bias in biases]
    if len(biases) > 1:
        first, second = biases[:2]
        seen.append(apply("Add", first, second))
        seen += [apply("Concat", *order, axis=0) for order in ((first, second), (second, first))]
        seen += sums
        seen += [apply("Add", one, bias) for one in sums for bias in biases]
    else:
        seen += sums
    return [*seen, None] if _of_data(term.operands[:1]) else seen  # a convolution below it may have all


def _cuts(term: Apply) -> list[Apply]:
    """The parts of filters, along the filters, of which ``term`` has some."""
    parts = subterms([term.operands[1]])
    return [p for p in parts if isinstance(p, Apply) and p.op is _SLICE and p.attribute("axes") == (0,)]


def _summed(filters: Variable, bias: Variable) -> Term:
    """What ``filters`` make of a ``bias`` of their channels, if all taps see it."""
    extent: Expr = bias.shape[0]
    weighted = apply("Mul", filters, apply("Reshape", bias, shape=(extent, 1, 1)))
    return apply("ReduceSum", weighted, axes=(-3, -2, -1), keepdims=False)
