"""Measurements with a memory, and what may be used of them."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

from tests.measure.jobs import HOST, job
from tilewright.loops.parser import parse_program
from tilewright.measure.job import Job
from tilewright.measure.records import Records
from tilewright.measure.row import State
from tilewright.measure.verdicts import Outcome, Verdict
from tilewright.tune.measurer import Measurer

OLD, NEW, LAST, LARGE = job("job"), replace(job("job"), seed=1), replace(job("job"), seed=2), job("large", 8)


class Quick:
    """Everything takes a microsecond."""

    def measure_all(self, jobs: Iterable[Job]) -> Iterator[tuple[Job, Outcome]]:
        for wanted in jobs:
            yield wanted, Outcome(Verdict.OK, times_us=(1.0,))


def test_what_is_measured_is_used_when_it_is_put_to_use(tmp_path: Path) -> None:
    with Records.open(tmp_path / "r.db") as records, records.session({}) as session:
        measurer = Measurer(Quick(), records, session)
        measurer.measure([OLD], state=State.CONFIRMED)
        measurer.measure([OLD, LARGE], state=State.REPEATED)

        def is_used(job: Job) -> bool:
            return bool(records.best(parse_program(job.program), HOST, 1, State.CONFIRMED))

        assert is_used(OLD)  # it was known before
        assert not is_used(LARGE)
        measurer.put(LARGE, State.CONFIRMED)
        assert is_used(LARGE)
        measurer.put(LARGE, State.REPEATED)
        assert not is_used(LARGE)
        assert is_used(OLD)


def test_what_was_thought_is_kept_with_what_was_measured(tmp_path: Path) -> None:
    with Records.open(tmp_path / "r.db") as records, records.session({}) as session:
        outcomes = Measurer(Quick(), records, session).measure([OLD, NEW], {OLD.id: 0.5, NEW.id: -2.0})
        assert [outcome.predicted for outcome in outcomes] == [0.5, -2.0]
        assert [record.outcome.predicted for record in records.all()] == [0.5, -2.0]
        assert Measurer(Quick(), records, session).measure([NEW])[0].predicted == -2.0


def test_jobs_are_made_while_others_are_measured(tmp_path: Path) -> None:
    """And one that is asked for twice, or was measured before, is not measured again."""
    made: list[Job] = []

    def jobs() -> Iterator[Job]:
        for wanted in (OLD, NEW, NEW, LAST):
            made.append(wanted)
            yield wanted

    class Watching(Quick):
        def measure_all(self, jobs: Iterable[Job]) -> Iterator[tuple[Job, Outcome]]:
            for wanted, outcome in super().measure_all(jobs):
                assert made[-1] is wanted
                yield wanted, outcome

    with Records.open(tmp_path / "r.db") as records, records.session({}) as session:
        Measurer(Quick(), records, session).measure([OLD])
        measurer = Measurer(Watching(), records, session)
        assert len(measurer.measure(jobs())) == 4
        assert measurer.measured == 2
