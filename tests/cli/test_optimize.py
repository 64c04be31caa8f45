"""``tilewright optimize``: what it finds, writes and says."""

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest

from tests.cli.schema import report
from tests.test_superoptimizer import cell, feeds
from tilewright.cli import main


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "cell.onnx"
    onnx.save(cell(), path)
    return path


def in_onnxruntime(path: Path) -> np.ndarray:
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    return np.asarray(session.run(None, feeds(cell()))[0])


@pytest.mark.parametrize("cost", ["compiler", "onnxruntime"])
def test_a_graph_is_written_that_computes_the_same(
    cost: str, model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, page = tmp_path / "out.onnx", tmp_path / "page.html"
    command = ["optimize", str(model), "--superopt", "fast", "--cost", cost, "--threads", "1"]
    assert main([*command, "-o", str(out), "--report", str(page), "--json", "--quiet"]) == 0
    found = report("optimize", capsys.readouterr().out)
    assert found["cost"] == cost
    np.testing.assert_allclose(in_onnxruntime(out), in_onnxruntime(model), rtol=1e-4, atol=1e-5)
    assert page.read_text().startswith("<!")
    if cost == "compiler":  # what ONNX Runtime gains depends on the machine
        assert found["rules"]["products-by-one-matrix"] > 0
        assert "products-by-one-matrix" in page.read_text()


def test_what_was_done_is_shown(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["optimize", str(model), "--superopt", "fast", "--threads", "1", "--quiet"]) == 0
    shown = capsys.readouterr().out
    assert "products-by-one-matrix" in shown
    assert "equal modulo a prime" in shown
    assert main(["optimize", str(model), "--superopt", "off", "--threads", "1", "--quiet"]) == 0
    assert "no graph was found" in capsys.readouterr().out


def test_strict_numbers_are_refused(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["optimize", str(model), "--math", "strict", "--quiet"]) == 2
    assert "math=strict forbids" in capsys.readouterr().err
