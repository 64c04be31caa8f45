"""Selects rules for a search: those that may lower costs, each with a proof."""

from collections.abc import Sequence
from dataclasses import replace

from tilewright.base.errors import BadProgram
from tilewright.passes.rules import ALGEBRA, load_rules
from tilewright.passes.rules.terms import Evidence, Proof, Rule
from tilewright.superopt.evaluate.instances import try_rule
from tilewright.superopt.evaluate.ranks import at_ranks
from tilewright.superopt.prove.axioms import axioms
from tilewright.superopt.prove.proofs import all_axioms, find_proof

_SHAPES = 8
_ARITHMETIC = ("Add-associates", "Add-commutes", "Mul-associates", "Mul-commutes")


def arithmetic() -> list[Rule]:
    """Commutativity and associativity of sums and products: rules that follow from these alone are redundant."""
    return [axioms()[name] for name in _ARITHMETIC]


def that_always_run() -> list[Rule]:
    """The rules that the compiler always applies before a search."""
    return list(load_rules(ALGEBRA))


def is_provable(rule: Rule) -> bool:
    """Whether axioms prove ``rule``. Needs the extra ``superopt``."""
    try:
        return all(map(all_axioms().proves, at_ranks(rule)))
    except BadProgram:
        return False


def proved(rules: Sequence[Rule]) -> list[Rule]:
    """The ``rules`` that axioms prove and that hold in evaluation, with their proofs.

    Needs the extra ``superopt``.
    """
    return [checked for rule in rules if (checked := _checked(rule)) is not None]


def _checked(rule: Rule) -> Rule | None:
    try:
        names = find_proof(rule)
    except BadProgram:
        return None
    trial = try_rule(rule, shapes=_SHAPES)
    if not names or not trial.holds:
        return None
    return replace(rule, proof=Proof(Evidence.PROVED, names, trial.shapes))
