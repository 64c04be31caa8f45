"""Records that come with the package."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.ship import usable
from tests.measure.jobs import product
from tilewright.base.errors import CorruptRecord
from tilewright.base.events import Event, Warned
from tilewright.loops.parser import parse_program
from tilewright.loops.verify import verify
from tilewright.measure.exchange import read_row
from tilewright.measure.job import Job, target_fingerprint
from tilewright.measure.records import Records
from tilewright.measure.verdicts import Outcome, Verdict
from tilewright.schedule.replay import replay
from tilewright.schedule.schedule import Schedule
from tilewright.schedule.trace import Trace
from tilewright.target.target import Target
from tilewright.tune import recorded as recorded_module
from tilewright.tune.recorded import COMPARING, CONFIRMING, CONFIRMING_AGAIN, recorded, recorded_text
from tilewright.tune.shipped import SHIPPED, Shipped, write

HOST = Target.host()
PROGRAM = product("NAME", 6)
TEXT = recorded_text(PROGRAM)

FILES = sorted(SHIPPED.iterdir()) if SHIPPED.exists() else []


def job(width: int, seed: int, threads: int = 1) -> Job:
    """A schedule of the program."""
    schedule = Schedule(PROGRAM)
    schedule.split("j", (None, width))
    return Job(TEXT, schedule.trace.to_json(), str(HOST), threads, seed)


@contextmanager
def database(path: Path, *times: tuple[Job, float]) -> Iterator[Records]:
    with Records.open(path) as records, records.session({}) as session:
        for measured, microseconds in times:
            records.add(session, measured, Outcome(Verdict.OK, times_us=(microseconds,)))
        yield records


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Of records that are shipped: the best of each program, threads and seed."""
    times = [(job(2, CONFIRMING), 3.0), (job(3, CONFIRMING), 2.0), (job(2, COMPARING), 5.0), (job(2, 0), 1.0)]
    with database(tmp_path / "r.db", *times, (job(2, CONFIRMING, 2), 4.0)) as records:
        found = usable(records, HOST, [1, 2])
    assert [record.outcome.median_us for record in found] == [2.0, 5.0, 4.0]
    write(found, HOST, tmp_path / "shipped")
    return tmp_path / "shipped"


def test_they_are_found_as_those_in_a_database_are(folder: Path, tmp_path: Path) -> None:
    shipped = Shipped.of(HOST, folder)
    with Records.open(tmp_path / "r.db") as records:
        for threads in (1, 2, 3):
            for seed in (CONFIRMING, COMPARING):
                assert shipped.best(TEXT, str(HOST), threads, seed=seed) == records.best(
                    TEXT, str(HOST), threads, seed=seed
                )
                assert shipped.programs(str(HOST), threads, seed=seed) == records.programs(
                    str(HOST), threads, seed=seed
                )
    assert not shipped.best("another program", str(HOST), seed=CONFIRMING)


def test_another_processor_has_none(folder: Path) -> None:
    other = replace(HOST, cores=HOST.cores + 1)
    assert not Shipped.of(other, folder).rows
    assert not Shipped.of(HOST, folder).best(TEXT, str(other), seed=CONFIRMING)
    assert not Shipped.of(HOST, folder).programs(str(other), 1, seed=CONFIRMING)


def test_own_records_come_first(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorded_module, "Shipped", _Elsewhere(folder))
    heard: list[Event] = []
    with recorded(tmp_path / "none.db", HOST, 1, heard.append) as known:
        assert known is not None
        found = known.find(PROGRAM)
        assert found is not None
        assert found.microseconds == 2.0
        assert known.has_ways()
        assert known.microseconds(PROGRAM) == 5.0
    with database(tmp_path / "own.db", (job(2, CONFIRMING), 9.0)):
        pass
    with recorded(tmp_path / "own.db", HOST, 1, heard.append) as known:
        assert known is not None
        found = known.find(PROGRAM)
        assert found is not None
        assert found.microseconds == 9.0
    with recorded(None, HOST, 1, heard.append) as known:
        assert known is None
    assert not heard


def test_damage_is_a_warning(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (path,) = folder.iterdir()
    path.write_bytes(path.read_bytes()[:-30])
    with pytest.raises(CorruptRecord):
        Shipped.of(HOST, folder)
    monkeypatch.setattr(recorded_module, "Shipped", _Elsewhere(folder))
    heard: list[Event] = []
    with recorded(tmp_path / "none.db", HOST, 1, heard.append) as known:
        assert known is None
    assert any(isinstance(event, Warned) and "is not used" in event.text for event in heard)


def test_there_are_some() -> None:
    assert FILES


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_what_comes_with_the_package_can_be_used(path: Path) -> None:
    """Each record: its schedule can be replayed, it is for the processor that the file is for, and nothing failed."""
    records = [read_row(line).record() for line in path.read_bytes().splitlines()]
    keys = {(found.job.program, found.job.threads, found.job.seed) for found in records}
    assert len(keys) == len(records)
    for found in records:
        assert target_fingerprint(found.job.target).startswith(path.stem)
        assert found.outcome.verdict is Verdict.OK
        assert found.job.seed in (CONFIRMING, *CONFIRMING_AGAIN, COMPARING)
        program = parse_program(found.job.program)
        verify(replay(Trace.from_json(found.job.trace), program).program)


class _Elsewhere:
    """``Shipped`` with another folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def of(self, target: Target) -> Shipped:
        return Shipped.of(target, self._folder)
