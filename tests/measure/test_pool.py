"""Batches: built by several processes, measured by one, with the verdicts of a runner; and nothing is left."""

import os
import signal
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest

from tests.measure.jobs import job
from tilewright.measure.build import Builder, Kept, RefusedError
from tilewright.measure.limits import Limits
from tilewright.measure.pool import Pool
from tilewright.measure.processes import children_of
from tilewright.measure.runner import Runner
from tilewright.measure.verdicts import Phase, Verdict

BAD = '{"version": 9, "steps": []}'


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def test_a_batch(own_folder: Path) -> None:
    wanted = [job("mm", size) for size in range(4, 9)] + [replace(job("mm"), trace=BAD)]
    with Pool(builders=2, batch=4) as pool:
        found = dict(pool.measure_all(wanted))
    assert [found[job].verdict for job in wanted] == [Verdict.OK] * 5 + [Verdict.BUILD_ERROR]
    assert found[wanted[-1]].phase is Phase.BUILD
    assert not [path for path in own_folder.iterdir() if path.name.startswith("tilewright-built-")]


def test_what_is_built_is_taken_and_not_built_again(own_folder: Path) -> None:
    """The image of another schedule is in its place: the trace that is no trace is not looked at."""
    asked = replace(job("mm"), trace=BAD)
    Kept(own_folder).put(asked, Builder(1 << 30).build(job("mm")))
    with Runner(folder=own_folder, spares=0) as runner:
        assert runner.measure(asked).verdict is Verdict.OK
        assert runner.measure(asked).verdict is Verdict.BUILD_ERROR


def test_a_damaged_image_is_built_again(own_folder: Path) -> None:
    asked = job("mm")
    Kept(own_folder).put(asked, Builder(1 << 30).build(asked))
    path = own_folder / asked.id
    path.write_bytes(path.read_bytes()[:-100])
    with Runner(folder=own_folder, spares=0) as runner:
        assert runner.measure(asked).verdict is Verdict.OK


def test_schedules_of_a_program_that_is_none_are_refused() -> None:
    """It has a trace of its own, or came from a file: what primitives make of it may be anything."""
    wanted = job("mm")
    unknown = replace(wanted, program=wanted.program.replace("writes C[vi, vj]", "writes C[vi, 0]"))
    builder = Builder(1 << 30)
    for _ in range(2):  # nor the second time
        with pytest.raises(RefusedError, match="writes"):
            builder.build(unknown)
    assert builder.build(wanted).objects


def test_builders_last_longer_than_those_that_run_candidates() -> None:
    """Nothing that they do can damage them; it takes as long to start one as to build ten candidates."""

    def builders() -> list[int]:
        (supervisor,) = children_of(os.getpid())
        return sorted(children_of(supervisor))

    with Pool(builders=1, limits=Limits(uses=1)) as pool:
        assert [outcome for _, outcome in pool.build_all([job("mm", 4)])] == [None]
        before = builders()
        assert [outcome for _, outcome in pool.build_all([job("mm", size) for size in (5, 6)])] == [None, None]
        assert builders() == before


def test_builders_that_are_killed_lose_their_jobs_only(own_folder: Path) -> None:
    with Pool(builders=1) as pool:
        first = [verdict for _, verdict in pool.build_all([job("mm", 4)])]
        supervisor = children_of(os.getpid())
        for process in supervisor:
            os.kill(process, signal.SIGKILL)
        lost = [outcome for _, outcome in pool.build_all([job("mm", 5)])]
        assert first == [None]
        assert lost[0] is None or lost[0].verdict is Verdict.DEVICE_LOST
