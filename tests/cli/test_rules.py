"""``tilewright rules``: what it writes, what it prints, and what it refuses."""

import re
from pathlib import Path

import pytest

from tests.cli.schema import report
from tilewright.cli import main
from tilewright.passes.rules import parse_rules


def test_rules_are_generated(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "found.rules"
    command = ["rules", "generate", "--depth", "1", "--families", "taso,normalization", "-o", str(out)]
    assert main([*command, "--json"]) == 0
    found = report("rules", capsys.readouterr().out)
    families = found["families"]
    assert isinstance(families, list)
    assert [family["family"] for family in families] == ["taso", "normalization"]
    assert sum(family["rules"] for family in families) == len(parse_rules(out.read_text())) > 5
    before = out.read_bytes()
    assert main(command) == 0
    shown = capsys.readouterr()
    assert "taso: 6 rules" in shown.out
    assert "level 1:" in shown.err
    assert out.read_bytes() == before
    assert main([*command, "--seed", "5", "--quiet"]) == 0
    assert capsys.readouterr().err == ""
    assert b"seed 5" in out.read_bytes()


@pytest.mark.parametrize(
    ("arguments", "remedy"),
    [
        (["--families", "tasso"], "there are taso, transformer, normalization"),
        (["--depth", "5"], "at most 4"),
    ],
)
def test_what_cannot_be_generated(arguments: list[str], remedy: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["rules", "generate", *arguments]) == 2
    assert remedy in " ".join(capsys.readouterr().err.split())


def test_rules_are_pruned(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, out = tmp_path / "all.rules", tmp_path / "kept.rules"
    file.write_text("""# A header.

rule linear
  for x[m, k], v[k, n], w[k, n]
  from MatMul(x, Add(v, w))
  to Add(MatMul(x, v), MatMul(x, w))

rule linear-again
  for y[m, k], v[k, n], w[k, n]
  from MatMul(y, Add(v, w))
  to Add(MatMul(y, v), MatMul(y, w))

rule turned
  for x[*s], y[*s]
  from Add(x, y)
  to Add(y, x)

rule false
  for x[*s], y[*s]
  from Add(Relu(x), Relu(y))
  to Relu(Add(x, y))
""")
    assert main(["rules", "prune", str(file), "-o", str(out), "--json"]) == 0
    found = report("rules", capsys.readouterr().out)
    assert found["steps"] == [
        {"step": "all", "rules": 4},
        {"step": "renaming", "rules": 3},
        {"step": "common subgraph", "rules": 3},
        {"step": "derivability", "rules": 2},
    ]
    assert main(["rules", "prune", str(file), "-o", str(out), "--search", "--operations", "5"]) == 0
    assert "needed" in capsys.readouterr().out
    (kept,) = parse_rules(out.read_text())
    assert kept.name == "linear-again-reversed"
    assert kept.proof is not None
    assert out.read_text().startswith("# A header.")
    assert main(["rules", "prune", str(tmp_path / "missing")]) == 2


def test_false_is_told_from_not_provable(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Numbers show that a rule is false; what holds for the true exponential only is not called that."""
    file = tmp_path / "own.rules"
    exponential = "rule exponential\n  for x[*s], y[*s]\n  from Mul(Exp(x), Exp(y))\n  to Exp(Add(x, y))\n\n"
    file.write_text(exponential + "rule turned\n  for x[*s], y[*s]\n  from Sub(x, y)\n  to Sub(y, x)\n")
    assert main(["rules", "verify", str(file), "--json"]) == 1
    first, second = report("rules", capsys.readouterr().out)["failures"]
    assert (first["verdict"], second["verdict"]) == ("not provable", "false")
    assert first["reason"] == "not provable: Exp is an unknown function here; no counterexample was found"
    assert first["counterexample"] is None
    assert second["reason"] == "false"
    left, right = re.findall(r"(?:left|right) (-?[\d.]+)", second["counterexample"])
    assert float(left) == -float(right)
