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


def test_rules_are_added_to_the_usual_ones(model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With a rule that does not match, the search finds what it finds without; by that rule alone it finds nothing."""
    own = tmp_path / "own.rules"
    own.write_text("rule own\n  for x[*s]\n  from Relu(Relu(x))\n  to Relu(x)\n  proof tested; 0 shapes\n")
    command = ["optimize", str(model), "--superopt", "fast", "--threads", "1", "--quiet", "--json"]

    def applied(*options: str) -> object:
        assert main([*command, *options]) == 0
        return report("optimize", capsys.readouterr().out)["rules"]

    assert applied("--rules", f"+{own}") == applied()
    assert applied("--rules", str(own)) != applied()
    assert main([*command, "--rules", str(own), f"+{own}"]) == 2
    assert "before all files" in capsys.readouterr().err


def test_strict_numbers_are_refused(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["optimize", str(model), "--math", "strict", "--quiet"]) == 2
    assert "math=strict forbids" in capsys.readouterr().err


def test_other_rules_and_another_strategy(model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rules = tmp_path / "own.rules"
    rules.write_text(
        "rule own\n  for x[m, k], y[n, k], w: weight[k, p]\n  let t = MatMul(Concat(x, y, axis=0), w)\n"
        "  from MatMul(x, w); MatMul(y, w)\n"
        "  to Slice(t, axes=(0,), starts=(0,), ends=(m,)); Slice(t, axes=(0,), starts=(m,), ends=(m + n,))\n"
    )
    command = ["optimize", str(model), "--superopt", "fast", "--threads", "1", "--quiet", "--json"]
    for strategy in ("backtracking", "saturation"):
        assert main([*command, "--rules", str(rules), "--strategy", strategy]) == 0
        assert set(report("optimize", capsys.readouterr().out)["rules"]) == {"own", "slice-of-rows-twice"}
    assert main([*command, "--rules", str(rules), "--budget", "1", "--alpha", "1"]) == 0
    assert sum(report("optimize", capsys.readouterr().out)["rules"].values()) >= 1


def test_files_of_rules_that_are_none(model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    wrong = tmp_path / "wrong.rules"
    wrong.write_text("rule wrong\n  for x[m]\n  from Relu(x)\n")
    for path, reason in ((wrong, f"{wrong}: line"), (tmp_path / "none.rules", "can't be read: ")):
        assert main(["optimize", str(model), "--rules", str(path), "--quiet"]) == 2
        assert reason in capsys.readouterr().err


def test_a_false_rule_is_found_out(model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rules = tmp_path / "false.rules"
    rules.write_text("rule false\n  for x[m, k], w: weight[k, k]\n  from MatMul(x, w)\n  to x\n")
    assert main(["optimize", str(model), "--superopt", "fast", "--rules", str(rules), "--quiet"]) == 2
    assert "output y is not what it was: " in (said := capsys.readouterr().err)
    assert f"find the false rule with `tilewright rules verify {rules}`" in said
