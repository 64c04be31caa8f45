"""The analytic choices against the best of many that are measured: `python -m benchmarks.choices`.

A task is a distinct convolution of the networks, with a route for each of its alternatives (direct or by minimal
filtering, in blocks or plain), or any other distinct kernel, which has one route. Candidates of all routes are built
and measured under the contract of `measure/`: first from all strata of the model's estimates, then hill climbing from
the best five. A route takes as long as its kernels together.

Prints for each task the time of the analytic choice (route and schedules) as a multiple of the best one's, both timed
again in turns, and the rank correlation (Spearman's) of estimates and times; last, how many candidates the model rates
per second. One thread; measure on a quiet machine. Needs the zoo's files.
"""

import argparse
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

import numpy as np

from tilewright.base.settings import Stage
from tilewright.compilation import Compiled, Options, Services
from tilewright.cost.analytic import open_space
from tilewright.cost.model import estimate
from tilewright.driver import compile_graph
from tilewright.frontend.onnx.read.importer import load
from tilewright.graph import Graph
from tilewright.kernels.nests import Nest
from tilewright.loops.program import Program
from tilewright.measure.job import Job, Timing
from tilewright.measure.pool import Pool
from tilewright.measure.verdicts import Outcome, Verdict
from tilewright.passes.alternatives.routes import Route, Step
from tilewright.passes.choose import Choices
from tilewright.schedule.schedule import Schedule
from tilewright.space.space import Digits, Space
from tilewright.target.target import Target
from tilewright.tune.spaces import kernel_space
from tilewright.tune.tasks import Task, nodes_with_routes
from tilewright.tune.tasks import tasks as open_tasks

from .networks import NETWORKS, ZOO
from .options import names

STARTS = 5
"""The best of the first candidates, from which hills are climbed."""
WITHIN = 1.1
"""By how much a choice may be slower than the best one, to count as good."""
QUICK = Timing(repeats=3, least_seconds=0.002)
CAREFUL = Timing(repeats=5, least_seconds=0.004)
TURNS = 3
"""Of the choice and the best one, when they are timed again."""
SAMPLED = 4096
"""Candidates that strata are made of, where the space has more."""
Key = tuple[int, ...]


@dataclass(slots=True)
class Trials:
    """The candidates of one kernel that were measured."""

    space: Space
    seconds: dict[Key, float] = field(default_factory=dict[Key, float])

    @property
    def analytic(self) -> Key:
        return _key(self.space.analytic())

    @property
    def best(self) -> Key:
        return min(self.seconds, key=self.seconds.__getitem__)

    def job(self, key: Key, timing: Timing) -> Job:
        """The measurement of one candidate."""
        trace = self.space.schedule(np.array(key)).trace.to_json()
        return Job(str(self.space.naive), trace, str(self.space.target), timing=timing)

    def measure(self, keys: Sequence[Key], pool: Pool) -> None:
        """Time candidates. Raises `RuntimeError` for one that is not right: that is a fault of the compiler."""
        wanted = {key: self.job(key, QUICK) for key in dict.fromkeys(keys) if key not in self.seconds}
        found = {job.id: outcome for job, outcome in pool.measure_all(wanted.values())}
        self.seconds.update((key, _seconds(found[job.id], job)) for key, job in wanted.items())

    def correlation(self) -> float:
        """Of the model's estimates and the times, by ranks; 1 where there is nothing to rank."""
        if len(self.seconds) < 2:
            return 1.0
        columns = [self.space.estimates(np.array(list(self.seconds))), np.array(list(self.seconds.values()))]
        ranks = [np.argsort(np.argsort(column, kind="stable")).astype(np.float64) for column in columns]
        return float(np.corrcoef(*ranks)[0, 1])


def _key(digits: Digits) -> Key:
    return tuple(int(digit) for digit in digits)


def _seconds(outcome: Outcome, job: Job) -> float:
    if outcome.median_us is None:
        raise RuntimeError(f"{outcome.verdict.value}: {outcome.detail}\n{job.program}\n{job.trace}")
    return min(outcome.times_us) * 1e-6


