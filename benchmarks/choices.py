"""The model's choice of a schedule against the best of many that are measured: `python -m benchmarks.choices`.

For each distinct kernel of the networks: candidates of its space from all strata of the model's estimates, then hill
climbing from the best five, are built and timed in this process. Prints the time of the model's choice as a multiple
of the best one's, and the rank correlation (Spearman's) of estimates and times; last, how many candidates the model
rates per second. One thread; measure on a quiet machine. Needs the zoo's files.
"""

import argparse
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

import numpy as np

import tilewright
from tilewright.base.target import Target
from tilewright.cost.analytic import open_space
from tilewright.cost.model import best, estimate
from tilewright.driver import build_program
from tilewright.kernels.space import Candidate, Choice, Nest, Space
from tilewright.loops.program import Program
from tilewright.runtime.memory import aligned_copy
from tilewright.runtime.model import Executable
from tilewright.schedule.schedule import Schedule

from .networks import NETWORKS, ZOO
from .options import names

SECONDS = 0.004
"""Of timing a candidate, at least; and at least three runs."""
STARTS = 5
"""The best of the first candidates, from which hills are climbed."""
WITHIN = 1.1
"""By how much a choice may be slower than the best one, to count as good."""
Feeds = dict[str, np.ndarray]


@dataclass(slots=True)
class Trials:
    """The measured choices of the nest of a kernel that has most of them; the others are the model's."""

    naive: Program
    target: Target
    space: Space
    feeds: Feeds = field(default_factory=Feeds)
    seconds: dict[Choice, float] = field(default_factory=dict[Choice, float])

    @property
    def nest(self) -> Nest:
        """The one with most choices."""
        return max(self.space.nests, key=lambda nest: len(nest.population()))

    def candidate(self, choice: Choice) -> Candidate:
        """The model's, but for the nest that is tried."""
        chosen = best(self.space, self.target).choices
        return Candidate(tuple(choice if n is self.nest else c for n, c in zip(self.space.nests, chosen, strict=True)))

    def built(self, choice: Choice) -> Executable:
        """The kernel by that choice."""
        s = Schedule(self.naive)
        open_space(s, self.target).apply(s, self.candidate(choice))
        executable = build_program(s.program, self.target, threads=1)
        if not self.feeds:
            self.feeds.update(_feeds(executable))
        return executable

    def measure(self, choice: Choice) -> float:
        """Seconds of the shortest run; a choice is measured once."""
        if choice not in self.seconds:
            self.seconds[choice] = shortest(self.built(choice), self.feeds)
        return self.seconds[choice]


def shortest(executable: Executable, feeds: Feeds) -> float:
    """Seconds of the shortest of some runs, by the clock in the native code."""
    executable.timed_run(feeds)
    found, end = [], time.perf_counter() + SECONDS
    while len(found) < 3 or time.perf_counter() < end:
        found.append(executable.timed_run(feeds)[1][0])
    return min(found)


def _feeds(executable: Executable) -> Feeds:
    random = np.random.default_rng(0)
    shapes = {spec.name: (spec.static_shape, spec.dtype.numpy) for spec in executable.manifest.inputs}
    return {name: aligned_copy(random.uniform(0, 1, shape).astype(dtype)) for name, (shape, dtype) in shapes.items()}


@dataclass(frozen=True, slots=True)
class Verdict:
    """What came out for one kernel."""

    chosen: float
    """The time of the model's choice, as a multiple of the best one's."""
    correlation: float
    best: Choice
    model: Choice
    tried: int


