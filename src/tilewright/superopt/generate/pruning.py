"""Prunes rules: drops those that follow from others, step by step, and counts them.

- *Renaming*: a rule that another one is, with other names (a name may stand for two of the rule's).
- *Common subgraph*: sides that begin with the same operation on inputs, or end with the same one on otherwise equal
  operands, say what a smaller rule says.
- *Derivability*: a rule that follows from the smaller ones that are kept, and have as many outputs.

The steps are those of Jia et al. (TASO, SOSP 2019, section 2.3); the last one takes a prover in the place of patterns.
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
    """What is kept, and how many rules were left after each step."""

    rules: tuple[Rule, ...]
    before: int
    left: Mapping[Step, int]


def prune(rules: Sequence[Rule], given: Sequence[Rule] = (), effort: Effort = _EFFORT) -> Pruned:
    """Drop what others say; smaller rules are kept first, of equal ones those with more variables.

    ``given``: what is known anyway. Needs the extra ``superopt``.
    """
    renamed = list(_without_renamings(sorted(rules, key=_rank)))
    distinct = [rule for rule in renamed if not has_common_subgraph(rule)]
    kept = list(_without_derivable(distinct, given, effort))
    left = {Step.RENAMING: len(renamed), Step.COMMON_SUBGRAPH: len(distinct), Step.DERIVABILITY: len(kept)}
    return Pruned(tuple(kept), len(rules), left)


def _rank(rule: Rule) -> tuple[int, int, int, str]:
    return size(rule), -len(rule.variables), -len(rule.symbols), rule.name


def size(rule: Rule) -> int:
    """How many operations both sides have."""
    return sum(isinstance(term, Apply) for side in (rule.sources, rule.targets) for term in subterms(side))


def _without_renamings(rules: Sequence[Rule]) -> Iterator[Rule]:
    kept: list[Rule] = []
    for rule in rules:
        if not any(is_renaming(general, rule) for general in kept):
            kept.append(rule)
            yield rule


def is_renaming(general: Rule, special: Rule) -> bool:
    """Whether ``special`` is ``general``, in one direction or the other, with a variable for each variable."""
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
    """Extents are told apart by name: rules of one generator name them alike."""
    return pattern == extent


def has_common_subgraph(rule: Rule) -> bool:
    """Whether both sides start, or end, with the same operation on the same, so that the rest is a smaller rule."""
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
    """Each rule that those before it, which are no larger, and those ``given`` do not prove.

    A rule with several outputs says what they share: rules with one, which make each by itself, do not say that.
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
