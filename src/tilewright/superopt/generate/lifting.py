"""Lifts rules from the windows, ranks and operands of their discovery to those of networks.

A rule that is found says what holds for kernels of 3 x 3 taps, without biases, for matrices of one rank. ``lifted``
infers how far it holds: for any window or under which condition (``windows``), with any leading dimensions
(``leading``), with biases (``biases``), for volumes (``dimensions``). Each candidate is evaluated over the field at
random sizes and attributes and in float64, and then proved from axioms; the first one that holds, of those in order of
generality, is kept.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

from tilewright.base.errors import BadProgram
from tilewright.ops.operator import require
from tilewright.passes.rules.term_shapes import REDUCTIONS
from tilewright.passes.rules.terms import Apply, Rule, Term, subterms
from tilewright.passes.rules.weights import is_weight
from tilewright.superopt.evaluate.instances import try_rule
from tilewright.superopt.evaluate.ranks import at_ranks
from tilewright.superopt.generate import leading, windows
from tilewright.superopt.generate.biases import biased
from tilewright.superopt.generate.dimensions import of_volumes
from tilewright.superopt.generate.rewriting import Attributes, canonical, rebuilt, with_terms
from tilewright.superopt.prove.egglog_prover import Effort
from tilewright.superopt.prove.proofs import all_axioms
from tilewright.symbolic.expr import Symbol
from tilewright.tensor.domains import Increasing

_TRIALS = ((1, 16), (4, 120))
"""The number of shapes at which a candidate must hold before a proof is looked for, and of sizes that are drawn: few
for the first instance, as a rule that fits none of them is hardly ever typed."""
_EFFORT = Effort(rounds=6, terms=8_000)
_REPEAT, _ADD, _RESHAPE = require("Repeat"), require("Add"), require("Reshape")


@dataclass(slots=True)
class Lifter:
    """Lifts rules; verdicts of candidates are remembered. ``proofs``: how many were looked for."""

    proofs: int = 0
    _known: dict[Rule, bool] = field(default_factory=dict[Rule, bool])

    def lifted(self, rule: Rule) -> Iterator[Rule]:
        """The most general form of ``rule`` without biases, and with them, of images and of volumes.

        Needs the extra ``superopt``.
        """
        for found in self._of_images(rule):
            yield found
            deeper = of_volumes(found)
            if deeper is not None and self.holds(canonical(deeper)):
                yield canonical(deeper)

    def _of_images(self, rule: Rule) -> Iterator[Rule]:
        plain = self._first(general(rule))
        if plain is None:
            return
        yield replace(plain, name=rule.name)
        for variant in biased(rule):
            found = self._first(one for candidate in variant.rules for one in general(candidate))
            if found is not None:
                yield replace(found, name=f"{rule.name}-{variant.name}")

    def _first(self, candidates: Iterable[Rule]) -> Rule | None:
        return next(filter(self.holds, map(canonical, candidates)), None)

    def holds(self, rule: Rule) -> bool:
        """Whether ``rule`` holds where it was evaluated, and is proved."""
        key = replace(rule, name="", proof=None)
        if key not in self._known:
            self._known[key] = self._is_found_true(key)
        return self._known[key]

    def _is_found_true(self, rule: Rule) -> bool:
        """First what refutes most candidates in the least time: shapes, then one instance, then some."""
        try:
            versions = at_ranks(rule)
        except BadProgram:
            return False
        if not all(try_rule(rule, shapes=s, tries=t, domain=Increasing).holds for s, t in _TRIALS):
            return False
        self.proofs += 1
        try:
            return all(all_axioms().proves(version, _EFFORT) for version in versions)
        except BadProgram:
            return False


def general(rule: Rule) -> Iterator[Rule]:
    """``rule`` under fewer and fewer conditions, in the opposite order, and ``rule`` itself."""
    for candidate in windows.general(rule) if windows.has_windows(rule) else leading.general(rule):
        open_ = _with_open_reductions(candidate)
        times = _with_any_times(open_)
        yield from [open_] if times is None else (times, open_)


def _with_open_reductions(rule: Rule) -> Rule:
    """``rule`` with any values of the attributes of reductions that say how missing axes are read."""
    attributes: dict[Term, Attributes] = {
        part: Attributes(
            (("axes", part.attribute("axes")), ("keepdims", part.attribute("keepdims") is not False)), "reduction"
        )
        for part in subterms((*rule.sources, *rule.targets))
        if isinstance(part, Apply) and part.op.name in REDUCTIONS and part.rest is None and not is_weight(part)
    }
    return rebuilt(rule, {}, attributes)


def _with_any_times(rule: Rule) -> Rule | None:
    """``rule`` with any number of copies; None if it makes none."""
    repeats = [p for p in subterms((*rule.sources, *rule.targets)) if isinstance(p, Apply) and p.op is _REPEAT]
    if not repeats:
        return None
    attributes: dict[Term, Attributes] = {
        part: Attributes((("axis", part.attribute("axis")), ("times", Symbol("times")))) for part in repeats
    }
    return rebuilt(rule, {}, attributes)


def with_fused_biases(rule: Rule) -> Rule:
    """``rule`` with what is added to each channel of a convolution as its bias."""
    return with_terms(rule, _with_fused_biases)


def _with_fused_biases(term: Term) -> Term:
    """``term`` with what is added to each channel of a convolution as its bias."""
    if not isinstance(term, Apply):
        return term
    operands = tuple(map(_with_fused_biases, term.operands))
    made = Apply(term.op, operands, term.attributes, term.rest, term.output)
    if made.op is not _ADD:
        return made
    first, second = operands
    if not isinstance(first, Apply) or first.op is not windows.CONV or not isinstance(second, Apply):
        return made
    (bias,) = second.operands if second.op is _RESHAPE else (None,)
    if len(first.operands) > len(("x", "weight")) or bias is None or _rank_of_reshape(second) != 3:
        return made
    return Apply(first.op, (*first.operands, bias), first.attributes, first.rest)


def _rank_of_reshape(term: Apply) -> int:
    shape = term.attribute("shape")
    return len(shape) if isinstance(shape, tuple) else 0
