"""Axioms of a user: a file of rules that are taken for true beside those that are built in.

They are held to what can be known of them before they are used: none is false in float64, none lets a sum be a product,
and each can be used in one direction at least.
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
    """What is wrong with it, and the remedy; empty if nothing is."""
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
