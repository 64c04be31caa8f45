"""Kernels and models on boards without Python: right results, times of the board, and a verdict for whatever else."""

import signal
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import tilewright
from tests.backend.shipping.networks import lenet, sample
from tests.measure.jobs import HOST, QUICK, job, product
from tilewright.backend.shipping.board import agent_program, board_program
from tilewright.backend.shipping.board_text import STARTING
from tilewright.backend.shipping.interface import Interface
from tilewright.backend.shipping.program_text import MODEL, READING
from tilewright.base.errors import BadInput, MeasureError, Unsupported
from tilewright.measure.agent import Agent, EndedError
from tilewright.measure.agent_trial import check
from tilewright.measure.limits import Limits
from tilewright.measure.runner import Runner
from tilewright.measure.verdicts import Phase, Verdict
from tilewright.runtime.abi import ErrorCode
from tilewright.target.target import Target

BOARD = Path(__file__).parents[1] / "fleet" / "emulated_board.py"
HERE = Target.parse(HOST)


def agent_on(folder: Path, arch: str) -> Path:
    path = folder / f"agent-{arch}"
    path.write_bytes(agent_program(Target.parse(arch)))
    path.chmod(0o755)
    return path


def measuring(agent: Agent, limits: Limits | None = None) -> Runner:
    command = (sys.executable, "-P", "-m", "tilewright.measure.agent_child", f"--agent={agent}")
    return Runner(limits, spares=0, command=command, apart=True)


@pytest.fixture(scope="module")
def native(tmp_path_factory: pytest.TempPathFactory) -> Agent:
    return Agent((str(agent_on(tmp_path_factory.mktemp("agent"), HERE.arch.value)),))


@pytest.fixture(scope="module")
def runner(native: Agent) -> Iterator[Runner]:
    with measuring(native) as made:
        yield made


def test_a_program_gives_the_bits_of_the_model_and_its_time(native: Agent) -> None:
    model = tilewright.compile(lenet(), threads=1)
    interface, program = board_program(model.contents(), between_bytes=1 << 16)
    with native.start(program, interface, 60) as session:
        for seed, calls in ((0, 1), (1, 20)):
            x = sample((1, 1, 28, 28)) + np.float32(seed)
            outputs, seconds = session.call([x], calls)
            for given, wanted in zip(outputs, model(x), strict=True):
                np.testing.assert_array_equal(given, wanted)
            assert 1e-7 < seconds < 10.0


def test_an_arm_board_computes_what_x86_computes(tmp_path: Path) -> None:
    pytest.importorskip("unicorn")
    agent = Agent((sys.executable, str(BOARD), str(agent_on(tmp_path, "aarch64"))))
    x = sample((1, 1, 28, 28))
    interface, program = board_program(tilewright.compile(lenet(), target="aarch64,cortex-a72").contents())
    with agent.start(program, interface, 60) as session:
        found, _ = session.call([x], 2)
        again, _ = session.call([x])
    for given, repeated, wanted in zip(found, again, tilewright.compile(lenet())(x), strict=True):
        np.testing.assert_allclose(given, wanted, atol=1e-5)
        np.testing.assert_array_equal(given, repeated)


def test_a_candidate_is_checked_and_timed(runner: Runner) -> None:
    cold = replace(QUICK, cold=("B",), between_bytes=1 << 20)
    for timing in (QUICK, cold):
        outcome = runner.measure(replace(job("p", 24), timing=timing))
        assert outcome.verdict is Verdict.OK, outcome
        assert len(outcome.times_us) == QUICK.repeats


def test_a_wrong_candidate_is_wrong(runner: Runner) -> None:
    right = str(product("p", 6))
    wrong = replace(job("p", 6), scheduled=right.replace("C[vi, vj] + A", "C[vi, vj] - A"))
    assert wrong.scheduled != right
    assert runner.measure(wrong).verdict is Verdict.WRONG


def test_what_a_board_without_python_does_not_do_is_said(runner: Runner) -> None:
    for wrong, said in (
        (replace(job("p"), threads=2), "one thread"),
        (replace(job("p"), timing=replace(QUICK, simulated="cortex-a72 1")), "here is a board"),
    ):
        with pytest.raises(MeasureError, match=said):
            runner.measure(wrong)


def test_ends_and_silence_are_verdicts(tmp_path: Path) -> None:
    """A board whose first program crashes, to which the second connection breaks, and which then says nothing."""
    (tmp_path / "ends").write_text("exit 139\nexit 255\nexec sleep 1000\n")
    script = f"cd {tmp_path}; line=$(head -n1 ends); sed -i 1d ends; $line"
    with measuring(Agent(("sh", "-c", script)), Limits(run_seconds=1.0)) as runner:
        found = [runner.measure(job("p", size)).verdict for size in (6, 7, 8)]
    assert found == [Verdict.CRASH, Verdict.DEVICE_LOST, Verdict.TIMEOUT]


def test_a_command_that_is_not_there_is_a_lost_device() -> None:
    with pytest.raises(EndedError) as ended:
        Agent(("/nowhere/agent",)).start(b"", Interface("x", (), (), (), (), 0, 0), 1)
    assert ended.value.outcome(Phase.CHECK).verdict is Verdict.DEVICE_LOST


def test_the_board_ends_a_program_that_takes_too_long(native: Agent) -> None:
    interface, program = board_program(tilewright.compile(lenet(), threads=1).contents())
    with native.start(program, interface, 1) as session, pytest.raises(EndedError) as ended:
        session.call([sample((1, 1, 28, 28))], 1 << 60)
    assert ended.value.outcome(Phase.TIME).verdict is Verdict.TIMEOUT


def test_what_is_no_program_is_not_started(native: Agent) -> None:
    interface, _ = board_program(tilewright.compile(lenet(), threads=1).contents())
    with native.start(b"no program", interface, 60) as session, pytest.raises(EndedError) as ended:
        session.call([sample((1, 1, 28, 28))])
    assert ended.value.status == STARTING


@pytest.mark.parametrize(
    ("status", "verdict"),
    [
        (-signal.SIGALRM, Verdict.TIMEOUT),
        (128 + signal.SIGALRM, Verdict.TIMEOUT),
        (-signal.SIGKILL, Verdict.OOM),
        (128 + signal.SIGILL, Verdict.CRASH),
        (MODEL + ErrorCode.INDEX.value, Verdict.WRONG),
        (READING, Verdict.DEVICE_LOST),
        (-signal.SIGHUP, Verdict.DEVICE_LOST),
        (255, Verdict.DEVICE_LOST),
    ],
)
def test_what_a_status_says(status: int, verdict: Verdict) -> None:
    assert EndedError(status, "").outcome(Phase.TIME).verdict is verdict


def test_a_board_is_tried_before_it_is_used(native: Agent) -> None:
    check(native, HERE)
    other = "aarch64" if HERE.arch.value == "x86_64" else "x86_64"
    elsewhere = (native, Target.parse(other), f"no program for {other}")
    for agent, target, said in (elsewhere, (Agent(("false",)), HERE, "lost")):
        with pytest.raises(MeasureError, match=said):
            check(agent, target)
    with pytest.raises(BadInput, match="empty"):
        Agent.parse("")
    with pytest.raises(Unsupported, match="not for wasm32"):
        agent_program(Target.parse("wasm32"))
