"""``tilewright rules verify``, end to end."""

from pathlib import Path

import pytest

from tests.cli.schema import report
from tilewright.cli import main

_TRUE = "rule commuted\n  for x[*s], y[*t]\n  from Add(x, y)\n  to Add(y, x)\n"
_FALSE = "rule turned\n  for x[m, n]\n  from Transpose(Transpose(Transpose(x)))\n  to x\n  need m == n\n"


def test_true_rules(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "true.rules").write_text(_TRUE)
    for engine in ("egglog", "field"):
        assert main(["rules", "verify", str(tmp_path / "true.rules"), "--engine", engine]) == 0
        assert "1 of 1 rules hold" in capsys.readouterr().out


def test_a_false_rule_is_shown_with_a_shape(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "both.rules").write_text(f"{_TRUE}\n{_FALSE}")
    assert main(["rules", "verify", str(tmp_path / "both.rules"), "--json"]) == 1
    found = report("rules", capsys.readouterr().out)
    (failure,) = found["failures"]
    assert (found["rules"], failure["rule"], failure["reason"]) == (2, "turned", "false")
    assert failure["counterexample"].split(":")[0] in [f"m={n}, n={n}" for n in (2, 3, 4)]
    assert "left" in failure["counterexample"]
    assert main(["rules", "verify", str(tmp_path / "both.rules")]) == 1
    assert "turned" in capsys.readouterr().out


def test_a_file_that_is_not_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["rules", "verify", str(tmp_path / "none.rules")]) == 2
    assert "can't be read" in capsys.readouterr().err


def test_proofs_are_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "both.rules"
    path.write_text(f"# Two.\n{_TRUE}\n{_FALSE}")
    assert main(["rules", "verify", str(path), "--write", "--shapes", "2"]) == 1
    assert path.read_text() == f"# Two.\n{_TRUE}  proof proved by Add-commutes; 2 shapes\n\n{_FALSE}"
    assert "1 of 2 rules hold" in capsys.readouterr().out
    assert main(["rules", "verify", "--write"]) == 2
    assert "name the files" in capsys.readouterr().err
