"""Proofs by equality saturation (Willsey et al., "egg", POPL 2021; Zhang et al., egglog, PLDI 2023).

Both sides of a rule are put into one e-graph, to which axioms add what is equal, until the sides meet or a limit is
reached. Limits are counts, never times: the same question has the same answer on every machine.

Every e-graph watches for contradictions: a term of two shapes, two numbers or two variables that are equal. (egglog
13.2 is one: it drops a condition of some joins. It is excluded in ``pyproject.toml``.)
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from tilewright.base.errors import BadInput, InternalError
from tilewright.passes.rules.terms import Rule
from tilewright.superopt.prove.egglog_clauses import PRELUDE, Clause, Goal, axiom_clauses, goal


@dataclass(frozen=True, slots=True)
class Effort:
    """When to give up: after so many rounds, or when the e-graph has so many terms."""

    rounds: int = 7
    terms: int = 20_000


DEFAULT_EFFORT = Effort()


@dataclass(frozen=True, slots=True)
class _Ran:
    """What rules in a program did: whether they made anything new, and the names of those that found anything."""

    has_news: bool
    fired: frozenset[str]


class _Graph:
    """An e-graph of egglog. Raises ``BadInput`` if that is not installed."""

    def __init__(self) -> None:
        try:
            from egglog.bindings import EGraph
        except ImportError as error:
            raise BadInput("egglog is not installed: pip install 'tilewright[superopt]'") from error
        self._graph = EGraph()

    def run(self, program: str) -> _Ran:
        """Run a program."""
        from egglog.bindings import EggSmolError, RunScheduleOutput

        try:
            outputs = self._graph.run_program(*self._graph.parse_program(program))
        except EggSmolError as error:
            raise InternalError(f"axioms contradict each other, or egglog joins wrongly: {error}") from error
        reports = [output.report for output in outputs if isinstance(output, RunScheduleOutput)]
        matched = (item for report in reports for item in report.num_matches_per_rule.items())
        fired = frozenset(name for name, count in matched if count)
        return _Ran(any(report.updated for report in reports), fired)

    def holds(self, claims: Sequence[str]) -> bool:
        """Whether facts are known."""
        from egglog.bindings import EggSmolError

        try:
            self._graph.run_program(*self._graph.parse_program(f"(check {' '.join(claims)})"))
        except EggSmolError:
            return False
        return True

    def sizes(self) -> Mapping[str, int]:
        """How many terms there are of each constructor."""
        from egglog.bindings import PrintAllFunctionsSize

        outputs = self._graph.run_program(*self._graph.parse_program("(print-size)"))
        tables = [output.sizes for output in outputs if isinstance(output, PrintAllFunctionsSize)]
        return {name: count for table in tables for name, count in table}


class Prover:
    """Axioms, loaded once, for many rules."""

    def __init__(self, axioms: Sequence[Rule]) -> None:
        self._functions: dict[str, str] = {}
        """Declarations of all constructors, by name."""
        self._rulesets: dict[tuple[str, frozenset[str]], str] = {}
        """By the axiom, and the constructors without which it finds nothing."""
        self._axioms: list[str] = []
        """Of each clause, by its number: the name of the axiom."""
        self._graph = _Graph()
        self._graph.run(PRELUDE)
        for axiom in axioms:
            self.learn(axiom)

    def learn(self, axiom: Rule) -> None:
        """One more axiom. Raises ``BadProgram`` if it has no shapes that are known."""
        functions = dict(self._functions)
        clauses = axiom_clauses(axiom, functions)
        self._graph.run("\n".join(self._new(functions)))
        self._functions = functions
        for clause in clauses:  # one by one: of many rules in one program, egglog 13 takes gigabytes
            self._graph.run(clause.text(self._ruleset(clause), str(len(self._axioms))))
            self._axioms.append(clause.axiom)

    def _new(self, functions: Mapping[str, str]) -> list[str]:
        """Declarations of those that are not known."""
        return [text for name, text in functions.items() if name not in self._functions]

    def _ruleset(self, clause: Clause) -> str:
        key = clause.axiom, clause.constructors
        if key not in self._rulesets:
            self._rulesets[key] = f"axioms-{len(self._rulesets)}"
            self._graph.run(f"(ruleset {self._rulesets[key]})")
        return self._rulesets[key]

    def proves(self, rule: Rule, effort: Effort = DEFAULT_EFFORT, among: Collection[str] | None = None) -> bool:
        """Whether the axioms prove ``rule``; only those called ``among``, if names are given.

        Raises ``BadProgram`` if the rule has no shapes that are known.
        """
        return self.used(rule, effort, among) is not None

    def used(
        self, rule: Rule, effort: Effort = DEFAULT_EFFORT, among: Collection[str] | None = None
    ) -> frozenset[str] | None:
        """The names of axioms that applied until ``rule`` was proved, most of them for nothing; None if it was not.

        Raises ``BadProgram`` if the rule has no shapes that are known.
        """
        functions = dict(self._functions)
        question = goal(rule, functions)
        self._graph.run("\n".join(["(push)", *self._new(functions), question.program]))
        try:
            return self._saturated(question, effort, among)
        finally:
            self._graph.run("(pop)")

    def _saturated(self, question: Goal, effort: Effort, among: Collection[str] | None) -> frozenset[str] | None:
        applied: frozenset[str] = frozenset()
        for number in range(effort.rounds):
            if self._graph.holds(question.claims):
                break
            sizes = self._graph.sizes()
            if sum(sizes.values()) > effort.terms:
                return None
            ran = self._round(number, sizes, among)
            applied |= ran.fired
            if not ran.has_news:
                return None
        if not self._graph.holds(question.claims):
            return None
        return frozenset(self._axioms[int(name)] for name in applied)

    def _round(self, number: int, sizes: Mapping[str, int], among: Collection[str] | None) -> _Ran:
        """Apply once what can find anything: hundreds of rules that find nothing take longer than those that do."""
        present = {name for name, count in sizes.items() if count}
        chosen = [
            ruleset
            for (axiom, constructors), ruleset in self._rulesets.items()
            if constructors <= present and (among is None or axiom in among)
        ]
        self._graph.run(f"(unstable-combined-ruleset round-{number} {' '.join(chosen)})")
        terms = self._graph.run(f"(run round-{number} 1)")
        shapes = self._graph.run("(run-schedule (saturate (run shapes)))")
        return _Ran(terms.has_news or shapes.has_news, terms.fired)
