"""Somebody follows docs/rules.md: writes rules, has them verified, and compiles and optimizes with the true one."""

import re
from pathlib import Path

import numpy as np
import onnx
import pytest

import tilewright
from tests.cli.schema import report
from tests.stories.pages import Page
from tilewright.cli import main

PAGE = Page.of("docs/rules.md")
N = 1000


def feeds() -> dict[str, np.ndarray]:
    random = np.random.default_rng(5)
    return {name: random.standard_normal(N).astype(np.float32) for name in "abc"}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TILEWRIGHT_KEY_DIR", str(tmp_path / "key"))
    return tmp_path


def test_a_true_a_false_and_an_undecided_rule(capsys: pytest.CaptureFixture[str]) -> None:
    PAGE.run("own.rules", {})
    assert main([*PAGE.command("verify own.rules"), "--json"]) == 1
    told = report("rules", capsys.readouterr().out)
    assert (told["rules"], told["proofs"]) == (3, {"egglog": 1})
    exponentials, turned = told["failures"]
    assert (exponentials["rule"], turned["rule"], turned["reason"]) == ("exponentials", "turned", "false")
    assert exponentials["reason"].startswith("not provable")
    values = dict(re.findall(r"(\w+) (?:= )?(-?[\d.]+)", turned["counterexample"]))
    x, y, left, right = (float(values[name]) for name in ("x", "y", "left", "right"))
    np.testing.assert_allclose((left, right), (x - y, y - x), atol=1e-3)


@pytest.mark.slow  # docs/rules.md runs, and its verbs have tests of their own
def test_axioms_and_families_of_ones_own(capsys: pytest.CaptureFixture[str]) -> None:
    names: dict[str, object] = {"Path": Path}
    PAGE.run("own-axioms.rules", names)
    assert main([*PAGE.command("verify powers.rules"), "--json"]) == 0
    assert report("rules", capsys.readouterr().out)["proofs"] == {"egglog": 1}
    assert main(["rules", "verify", "powers.rules"]) == 5, "not provable without the axiom"
    assert main(PAGE.command("verify --axioms")) == 0
    PAGE.run("gates.families", names)
    assert main([*PAGE.command("--family gates.families"), "--quiet"]) == 0
    assert main(PAGE.command("prune gates.rules")) == 0
    found, fewer = (rules_of(name) for name in ("gates.rules", "fewer.rules"))
    assert 0 < len(fewer) < len(found)


def rules_of(name: str) -> list[str]:
    return [line for line in Path(name).read_text().splitlines() if line.startswith("rule ")]


def test_a_rule_is_written_proved_and_applied(capsys: pytest.CaptureFixture[str]) -> None:
    names: dict[str, object] = {"Path": Path}
    PAGE.run('Path("factor.rules")', names)
    with pytest.raises(
        tilewright.BadInput, match="factor-out can't be applied: it has no proof: `tilewright rules verify --write"
    ):
        PAGE.run("sums.onnx", names)
    assert main(PAGE.command("verify --write")) == 0
    assert "proof proved by Mul-commutes, Mul-distributes; 4 shapes" in Path("factor.rules").read_text()

    capsys.readouterr()
    PAGE.run("sums.onnx", names)
    assert capsys.readouterr().out == "['Add', 'Mul']\n"
    given = feeds()
    a, b, c = (array.astype(np.float64) for array in given.values())
    expected = a * c + b * c
    model = names["model"]
    assert isinstance(model, tilewright.CompiledModel)
    np.testing.assert_allclose(model.run(None, given)[0], expected, rtol=1e-5, atol=1e-6)

    assert main(PAGE.command("compile sums.onnx")) == 0
    np.testing.assert_allclose(tilewright.load("sums.tw").run(None, given)[0], expected, rtol=1e-5, atol=1e-6)

    assert main(PAGE.command("--rules +factor.rules")) == 0
    (y,) = tilewright.compile("faster.onnx").run(None, given)
    np.testing.assert_allclose(y, expected, rtol=1e-5, atol=1e-6)
    assert [node.op_type for node in onnx.load("sums.onnx").graph.node] == ["Mul", "Mul", "Add"]
