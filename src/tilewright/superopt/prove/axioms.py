"""The axioms: what is taken for true, as text (``axioms.rules``)."""

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from importlib.resources import files

from tilewright.passes.rules import Evidence, Proof, Rule, parse_rules


@cache
def axioms() -> Mapping[str, Rule]:
    """All axioms by name, in the order of the file."""
    text = files("tilewright.superopt.prove").joinpath("axioms.rules").read_text(encoding="utf-8")
    return {rule.name: replace(rule, proof=Proof(Evidence.DEFINED)) for rule in parse_rules(text)}
