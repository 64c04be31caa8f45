"""Times of what can be run again and again, by any clock.

One run is timed as a part of several, so that the clock's ticks do not count; of several such, the median. Two things
take turns: what slows the machine down slows down both, and their ratio stays.
"""

from collections.abc import Callable
from dataclasses import dataclass
from statistics import median

Run = Callable[[], None]
Clock = Callable[[], float]
"""Seconds from any point in time on."""


@dataclass(frozen=True, slots=True)
class Patience:
    """How long to measure: up to ``rounds`` times, none begun after ``budget`` seconds; each ``least`` seconds long."""

    rounds: int
    budget: float
    least: float


def seconds(run: Run, clock: Clock, patience: Patience) -> float:
    """The median time of a run. It runs once before that is measured, so that caches are warm."""
    end = clock() + patience.budget
    runs = _runs(run, clock, patience)
    samples = [_mean(run, runs, clock)]
    while len(samples) < patience.rounds and clock() < end:
        samples.append(_mean(run, runs, clock))
    return median(samples)


def in_turns(first: Run, second: Run, clock: Clock, patience: Patience) -> float:
    """How often the time of ``first`` goes into that of ``second``: the median of rounds, who begins changes.

    The first run of a turn is not counted: it finds the caches full of what the other one left.
    """
    end = clock() + patience.budget
    turns = [_Turn(run, _runs(run, clock, patience), clock) for run in (first, second)]
    ratios: list[float] = []
    while len(ratios) < patience.rounds and (not ratios or clock() < end):
        order = (0, 1) if len(ratios) % 2 == 0 else (1, 0)
        times = {which: turns[which].mean() for which in order}
        ratios.append(times[1] / times[0])
    return median(ratios)


@dataclass(frozen=True, slots=True)
class _Turn:
    """Several runs, one after the other."""

    run: Run
    runs: int
    clock: Clock

    def mean(self) -> float:
        """The mean time of all but the first."""
        self.run()
        return _mean(self.run, self.runs, self.clock)


def _runs(run: Run, clock: Clock, patience: Patience) -> int:
    """How many runs take ``patience.least`` seconds, judged by the second one."""
    run()
    once = _mean(run, 1, clock)
    return max(1, round(patience.least / once))


def _mean(run: Run, runs: int, clock: Clock) -> float:
    """The mean time of a run; the clock may not have ticked."""
    start = clock()
    for _ in range(runs):
        run()
    return max(clock() - start, _TICK) / runs


_TICK = 1e-9