def explore(trials: Trials, count: int, pool: Pool) -> None:
    """Measure up to `count` candidates: the model's, some of all strata, then neighbours of the best."""
    first = [trials.analytic, *_strata(trials.space, count // 2)]
    trials.measure(first, pool)
    while len(trials.seconds) < count:
        starts = sorted(trials.seconds, key=trials.seconds.__getitem__)[:STARTS]
        near = [key for start in starts for key in _neighbours(trials.space, start) if key not in trials.seconds]
        if not near:
            break
        trials.measure(near[: count - len(trials.seconds)], pool)


def _strata(space: Space, count: int) -> Iterator[Key]:
    """One candidate at random from each of `count` strata of the model's estimates."""
    random = np.random.default_rng(0)
    size = int(np.prod(space.radices))
    indices = np.arange(size) if size <= SAMPLED else random.integers(0, size, SAMPLED)
    digits = np.stack(np.unravel_index(indices, space.radices), axis=1)
    digits = digits[space.allowed(digits)]
    order = np.argsort(space.estimates(digits), kind="stable")
    for stratum in np.array_split(order, min(count, len(order))):
        yield _key(digits[int(random.choice(stratum))])


def _neighbours(space: Space, at: Key) -> list[Key]:
    """Candidates in which one knob is a step away."""
    radices = space.radices
    steps = [(place, at[place] + by) for place in range(len(at)) for by in (-1, 1)]
    near = [(*at[:place], digit, *at[place + 1 :]) for place, digit in steps if 0 <= digit < radices[place]]
    return [key for key, allowed in zip(near, space.allowed(np.array(near)), strict=True) if allowed] if near else []


@dataclass(frozen=True, slots=True)
class Verdicts:
    """What came out for one task."""

    chosen: float
    """The time of the analytic choice, as a multiple of the best one's."""
    correlation: float
    """The median of its kernels'."""
    tried: int
    best: Route
    microseconds: float


class Judge:
    """Measures tasks; kernels that several of them have are measured once."""

    def __init__(self, target: Target, pool: Pool, count: int) -> None:
        self._target = target
        self._pool = pool
        self._count = count
        self._known: dict[str, Trials] = {}

    def judge(self, task: Task) -> Verdicts:
        """Measure up to so many candidates of a task, of all its routes."""
        routes = [[self._trials(kernel, len(task.routes)) for kernel in route.kernels] for route in task.routes]
        times = [sum(min(trials.seconds.values()) for trials in route) for route in routes]
        best = int(np.argmin(times))
        chosen = [(trials, trials.analytic) for trials in routes[0]]
        winner = [(trials, trials.best) for trials in routes[best]]
        ratio = self._ratio(chosen, winner) if chosen != winner else 1.0
        every = [trials for route in routes for trials in route]
        correlation = median(trials.correlation() for trials in every)
        tried = sum(len(trials.seconds) for trials in every)
        return Verdicts(max(1.0, ratio), correlation, tried, task.routes[best], times[best] * 1e6)

    def _trials(self, kernel: Program, routes: int) -> Trials:
        text = str(kernel)
        if text not in self._known:
            self._known[text] = Trials(kernel_space(kernel, self._target))
            explore(self._known[text], self._count // routes, self._pool)
        return self._known[text]

    def _ratio(self, chosen: Sequence[tuple[Trials, Key]], winner: Sequence[tuple[Trials, Key]]) -> float:
        """How the times of two compare, in turns."""
        totals = [[self._total(side) for side in (chosen, winner)] for _ in range(TURNS)]
        first, second = np.array(totals).min(axis=0)
        return float(first / second)

    def _total(self, kernels: Sequence[tuple[Trials, Key]]) -> float:
        jobs = {trials.job(key, CAREFUL).id: trials.job(key, CAREFUL) for trials, key in kernels}
        found = {job.id: _seconds(outcome, job) for job, outcome in self._pool.measure_all(jobs.values())}
        return sum(found[trials.job(key, CAREFUL).id] for trials, key in kernels)


def tasks(networks: Sequence[str], zoo: Path, target: Target) -> Iterator[tuple[str, Task]]:
    """The distinct tasks of networks that have static shapes and something to choose, with the network's name."""
    seen: set[tuple[str, ...]] = set()
    for network in networks:
        made, choices = compiled(load(zoo / f"{network}.onnx"), target)
        for task in (*open_tasks(choices), *_others(made, choices)):
            key = tuple(str(kernel) for route in task.routes for kernel in route.kernels)
            kernels = [kernel for route in task.routes for kernel in route.kernels]
            if key not in seen and not any(kernel.dims for kernel in kernels) and _is_open(task, target):
                seen.add(key)
                yield network, task


def _is_open(task: Task, target: Target) -> bool:
    return len(task.routes) > 1 or int(np.prod(kernel_space(task.routes[0].kernels[0], target).radices)) > 1


def compiled(graph: Graph, target: Target) -> tuple[Compiled, Choices]:
    """A graph compiled for one thread, and what was chosen for it."""
    found: list[Choices] = []

    def note(stage: Stage, made: object) -> None:
        if stage is Stage.CHOOSE and isinstance(made, Choices):
            found.append(made)

    made = compile_graph(graph, Options(target, threads=1), Services(watch=note))
    return made, found[-1]


def _others(made: Compiled, choices: Choices) -> Iterator[Task]:
    """The kernels that have nothing of what can be computed in several ways."""
    known = {node.source for node, _ in nodes_with_routes(choices.graph, choices.facts)}
    for kernel in made.kernels:
        if not known & {node.source for group in kernel.groups for node in group.nodes}:
            yield Task(
                kernel.naive.name, (Route("as it is", (Step(kernel.naive, kernel.constants),)),), len(kernel.groups)
            )


def rate(nest: Nest, target: Target) -> float:
    """Candidates that the model rates per second."""
    population = nest.population()
    many = population.repeated(-(-20000 // len(population)))
    start = time.perf_counter()
    estimate(nest, many, target)
    return len(many) / (time.perf_counter() - start)


def main(arguments: Sequence[str] | None = None) -> None:
    """Print a line for each task, and the summary."""
    options = _options(arguments)
    target = Target.host()
    verdicts: list[Verdicts] = []
    rates: list[float] = []
    every = list(tasks(options.networks, options.zoo, target))[options.start :: options.step]
    with Pool(builders=options.builders) as pool:
        judge = Judge(target, pool, options.candidates)
        for network, task in every:
            verdict = judge.judge(task)
            verdicts.append(verdict)
            rates.extend(rate(n, target) for k in task.routes[0].kernels for n in open_space(Schedule(k), target).nests)
            print(
                f"{verdict.chosen:5.2f} of the best of {verdict.tried}, rank correlation {verdict.correlation:5.2f}, "
                f"{verdict.microseconds:8.1f} us, {network} {task.name}: {task.routes[0].name}"
                f"{'' if verdict.best == task.routes[0] else f', best {verdict.best.name}'}",
                flush=True,
            )
    good = sum(verdict.chosen <= WITHIN for verdict in verdicts)
    print(f"within 10 % of the best: {good} of {len(verdicts)} tasks ({good / len(verdicts):.0%})")
    print(f"candidates: {sum(verdict.tried for verdict in verdicts)}, all {Verdict.OK.value}")
    print(f"rank correlation: median {median(verdict.correlation for verdict in verdicts):.2f}")
    print(f"candidates rated per second: median {median(rates):.0f}")


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.choices", description="The model against measurements.")
    parser.add_argument("--networks", type=names, default=list(NETWORKS), help=f"default {','.join(NETWORKS)}")
    parser.add_argument("--zoo", type=Path, default=ZOO, help="folder of the zoo, default %(default)s")
    parser.add_argument("--candidates", type=int, default=200, help="measured per task at most, default 200")
    parser.add_argument("--step", type=int, default=1, help="measure every so-many-th task, default all")
    parser.add_argument("--start", type=int, default=0, help="the first task that is measured, default 0")
    parser.add_argument("--builders", type=int, default=2, help="candidates that are built at once, default 2")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    main()
