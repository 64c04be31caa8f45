"""Whether rules hold: by evaluation, which finds what is false, and by proof, which accepts what is true.

A rule is accepted if its sides agree wherever they were evaluated, and axioms prove it. What can't be decided is
rejected. Axioms are only evaluated. A second prover that does not know makes a rule no less proved by the first, but
who asks for both accepts only what both prove.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from importlib.resources import files

from tilewright.base.errors import BadProgram
from tilewright.passes.rules import Evidence, Rule, parse_rules
from tilewright.superopt.evaluate.instances import Instance, try_rule
from tilewright.superopt.evaluate.ranks import at_ranks
from tilewright.superopt.prove.axioms import axioms
from tilewright.superopt.prove.proofs import all_axioms, find_proof, replays
from tilewright.superopt.prove.witness import Witness, unknown_functions, witness
from tilewright.superopt.prove.z3_prover import agrees


class Engine(Enum):
    """Who decides."""

    EGGLOG = "egglog"
    """Evaluation, then a proof from axioms by equality saturation."""
    Z3 = "z3"
    """Evaluation, then proofs by equality saturation and, independently, by Z3."""
    FIELD = "field"
    """Evaluation only."""


@dataclass(frozen=True, slots=True)
class Opinion:
    """What one prover says of a rule; ``reason``: why it does not prove it, else empty."""

    engine: Engine
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Finding:
    """What became of one rule; ``reason`` is empty if it holds."""

    rule: Rule
    reason: str = ""
    counterexample: Instance | None = None
    shapes: int = 0
    opinions: tuple[Opinion, ...] = ()
    """Of all provers that were asked."""
    witness: Witness | None = None
    """Numbers at which the sides differ."""

    @property
    def holds(self) -> bool:
        """Whether the rule is accepted."""
        return not self.reason


def built_in() -> list[Rule]:
    """The axioms, and all rules that come with the compiler."""
    folder = files("tilewright.passes.rules")
    texts = [
        entry.read_text(encoding="utf-8")
        for entry in sorted(folder.iterdir(), key=str)
        if entry.name.endswith(".rules")
    ]
    return [*axioms().values(), *(rule for text in texts for rule in parse_rules(text))]


def verify(rules: Sequence[Rule], engine: Engine = Engine.EGGLOG, *, shapes: int = 8) -> Iterator[Finding]:
    """What becomes of each rule. Raises ``BadInput`` if the package of ``engine`` is not installed."""
    for rule in rules:
        yield verify_rule(rule, engine, shapes=shapes)


def verify_rule(rule: Rule, engine: Engine = Engine.EGGLOG, *, shapes: int = 8) -> Finding:
    """What becomes of one rule: evaluated at ``shapes`` instances, then proved, if its evidence says that it can be."""
    trial = try_rule(rule, shapes=shapes)
    if trial.counterexample is not None:
        return _differing(rule, trial.counterexample, trial.shapes)
    if not trial.shapes:
        return Finding(rule, "at no shape that was tried are both sides well-typed")
    opinions = tuple(_opinions(rule, engine)) if engine is not Engine.FIELD and _needs_proof(rule) else ()
    reason = next((opinion.reason for opinion in opinions if opinion.reason), "")
    return Finding(rule, reason, None, trial.shapes, opinions)


def _differing(rule: Rule, instance: Instance, shapes: int) -> Finding:
    """False, if numbers show it; else not provable, as functions are unknown to who evaluates."""
    found = witness(rule, instance)
    if found is not None:
        return Finding(rule, "false", instance, shapes, witness=found)
    unknown = unknown_functions(rule, instance)
    if not unknown:
        return Finding(rule, "the sides differ in shape, or over a finite field", instance, shapes)
    are = "is an unknown function" if len(unknown) == 1 else "are unknown functions"
    return Finding(rule, f"not provable: {', '.join(unknown)} {are} here; no counterexample was found", None, shapes)


def _needs_proof(rule: Rule) -> bool:
    """Not axioms, nor what says of itself that it was only tested. That a file calls a rule an axiom makes it none."""
    is_tested = rule.proof is not None and rule.proof.evidence is Evidence.TESTED
    return not is_tested and axioms().get(rule.name) != rule


def _opinions(rule: Rule, engine: Engine) -> Iterator[Opinion]:
    first = _unproved(rule)
    yield Opinion(Engine.EGGLOG, first)
    if engine is Engine.Z3:
        names = None if first else _axioms_of(rule)
        known = names is not None and agrees(rule, names)
        yield Opinion(Engine.Z3, "" if known else "Z3 does not know whether it follows from the axioms")


def _axioms_of(rule: Rule) -> Sequence[str] | None:
    """The names that its proof is made of, as they are stored or found."""
    return rule.proof.axioms if _is_stored(rule) and rule.proof is not None else find_proof(rule)


def _is_stored(rule: Rule) -> bool:
    return rule.proof is not None and rule.proof.evidence is Evidence.PROVED and bool(rule.proof.axioms)


def _unproved(rule: Rule) -> str:
    """Why a rule is not proved; empty if it is."""
    try:
        if rule.proof is None or not _is_stored(rule):
            proved = all(map(all_axioms().proves, at_ranks(rule)))
            return "" if proved else "the axioms do not prove it"
        unknown = [name for name in rule.proof.axioms if name not in axioms()]
        if unknown:
            return f"there is no axiom {unknown[0]}"
        return "" if replays(rule, rule.proof.axioms) else "the axioms that its proof names do not prove it"
    except BadProgram as error:
        return str(error)
