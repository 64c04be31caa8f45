"""Measures the alternative algorithms and layouts of nodes, and copies between layouts.

``WayTuner`` measures the kernels of all alternatives, as the compiler schedules them. ``times_of`` looks up the times
for ``passes.choose``, which then decides for the whole graph at once, as it does with estimates.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from tilewright.graph import Graph, Node
from tilewright.loops.program import Program
from tilewright.measure.job import Job
from tilewright.measure.records import Records
from tilewright.measure.row import Record, State
from tilewright.passes.alternatives import Facts
from tilewright.passes.alternatives.routes import Route, Step
from tilewright.passes.choose import Choices, Copy, Problem, Times
from tilewright.tune.kernel_tuner import CAREFUL
from tilewright.tune.measurer import Measurer
from tilewright.tune.recorded import COMPARING, named
from tilewright.tune.tasks import copying, form, is_static, nodes_with_routes
from tilewright.tune.untuned import schedule

WORTH_MEASURING = 4.0
"""Alternatives whose estimate exceeds the best one by this factor are not measured."""


def times_of(graph: Graph, facts: Facts, microseconds: Callable[[Program], float | None]) -> Times:
    """Measured times of the alternatives in ``graph``. ``microseconds``: of a kernel, None if it was not measured."""

    def total(route: Route) -> float | None:
        times = [microseconds(kernel) for kernel in route.kernels]
        known = [time for time in times if time is not None]
        return sum(known) if len(known) == len(times) else None

    ways = {
        node.outputs[0]: {route.name: time for route in found if (time := total(route)) is not None}
        for node, found in nodes_with_routes(graph, facts)
    }
    copies = {copy: total(copying(copy, facts.blocks)) for copy in _copies_of(Problem.of(graph, facts))}
    return Times(ways, {copy: time for copy, time in copies.items() if time is not None})


class WayTuner:
    """Measures the alternatives in a graph. Results are used only when they are accepted."""

    def __init__(
        self, choices: Choices, threads: int, between_bytes: int, simulated: str = "", device: str = ""
    ) -> None:
        """``between_bytes``: bytes of weights that a run of the model reads between two runs of a kernel; 0 if all stay
        in the caches; ``simulated``, ``device``: see ``Timing``."""
        self._target = choices.facts.target
        self._threads = threads
        self._between = between_bytes
        self._simulated, self._device = simulated, device
        self.jobs = tuple({job.id: job for job in map(self._job, _steps_of(choices))}.values())

    def measure(self, measurer: Measurer, is_time_left: Callable[[], bool]) -> Iterator[int]:
        """Measure kernels in sequence while there is time; yields the number done."""
        for done, job in enumerate(self.jobs):
            if not is_time_left():
                return
            measurer.measure([job], state=State.REPEATED)
            yield done + 1

    def used(self, records: Records) -> Iterator[Record]:
        """What the compiler would find in ``records`` if the results were accepted."""
        for job in self.jobs:
            outcome = records.find(job)
            if outcome is not None:
                yield Record(job, outcome, State.COMPARED)

    def accept(self, measurer: Measurer) -> None:
        """Accept the results: ``compile`` uses them."""
        for job in self.jobs:
            measurer.put(job, State.COMPARED)

    def _job(self, step: Step) -> Job:
        naive = named(step.naive)
        scheduled = schedule(naive, self._target)
        cold = step.weights if self._between else ()
        between = self._between if cold else 0
        place = replace(CAREFUL, simulated=self._simulated, device=self._device)
        timing = replace(place, cold=cold, between_bytes=between)
        trace = scheduled.trace.to_json()
        return Job(str(naive), trace, str(self._target), self._threads, COMPARING, timing, str(scheduled.program))


def _steps_of(choices: Choices) -> Iterator[Step]:
    """The kernels of all alternatives worth measuring; the most expensive nodes first."""
    graph, facts = choices.graph, choices.facts
    distinct: dict[tuple[object, ...], tuple[Node, Sequence[Route]]] = {}
    for node, found in nodes_with_routes(graph, facts):
        distinct.setdefault(form(node, found), (node, found))
    problem = Problem.of(graph, facts)

    def estimates(node: Node) -> dict[str, float]:
        return {state.way.name: state.way.cycles for state in problem.states[node.outputs[0]]}

    for node, found in sorted(distinct.values(), key=lambda pair: -min(estimates(pair[0]).values())):
        known = estimates(node)
        for route in found:
            if known.get(route.name, 0.0) <= WORTH_MEASURING * min(known.values()):
                yield from route.steps
    for copy in _copies_of(problem):
        yield from copying(copy, facts.blocks).steps


def _copies_of(problem: Problem) -> Iterator[Copy]:
    return (copy for copy in problem.kernels_that_copy() if is_static(copy.value))
