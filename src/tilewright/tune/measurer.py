"""Measurements with a memory: what has a record is not measured again.

So whoever proposes the same candidates in the same order goes on where an earlier search ended, however that ended.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol

from tilewright.measure.job import Job
from tilewright.measure.records import Records
from tilewright.measure.verdicts import Outcome


class Bench(Protocol):
    """Who measures: a ``Pool``, or a ``Runner``."""

    def measure_all(self, jobs: Iterable[Job]) -> Iterator[tuple[Job, Outcome]]:
        """Each job with its outcome, in any order."""
        ...


class Measurer:
    """Measures on ``bench``, and keeps a record of each outcome as soon as it is known."""

    def __init__(self, bench: Bench, records: Records, session: int) -> None:
        self.measured = 0
        """Jobs that had no record."""
        self._bench = bench
        self._records = records
        self._session = session

    def measure(self, jobs: Sequence[Job]) -> list[Outcome]:
        """The outcomes, in the order of the jobs. Raises ``MeasureError`` if they can't be measured at all."""
        found = {job.id: self._records.find(job) for job in jobs}
        missing = {job.id: job for job in jobs if found[job.id] is None}  # candidates may be scheduled alike
        for job, outcome in self._bench.measure_all(missing.values()):
            self._records.add(self._session, job, outcome)
            self.measured += 1
            found[job.id] = outcome
        return [outcome for job in jobs if (outcome := found[job.id]) is not None]

    def withdraw(self, job: Job, reason: str) -> None:
        """Let nobody use the record of ``job``."""
        self._records.quarantine(job.id, reason)
