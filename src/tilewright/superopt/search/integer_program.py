"""The optimal choice, by a 0/1 program over options, solved by HiGHS (Huangfu and Hall, 2018).

Variable ``x[o]``: whether option ``o`` is taken. Each wanted thing, and each thing that a taken option reads, is made
by a taken option::

    minimize  sum of cost[o] * x[o]
    sum of x[m] for m that make t  >=  1        for each thing t that is wanted
    sum of x[m] for m that make t  >=  x[o]     for each option o, and each t that it reads

This does not forbid cycles. If a solution has a cycle over a set of things ``S``, a cut is added: a reader of ``S``
needs an option that makes a thing in ``S`` and reads nothing in ``S`` (the loop formulas of Lin and Zhao, "ASSAT",
2004). As there may be many cuts, the problem is first solved without options that close cycles; that solution is the
start of the search among all options. Absent bounds are the solver's infinity.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from time import monotonic

from tilewright.base.errors import BadInput
from tilewright.superopt.search.acyclic import Way, components, without_cycles
from tilewright.superopt.search.choices import Plan, Problem, cost_of, makeable, plan_of

_LARGEST = 1e3
"""The largest cost after scaling, as the solver's tolerances are absolute."""


@dataclass(frozen=True, slots=True)
class Cheapest:
    """A plan, and whether it is proven optimal. ``cuts``: number of solutions with cycles."""

    plan: Plan
    is_proven: bool
    cuts: int


@dataclass(frozen=True, slots=True)
class _Row:
    """The constraint that one of ``makers`` is taken if ``reader`` is; always, if ``reader`` is None."""

    makers: tuple[int, ...]
    reader: int | None


@dataclass(frozen=True, slots=True)
class _Answer:
    """The taken options; none if no solution was found in time."""

    taken: tuple[int, ...]
    is_optimal: bool


def cheapest(problem: Problem, start: Plan, seconds: float) -> Cheapest:
    """The cheapest plan; after ``seconds``, the best one found, which costs no more than ``start``.

    Needs the extra ``superopt``. Raises ``BadInput`` if highspy is not installed.
    """
    if not problem.wanted:
        return Cheapest({}, is_proven=True, cuts=0)
    end = monotonic() + seconds
    all_, some = _makers(problem), _makers_without_cycles(problem, start)
    if some != all_:
        start = _solved(problem, some, start, end - seconds / 2).plan
    return _solved(problem, all_, start, end)


_Makers = Mapping[int, Sequence[int]]
"""The options that may make each thing."""


def _makers(problem: Problem) -> _Makers:
    found: dict[int, list[int]] = {}
    for number, option in enumerate(problem.options):
        for thing in option.makes:
            found.setdefault(thing, []).append(number)
    return found


def _makers_without_cycles(problem: Problem, start: Plan) -> _Makers:
    """The options of ``start``, and others that close no cycles, so that no cuts are needed."""
    pairs = dict.fromkeys([*start.items(), *((t, n) for t, numbers in _makers(problem).items() for n in numbers)])
    ways = [Way(str(thing), tuple(map(str, problem.options[number].reads))) for thing, number in pairs]
    _, staying = without_cycles(ways)
    listed = list(pairs)
    kept = {listed[position] for position in staying}
    return {t: [n for n in numbers if (t, n) in kept] for t, numbers in _makers(problem).items()}


def _solved(problem: Problem, makers: _Makers, start: Plan, end: float) -> Cheapest:
    """The cheapest plan with ``makers``."""
    solver = _Solver(problem, start)
    for row in _rows(problem, makers):
        solver.require(row)
    cuts = 0
    while True:
        answer = solver.solve(end - monotonic())
        plan = plan_of(problem, answer.taken)
        if plan is not None or not answer.is_optimal:
            is_better = plan is not None and cost_of(problem, plan) < cost_of(problem, start)
            return Cheapest(plan if plan is not None and is_better else start, answer.is_optimal, cuts)
        cuts += 1
        for row in _cuts(problem, answer.taken):
            solver.require(row)


def _rows(problem: Problem, makers: _Makers) -> Iterator[_Row]:
    for thing in problem.wanted:
        yield _Row(tuple(makers[thing]), None)
    for number, option in enumerate(problem.options):
        for thing in option.reads:
            yield _Row(tuple(makers[thing]), number)


def _cuts(problem: Problem, taken: Sequence[int]) -> Iterator[_Row]:
    """Cuts that exclude a choice of options with cycles."""
    needed = {thing for number in taken for thing in problem.options[number].reads}.union(problem.wanted)
    missing = needed - makeable(problem, taken)
    edges: dict[int, list[int]] = {thing: [] for thing in missing}
    for option in (problem.options[number] for number in taken):
        for thing in missing.intersection(option.makes):
            edges[thing] += missing.intersection(option.reads)
    for circle in map(frozenset, components(edges)):
        if all(circle.issuperset(edges[thing]) for thing in circle):  # else another cycle below it has a cut
            yield from _way_out(problem, circle, taken)


def _way_out(problem: Problem, circle: frozenset[int], taken: Sequence[int]) -> Iterator[_Row]:
    """The cuts of a cycle: a reader of ``circle`` needs an option that makes part of it from other things."""
    ways = tuple(
        number
        for number, option in enumerate(problem.options)
        if not circle.isdisjoint(option.makes) and circle.isdisjoint(option.reads)
    )
    if not circle.isdisjoint(problem.wanted):
        yield _Row(ways, None)
    yield from (_Row(ways, number) for number in taken if not circle.isdisjoint(problem.options[number].reads))


class _Solver:
    """A program of HiGHS. Raises ``BadInput`` if highspy is not installed."""

    def __init__(self, problem: Problem, start: Plan) -> None:
        try:
            from highspy import Highs, HighsSolution, HighsVarType
        except ImportError as error:
            raise BadInput("highspy is not installed: pip install 'tilewright[superopt]'") from error
        self._known = HighsSolution()
        self._known.col_value = [float(number in set(start.values())) for number in range(len(problem.options))]
        self._highs = Highs()
        self._highs.setOptionValue("output_flag", False)
        self._highs.setOptionValue("mip_rel_gap", 0.0)
        scale = _LARGEST / max((option.cost for option in problem.options if option.cost), default=_LARGEST)
        for number, option in enumerate(problem.options):
            self._highs.addCol(option.cost * scale, 0.0, 1.0, 0, [], [])
            self._highs.changeColIntegrality(number, HighsVarType.kInteger)

    def require(self, row: _Row) -> None:
        """Add a constraint."""
        from highspy import kHighsInf

        if row.reader in row.makers:
            return
        numbers = list(row.makers) if row.reader is None else [*row.makers, row.reader]
        factors = [1.0] * len(row.makers) + [-1.0] * (row.reader is not None)
        least = 1.0 if row.reader is None else 0.0
        self._highs.addRow(least, kHighsInf, len(numbers), numbers, factors)

    def solve(self, seconds: float) -> _Answer:
        """Solve, starting from the last solution."""
        from highspy import HighsModelStatus

        self._highs.setOptionValue("time_limit", max(seconds, 0.0))
        self._highs.setSolution(self._known)
        self._highs.run()
        is_optimal = self._highs.getModelStatus() == HighsModelStatus.kOptimal
        values = self._highs.getSolution().col_value
        return _Answer(tuple(number for number, value in enumerate(values) if value > 0.5), is_optimal)
