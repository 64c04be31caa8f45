"""Simulated cycles under the contract of measurements: verdicts, and records that are kept apart."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("capstone")
pytest.importorskip("unicorn")

from tests.measure.jobs import QUICK, job, product
from tilewright.base.errors import MeasureError
from tilewright.measure.job import Job
from tilewright.measure.records import Records
from tilewright.measure.row import State
from tilewright.measure.runner import Runner
from tilewright.measure.simulated import simulating
from tilewright.measure.verdicts import Outcome, Verdict
from tilewright.simulation.cores import device_of
from tilewright.target.target import Target

A72 = "aarch64,cortex-a72"
CORE = device_of(Target.parse(A72))


@pytest.fixture(scope="module")
def runner() -> Iterator[Runner]:
    with simulating(spares=0) as made:
        yield made


def simulated(size: int, target: str = A72) -> Job:
    return replace(job("p", size), target=target, timing=replace(QUICK, simulated=CORE))


def test_an_outcome_has_cycles_and_they_are_the_same_again(runner: Runner) -> None:
    first, second = runner.measure(simulated(12)), runner.measure(simulated(12))
    assert (first.verdict, first.times_us, dict(first.machine)) == (
        second.verdict,
        second.times_us,
        dict(second.machine),
    )
    assert first.verdict is Verdict.OK
    assert first.times_us == (first.machine["cycles"] / 1e3,)
    assert first.machine["instructions"] > 12**3 / 4
    assert runner.measure(simulated(24)).times_us[0] > 4 * first.times_us[0]


def test_what_is_not_asked_for_is_not_simulated(runner: Runner) -> None:
    for wrong, said in (
        (replace(simulated(6), timing=QUICK), "not asked for"),
        (simulated(6, "aarch64,cortex-a76"), "not asked for"),
        (simulated(6, "x86_64"), "can't be simulated"),
        (replace(simulated(6), threads=2), "one thread"),
    ):
        with pytest.raises(MeasureError, match=said):
            runner.measure(wrong)


def test_a_schedule_that_does_not_apply_is_refused(runner: Runner) -> None:
    wrong = replace(simulated(6), trace=simulated(6).trace.replace('"j"', '"nothing"'))
    assert runner.measure(wrong).verdict is Verdict.BUILD_ERROR


def test_records_keep_them_apart_and_prefer_what_was_measured(tmp_path: Path) -> None:
    program = product("p", 6)
    timed = replace(job("p"), target=A72)
    cycles = replace(timed, timing=replace(QUICK, simulated=CORE))
    older = replace(timed, timing=replace(QUICK, simulated="cortex-a72 0"))
    assert len({timed.id, cycles.id, older.id}) == 3
    with Records.open(tmp_path / "r.db") as records, records.session({}) as session:
        records.add(session, cycles, Outcome(Verdict.OK, times_us=(1.0,)), State.CONFIRMED)
        assert records.find(timed) is None
        (found,) = records.best(program, A72, 1, State.CONFIRMED)
        assert found.job.timing.simulated == CORE
        records.add(session, timed, Outcome(Verdict.OK, times_us=(5.0,)), State.CONFIRMED)
        first, second = records.best(program, A72, 1, State.CONFIRMED, 2)
        assert (first.job, second.job) == (timed, cycles)
