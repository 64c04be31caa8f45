"""The axioms of proofs, from ``axioms.rules``. Axioms of a user (``own_axioms``) are added to them."""

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from importlib.resources import files

from tilewright.passes.rules import Evidence, Proof, Rule, parse_rules


def axioms(own: tuple[Rule, ...] = ()) -> Mapping[str, Rule]:
    """All axioms by name, in the order of the file, then the ``own`` axioms of a user."""
    return {**_built_in(), **{rule.name: rule for rule in own}} if own else _built_in()


@cache
def _built_in() -> Mapping[str, Rule]:
    return {rule.name: replace(rule, proof=Proof(Evidence.DEFINED)) for rule in parse_rules(axioms_text())}


def axioms_text() -> str:
    """The text of the built-in axioms."""
    return files("tilewright.superopt.prove").joinpath("axioms.rules").read_text(encoding="utf-8")
