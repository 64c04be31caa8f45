"""Axioms of a user: a file of rules that proofs may use like the built-in axioms.

They are checked before use: none is false in float64, none makes a sum equal to a product, and each is usable in one
direction at least.
"""

from tilewright.base.errors import BadInput, BadProgram
from tilewright.passes.rules import Rule
from tilewright.passes.rules.given import RuleFile
from tilewright.superopt.prove.axiom_checks import contradiction
from tilewright.superopt.prove.axioms import axioms
from tilewright.superopt.prove.egglog_clauses import axiom_clauses
from tilewright.superopt.prove.verification import Engine, Verdict, verify_rule


def own_axioms(file: RuleFile) -> tuple[Rule, ...]:
    """The axioms of ``file``.

    Needs the extra ``superopt``. Raises ``BadInput`` naming the file and the axiom: for text that is no rule, a name
    that is taken, an axiom that is false, can't be used or contradicts others.
    """
    for axiom in file.rules:
        fault = _fault(axiom)
        if fault:
            raise BadInput(f"{file.name}: the axiom {axiom.name} {fault}")
    for axiom in file.rules:
        found = contradiction(axiom, file.rules)
        if found:
            raise BadInput(f"{file.name}: the axiom {axiom.name} contradicts others ({found}): leave one of them out")
    return file.rules


def _fault(axiom: Rule) -> str:
    """The fault of an axiom, and the remedy; empty if there is none."""
    if axiom.name in axioms():
        return "has the name of one that is built in: give it another"
    found = verify_rule(axiom, Engine.FIELD)
    if found.verdict is Verdict.FALSE:
        return f"is {found.reason}: {found.witness or found.counterexample}; mend it, or leave it out"
    if found.verdict is Verdict.UNPROVED and not found.unknown:
        return f"can't be used: {found.reason}; mend it, or leave it out"
    try:
        clauses = axiom_clauses(axiom, {})
    except BadProgram as error:
        return f"can't be used: {error}"
    return "" if clauses else "can't be used: each side has a name that the other one has not; declare fewer"
