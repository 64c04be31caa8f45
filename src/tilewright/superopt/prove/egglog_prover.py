"""Proofs by equality saturation (Willsey et al., "egg", POPL 2021; Zhang et al., egglog, PLDI 2023).

Both sides of a rule are put into one e-graph, to which axioms add equal terms, until the sides are equal, nothing is
added, or a limit is reached. Limits are counts, not times, so that results are the same on every machine. Axioms that
apply to their own results may multiply the terms in one round: as soon as there are many, axioms are applied one by
one, and counted after each.

Every e-graph checks for contradictions: a term with two shapes, two equal numbers or variables. (egglog 13.2 causes
some, as it drops a condition of some joins; it is excluded in ``pyproject.toml``.)
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from tilewright.base.errors import BadInput, InternalError
from tilewright.passes.rules.terms import Rule
from tilewright.superopt.prove.egglog_clauses import PRELUDE, Clause, Goal, axiom_clauses, goal


@dataclass(frozen=True, slots=True)
class Effort:
    """Limits of a proof: the number of rounds, and of terms in the e-graph."""

    rounds: int = 7
    terms: int = 20_000


DEFAULT_EFFORT = Effort()
_MANY = 2_000
"""The number of terms from which on axioms are applied one by one."""


class Attempt(Enum):
    """How an attempt at a proof ended."""

    PROVED = "proved"
    SATURATED = "the axioms do not prove it"
    """They add nothing more, and the sides are not equal."""
    EXHAUSTED = "not provable within"
    """A limit of ``Effort`` was reached; with more, there may be a proof."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of an attempt, and the names of axioms that matched until then, most of them needlessly."""

    attempt: Attempt
    used: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class _Ran:
    """The result of a program: whether its rules added terms, and the names of those that matched."""

    has_news: bool
    fired: frozenset[str]


class _Graph:
    """An e-graph of egglog. Raises ``BadInput`` if egglog is not installed."""

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
        """Whether all ``claims`` hold in the e-graph."""
        from egglog.bindings import EggSmolError

        try:
            self._graph.run_program(*self._graph.parse_program(f"(check {' '.join(claims)})"))
        except EggSmolError:
            return False
        return True

    def sizes(self) -> Mapping[str, int]:
        """The number of terms of each constructor."""
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
        """Rulesets, by the axiom and the constructors that must exist for it to match."""
        self._axioms: list[str] = []
        """The name of the axiom of each clause, by its number."""
        self._graph = _Graph()
        self._graph.run(PRELUDE)
        for axiom in axioms:
            self.learn(axiom)

    def learn(self, axiom: Rule) -> None:
        """Add an axiom. Raises ``BadProgram`` if its shapes are unknown."""
        functions = dict(self._functions)
        clauses = axiom_clauses(axiom, functions)
        self._graph.run("\n".join(self._new(functions)))
        self._functions = functions
        for clause in clauses:  # one by one: of many rules in one program, egglog 13 takes gigabytes
            self._graph.run(clause.text(self._ruleset(clause), str(len(self._axioms))))
            self._axioms.append(clause.axiom)

    def _new(self, functions: Mapping[str, str]) -> list[str]:
        """The declarations of new functions."""
        return [text for name, text in functions.items() if name not in self._functions]

    def _ruleset(self, clause: Clause) -> str:
        key = clause.axiom, clause.constructors
        if key not in self._rulesets:
            self._rulesets[key] = f"axioms-{len(self._rulesets)}"
            self._graph.run(f"(ruleset {self._rulesets[key]})")
        return self._rulesets[key]

    def proves(self, rule: Rule, effort: Effort = DEFAULT_EFFORT, among: Collection[str] | None = None) -> bool:
        """Whether the axioms prove ``rule``; with ``among``, only those of these names.

        Raises ``BadProgram`` if the rule has no shapes that are known.
        """
        return self.attempt(rule, effort, among).attempt is Attempt.PROVED

    def used(
        self, rule: Rule, effort: Effort = DEFAULT_EFFORT, among: Collection[str] | None = None
    ) -> frozenset[str] | None:
        """The names of axioms that matched until ``rule`` was proved, most of them needlessly; None without a proof.

        Raises ``BadProgram`` if the rule has no shapes that are known.
        """
        outcome = self.attempt(rule, effort, among)
        return outcome.used if outcome.attempt is Attempt.PROVED else None

    def attempt(self, rule: Rule, effort: Effort = DEFAULT_EFFORT, among: Collection[str] | None = None) -> Outcome:
        """Look for a proof of ``rule``. Raises ``BadProgram`` if the rule has no shapes that are known."""
        functions = dict(self._functions)
        question = goal(rule, functions)
        self._graph.run("\n".join(["(push)", *self._new(functions), question.program]))
        try:
            return self._saturated(question, effort, among)
        finally:
            self._graph.run("(pop)")

    def _saturated(self, question: Goal, effort: Effort, among: Collection[str] | None) -> Outcome:
        applied: frozenset[str] = frozenset()
        for number in range(effort.rounds + 1):
            if self._graph.holds(question.claims):
                return Outcome(Attempt.PROVED, frozenset(self._axioms[int(name)] for name in applied))
            sizes = self._graph.sizes()
            if number == effort.rounds or sum(sizes.values()) > effort.terms:
                break
            ran = self._round(number, sizes, effort, among)
            applied |= ran.fired
            if not ran.has_news:
                return Outcome(Attempt.SATURATED)
        return Outcome(Attempt.EXHAUSTED)

    def _round(self, number: int, sizes: Mapping[str, int], effort: Effort, among: Collection[str] | None) -> _Ran:
        """Apply each ruleset that can match once; leaving out the others saves most of the time."""
        present = {name for name, count in sizes.items() if count}
        chosen = [
            ruleset
            for (axiom, constructors), ruleset in self._rulesets.items()
            if constructors <= present and (among is None or axiom in among)
        ]
        if sum(sizes.values()) > _MANY:
            terms = self._one_by_one(chosen, effort)
        else:
            self._graph.run(f"(unstable-combined-ruleset round-{number} {' '.join(chosen)})")
            terms = self._graph.run(f"(run round-{number} 1)")
        shapes = self._graph.run("(run-schedule (saturate (run shapes)))")
        return _Ran(terms.has_news or shapes.has_news, terms.fired)

    def _one_by_one(self, rulesets: Sequence[str], effort: Effort) -> _Ran:
        """Apply ``rulesets`` one after the other, until there are too many terms."""
        has_news, fired = False, frozenset[str]()
        for ruleset in rulesets:
            ran = self._graph.run(f"(run {ruleset} 1)")
            has_news, fired = has_news or ran.has_news, fired | ran.fired
            if ran.has_news and sum(self._graph.sizes().values()) > effort.terms:
                break
        return _Ran(has_news, fired)
