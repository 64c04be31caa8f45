"""``--device simulated``: what ``bench`` and ``tune`` say of a processor that is not here."""

from pathlib import Path

import onnx
import pytest

pytest.importorskip("capstone")
pytest.importorskip("unicorn")

from tests.backend.shipping.networks import lenet
from tests.cli.schema import report
from tilewright.cli import main

A72 = ("--device", "simulated", "--target", "aarch64,cortex-a72")


@pytest.fixture
def model(tmp_path: Path) -> str:
    onnx.save(lenet(), tmp_path / "lenet.onnx")
    return str(tmp_path / "lenet.onnx")


def test_bench_counts_cycles_and_compares_results(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", model, *A72, "--json"]) == 0
    found = report("bench", capsys.readouterr().out)
    assert found["agree"] is True
    device, times = found["device"], found["milliseconds"]
    assert isinstance(device, dict) and isinstance(times, dict)
    assert device["name"] == "simulated: cortex-a72 1"
    assert times["tilewright"]["median"] == pytest.approx(device["machine"]["cycles"] / 1e6)


def test_what_is_wrong_is_said(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    for arguments, said in (
        (["bench", model, "--device", "simulated", "--target", "x86_64,znver4"], "can't be simulated"),
        (["bench", model, *A72, "--priority", "3"], "leave it out"),
        (["bench", "model.tw", *A72, "--peer-model", model], "is an artifact"),
    ):
        assert main(arguments) != 0
        assert said in capsys.readouterr().err


@pytest.mark.slow
def test_tune_finds_schedules_that_compile_uses(model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    records = str(tmp_path / "records.db")
    assert main(["tune", model, *A72, "--minutes", "0.5", "--records", records, "--quiet", "--json"]) == 0
    found = report("tune", capsys.readouterr().out)
    assert found["simulated"] == "cortex-a72 1"
    assert main(["explain", model, "--target", A72[-1], "--threads", "1", "--records", records, "--json"]) == 0
    explained = capsys.readouterr().out
    if found["kept"]:
        assert '"simulated": "cortex-a72 1"' in explained
    assert "in simulated cycles of cortex-a72 1" in explained
    assert main(["bench", model, *A72, "--json"]) == 0
    cycles = report("bench", capsys.readouterr().out)["milliseconds"]
    before = found["milliseconds"]
    assert isinstance(cycles, dict) and isinstance(before, dict)
    assert cycles["tilewright"]["median"] == pytest.approx(before["before"], rel=0.02)
