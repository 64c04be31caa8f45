"""Whatever an option says: it is taken, or the exit status says that it is wrong (2) or not supported (3)."""

from pathlib import Path

import numpy as np
import onnx
import pytest

from tests.frontend.models import single_node
from tilewright.cli import main
from tilewright.cli.status import Status

X = np.ones((2, 3), np.float32)
NUMBERS = (
    "",
    "0",
    "-1",
    "1.5",
    "nan",
    "inf",
    "1e400",
    "9" * 5000,
    "²",
    "٣",
    "two",
    "x" * 10_000,
    "\udcff",
    "a\x1b[31m",
)
OPTIONS = (
    ("run", "--threads"),
    ("run", "--random-seed"),
    ("run", "--memory-limit"),
    ("run", "--shape"),
    ("run", "--bound"),
    ("run", "--input"),
    ("run", "--target"),
    ("run", "--math"),
    ("run", "--dynamic"),
    ("run", "--superopt"),
    ("run", "--records"),
    ("bench", "--rounds"),
    ("bench", "--slot"),
    ("bench", "--tolerance"),
    ("profile", "--seconds"),
    ("run", "--timeout"),
    ("run", "--isolate-timeout"),
    ("tune", "--minutes"),
    ("tune", "--seed"),
    ("optimize", "--alpha"),
    ("optimize", "--budget"),
    ("repro", "--random-seed"),
)
FINE = ("0", "1.5", "٣")
QUICK = {"--tolerance": ("--rounds=1", "--slot=0.01")}
"""For what is right after all."""


@pytest.fixture
def model(tmp_path: Path) -> str:
    onnx.save(single_node("Relu", {"x": X}), tmp_path / "m.onnx")
    return str(tmp_path / "m.onnx")


@pytest.mark.parametrize(("verb", "option"), OPTIONS, ids=lambda text: text.strip("-"))
def test_values_of_options(verb: str, option: str, model: str, capsys: pytest.CaptureFixture[str]) -> None:
    for prefix in ("", "x=") if option in ("--shape", "--bound", "--input") else ("",):
        for value in NUMBERS:
            if verb != "run" and value in (*FINE, *(("-1", "inf", "1e400") if option == "--tolerance" else ())):
                continue  # some are right, and what the verb then does takes its time
            try:
                status = main([verb, model, f"{option}={prefix}{value}", *QUICK.get(option, ())])
            except SystemExit as left:
                status = int(str(left.code))
            told = capsys.readouterr().err
            assert status in (Status.DONE, Status.BAD_INPUT, Status.UNSUPPORTED), f"{value[:20]!r}: {told}"
            assert len(told) < 40_000


@pytest.mark.parametrize("name", ["", "none.onnx", ".", "\udcff.onnx", "x" * 300, "a\x1b[31m"])
@pytest.mark.parametrize("verb", ["run", "compile", "explain", "repro", "report"])
def test_paths(verb: str, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    try:
        status = main([verb, name])
    except SystemExit as left:
        status = int(str(left.code))
    assert status in (Status.BAD_INPUT, Status.UNSUPPORTED)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["tune", "--minutes=0"], "no number above 0"),
        (["tune", "--records=m.onnx"], "m.onnx is no database of records"),
        (["tune", "--records=/proc/none/r.db"], "can't be made"),
        (["tune", "--backend=reference"], "leave --backend out"),
        (["optimize", "--isolate"], "leave --isolate out"),
        (["optimize", "--dynamic=specialize"], "leave --dynamic out"),
        (["run", "--output=m.onnx"], "--output m.onnx can't be made"),
        (["run", "--isolate-timeout=nan"], "no number above 0"),
    ],
    ids=lambda item: " ".join(item) if isinstance(item, list) else "",
)
def test_what_is_wrong_is_told_before_anything_is_compiled(
    arguments: list[str], told: str, model: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(Path(model).parent)

    def compile_nothing(*_: object, **__: object) -> object:
        raise AssertionError("it is compiled")

    monkeypatch.setattr("tilewright.api.compile", compile_nothing)
    try:
        status = main([arguments[0], "m.onnx", *arguments[1:]])
    except SystemExit as left:
        status = int(str(left.code))
    assert status == Status.BAD_INPUT
    assert told in capsys.readouterr().err
