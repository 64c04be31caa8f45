"""ONNX's own node tests, each as its line of the ledger says. Both ways: what passes by surprise fails, too."""

import re
from collections.abc import Mapping

import onnx
import pytest

import tilewright
from tests.onnx_nodes import ledger
from tests.onnx_nodes.cases import LOOSER, PARAMETERS, all_cases
from tests.onnx_nodes.ledger import Outcome, Status
from tests.onnx_nodes.outcome import outcome, reason
from tilewright.base.errors import UnsupportedModel

LEDGER: Mapping[str, Outcome] = ledger.read(ledger.PATH.read_text())
PASSING = [name for name, expected in LEDGER.items() if expected.status is Status.PASS]
BODIES = [name for name in LEDGER if "_expanded" in name]
"""The bodies of functions: they are made of operators that other tests have, so that few of them run by default."""
CASTS = [name for name in LEDGER if re.search(r"^test_cast.*(FLOAT8|FLOAT4|INT4|INT2)", name) and name not in BODIES]
"""The same from and to types of few bits, which are alike."""
SELDOM = {name for names in (BODIES, CASTS) for position, name in enumerate(names) if position % 12}
OPERATORS = [schema.name.lower() for schema in onnx.defs.get_all_schemas()]
UPDATE = "if that is right: python -m tests.onnx_nodes --update-ledger"


def _operator(name: str) -> str:
    """The operator that a test is called after; or else its first word."""
    plain = name.removeprefix("test_").removeprefix("ai_onnx_ml_").replace("_", "")
    return max((operator for operator in OPERATORS if plain.startswith(operator)), key=len, default=name.split("_")[1])


def _mostly_of_other_operators() -> list[object]:
    """All names. One of each operator always runs; of the others, which are alike, some do."""
    seen, found = set[str](), list[object]()
    for name in LEDGER:
        is_first = name not in BODIES and _operator(name) not in seen
        seen |= {_operator(name)} if is_first else set()
        mark = pytest.mark.slow if name in SELDOM else pytest.mark.share(12)
        found.append(name if is_first else pytest.param(name, marks=mark))
    return found


@pytest.mark.parametrize("name", _mostly_of_other_operators())
def test_node(name: str) -> None:
    assert name in all_cases(), f"onnx has no test {name} any more; {UPDATE}"
    found, expected = outcome(all_cases()[name]), LEDGER[name]
    assert found.status is expected.status, f"{expected} -> {found}; {UPDATE} {name}"
    assert found == expected or found.status is Status.XFAIL, f"{expected} -> {found}; {UPDATE} {name}"


@pytest.mark.slow  # six minutes of a core
@pytest.mark.parametrize("name", PASSING)
def test_node_with_bounds_checks(name: str) -> None:
    """No access outside of a buffer, and the same results."""
    assert outcome(all_cases()[name], bounds_check=True) == LEDGER[name]


def test_every_node_test_has_a_line() -> None:
    missing = all_cases().keys() - LEDGER.keys()
    assert not missing, f"{', '.join(sorted(missing))}: no line; {UPDATE}"
    assert ledger.write(LEDGER) == ledger.PATH.read_text(), f"the ledger is not as it would be written; {UPDATE}"


def test_no_first_input_is_a_parameter() -> None:
    """It is the data, except of Loop, which has the number of steps there."""
    assert {operator for operator, positions in PARAMETERS.items() if 0 in positions} == {"Loop"}


def test_a_wrong_number_is_a_fault() -> None:
    case = all_cases()["test_relu"]
    wrong = type(case)(case.name, case.model, case.inputs, [-case.outputs[0]], {}, case.rtol, case.atol, {})
    assert outcome(wrong).status is Status.FAULT


@pytest.mark.parametrize("name", LOOSER)
def test_looser_tolerances_are_needed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(LOOSER, name)
    found = outcome(all_cases()[name])
    assert found.status is Status.FAULT, f"{name} keeps its own tolerance: remove it from LOOSER"
    assert "wrong numbers" in found.note


def test_an_error_that_names_no_place_is_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    raised = UnsupportedModel("this can't be compiled")

    def refuse(*_: object, **__: object) -> None:
        raise raised

    monkeypatch.setattr(tilewright, "compile", refuse)
    assert outcome(all_cases()["test_relu"]).status is Status.FAULT


def test_what_reads_no_input_is_not_native() -> None:
    assert outcome(all_cases()["test_shape"]) == Outcome(Status.PASS, "known from shapes")


@pytest.mark.parametrize("line", ["test_a", "test_a maybe", "test_a xfail", "test_a pass\ntest_a pass"])
def test_malformed_lines(line: str) -> None:
    with pytest.raises(ValueError, match=r"line can't be read|not enough values"):
        ledger.read(line)


def test_reasons_are_short() -> None:
    text = "node n (Foo): operator Foo is not supported; did you mean Bar?"
    assert reason(text) == "operator Foo"
    assert reason("node n (Foo): a form of\nmany words; do another thing") == "a form of"
