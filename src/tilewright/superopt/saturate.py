"""Proofs by equality saturation (Willsey et al., "egg", POPL 2021; Zhang et al., egglog, PLDI 2023).

Both sides of a rule are put into one e-graph, to which axioms add what is equal, until the sides meet or a limit is
reached. Limits are counts, never times: the same question has the same answer on every machine.

Every e-graph watches for contradictions: a term of two shapes, two numbers or two variables that are equal. (egglog
13.2 is one: it drops a condition of some joins. It is excluded in ``pyproject.toml``.)
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from tilewright.base.errors import BadInput, InternalError
from tilewright.passes.rules.terms import Rule
from tilewright.superopt.clauses import PRELUDE, Clause, Goal, Signatures, axiom_clauses, goal


@dataclass(frozen=True, slots=True)
class Effort:
    """When to give up: after so many rounds, or when the e-graph has so many terms."""

    rounds: int = 7
    terms: int = 20_000


DEFAULT_EFFORT = Effort()


class _Graph(Protocol):
    """What is used of ``egglog.bindings.EGraph``."""

    def run(self, program: str) -> frozenset[str] | None:
        """Run a program; the names of rules that found something, None if that was nothing new."""
        ...

    def holds(self, claims: Sequence[str]) -> bool:
        """Whether facts are known."""
        ...

    def sizes(self) -> Mapping[str, int]:
        """How many terms there are of each constructor."""
        ...


def proves(rule: Rule, axioms: Sequence[Rule], effort: Effort = DEFAULT_EFFORT) -> bool:
    """Whether ``axioms`` prove ``rule``.

    Needs the extra ``superopt``. Raises ``BadProgram`` if the rule has no shapes that are known, ``BadInput`` if
    egglog is not installed.
    """
    return Prover(axioms).proves(rule, effort)


class Prover:
    """Axioms, loaded once, for many rules."""

    def __init__(self, axioms: Sequence[Rule]) -> None:
        self._signatures = Signatures()
        self._rulesets: dict[frozenset[str], str] = {}
        """By the constructors without which rules find nothing."""
        self._axioms: list[str] = []
        """Of each clause, by its number: the name of the axiom."""
        self._graph = _new_graph()
        self._graph.run(PRELUDE)
        for axiom in axioms:
            self.learn(axiom)

    def learn(self, axiom: Rule) -> None:
        """One more axiom. Raises ``BadProgram`` if it has no shapes that are known."""
        signatures = Signatures(dict(self._signatures.declared))
        clauses = axiom_clauses(axiom, signatures)
        new = signatures.since(self._signatures)
        self._signatures = signatures
        self._graph.run("\n".join(new))
        for clause in clauses:  # one by one: of many rules in one program, egglog 13 takes gigabytes
            self._graph.run(clause.text(self._ruleset(clause), str(len(self._axioms))))
            self._axioms.append(clause.axiom)

    def _ruleset(self, clause: Clause) -> str:
        if clause.constructors not in self._rulesets:
            self._rulesets[clause.constructors] = f"axioms-{len(self._rulesets)}"
            self._graph.run(f"(ruleset {self._rulesets[clause.constructors]})")
        return self._rulesets[clause.constructors]

    def proves(self, rule: Rule, effort: Effort = DEFAULT_EFFORT) -> bool:
        """Whether the axioms prove ``rule``. Raises ``BadProgram`` if it has no shapes that are known."""
        return self.used(rule, effort) is not None

    def used(self, rule: Rule, effort: Effort = DEFAULT_EFFORT) -> frozenset[str] | None:
        """The names of axioms that found something until ``rule`` was proved; None if it is not.

        Raises as ``proves`` does.
        """
        signatures = Signatures(dict(self._signatures.declared))
        question = goal(rule, signatures)
        self._graph.run("\n".join(["(push)", *signatures.since(self._signatures), question.program]))
        try:
            return self._saturates(question, effort)
        finally:
            self._graph.run("(pop)")

    def _saturates(self, question: Goal, effort: Effort) -> frozenset[str] | None:
        used: frozenset[str] = frozenset()
        for number in range(effort.rounds):
            if self._graph.holds(question.claims):
                return used
            sizes = self._graph.sizes()
            found = self._round(number, sizes) if sum(sizes.values()) <= effort.terms else None
            if found is None:
                return None
            used |= found
        return used if self._graph.holds(question.claims) else None

    def _round(self, number: int, sizes: Mapping[str, int]) -> frozenset[str] | None:
        """Apply once what can find anything; the axioms that did, None if that was nothing new.

        Hundreds of rules that find nothing take longer than those that do.
        """
        present = {name for name, count in sizes.items() if count}
        chosen = [ruleset for constructors, ruleset in self._rulesets.items() if constructors <= present]
        self._graph.run(f"(unstable-combined-ruleset round-{number} {' '.join(chosen)})")
        found = self._graph.run(f"(run round-{number} 1)")
        self._graph.run("(run-schedule (saturate (run shapes)))")
        return None if found is None else frozenset(self._axioms[int(name)] for name in found)


def _new_graph() -> _Graph:
    try:
        from egglog.bindings import EggSmolError, EGraph, PrintAllFunctionsSize, RunScheduleOutput
    except ImportError as error:
        raise BadInput("egglog is not installed: pip install 'tilewright[superopt]'") from error

    class EgglogGraph:
        """An e-graph of egglog."""

        def __init__(self) -> None:
            self._graph = EGraph()

        def run(self, program: str) -> frozenset[str] | None:
            try:
                outputs = self._graph.run_program(*self._graph.parse_program(program))
            except EggSmolError as error:
                raise InternalError(f"axioms contradict each other, or egglog joins wrongly: {error}") from error
            reports = [output.report for output in outputs if isinstance(output, RunScheduleOutput)]
            if not any(report.updated for report in reports):
                return None
            matched = [(name, count) for report in reports for name, count in report.num_matches_per_rule.items()]
            return frozenset(name for name, count in matched if count)

        def holds(self, claims: Sequence[str]) -> bool:
            try:
                self._graph.run_program(*self._graph.parse_program(f"(check {' '.join(claims)})"))
            except EggSmolError:
                return False
            return True

        def sizes(self) -> Mapping[str, int]:
            outputs = self._graph.run_program(*self._graph.parse_program("(print-size)"))
            tables = [output.sizes for output in outputs if isinstance(output, PrintAllFunctionsSize)]
            return {name: count for table in tables for name, count in table}

    return EgglogGraph()
