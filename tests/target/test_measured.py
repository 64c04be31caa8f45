"""Measured figures: kept for this user and this processor, and used by the host alone."""

import json
import stat
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilewright.base.errors import BadInput
from tilewright.base.events import Recorder
from tilewright.base.host import detect
from tilewright.base.settings import Settings
from tilewright.target.machine import FIGURES, MEASURED, Machine, rounded, with_measured
from tilewright.target.measured import read_figures, write_figures
from tilewright.target.target import Target

NAME = "Test CPU (znver5)"


def test_they_are_read_back_and_nobody_else_sees_them(tmp_path: Path) -> None:
    path, recorder = tmp_path / "own/machine.json", Recorder()
    figures = {"fma_latency": 3.0, "region_cycles": 1700.0, "look_ahead": 99}
    write_figures(path, NAME, figures)
    assert read_figures(path, NAME, recorder) == figures
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert [each.name for each in path.parent.iterdir()] == ["machine.json"]
    assert not recorder.events


def test_without_a_file_nothing_is_said(tmp_path: Path) -> None:
    recorder = Recorder()
    assert read_figures(None, NAME, recorder) == read_figures(tmp_path / "none", NAME, recorder) == {}
    assert not recorder.events


GOOD = {"form": 1, "processor": NAME, "figures": {"near_bytes": 20.0}}


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("", "Expecting value"),
        ("[1]", "expected an object, found list"),
        ("[" * 60_000, "recursion"),
        ("9" * 5000, "digits"),
        (json.dumps({**GOOD, "form": 2}), "no file of figures"),
        (json.dumps({**GOOD, "processor": None}), "expected a text"),
        (json.dumps({**GOOD, "processor": "Other"}), "they are of 'Other', and this is 'Test CPU"),
        (json.dumps({**GOOD, "figures": [3]}), "expected an object"),
        (json.dumps({**GOOD, "figures": {"far_byte": 3}}), "no figure 'far_byte'"),
        (json.dumps({**GOOD, "figures": {"far_bytes": 0}}), "far_bytes must be above 0"),
        (json.dumps({**GOOD, "figures": {"far_bytes": float("nan")}}), "far_bytes must be above 0"),
        (json.dumps({**GOOD, "figures": {"far_bytes": True}}), "True"),
        (json.dumps({**GOOD, "figures": {"parallel_work": 1.5}}), "1.5"),
        (" " * 100_000, "100000 bytes"),
    ],
)
def test_a_damaged_or_foreign_file_is_a_warning(tmp_path: Path, text: str, fault: str) -> None:
    path, recorder = tmp_path / "machine.json", Recorder()
    path.write_text(text)
    assert read_figures(path, NAME, recorder) == {}
    (warning,) = recorder.warnings()
    assert f"the measured figures of this machine in {path} are not used: " in warning
    assert fault in warning
    assert "TILEWRIGHT_MACHINE=off" in warning


def test_a_pipe_does_not_keep_anybody_waiting(tmp_path: Path) -> None:
    recorder = Recorder()
    assert read_figures(tmp_path, NAME, recorder) == {}
    assert "a folder" in recorder.warnings()[0]


@given(st.binary(max_size=60))
def test_any_content_gives_figures_or_a_warning(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    path, recorder = tmp_path_factory.mktemp("any") / "machine.json", Recorder()
    path.write_bytes(content)
    assert read_figures(path, NAME, recorder) == {}
    assert len(recorder.warnings()) == 1


def test_a_folder_of_others_keeps_nothing(tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    with pytest.raises(BadInput, match=r"other users can write to it.*set TILEWRIGHT_MACHINE"):
        write_figures(tmp_path / "machine.json", NAME, {})


def test_the_host_has_them_and_says_so_in_its_text(tmp_path: Path) -> None:
    path, plain = tmp_path / "machine.json", Target.host(Settings())
    write_figures(path, str(detect()), {"stream_bytes": 4.5, "region_cycles": 4000.0})
    found = Target.host(Settings(machine=path))
    figures = {"stream_bytes": 4.5, "apart_bytes": 3.0, "region_cycles": 4000.0, "parallel_work": 66_000}
    assert found == replace(plain, machine=replace(plain.machine, **figures))
    assert Target.parse(str(found)) == found != plain
    assert "stream_bytes=4.5" in str(found)


def test_the_host_warns_of_a_file_of_another_processor(tmp_path: Path) -> None:
    path, recorder = tmp_path / "machine.json", Recorder()
    write_figures(path, NAME, {"stream_bytes": 4.5})
    assert Target.host(Settings(machine=path), recorder) == Target.host(Settings())
    assert len(recorder.warnings()) == 1


@given(st.sampled_from(sorted(FIGURES)), st.floats(1e-3, 1e9))
def test_two_digits_are_read_back_from_the_text_of_a_target(name: str, value: float) -> None:
    made = rounded(name, value)
    assert made > 0
    assert abs(made - value) <= max(0.05 * value, isinstance(FIGURES[name], int))
    target = Target.parse("x86_64,znver5")
    changed = replace(target, machine=replace(target.machine, **{name: made}))
    assert Target.parse(str(changed)) == changed


def test_what_is_measured_as_it_is_built_in_changes_nothing() -> None:
    assert with_measured(Machine(), {name: FIGURES[name] for name in MEASURED}) == Machine()
