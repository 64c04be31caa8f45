"""Interleaved measurement: every candidate runs one slot per round, in a fixed order (A B A B ...), for several rounds.

Noise of the machine (clock, neighbours, temperature) changes over seconds and so hits all candidates of a round alike.
Each slot begins with a discarded warm-up. What is reported of a candidate is the median of all its runs; what is
reported of two candidates is the ratio of their slots' medians within a round, as the quartiles over the rounds.
"""

import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

Clock = Callable[[], float]
Item = TypeVar("Item")


class CandidateError(RuntimeError):
    """A candidate can't go on; the text says why."""


@dataclass(frozen=True, slots=True)
class Plan:
    """How long to measure; all times in seconds."""

    rounds: int = 8
    slot: float = 0.4
    warm_up: float = 0.1
    least_runs: int = 3

    def __post_init__(self) -> None:
        if self.rounds < 1 or self.least_runs < 1 or self.slot < 0 or self.warm_up < 0:
            raise ValueError(f"a plan needs at least one round and one run, and no negative time: {self}")


class Candidate(Protocol):
    """Something to time: a callable in this process, or a process of its own."""

    @property
    def name(self) -> str:
        """What the candidate is called in a report."""
        ...

    def run_slot(self, plan: Plan) -> list[float]:
        """Warm up, then run for a slot; the seconds of each run. Raises CandidateError."""
        ...


@dataclass(frozen=True, slots=True)
class Local:
    """A candidate in this process. Not for thread pools that go on spinning: they would disturb the next slot."""

    name: str
    function: Callable[[], object]

    def run_slot(self, plan: Plan) -> list[float]:
        """Warm up, then run for a slot; the seconds of each run."""
        return run_slot(self.function, plan)


@dataclass(frozen=True, slots=True)
class Spread:
    """Quartiles of a sample."""

    low: float
    median: float
    high: float

    def __str__(self) -> str:
        return f"{self.median:.2f} ({self.low:.2f} to {self.high:.2f})"


@dataclass(frozen=True, slots=True)
class Samples:
    """All timed runs of one candidate, slot by slot, in seconds."""

    name: str
    slots: tuple[tuple[float, ...], ...]

    @property
    def runs(self) -> list[float]:
        """All runs, in the order they were made."""
        return [seconds for slot in self.slots for seconds in slot]

    @property
    def median(self) -> float:
        """Median of all runs."""
        return statistics.median(self.runs)

    @property
    def spread(self) -> Spread:
        """Quartiles of all runs."""
        return spread(self.runs)

    @property
    def slot_medians(self) -> list[float]:
        """One median per round."""
        return [statistics.median(slot) for slot in self.slots]


def measure(candidates: Sequence[Candidate], plan: Plan) -> dict[str, Samples]:
    """Run all candidates in turns; samples by name, in the order given.

    Raises ValueError when names collide, CandidateError when a candidate fails.
    """
    samples, failures = measure_survivors(candidates, plan)
    for reason in failures.values():
        raise CandidateError(reason)
    return samples


def measure_survivors(candidates: Sequence[Candidate], plan: Plan) -> tuple[dict[str, Samples], dict[str, str]]:
    """As `measure`, but a candidate that fails leaves the round: also returns the reasons, by name."""
    names = [candidate.name for candidate in candidates]
    if len(set(names)) != len(names):
        raise ValueError(f"candidates need different names: {names}")
    slots: dict[str, list[tuple[float, ...]]] = {name: [] for name in names}
    failures: dict[str, str] = {}
    for candidate in interleave(candidates, plan.rounds):
        if candidate.name in failures:
            continue
        try:
            slots[candidate.name].append(tuple(candidate.run_slot(plan)))
        except CandidateError as error:
            failures[candidate.name] = str(error)
    return {name: Samples(name, tuple(slots[name])) for name in names if name not in failures}, failures


def interleave(items: Sequence[Item], rounds: int) -> Iterator[Item]:
    """A B A B ...: every item once a round."""
    for _ in range(rounds):
        yield from items


def run_slot(function: Callable[[], object], plan: Plan, clock: Clock = time.perf_counter) -> list[float]:
    """Call `function` through the warm-up, discarded, and then through the slot; the seconds of each timed call."""
    _call_until(function, clock() + plan.warm_up, 1, clock)
    return _call_until(function, clock() + plan.slot, plan.least_runs, clock)


def _call_until(function: Callable[[], object], end: float, least: int, clock: Clock) -> list[float]:
    times: list[float] = []
    now = clock()
    while now < end or len(times) < least:
        begin = clock()
        function()
        now = clock()
        times.append(now - begin)
    return times


def ratio(numerator: Samples, denominator: Samples) -> Spread:
    """How many times longer the numerator takes: quartiles, over the rounds, of the ratio of the slots' medians."""
    pairs = zip(numerator.slot_medians, denominator.slot_medians, strict=True)
    return spread([above / below for above, below in pairs])


def spread(values: Sequence[float]) -> Spread:
    """Quartiles (inclusive method) of at least one value."""
    if len(values) == 1:
        return Spread(values[0], values[0], values[0])
    low, median, high = statistics.quantiles(values, n=4, method="inclusive")
    return Spread(low, median, high)
