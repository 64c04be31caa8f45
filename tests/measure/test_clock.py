"""Times that count: steady ones."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.measure.jobs import EMPTY, HOST, product
from tilewright.base.dtypes import bf16, boolean, f32, i8
from tilewright.measure.build import image_of
from tilewright.measure.candidate import Bench
from tilewright.measure.clock import Clock, Timed, Times, steadiest
from tilewright.measure.guard import PATTERN, Guarded, Side, poison
from tilewright.measure.job import Job, Timing
from tilewright.measure.limits import Limits
from tilewright.measure.machine import machine_state
from tilewright.measure.messages import Said, Unmeasurable
from tilewright.measure.requests import Request
from tilewright.measure.verdicts import Outcome, Verdict
from tilewright.measure.workload import draw, tolerance
from tilewright.runtime.native import NativeExecutable
from tilewright.target.target import Target


def attempts(*drifts: float) -> tuple[Callable[[float], Times], list[float]]:
    """What makes attempts with these drifts, and those that were made."""
    made = list[float]()

    def attempt(left: float) -> Times:
        made.append(left)
        return Times((float(len(made)),), 1.0, drifts[len(made) - 1])

    return attempt, made


@pytest.mark.parametrize(
    ("drifts", "chosen", "tried"),
    [((0.04,), 1.0, 1), ((0.06, 0.01), 2.0, 2), ((0.3, 0.2, 0.25), 2.0, 3), ((0.2, 0.3, 0.05), 3.0, 3)],
)
def test_a_machine_that_changes_is_measured_again(drifts: tuple[float, ...], chosen: float, tried: int) -> None:
    attempt, made = attempts(*drifts)
    assert steadiest(attempt, 1000.0).times_us == (chosen,)
    assert len(made) == tried


def test_no_attempt_is_begun_when_the_time_is_over() -> None:
    attempt, made = attempts(0.9, 0.9)
    steadiest(attempt, 0.0)
    assert len(made) == 1


def test_a_candidate_beside_the_baseline() -> None:
    program = product("mm", 8)
    candidate = Timed(image_of(program, Target.host()).executable(1), draw(program, 0))
    times = Clock(Target.host()).time(candidate, Timing(4, 0.0001), 30.0)
    assert len(times.times_us) == 4
    assert min(*times.times_us, times.baseline_us) > 0
    assert len(candidate.sample(Timing(4, 0.0001), 0.0)) == 1


def test_a_run_that_is_as_long_as_a_repeat_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """After the first run, which brings all into the caches, none is wasted; short ones are counted first."""
    candidate = Timed(image_of(product("mm", 8), Target.host()).executable(1), draw(product("mm", 8), 0))
    asked: list[int] = []

    def noted(_: Timed, runs: int) -> float:
        asked.append(runs)
        return float(len(asked))

    monkeypatch.setattr(Timed, "_mean_us", noted)
    assert candidate.sample(Timing(3, 0.0), 30.0) == (2.0, 3.0, 4.0)
    assert asked == [1, 1, 1, 1]
    asked.clear()
    assert candidate.sample(Timing(3, 1.0), 30.0) == (3.0, 4.0, 5.0)
    assert asked[:2] == [1, 1]
    assert min(asked[2:]) > 1


def test_a_hopeless_candidate_is_timed_once_when_two_warm_runs_say_so(monkeypatch: pytest.MonkeyPatch) -> None:
    candidate = Timed(image_of(product("mm", 8), Target.host()).executable(1), draw(product("mm", 8), 0))
    times = iter([90.0, 30.0, 31.0, 32.0, 90.0, 900.0, 30.0, 31.0, 32.0, 90.0, 51.0, 50.0])
    monkeypatch.setattr(Timed, "_mean_us", lambda *_: next(times))
    assert candidate.sample(Timing(3, 0.0), 30.0, hopeless_us=40.0) == (30.0, 31.0, 32.0)
    assert candidate.sample(Timing(3, 0.0), 30.0, hopeless_us=40.0) == (30.0, 31.0, 32.0), "an interrupted run"
    assert candidate.sample(Timing(3, 0.0), 30.0, hopeless_us=40.0) == (50.0,)
    attempt, made = attempts(0.9, 0.9)
    assert steadiest(attempt, 1000.0, hopeless_us=0.5).times_us == (1.0,)
    assert len(made) == 1


def test_who_is_hopeless() -> None:
    job = Job(str(product("mm", 8)), EMPTY, HOST, timing=Timing(hopeless=2.0))
    assert Request(0, job, 1.0, best_us=30.0).hopeless_us == 60.0
    assert Request(0, job, 1.0).hopeless_us == float("inf"), "nothing is known"
    assert Request(0, replace(job, timing=Timing()), 1.0, best_us=30.0).hopeless_us == float("inf")


def test_runs_have_cold_inputs_in_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    program = product("mm", 64)
    job = Job(str(program), EMPTY, HOST, timing=Timing(3, 1e-5, ("B",), 3 * 64 * 64 * 4))
    used: list[tuple[int, int]] = []
    timed_run = NativeExecutable.timed_run

    def noted(self: NativeExecutable, feeds: dict[str, np.ndarray], *others: object, **named: int) -> object:
        if "A" in feeds and feeds["A"].shape == (64, 64):
            used.append((feeds["A"].ctypes.data, feeds["B"].ctypes.data))
        return timed_run(self, feeds, *others, **named)

    monkeypatch.setattr(NativeExecutable, "timed_run", noted)
    said: list[Said] = []
    Bench(Limits()).measure(Request(0, job, 30.0), said.append)
    assert isinstance(said[-1], Outcome)
    assert said[-1].verdict is Verdict.OK
    assert len({a for a, _ in used}) == 1
    assert len({b for _, b in used}) == 4
    assert all(b == used[place % 4][1] for place, (_, b) in enumerate(used))


def test_what_shall_be_cold_is_an_input() -> None:
    job = Job(str(product("mm", 4)), EMPTY, HOST, timing=Timing(1, 1e-5, ("C", "D"), 1 << 20))
    said: list[Said] = []
    Bench(Limits()).measure(Request(0, job, 30.0), said.append)
    assert isinstance(said[-1], Unmeasurable)
    assert "C, D shall be cold" in said[-1].reason


def test_the_machine_is_read_where_it_tells(tmp_path: Path) -> None:
    file = tmp_path / "devices/system/cpu/cpu0/cpufreq/scaling_cur_freq"
    file.parent.mkdir(parents=True)
    file.write_text("3400000\n")
    found = machine_state(tmp_path)
    assert found["mhz"] == 3400
    assert found.keys() == {"load", "mhz"}


@pytest.mark.parametrize("side", Side)
@pytest.mark.parametrize("shape", [(3, 5), (4096,), (), (0, 7)])
def test_arrays_between_guard_pages(side: Side, shape: tuple[int, ...]) -> None:
    made = Guarded(shape, f32, side)
    assert made.array.shape == shape
    assert made.array.flags.c_contiguous
    assert made.array.flags.aligned
    assert made.array.ctypes.data % 4096 == 0 or side is Side.RIGHT
    assert (made.array.ctypes.data + made.array.nbytes) % 4096 == 0 or side is Side.LEFT
    made.array[...] = 1
    assert made.untouched()


def test_poison_is_no_result() -> None:
    for dtype in (f32, bf16):
        array = np.zeros(3, dtype.numpy)
        poison(array)
        assert np.isnan(array.astype(np.float64)).all()
    for dtype in (i8, boolean):
        array = np.zeros(3, dtype.numpy)
        poison(array)
        assert (array.view(np.uint8) == PATTERN).all()


def test_a_single_number_is_poisoned_too() -> None:
    number = np.array(7, np.int32)
    poison(number)
    assert number != 7


def test_integers_are_exact() -> None:
    assert tolerance(i8) == 0
    assert tolerance(boolean) == 0
    assert 0 < tolerance(f32) < tolerance(bf16)
