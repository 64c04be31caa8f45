"""Schedules that were measured before: the best record of a kernel, for who compiles it.

A record is found by the kernel's naive program, whatever it is called, the target and the number of threads. Only
what was *confirmed* counts: measured again, carefully and on other data, beside the model's choice of the same kernel.
"""

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from tilewright.base.errors import TilewrightError
from tilewright.base.events import Listener, Warned
from tilewright.base.target import Target
from tilewright.loops.program import Program
from tilewright.measure.records import Records
from tilewright.schedule.replay import replay
from tilewright.schedule.schedule import Schedule
from tilewright.schedule.trace import Trace

KERNEL = "tuned"
"""What every kernel is called in records: models number theirs."""
SEARCHING, CONFIRMING, CONFIRMING_AGAIN, COMPARING = 0, 1, 2, 3
"""Seeds of the data on which candidates are measured first, and then those that may be used, twice; and of that on
which ways to compute a node are compared, as the compiler schedules their kernels."""


def recorded_text(naive: Program) -> str:
    """The program as records have it."""
    return str(replace(naive, name=KERNEL))


@dataclass(frozen=True, slots=True)
class Tuned:
    """A schedule, and the microseconds that were measured of it."""

    schedule: Schedule
    microseconds: float


class Recorded:
    """The best records for one target and number of threads."""

    def __init__(self, records: Records, target: Target, threads: int, listener: Listener) -> None:
        self._records = records
        self._target = str(target)
        self._threads = threads
        self._listener = listener

    def find(self, naive: Program) -> Tuned | None:
        """The fastest schedule of ``naive`` that was measured. One that can't be used is a warning, and not used."""
        if naive.dims:
            return None  # what is measured has fixed extents
        try:
            for record in self._records.best(recorded_text(naive), self._target, self._threads, seed=CONFIRMING):
                made = replay(Trace.from_json(record.job.trace), naive)
                return Tuned(made, record.outcome.median_us or 0.0)
        except TilewrightError as error:
            self._listener(Warned(f"{naive.name} is scheduled by the model, as its record can't be used: {error}"))
        return None

    def has_ways(self) -> bool:
        """Whether any kernel was measured to compare ways."""
        return bool(self._records.programs(self._target, self._threads, seed=COMPARING))

    def microseconds(self, naive: Program) -> float | None:
        """What ``naive`` took when ways were compared; None if it was not measured."""
        found = self._records.best(recorded_text(naive), self._target, self._threads, seed=COMPARING)
        return found[0].outcome.median_us if found else None


@contextmanager
def recorded(path: Path | None, target: Target, threads: int, listener: Listener) -> Generator[Recorded | None]:
    """The records in ``path``, while they are open; None if there is no file. Trouble with it is a warning."""
    if path is None or not path.exists():
        yield None
        return
    try:
        records = Records.open(path)
    except TilewrightError as error:
        listener(Warned(f"what was tuned before is not used: {error}"))
        yield None
        return
    with records:
        yield Recorded(records, target, threads, listener)


def stamp(path: Path | None) -> str:
    """What changes when records are added to ``path``; empty if there is no file."""
    facts: list[str] = []
    for file in () if path is None else (path, path.with_name(f"{path.name}-wal")):
        if file.exists():
            found = file.stat()
            facts.append(f"{file.name} {found.st_size} {found.st_mtime_ns}")
    return "\n".join(facts)
