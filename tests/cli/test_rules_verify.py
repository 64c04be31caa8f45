"""``tilewright rules verify``, end to end."""

import re
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


def one(name: str, source: str, target: str) -> str:
    return f"rule {name}\n  for x[*s], y[*s], z[*s]\n  from {source}\n  to {target}\n\n"


_UNDECIDED = one("powers", "Mul(Exp(x), Exp(y))", "Exp(Add(x, y))")
_SHAPES = "rule turned\n  for x[m, n]\n  from Transpose(x)\n  to x\n"


@pytest.mark.parametrize(
    ("text", "status", "verdicts"),
    [
        (_TRUE, 0, []),
        (_UNDECIDED, 5, ["not provable"]),
        (_TRUE + _UNDECIDED, 5, ["not provable"]),
        (_FALSE + _UNDECIDED, 1, ["false", "not provable"]),
        (_SHAPES, 1, ["false"]),
        (one("logarithms", "Log(Mul(x, y))", "Add(Log(x), Log(y))"), 1, ["false"]),
        (one("late", "Exp(Max(x, 0.9))", "Max(Exp(x), 2.4596031111569496)"), 5, ["not provable"]),
        (one("far", "Exp(Max(x, -2.0))", "Exp(x)"), 1, ["false"]),
    ],
)
def test_false_and_not_provable_have_statuses_of_their_own(
    text: str, status: int, verdicts: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A NaN on one side only is a difference (``logarithms``); what is rarely different is looked for (``far``)."""
    (tmp_path / "own.rules").write_text(text)
    assert main(["rules", "verify", str(tmp_path / "own.rules"), "--json"]) == status
    found = report("rules", capsys.readouterr().out)
    assert [failure["verdict"] for failure in found["failures"]] == verdicts
    for failure in found["failures"]:
        assert (failure["counterexample"] is None) == (failure["verdict"] == "not provable")


_POWERS = one("three", "Mul(Mul(Exp(x), Exp(y)), Exp(z))", "Exp(Add(Add(x, y), z))")
_AXIOM = "rule Exp-of-sum\n  for x[*s], y[*t]\n  from Exp(Add(x, y))\n  to Mul(Exp(x), Exp(y))\n"


def test_axioms_of_ones_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rules, axioms = tmp_path / "own.rules", tmp_path / "axioms.rules"
    rules.write_text(_POWERS + one("other", "Exp(Mul(x, y))", "Mul(Exp(y), Exp(x))"))
    axioms.write_text(_AXIOM)
    given = ["--axioms", str(axioms), "--json"]
    for engine in ("egglog", "z3"):
        assert main(["rules", "verify", *given, str(rules), "--engine", engine]) == 1
        found = report("rules", capsys.readouterr().out)
        assert [(failure["rule"], failure["verdict"]) for failure in found["failures"]] == [("other", "false")]
        assert found["proofs"] == dict.fromkeys(["egglog", "z3"][: 1 + (engine == "z3")], 1)
    assert main(["rules", "verify", str(rules), "--engine", "field", *given]) == 1
    assert len(report("rules", capsys.readouterr().out)["failures"]) == 2, "a field proves nothing"
    assert main(["rules", "verify", *given]) == 0
    found = report("rules", capsys.readouterr().out)
    assert (found["axioms"], found["redundant"], found["failures"]) == (1, [], [])
    before = rules.read_text()
    assert main(["rules", "verify", str(rules), "--write", *given]) == 2
    assert rules.read_text() == before


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (None, "can't be read"),
        ("", "there is no axiom in it"),
        ("rule a\n  for x[*s\n", "line 2: variables are declared as"),
        (one("wrong", "Exp(Add(x, y))", "Add(Exp(x), Exp(y))"), r"the axiom wrong is false: .*x = .*left .*mend it"),
        (one("Add-commutes", "Add(x, y)", "Add(y, x)"), "Add-commutes has the name of one that is built in: give it"),
        (one("vague", "Sub(x, x)", "Mul(y, 0.0)"), "the axiom vague can't be used: each side has a name"),
        (
            one("a", "Exp(0.0)", "1.0") + one("b", "Exp(0.0)", "1.0000000000001"),
            "axiom a contradicts others .* leave one",
        ),
    ],
)
def test_axioms_that_are_refused(
    text: str | None, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rules, axioms = tmp_path / "own.rules", tmp_path / "axioms.rules"
    rules.write_text(_POWERS)
    if text is not None:
        axioms.write_text(text)
    assert main(["rules", "verify", str(rules), "--axioms", str(axioms)]) == 2
    told = " ".join(capsys.readouterr().err.split())
    assert str(axioms) in told
    assert re.search(said, told), told


def test_axioms_without_a_file_are_those_built_in(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "own.rules").write_text(_POWERS)
    assert main(["rules", "verify", str(tmp_path / "own.rules"), "--axioms"]) == 2
    assert "name a file of axioms" in capsys.readouterr().err
