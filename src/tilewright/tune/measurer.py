"""Measures candidates, and reuses the results in the records.

So a search that proposes the same candidates in the same order resumes an earlier one, however that ended.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Protocol

from tilewright.measure.job import Job
from tilewright.measure.records import Records
from tilewright.measure.row import State
from tilewright.measure.verdicts import Outcome

NOTHING_PREDICTED: Mapping[str, float] = MappingProxyType({})


class Bench(Protocol):
    """The interface of measuring: a ``Pool``, or a ``Runner``."""

    def measure_all(self, jobs: Iterable[Job]) -> Iterator[tuple[Job, Outcome]]:
        """Each job with its outcome, in any order."""
        ...


class Measurer:
    """Measures on ``bench``, and stores each outcome as soon as it is known."""

    def __init__(self, bench: Bench, records: Records, session: int) -> None:
        self.measured = 0
        """Number of jobs without a record."""
        self._bench = bench
        self._records = records
        self._session = session

    def measure(
        self,
        jobs: Iterable[Job],
        predicted: Mapping[str, float] = NOTHING_PREDICTED,
        state: State = State.SEARCHED,
    ) -> list[Outcome]:
        """The outcomes, in the order of the jobs. Raises ``MeasureError`` if they can't be measured at all.

        Jobs are taken when the bench takes them, so that the first are built while others are created. ``predicted``:
        the score of each job by id, read when the job is taken (``Outcome.predicted``); stored in a new record, as is
        ``state``.
        """
        wanted: list[str] = []
        found: dict[str, Outcome | None] = {}

        def missing() -> Iterator[Job]:
            for job in jobs:
                key = job.id
                wanted.append(key)
                if key not in found:  # candidates may have equal schedules
                    found[key] = self._records.find(job)
                    if found[key] is None:
                        yield job

        for job, outcome in self._bench.measure_all(missing()):
            key = job.id
            found[key] = known = replace(outcome, predicted=predicted.get(key))
            self._records.add(self._session, job, known, state)
            self.measured += 1
        return [outcome for key in wanted if (outcome := found[key]) is not None]

    def put(self, job: Job, state: State) -> None:
        """Set the state of the record of ``job``."""
        self._records.put(job, state)