def judge(trials: Trials, count: int) -> Verdict:
    """Measure up to ``count`` candidates; the model's choice and the best one are timed again, in turns."""
    population = trials.nest.population()
    rated = estimate(trials.nest, population, trials.target)
    order = np.argsort(rated, kind="stable")
    model = population[int(np.argmin(rated))]
    trials.measure(model)
    strata = np.array_split(order, min(count // 2, len(order)))
    random = np.random.default_rng(0)
    for stratum in strata:
        trials.measure(population[int(random.choice(stratum))])
    _climb(trials, {population[position] for position in range(len(population))}, count)
    winner = min(trials.seconds, key=trials.seconds.__getitem__)
    pair = [trials.built(choice) for choice in (model, winner)]
    times = np.array([[shortest(executable, trials.feeds) for executable in pair] for _ in range(5)]).min(axis=0)
    estimates = {population[position]: rated[position] for position in range(len(population))}
    correlation = _spearman([estimates[c] for c in trials.seconds], list(trials.seconds.values()))
    return Verdict(max(1.0, float(times[0] / times[1])), correlation, winner, model, len(trials.seconds))


def _climb(trials: Trials, allowed: set[Choice], count: int) -> None:
    """From each of the best few, go to the best neighbour as long as there is a better one."""
    starts = sorted(trials.seconds, key=trials.seconds.__getitem__)[:STARTS]
    for start in starts:
        at = start
        while len(trials.seconds) < count:
            near = [choice for choice in _neighbours(trials.nest, at) if choice in allowed]
            following = min((at, *near[: count - len(trials.seconds) + 1]), key=trials.measure)
            if following == at:
                break
            at = following


def _neighbours(nest: Nest, choice: Choice) -> Iterator[Choice]:
    """Choices in which one knob is a step away."""
    for place, knob in enumerate(nest.knobs):
        position = knob.values.index(choice[place])
        for step in (position - 1, position + 1):
            if 0 <= step < len(knob.values):
                yield (*choice[:place], knob.values[step], *choice[place + 1 :])


def _spearman(a: Sequence[float], b: Sequence[float]) -> float:
    """The correlation of ranks; 1 where there is nothing to rank."""
    ranks = [np.argsort(np.argsort(np.array(values), kind="stable")).astype(np.float64) for values in (a, b)]
    return float(np.corrcoef(*ranks)[0, 1]) if len(a) > 1 else 1.0


def kernels(networks: Sequence[str], zoo: Path, target: Target) -> Iterator[Trials]:
    """The distinct kernels of the networks that have something to choose, and static shapes."""
    seen: set[str] = set()
    for network in networks:
        compiled = tilewright.compile(zoo / f"{network}.onnx", threads=1).compiled
        for kernel in compiled.kernels:
            text = str(kernel.naive).split("(", 1)[1]
            if text not in seen and not kernel.naive.dims:
                seen.add(text)
                space = open_space(Schedule(kernel.naive), target)
                if space.nests and space.size() > 1:
                    yield Trials(kernel.naive, target, space)


def rate(nest: Nest, target: Target) -> float:
    """Candidates that the model rates per second."""
    population = nest.population()
    many = population.repeated(-(-20000 // len(population)))
    start = time.perf_counter()
    estimate(nest, many, target)
    return len(many) / (time.perf_counter() - start)


def main(arguments: Sequence[str] | None = None) -> None:
    """Print a line for each kernel, and the summary."""
    options = _options(arguments)
    target = Target.host()
    verdicts: list[Verdict] = []
    rates: list[float] = []
    every = [t for t in kernels(options.networks, options.zoo, target) if len(t.nest.population()) >= options.least]
    for trials in every[:: options.step]:
        verdict = judge(trials, options.candidates)
        verdicts.append(verdict)
        rates.append(rate(trials.nest, target))
        knobs = ",".join(knob.name for knob in trials.nest.knobs)
        print(
            f"{verdict.chosen:5.2f} of the best of {verdict.tried}, rank correlation {verdict.correlation:5.2f}, "
            f"{min(trials.seconds.values()) * 1e6:8.1f} us, {trials.naive.name}: {knobs} = {verdict.model}, "
            f"best {verdict.best}",
            flush=True,
        )
    good = sum(verdict.chosen <= WITHIN for verdict in verdicts)
    print(f"within 10 % of the best: {good} of {len(verdicts)} kernels")
    print(f"rank correlation: median {median(verdict.correlation for verdict in verdicts):.2f}")
    print(f"candidates rated per second: median {median(rates):.0f}")


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.choices", description="The model against measurements.")
    parser.add_argument("--networks", type=names, default=list(NETWORKS), help=f"default {','.join(NETWORKS)}")
    parser.add_argument("--zoo", type=Path, default=ZOO, help="folder of the zoo, default %(default)s")
    parser.add_argument("--candidates", type=int, default=200, help="measured per kernel at most, default 200")
    parser.add_argument("--step", type=int, default=1, help="measure every so-many-th kernel, default all")
    parser.add_argument("--least", type=int, default=2, help="choices that a kernel has at least, default 2")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    main()
