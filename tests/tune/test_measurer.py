"""Measurements with a memory, and what may be used of them."""

from collections.abc import Iterable, Iterator
from pathlib import Path

from tests.measure.jobs import HOST, job
from tilewright.measure.job import Job
from tilewright.measure.records import Records
from tilewright.measure.verdicts import Outcome, Verdict
from tilewright.tune.measurer import Measurer

OLD, NEW = job("old"), job("new")


class Quick:
    """Everything takes a microsecond."""

    def measure_all(self, jobs: Iterable[Job]) -> Iterator[tuple[Job, Outcome]]:
        for wanted in jobs:
            yield wanted, Outcome(Verdict.OK, times_us=(1.0,))


def test_what_is_held_is_used_when_it_is_released(tmp_path: Path) -> None:
    with Records.open(tmp_path / "r.db") as records, records.session({}) as session:
        measurer = Measurer(Quick(), records, session)
        measurer.measure([OLD])
        measurer.hold([OLD, NEW])
        measurer.measure([OLD, NEW])
        assert records.best(OLD.program, HOST)  # it was known before
        assert not records.best(NEW.program, HOST)
        measurer.release(NEW)
        assert records.best(NEW.program, HOST)
        measurer.withdraw(NEW, "slower")
        assert not records.best(NEW.program, HOST)


def test_what_was_thought_is_kept_with_what_was_measured(tmp_path: Path) -> None:
    with Records.open(tmp_path / "r.db") as records, records.session({}) as session:
        outcomes = Measurer(Quick(), records, session).measure([OLD, NEW], [0.5, -2.0])
        assert [outcome.predicted for outcome in outcomes] == [0.5, -2.0]
        assert [record.outcome.predicted for record in records.all()] == [0.5, -2.0]
        assert Measurer(Quick(), records, session).measure([NEW])[0].predicted == -2.0
