"""The fault storm, small with every change and large at night."""

from pathlib import Path

import pytest

from tests.measure.storm import KINDS, kill_again_and_again, plan, storm
from tilewright.measure.limits import Limits
from tilewright.measure.verdicts import Verdict

QUICK = Limits(run_seconds=3.0)
PATIENT = Limits(run_seconds=6.0)


def test_the_plan_has_every_fault() -> None:
    names = [planned.job.program.split("__")[0].removeprefix("program ") for planned in plan(100)]
    assert {name: names.count(name) for name in set(names)} == {"mm": 70, **{kind.value: 3 for kind in KINDS}}


def test_a_small_storm(tmp_path: Path) -> None:
    report = storm(tmp_path, 17, QUICK, lanes=2)
    assert report.clean, str(report)
    assert report.verdicts[Verdict.OK] == 12


def test_a_tuner_that_is_killed(tmp_path: Path) -> None:
    kills = kill_again_and_again(tmp_path, 3, 200, QUICK)
    assert kills.acknowledged >= 2
    assert (kills.lost, kills.strays, kills.wrong) == (0, 0, 0), str(kills)


@pytest.mark.slow
def test_the_storm(tmp_path: Path) -> None:
    report = storm(tmp_path, 1000, PATIENT, lanes=2)
    assert report.clean, str(report)


@pytest.mark.slow
def test_a_tuner_that_is_killed_a_hundred_times(tmp_path: Path) -> None:
    kills = kill_again_and_again(tmp_path, 100, 1000, PATIENT)
    assert kills.acknowledged >= 75
    assert (kills.lost, kills.strays, kills.wrong) == (0, 0, 0), str(kills)
