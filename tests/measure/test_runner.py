"""The contract: whatever a candidate does, its verdict is right, and nothing is left of it."""

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest

from tests.measure.faulty_child import Fault
from tests.measure.jobs import EMPTY, HOST, QUICK, job, runner
from tests.measure.storm import MARK, marked
from tilewright.base.errors import MeasureError
from tilewright.measure.job import Job
from tilewright.measure.limits import Limits
from tilewright.measure.processes import children_of
from tilewright.measure.runner import Runner
from tilewright.measure.verdicts import Phase, Verdict

LIMITS = Limits(run_seconds=20.0)
SHORT = Limits(run_seconds=1.5)


@contextmanager
def nothing_left() -> Iterator[None]:
    """No process that is started in here outlives it."""
    token = f"{os.getpid()}-{time.monotonic_ns()}"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(MARK, token)
        yield
    left = marked(token) - {os.getpid()}
    for process in left:
        os.kill(process, signal.SIGKILL)
    assert not left


@pytest.fixture(autouse=True)
def nothing_is_left() -> Iterator[None]:
    """No process that a test has started outlives it."""
    with nothing_left():
        yield


@contextmanager
def started(limits: Limits) -> Iterator[Runner]:
    """A runner for several tests, whose processes are started in here, by a job that sets no deadline for theirs."""
    with nothing_left(), runner(limits) as measuring:
        assert measuring.measure(job("mm", 5)).verdict is Verdict.OK
        yield measuring


@pytest.fixture(scope="module")
def shared() -> Iterator[Runner]:
    """For what needs no runner of its own: starting one takes longer than a measurement."""
    with started(LIMITS) as measuring:
        yield measuring


@pytest.fixture(scope="module")
def impatient() -> Iterator[Runner]:
    """The same, which does not wait for long."""
    with started(SHORT) as measuring:
        yield measuring


def test_a_right_candidate_has_times_and_clocks() -> None:
    with Runner(LIMITS, spares=0) as measuring:
        outcome = measuring.measure(job("mm", 12, threads=2))
        assert measuring.confirm(job("mm", 12)).verdict is Verdict.OK
    assert outcome.verdict is Verdict.OK
    assert outcome.median_us is not None
    assert outcome.median_us > 0
    assert outcome.baseline_us is not None
    assert len(outcome.times_us) == QUICK.repeats
    assert outcome.seconds.keys() == {"queue", *(phase.value for phase in Phase)}
    assert "load" in outcome.machine


@pytest.mark.parametrize(
    ("fault", "verdict", "detail"),
    [
        (Fault.SEGV, Verdict.CRASH, "SIGSEGV"),
        (Fault.ABORT, Verdict.CRASH, "SIGABRT"),
        (Fault.FPE, Verdict.CRASH, "SIGFPE"),
        (Fault.MEMORY, Verdict.OOM, "no memory left"),
        (Fault.GARBAGE, Verdict.PROTOCOL, "at most 65536"),
        (Fault.WRONG, Verdict.WRONG, "C differs from the reference"),
        (Fault.READ_AFTER, Verdict.CRASH, "SIGSEGV"),
        (Fault.READ_BEFORE, Verdict.CRASH, "SIGSEGV"),
        (Fault.WRITE_BESIDE, Verdict.WRONG, "memory beside C"),
        (Fault.UNWRITTEN, Verdict.WRONG, "differs"),
        (Fault.INPUT, Verdict.WRONG, "altered the inputs A"),
        (Fault.EXIT, Verdict.PROTOCOL, "ended with status 0"),
        (Fault.CLOSE, Verdict.PROTOCOL, "closed its connection"),
        (Fault.FORGED, Verdict.PROTOCOL, "1e-300"),
        (Fault.CLAIM, Verdict.PROTOCOL, "can't give the verdict timeout"),
        (Fault.LONG, Verdict.PROTOCOL, "1073741824 bytes"),
        (Fault.OUT_OF_TURN, Verdict.PROTOCOL, "out of turn"),
        (Fault.KILLED, Verdict.OOM, "the system killed it"),
        (Fault.LATE_WRONG, Verdict.WRONG, "differs"),
    ],
)
def test_faults(fault: Fault, verdict: Verdict, detail: str, shared: Runner) -> None:
    outcome = shared.measure(job(f"{fault.value}__0"))
    assert (outcome.verdict, outcome.phase) == (verdict, Phase.CHECK), outcome
    assert detail in outcome.detail


@pytest.mark.parametrize("fault", [Fault.LOOP, Fault.LOCK, Fault.STOP, Fault.SLOW])
def test_what_does_not_end(fault: Fault, impatient: Runner) -> None:
    outcome = impatient.measure(job(f"{fault.value}__0"))
    assert (outcome.verdict, outcome.phase) == (Verdict.TIMEOUT, Phase.CHECK)
    assert SHORT.run_seconds <= outcome.seconds["check"]


def test_a_process_that_is_left_behind() -> None:
    """It has a session of its own and no parent; the fixture looks whether it is gone."""
    with runner(LIMITS) as measuring:
        outcome = measuring.measure(job(f"{Fault.FORK.value}__0"))
    assert (outcome.verdict, outcome.detail) == (Verdict.PROTOCOL, "it left processes behind")


def test_the_deadline_follows_the_best_time() -> None:
    limits = Limits(run_seconds=30, slack_seconds=1)
    assert limits.run_deadline(None) == 30
    assert limits.run_deadline(200_000.0) == pytest.approx(3)
    assert limits.run_deadline(1e9) == 30
    assert limits.run_deadline(200_000.0, check_seconds=2.0) == pytest.approx(9)


