"""The axioms of proofs, from ``axioms.rules``. Axioms of a user (``own_axioms``) are added to them."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from importlib.resources import files

from tilewright.passes.rules import Evidence, Proof, Rule, parse_rules
from tilewright.passes.rules.kinds import has_kinds, is_of_rings


def axioms(own: tuple[Rule, ...] = ()) -> Mapping[str, Rule]:
    """All axioms by name, in the order of the file, then the ``own`` axioms of a user."""
    return {**_built_in(), **{rule.name: rule for rule in own}} if own else _built_in()


@cache
def _built_in() -> Mapping[str, Rule]:
    return {rule.name: replace(rule, proof=Proof(Evidence.DEFINED)) for rule in parse_rules(axioms_text())}


def usable(rule: Rule, names: Iterable[str], own: tuple[Rule, ...] = ()) -> Sequence[str]:
    """Those of the axioms ``names`` that may prove ``rule``: of a rule about integers, what holds for these, too."""
    if not has_kinds(rule):
        return list(names)
    known = axioms(own)
    return [name for name in names if has_kinds(known[name]) or is_of_rings(known[name])]


def axioms_text() -> str:
    """The text of the built-in axioms."""
    return files("tilewright.superopt.prove").joinpath("axioms.rules").read_text(encoding="utf-8")
