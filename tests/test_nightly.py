"""The nightly steps: all run, and a failure is in the exit status."""

import re
from collections.abc import Callable

import pytest

from tests import nightly


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[str]]:
    """``ran("zoo")``: from now on the step of this name fails; the names of steps are listed as they run."""

    def prepare(*failing: str) -> list[str]:
        names: list[str] = []

        def run(step: nightly.Step, seed: int) -> bool:
            assert seed > 20260000
            names.append(step.name)
            return step.name not in failing

        monkeypatch.setattr(nightly, "run", run)
        return names

    return prepare


def test_all_steps_run_when_one_fails(ran: Callable[..., list[str]], capsys: pytest.CaptureFixture[str]) -> None:
    names = ran("zoo")
    assert nightly.main([]) == 1
    assert names == [step.name for step in nightly.STEPS]
    assert re.fullmatch(r"failed with seed 20\d{6}: zoo\n", capsys.readouterr().out)


def test_one_step_alone(ran: Callable[..., list[str]], capsys: pytest.CaptureFixture[str]) -> None:
    names = ran("zoo")
    assert nightly.main(["--only", "other-slow-tests"]) == 0
    assert names == ["other-slow-tests"]
    assert capsys.readouterr().out == "no step failed\n"


def test_every_step_is_there() -> None:
    assert all((nightly.ROOT / step.path).exists() for step in nightly.STEPS)


def test_fresh_draws_take_the_seed() -> None:
    options = {step.name: step.arguments(7) for step in nightly.STEPS}
    assert "--hypothesis-seed=7" in options["fresh-draws"]
    assert f"{7 * nightly.GRAPHS}:{8 * nightly.GRAPHS}" in options["fresh-graphs"]
