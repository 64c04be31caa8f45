"""``tilewright quantize``: what it writes and says."""

import re
from pathlib import Path

import numpy as np
import onnx
import pytest

from tests.cli.schema import report
from tests.quantization.models import normal, perceptron
from tilewright.cli import main


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    onnx.save(perceptron(), tmp_path / "m.onnx")
    np.savez(tmp_path / "data.npz", x=normal(0, 32, 8))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.usefixtures("folder")
def test_a_model_is_written_and_reported(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    command = ["quantize", "m.onnx", "--data", "data.npz", "--accuracy", "5%", "--metric", "l2", "--threads", "1"]
    command += ["--method", "minmax", "--no-bias-correction", "--no-weight-range"]
    monkeypatch.setattr("tilewright.quantization.speed.SECONDS", 0.0)
    monkeypatch.setenv("COLUMNS", "160")
    assert main([*command, "--json", "--quiet"]) == 0
    found = report("quantize", capsys.readouterr().out)
    assert (found["output"], found["bound"], found["method"]) == ("m.quantized.onnx", 0.05, "minmax")
    assert (found["bias_correction"], found["weight_range"]) == (False, False)
    written = onnx.load("m.quantized.onnx")
    assert {"QuantizeLinear", "DequantizeLinear"} < {node.op_type for node in written.graph.node}
    assert (found["us_before"], found["us_after"]) == (None, None)
    assert main([*command, "-o", "again.onnx", "--speed"]) == 0
    shown = capsys.readouterr()
    assert re.search(r"a run: \d+\.\d us before, \d+\.\d us after", shown.out)
    assert re.search(r"hurt \(MatMul\) .*MatMul .*% .* \d+\.\d .* \d+\.\d ", shown.out)
    assert "sensitivity: 2 of 2 layers, about 0 s left" in shown.err
    assert "1 of 2 layers are quantized (minmax)" in shown.out
    assert "bound: l2 5.00%" in shown.out
    assert shown.err.startswith("quantizing m.onnx ...\n")
    assert Path("again.onnx").read_bytes() == Path("m.quantized.onnx").read_bytes()


@pytest.mark.usefixtures("folder")
def test_what_is_wrong_is_said_before_anything_is_done(capsys: pytest.CaptureFixture[str]) -> None:
    command = ["quantize", "m.onnx", "--data", "data.npz"]
    assert main([*command, "-o", "data.npz"]) == 2
    assert main([*command, "-o", "m.onnx"]) == 2
    assert capsys.readouterr().err.count("give another name") == 2
    np.savez("wrong.npz", y=normal(0, 32, 8))
    assert main(["quantize", "m.onnx", "--data", "wrong.npz"]) == 2
    assert "the model has no input 'y'" in capsys.readouterr().err
    for bad in ("101%", "-1", "much", "nan"):
        with pytest.raises(SystemExit):
            main([*command, "--accuracy", bad])
    assert "is no part of a whole" in capsys.readouterr().err