@pytest.mark.parametrize(
    ("trace", "detail"),
    [
        ('{"version": 1, "steps": [{"primitive": "melt", "arguments": [], "options": {}, "results": []}]}', "melt"),
        (
            '{"version": 1, "steps": [{"primitive": "split", "arguments": [{"loop": "z"}, [null, 8]],'
            ' "options": {}, "results": []}]}',
            "there is no loop",
        ),
        (
            '{"version": 1, "steps": [{"primitive": "split", "arguments": [], "options": {}, "results": []}]}',
            "is no call of split",
        ),
        ('{"version": 9, "steps": []}', "version"),
    ],
)
def test_schedules_that_can_not_be_built(trace: str, detail: str, shared: Runner) -> None:
    outcome = shared.measure(replace(job("mm"), trace=trace))
    assert (outcome.verdict, outcome.phase) == (Verdict.BUILD_ERROR, Phase.BUILD)
    assert detail in outcome.detail


def test_a_program_that_is_scheduled_already_is_built_as_it_is(shared: Runner) -> None:
    """The trace is not replayed; what the text says is held against the reference like anything else."""
    wanted = replace(job("mm"), trace='{"version": 9, "steps": []}')
    assert shared.measure(replace(wanted, scheduled=wanted.program)).verdict is Verdict.OK
    assert shared.measure(replace(wanted, scheduled="program mm():")).verdict is Verdict.BUILD_ERROR
    other = replace(wanted, scheduled=wanted.program.replace("+ A[", "+ B[vk, vj] * A["))
    assert other.id == wanted.id
    assert shared.measure(other).verdict is Verdict.WRONG


def test_an_innocent_after_a_guilty_one() -> None:
    """A child is not used again after a fault, and a verdict in a used child is repeated in a fresh one."""
    names = ["mm__0", "segv__0", "mm__1", "wrong__0", "mm__2"]
    with runner(LIMITS) as measuring:
        found = [outcome.verdict for _, outcome in measuring.measure_all(map(job, names))]
    wanted = [Verdict.OK, Verdict.CRASH, Verdict.OK, Verdict.WRONG, Verdict.OK]
    assert found == wanted


def test_who_dies_of_anothers_damage_is_measured_again() -> None:
    with runner(LIMITS) as measuring:
        found = [measuring.measure(job(name)).verdict for name in ("aftermath__0", "mm__0", "mm__1")]
    assert found == [Verdict.OK] * 3


def test_several_lanes_answer_for_their_own_jobs() -> None:
    names = [f"{kind}__{i}" for i in range(2) for kind in ("mm", "fork", "wrong")]
    with runner(LIMITS, lanes=2) as measuring:
        found = {
            wanted.program.split("(")[0]: outcome.verdict for wanted, outcome in measuring.measure_all(map(job, names))
        }
    right = {"mm": Verdict.OK, "fork": Verdict.PROTOCOL, "wrong": Verdict.WRONG}
    assert found == {f"program {name}": right[name.partition("__")[0]] for name in names}


def test_children_are_replaced_after_some_uses() -> None:
    with runner(Limits(uses=2)) as measuring:
        assert {outcome.verdict for _, outcome in measuring.measure_all(job(f"mm__{i}") for i in range(3))} == {
            Verdict.OK
        }


def test_spares_are_started_when_a_child_has_ended() -> None:
    """Not before: most searches lose none."""
    others = children_of(os.getpid())  # runners that tests share
    with runner(LIMITS, spares=2) as measuring:
        assert measuring.measure(job("mm__0")).verdict is Verdict.OK
        (supervisor,) = children_of(os.getpid()) - others
        assert len(children_of(supervisor)) == 1
        assert measuring.measure(job("segv__0")).verdict is Verdict.CRASH
        end = time.monotonic() + 60
        while len(children_of(supervisor)) < 3 and time.monotonic() < end:
            time.sleep(0.01)
        assert len(children_of(supervisor)) == 3


def test_a_workload_without_a_reference_is_nobodys_fault() -> None:
    endless = "program p(A: f32[1]) -> (C: f32[1]):\n  for k in range(1099511627776):\n    C[0] = A[0]\n"
    with runner(Limits(prepare_seconds=1.0)) as measuring:
        for program, reason in ((endless, "could not be computed"), ("program", "can't be run as a reference")):
            with pytest.raises(MeasureError, match=reason):
                measuring.measure(Job(program, EMPTY, HOST))
        assert measuring.measure(job("mm")).verdict is Verdict.OK


def test_another_machines_code_is_refused(shared: Runner) -> None:
    with pytest.raises(MeasureError, match="can't be measured here"):
        shared.measure(replace(job("mm"), target="riscv64"))


def test_children_that_can_not_start() -> None:
    with Runner(command=("/bin/false",)) as measuring, pytest.raises(MeasureError, match="children can't start"):
        measuring.measure(job("mm"))


def test_a_lost_supervisor_is_replaced() -> None:
    with runner(LIMITS) as measuring:
        assert measuring.measure(job("mm")).verdict is Verdict.OK
        found = Verdict.OK
        for _, outcome in measuring.measure_all(_killing_the_supervisor()):
            found = outcome.verdict
        assert found is Verdict.DEVICE_LOST
        assert measuring.measure(job("mm")).verdict is Verdict.OK


def _killing_the_supervisor() -> Iterator[Job]:
    """One job, when the supervisor has just died."""
    for process in children_of(os.getpid()) & marked(os.environ[MARK]):
        os.kill(process, signal.SIGKILL)
    yield job("slow__0")


def test_a_caller_that_gives_up_leaves_nothing() -> None:
    measuring = runner(LIMITS)
    for _ in measuring.measure_all(map(job, ["mm__0", "loop__0"])):
        break
    measuring.close()


def test_reference_of_a_large_program_is_compiled(shared: Runner) -> None:
    assert shared.measure(job("mm", 40)).verdict is Verdict.OK
