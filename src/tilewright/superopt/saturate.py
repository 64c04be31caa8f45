"""Proofs by equality saturation (Willsey et al., "egg", POPL 2021; Zhang et al., egglog, PLDI 2023).

Both sides of a rule are put into one e-graph, to which axioms add what is equal, until the sides meet or a limit is
reached. Limits are counts, never times: the same question has the same answer on every machine.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from tilewright.base.errors import BadInput
from tilewright.passes.rules.terms import Rule
from tilewright.superopt.clauses import PRELUDE, Goal, Signatures, axiom_clauses, goal


@dataclass(frozen=True, slots=True)
class Effort:
    """When to give up: after so many rounds, or when the e-graph has so many terms."""

    rounds: int = 7
    terms: int = 20_000


DEFAULT_EFFORT = Effort()


class _Graph(Protocol):
    """What is used of ``egglog.bindings.EGraph``."""

    def run(self, program: str) -> None:
        """Run a program."""
        ...

    def holds(self, claims: Sequence[str]) -> bool:
        """Whether facts are known."""
        ...

    @property
    def size(self) -> int:
        """How many terms there are."""
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
            self._graph.run(clause)

    def proves(self, rule: Rule, effort: Effort = DEFAULT_EFFORT) -> bool:
        """Whether the axioms prove ``rule``. Raises ``BadProgram`` if it has no shapes that are known."""
        signatures = Signatures(dict(self._signatures.declared))
        question = goal(rule, signatures)
        self._graph.run("\n".join(["(push)", *signatures.since(self._signatures), question.program]))
        try:
            return self._saturates(question, effort)
        finally:
            self._graph.run("(pop)")

    def _saturates(self, question: Goal, effort: Effort) -> bool:
        for _ in range(effort.rounds):
            if self._graph.holds(question.claims):
                return True
            if self._graph.size > effort.terms:
                return False
            self._graph.run("(run axioms 1) (run-schedule (saturate (run shapes)))")
        return self._graph.holds(question.claims)


def _new_graph() -> _Graph:
    try:
        from egglog.bindings import EggSmolError, EGraph, PrintAllFunctionsSize
    except ImportError as error:
        raise BadInput("egglog is not installed: pip install 'tilewright[superopt]'") from error

    class EgglogGraph:
        """An e-graph of egglog."""

        def __init__(self) -> None:
            self._graph = EGraph()

        def run(self, program: str) -> None:
            self._graph.run_program(*self._graph.parse_program(program))

        def holds(self, claims: Sequence[str]) -> bool:
            try:
                self.run(f"(check {' '.join(claims)})")
            except EggSmolError:
                return False
            return True

        @property
        def size(self) -> int:
            outputs = self._graph.run_program(*self._graph.parse_program("(print-size)"))
            sizes = [output.sizes for output in outputs if isinstance(output, PrintAllFunctionsSize)]
            return sum(count for table in sizes for _, count in table)

    return EgglogGraph()
