"""Measures candidates of all tasks for some minutes, evenly, so that any time is a good one to stop.

The next batch is of the task that took least time so far, so small kernels have more candidates. The first batch of a
task is small and random, of templates and sketches: half of these take fifty times as long as the best. Later, three of
four are children of the fastest that were measured. What was measured is in the database at once, and a run that is
repeated goes on where it was. A candidate that takes three times as long as the best of its task is timed once.
"""

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from tilewright.base.errors import ScheduleError
from tilewright.measure.job import Job, Timing
from tilewright.measure.limits import Limits
from tilewright.measure.pool import Pool
from tilewright.measure.records import Records
from tilewright.measure.row import Record
from tilewright.space.space import Candidates, Digits
from tilewright.tune.measurer import Measurer

from .tasks import Task, tasks

TIMING = Timing(repeats=5, least_seconds=0.0005, hopeless=3.0)
LIMITS = Limits(run_seconds=5.0, slack_seconds=0.5)
FIRST, BATCH = 16, 48
"""Candidates of the first batch of a task, and of others."""
FASTEST = 0.2
"""The part of what was measured that may be parents."""
RANDOM = 4
"""One of so many candidates is random, once there are parents."""
MUTATION = 0.85
TRIES = 4
"""Times as many candidates as are wanted are drawn at most: some are not allowed, or known."""


@dataclass(slots=True)
class Progress:
    """What was measured of a task: candidates, and microseconds, infinity for failures."""

    task: Task
    space: Candidates
    seconds: float = 0.0
    known: dict[bytes, tuple[Digits, float]] = field(default_factory=dict[bytes, tuple[Digits, float]])

    def add(self, digits: Digits, microseconds: float) -> None:
        """One candidate."""
        self.known[digits.tobytes()] = digits, microseconds

    def parents(self) -> list[Digits]:
        """The fastest ones."""
        right = sorted((us, key) for key, (_, us) in self.known.items() if np.isfinite(us))
        return [self.known[key][0] for _, key in right[: max(2, int(FASTEST * len(right)))]]


def record(path: Path, minutes: float, most: int | None = None) -> int:
    """Measure for ``minutes``, or ``most`` candidates; returns how many records there are then."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with (
        Records.open(path) as records,
        records.session({"benchmark": "cost_model"}) as session,
        Pool(builders=2, limits=LIMITS) as pool,
    ):
        measurer = Measurer(pool, records, session)
        begun = {task.key: Progress(task, space) for task in tasks() if (space := task.space()) is not None}
        for known in records.all():
            _remember(begun, known)
        everything = sorted(begun.values(), key=lambda one: one.task.iterations)
        end, start = time.monotonic() + 60 * minutes, time.monotonic()
        while time.monotonic() < end and (most is None or measurer.measured < most):
            progress = min(everything, key=lambda one: one.seconds)
            if progress.seconds == np.inf:
                break  # nothing is left of any task
            begin = time.monotonic()
            is_left = _measure(progress, measurer)
            progress.seconds += time.monotonic() - begin if is_left else np.inf
            rate = measurer.measured / (time.monotonic() - start)
            best = min((us for _, us in progress.known.values()), default=np.inf)
            print(f"{measurer.measured} ({rate:.1f} a second): {progress.task.name}, best {best:.1f} us", flush=True)
        return sum(len(progress.known) for progress in everything)


def _remember(begun: dict[str, Progress], known: Record) -> None:
    """A record of an earlier run. How long it took is kept by phase."""
    progress = begun.get(known.job.workload)
    if progress is not None and known.job.digits:
        us = known.outcome.times_us
        progress.add(np.array(known.job.digits, np.int64), min(us) if known.outcome.median_us is not None else np.inf)
        progress.seconds += sum(known.outcome.seconds.values())


def _measure(progress: Progress, measurer: Measurer) -> bool:
    """One batch; whether there was anything new to measure."""
    random = np.random.default_rng(len(progress.known))
    batch: list[Digits] = []

    def jobs() -> Iterator[Job]:
        for digits in _drawn(progress, random):
            try:
                scheduled = progress.space.schedule(digits)
            except ScheduleError:
                progress.add(digits, np.inf)
                continue
            batch.append(digits)
            yield Job(
                str(progress.task.naive),
                scheduled.trace.to_json(),
                str(progress.space.target),
                timing=TIMING,
                scheduled=str(scheduled.program),
                digits=tuple(digits.tolist()),
            )

    outcomes = measurer.measure(jobs())
    for digits, outcome in zip(batch, outcomes, strict=True):
        progress.add(digits, min(outcome.times_us) if outcome.median_us is not None else np.inf)
    return bool(batch)


def _drawn(progress: Progress, random: np.random.Generator) -> Iterator[Digits]:
    """A batch of candidates that are allowed and not known; the compiler's choice is the first of all."""
    space, parents, found = progress.space, progress.parents(), 0
    wanted = BATCH if progress.known else FIRST
    if not progress.known and (first := space.analytic()) is not None:
        yield first
    for _ in range(TRIES * wanted):
        digits = (
            space.sample(1, random)[0] if len(parents) < 2 or found % RANDOM == 0 else _child(space, parents, random)
        )
        if digits.tobytes() not in progress.known and space.allowed(digits[None])[0]:
            found += 1
            yield digits
        if found == wanted:
            return


def _child(space: Candidates, parents: list[Digits], random: np.random.Generator) -> Digits:
    first, second = random.integers(0, len(parents), 2).tolist()
    if random.random() < MUTATION:
        return space.vary(parents[first], random)
    return space.cross(parents[first], parents[second], random)
