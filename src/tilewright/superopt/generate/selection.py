"""Selects rules for a search: those that pay or lead to others that do, in the form in which networks have them.

::

    rules of one window, rank ...    as they are found
      | candidates                   directions that pay, and steps; of few operators (``gains``)
      | needed                       not found by the others together (``necessity``)
      | lifted                       any window, rank, biases, as far as it is proved (``lifting``)
      | conditions                   where a rule pays, if it does in both directions (``conditions``)
      v
    rules with proofs
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import Enum

from tilewright.base.errors import BadProgram
from tilewright.passes.rules import ALGEBRA, load_rules
from tilewright.passes.rules.terms import Apply, Evidence, Proof, Rule, subterms
from tilewright.superopt.evaluate.instances import try_rule
from tilewright.superopt.generate.conditions import with_conditions
from tilewright.superopt.generate.gains import (
    can_be_found,
    has_computed_weights,
    is_rare,
    paying,
    weights_of,
    with_weights,
)
from tilewright.superopt.generate.lifting import Lifter, with_fused_biases
from tilewright.superopt.generate.necessity import Kept
from tilewright.superopt.generate.pruning import has_common_subgraph
from tilewright.superopt.generate.rewriting import turned, variables_in
from tilewright.superopt.prove.axioms import axioms
from tilewright.superopt.prove.proofs import find_proof
from tilewright.tensor.domains import Increasing

_SHAPES = 8
_ARITHMETIC = ("Add-associates", "Add-commutes", "Mul-associates", "Mul-commutes")


class Stage(Enum):
    """The stages, with the number of rules after each."""

    PAYING = "may pay"
    NEEDED = "needed"
    STEPS = "with steps"
    LIFTED = "lifted"
    PROVED = "proved"


@dataclass(frozen=True, slots=True)
class Selected:
    """The rules, with proofs; the number of rules after each stage; and how many proofs were looked for."""

    rules: tuple[Rule, ...]
    left: dict[Stage, int]
    proofs: int


def select(rules: Sequence[Rule], operations: int) -> Selected:
    """The rules of a search, of at most so many ``operations`` on data, and two more for each further output.

    Needs the extra ``superopt``.
    """
    distinct = [with_fused_biases(replace(rule, proof=None)) for rule in rules if not has_common_subgraph(rule)]
    candidates = sorted((d for rule in distinct for d in paying(rule) if _fits(d, operations)), key=_rank)
    left = {Stage.PAYING: len(candidates)}
    kept = Kept(that_always_run())
    kept.add_needed(candidates)
    left[Stage.NEEDED] = len(kept.rules)
    kept.add_steps(sorted((step for rule in distinct for step in _steps(rule, candidates)), key=_rank))
    left[Stage.STEPS] = len(kept.rules)
    lifter = Lifter()
    lifted = list(_distinct(one for rule in kept.rules if not is_rare(rule) for one in lifter.lifted(rule)))
    left[Stage.LIFTED] = len(lifted)
    found = proved(with_conditions(lifted))
    left[Stage.PROVED] = len(found)
    return Selected(tuple(found), left, lifter.proofs)


def _steps(rule: Rule, paying_ones: Sequence[Rule]) -> Iterator[Rule]:
    """The directions of ``rule`` that can be found in networks and do not pay alone."""
    known = {(one.sources, one.targets) for one in paying_ones}
    for directed in (rule, turned(rule)):
        marked = with_weights(directed, weights_of(directed))
        is_known = (marked.sources, marked.targets) in known or has_computed_weights(marked, weights_of(marked))
        if _fits(marked, _STEP) and can_be_found(directed) and not is_known:
            yield marked


_STEP = 4
"""The operations on data of a step."""


def _fits(rule: Rule, operations: int) -> bool:
    return _size(rule) <= operations + 2 * (len(rule.sources) - 1)


def _size(rule: Rule) -> int:
    """The operations of both sides that are not of weights only."""
    weights = weights_of(rule)
    parts = (part for side in (rule.sources, rule.targets) for part in subterms(side))
    return sum(isinstance(part, Apply) and not variables_in([part]) <= weights for part in parts)


def _rank(rule: Rule) -> tuple[int, int, str]:
    return _size(rule), -len(rule.variables), rule.name


def _distinct(rules: Iterator[Rule]) -> Iterator[Rule]:
    """Each rule once, whatever its name."""
    seen: set[Rule] = set()
    for rule in rules:
        key = replace(rule, name="")
        if key not in seen:
            seen.add(key)
            yield rule


def arithmetic() -> list[Rule]:
    """Commutativity and associativity of sums and products: rules that follow from these alone are redundant."""
    return [axioms()[name] for name in _ARITHMETIC]


def that_always_run() -> list[Rule]:
    """The rules that the compiler always applies before a search."""
    return list(load_rules(ALGEBRA))


def proved(rules: Sequence[Rule]) -> list[Rule]:
    """The ``rules`` that axioms prove and that hold in evaluation, with their proofs.

    Needs the extra ``superopt``.
    """
    guesses: list[tuple[str, ...]] = []
    found: list[Rule] = []
    for rule in rules:
        checked = _checked(rule, guesses[-_GUESSES:][::-1])
        if checked is not None and checked.proof is not None:
            guesses.append(checked.proof.axioms)
            found.append(checked)
    return found


_GUESSES = 6
"""Of how many rules before it the proofs are tried first: rules of one kind follow each other."""


def _checked(rule: Rule, guesses: Sequence[tuple[str, ...]]) -> Rule | None:
    try:
        names = find_proof(rule, guesses)
    except BadProgram:
        return None
    trial = try_rule(rule, shapes=_SHAPES, domain=Increasing)
    if not names or not trial.holds:
        return None
    return replace(rule, proof=Proof(Evidence.PROVED, names, trial.shapes))
