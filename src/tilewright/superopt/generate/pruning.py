"""Prunes rules: drops those that follow from others, step by step, and counts them.

- *Renaming*: another rule with renamed variables (two of which may become one).
- *Common subgraph*: a rule whose sides begin with the same operation on inputs, or end with the same one on otherwise
  equal operands, follows from a smaller rule.
- *Derivability*: a rule that follows from smaller rules that are kept, with the same number of outputs.

The steps are those of Jia et al. (TASO, SOSP 2019, section 2.3); the last one uses a prover instead of patterns.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum

from tilewright.base.errors import BadProgram
from tilewright.passes.rules.terms import Apply, Number, Rule, Term, Variable, subterms
from tilewright.superopt.evaluate.ranks import at_ranks
from tilewright.superopt.prove.egglog_prover import Effort, Prover

_EFFORT = Effort(rounds=3, terms=2_000)


class Step(Enum):
    """The steps of pruning, in order."""

    RENAMING = "renaming"
    COMMON_SUBGRAPH = "common subgraph"
    DERIVABILITY = "derivability"


@dataclass(frozen=True, slots=True)
class Pruned:
    """The remaining rules, and their number after each step."""

    rules: tuple[Rule, ...]
    before: int
    left: Mapping[Step, int]


def prune(rules: Sequence[Rule], given: Sequence[Rule] = (), effort: Effort = _EFFORT) -> Pruned:
    """Drop redundant rules; smaller rules are kept first, of equal sizes those with more variables.

    ``given``: rules that are known anyway. Needs the extra ``superopt``.
    """
    renamed = list(_without_renamings(sorted(rules, key=_rank)))
    distinct = [rule for rule in renamed if not has_common_subgraph(rule)]
    kept = list(_without_derivable(distinct, given, effort))
    left = {Step.RENAMING: len(renamed), Step.COMMON_SUBGRAPH: len(distinct), Step.DERIVABILITY: len(kept)}
    return Pruned(tuple(kept), len(rules), left)


def _rank(rule: Rule) -> tuple[int, int, int, str]:
    return size(rule), -len(rule.variables), -len(rule.symbols), rule.name


def size(rule: Rule) -> int:
    """The number of operations of both sides."""
    return sum(isinstance(term, Apply) for side in (rule.sources, rule.targets) for term in subterms(side))


def _without_renamings(rules: Sequence[Rule]) -> Iterator[Rule]:
    kept: list[Rule] = []
    for rule in rules:
        if not any(is_renaming(general, rule) for general in kept):
            kept.append(rule)
            yield rule


def is_renaming(general: Rule, special: Rule) -> bool:
    """Whether ``special`` is ``general`` with variables renamed, in either direction."""
    if len(general.sources) != len(special.sources) or general.needs:
        return False
    sides = ((special.sources, special.targets), (special.targets, special.sources))
    return any(_matches((*general.sources, *general.targets), (*left, *right)) for left, right in sides)


def _matches(patterns: Sequence[Term], terms: Sequence[Term]) -> bool:
    names: dict[str, Term] = {}
    return all(_match(pattern, term, names) for pattern, term in zip(patterns, terms, strict=True))


def _match(pattern: Term, term: Term, names: dict[str, Term]) -> bool:
    match pattern, term:
        case Variable(name, dims, leading), Variable():
            fits = len(dims) == len(term.shape) and leading == term.leading and all(map(_fits, dims, term.shape))
            return fits and names.setdefault(name, term) == term
        case Number(), Number():
            return pattern == term
        case Apply(), Apply() if len(pattern.operands) == len(term.operands):
            same = (pattern.op, pattern.attributes, pattern.rest, pattern.output)
            if same != (term.op, term.attributes, term.rest, term.output):
                return False
            return all(_match(p, t, names) for p, t in zip(pattern.operands, term.operands, strict=True))
        case _:
            return False


def _fits(pattern: object, extent: object) -> bool:
    """Whether extents are equal by name: rules of one generator use the same names."""
    return pattern == extent


def has_common_subgraph(rule: Rule) -> bool:
    """Whether both sides start or end with the same operation on the same operands: the rest is a smaller rule."""
    if len(rule.sources) == 1 and _is_congruence(rule.sources[0], rule.targets[0]):
        return True
    first, second = (set(_on_inputs(side)) for side in (rule.sources, rule.targets))
    return bool(first & second)


def _on_inputs(side: Sequence[Term]) -> Iterator[Apply]:
    for term in subterms(side):
        if isinstance(term, Apply) and not any(isinstance(operand, Apply) for operand in term.operands):
            yield term


def _is_congruence(a: Term, b: Term) -> bool:
    if not isinstance(a, Apply) or not isinstance(b, Apply) or len(a.operands) != len(b.operands):
        return False
    if (a.op, a.attributes, a.rest, a.output) != (b.op, b.attributes, b.rest, b.output):
        return False
    return sum(x != y for x, y in zip(a.operands, b.operands, strict=True)) <= 1


def _without_derivable(rules: Sequence[Rule], given: Sequence[Rule], effort: Effort) -> Iterator[Rule]:
    """Each rule that is not proved by earlier ones, which are no larger, and by ``given``.

    A rule with several outputs states which nodes they share; rules with one output do not imply that.
    """
    provers: dict[int, Prover] = {}
    for rule in rules:
        prover = provers.get(len(rule.sources))
        if prover is None:
            prover = provers[len(rule.sources)] = _knowing(given)
        try:
            if all(prover.proves(version, effort) for version in at_ranks(rule)):
                continue
            prover.learn(rule)
        except BadProgram:  # without known shapes, nothing follows from it, and it follows from nothing
            pass
        yield rule


def _knowing(given: Sequence[Rule]) -> Prover:
    prover = Prover([])
    for known in given:
        with suppress(BadProgram):  # without known shapes, nothing follows from it
            prover.learn(known)
    return prover
