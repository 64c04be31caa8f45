"""Verifies rules by evaluation, which refutes false ones, and by proof, which establishes true ones.

A rule is accepted if its sides agree at all points of evaluation, and axioms prove it; undecided rules are rejected.
Axioms are only evaluated. With ``Engine.Z3``, both provers must prove a rule.

``own``: axioms of a user (``own_axioms``), beside the built-in ones. A rule that differs over the finite field only
because of functions that have no meaning there (maxima of exponentials) is evaluated in float64, and then proved.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from importlib.resources import files

from tilewright.base.errors import BadInput, BadProgram, InternalError
from tilewright.passes.rules import Evidence, Rule, parse_rules
from tilewright.superopt.evaluate.instances import Instance, sampled, try_floats, try_rule
from tilewright.superopt.evaluate.ranks import at_ranks
from tilewright.superopt.prove.axioms import axioms
from tilewright.superopt.prove.egglog_prover import DEFAULT_EFFORT, Attempt
from tilewright.superopt.prove.proofs import all_axioms, find_proof, replays
from tilewright.superopt.prove.witness import Witness, differ_in_shape, tried, unknown_functions, witness
from tilewright.superopt.prove.z3_prover import agrees


class Engine(Enum):
    """The method of verification."""

    EGGLOG = "egglog"
    """Evaluation, then a proof from axioms by equality saturation."""
    Z3 = "z3"
    """Evaluation, then proofs by equality saturation and, independently, by Z3."""
    FIELD = "field"
    """Evaluation only."""


class Verdict(Enum):
    """The result for a rule."""

    HOLDS = "holds"
    FALSE = "false"
    """The sides differ in float64, or in shape."""
    UNPROVED = "not provable"
    """Neither a counterexample nor a proof was found."""


@dataclass(frozen=True, slots=True)
class Opinion:
    """The result of one prover; ``reason``: why it does not prove the rule, else empty."""

    engine: Engine
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Finding:
    """The result for one rule; ``reason`` is empty if it holds."""

    rule: Rule
    verdict: Verdict = Verdict.HOLDS
    reason: str = ""
    counterexample: Instance | None = None
    shapes: int = 0
    opinions: tuple[Opinion, ...] = ()
    """The results of the provers."""
    witness: Witness | None = None
    """Values of variables at which the sides differ."""
    unknown: tuple[str, ...] = ()
    """Functions without meaning over a finite field, if they are the only cause of a difference."""

    @property
    def holds(self) -> bool:
        """Whether the rule is accepted."""
        return self.verdict is Verdict.HOLDS


def built_in() -> list[Rule]:
    """The axioms, and all rules that come with the compiler."""
    folder = files("tilewright.passes.rules")
    texts = [
        entry.read_text(encoding="utf-8")
        for entry in sorted(folder.iterdir(), key=str)
        if entry.name.endswith(".rules")
    ]
    return [*axioms().values(), *(rule for text in texts for rule in parse_rules(text))]


def verify(
    rules: Sequence[Rule], engine: Engine = Engine.EGGLOG, *, shapes: int = 8, own: tuple[Rule, ...] = ()
) -> Iterator[Finding]:
    """Verify each rule.

    Raises ``BadInput`` if the package of ``engine`` is not installed, and if ``own`` axioms contradict others.
    """
    for rule in rules:
        yield verify_rule(rule, engine, shapes=shapes, own=own)


def verify_rule(rule: Rule, engine: Engine = Engine.EGGLOG, *, shapes: int = 8, own: tuple[Rule, ...] = ()) -> Finding:
    """Verify one rule: evaluate it at ``shapes`` instances, then prove it, unless it is an axiom or marked as tested.

    Raises as ``verify``.
    """
    trial = try_rule(rule, shapes=shapes)
    doubtful: Finding | None = None
    if trial.counterexample is not None:
        doubtful = _differing(rule, trial.counterexample, shapes)
        if doubtful.verdict is Verdict.FALSE or not doubtful.unknown:
            return doubtful
    elif not trial.shapes:
        return Finding(rule, Verdict.UNPROVED, "at no shape that was tried are both sides well-typed")
    opinions = tuple(_opinions(rule, engine, own)) if engine is not Engine.FIELD and _needs_proof(rule, own) else ()
    reason = next((opinion.reason for opinion in opinions if opinion.reason), "")
    if doubtful is not None:
        if reason or not (opinions or _is_axiom(rule, own)):
            return doubtful
        trial = tried(rule, shapes)
    return Finding(rule, Verdict.UNPROVED if reason else Verdict.HOLDS, reason, None, trial.shapes, opinions)


def _differing(rule: Rule, instance: Instance, shapes: int) -> Finding:
    """The finding for a rule that differs over the field: false with a witness or other shapes, else not provable."""
    unknown = unknown_functions(rule, instance)
    if unknown and witness(rule, instance) is None:
        floats = try_floats(rule, sampled(rule, largest=4, seed=1, tries=100), shapes)
        instance = floats.counterexample or instance
    found = witness(rule, instance)
    if found is not None:
        return Finding(rule, Verdict.FALSE, "false", instance, witness=found)
    if differ_in_shape(rule, instance):
        return Finding(rule, Verdict.FALSE, "false: the sides differ in shape", instance)
    if not unknown:
        return Finding(rule, Verdict.UNPROVED, "the sides differ over a finite field, but not in float64", instance)
    are = "is an unknown function" if len(unknown) == 1 else "are unknown functions"
    reason = f"not provable: {', '.join(unknown)} {are} here; no counterexample was found"
    return Finding(rule, Verdict.UNPROVED, reason, unknown=unknown)


def _told(attempts: Sequence[Attempt]) -> str:
    """The reason why not all ``attempts`` are proofs; empty if they are."""
    if Attempt.EXHAUSTED in attempts:
        effort = DEFAULT_EFFORT
        return f"{Attempt.EXHAUSTED.value} {effort.rounds} rounds of the axioms and {effort.terms} terms"
    return Attempt.SATURATED.value if Attempt.SATURATED in attempts else ""


def _needs_proof(rule: Rule, own: tuple[Rule, ...]) -> bool:
    """Whether a rule is neither an axiom nor marked as tested. A rule with only the name of an axiom needs a proof."""
    is_tested = rule.proof is not None and rule.proof.evidence is Evidence.TESTED
    return not is_tested and not _is_axiom(rule, own)


def _is_axiom(rule: Rule, own: tuple[Rule, ...]) -> bool:
    return axioms(own).get(rule.name) == rule


def _opinions(rule: Rule, engine: Engine, own: tuple[Rule, ...]) -> Iterator[Opinion]:
    first = unproved(rule, own)
    yield Opinion(Engine.EGGLOG, first)
    if engine is Engine.Z3:
        names = None if first else _axioms_of(rule, own)
        known = names is not None and agrees(rule, names, own=own)
        yield Opinion(Engine.Z3, "" if known else "Z3 does not know whether it follows from the axioms")


def _axioms_of(rule: Rule, own: tuple[Rule, ...]) -> Sequence[str] | None:
    """The axioms of its proof, stored or found."""
    return rule.proof.axioms if _is_stored(rule) and rule.proof is not None else find_proof(rule, own=own)


def _is_stored(rule: Rule) -> bool:
    return rule.proof is not None and rule.proof.evidence is Evidence.PROVED and bool(rule.proof.axioms)


def unproved(rule: Rule, own: tuple[Rule, ...] = ()) -> str:
    """The reason why a rule is not proved; empty if it is. Stored proofs are replayed. Raises as ``verify``."""
    try:
        if rule.proof is None or not _is_stored(rule):
            return _told([all_axioms(own).attempt(version).attempt for version in at_ranks(rule)])
        unknown = [name for name in rule.proof.axioms if name not in axioms(own)]
        if unknown:
            return f"there is no axiom {unknown[0]}"
        is_proved = replays(rule, rule.proof.axioms, own)
        return "" if is_proved else "the axioms that its proof names do not prove it"
    except BadProgram as error:
        return str(error)
    except InternalError as error:
        if not own:
            raise
        raise BadInput(f"the axioms given contradict others: {error}; check them by `--axioms FILE` alone") from error
