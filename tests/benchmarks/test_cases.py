"""Random cases: the same for a seed, valid models, rows for what fails; the table begins with the largest loss."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest

from benchmarks import cases
from benchmarks.case_families import FAMILIES, random_case
from benchmarks.cases import CaseRow, Terms, load, measure_case, measured, report, save

TERMS = Terms(1, list(FAMILIES), ["onnxruntime", "nobody"], 0.0)


@pytest.mark.parametrize("family", FAMILIES)
def test_cases_are_valid_and_the_same_for_a_seed(family: str) -> None:
    for index in range(4):
        case, again = (random_case(3, index, [family]) for _ in range(2))
        onnx.checker.check_model(case.model, full_check=True)
        assert case.model == again.model
        assert all(np.array_equal(case.feeds[name], again.feeds[name]) for name in case.feeds)
        assert (case.family, case.text) == (family, again.text)


def test_a_row_has_times_differences_and_failures() -> None:
    row = measure_case(0, random_case(1, 0, ["reduction"]), TERMS)
    assert row.seconds.keys() == {"tilewright", "onnxruntime"}
    assert row.failures["nobody"].startswith("AttributeError")
    assert row.ratio == row.seconds["onnxruntime"] / row.seconds["tilewright"]
    assert not row.is_wrong


def test_a_child_that_does_not_answer_is_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cases, "LIMIT", 0.0)
    rows = list(measured([5, 6], TERMS, None))
    assert [row.index for row in rows] == [5, 6]
    assert all(row.failures == {"child": "no answer within 0 s"} for row in rows)


def test_results_of_other_cases_are_not_overwritten(tmp_path: Path) -> None:
    path, rows = tmp_path / "cases.json", [CaseRow(0, "pooling", "MaxPool()", {"tilewright": 1.0})]
    assert load(path, TERMS) == []
    save(rows, path, TERMS)
    assert load(path, TERMS) == rows
    with pytest.raises(ValueError, match="name another file"):
        load(path, replace(TERMS, seed=2))


def test_the_report_begins_with_the_largest_loss() -> None:
    rows = [
        CaseRow(0, "pooling", "won", {"tilewright": 1.0, "onnxruntime": 2.0}),
        CaseRow(1, "pooling", "lost", {"tilewright": 2.0, "onnxruntime": 3.0, "openvino": 1.0}),
        CaseRow(2, "product", "wrong", {"tilewright": 1.0, "onnxruntime": 1.0}, difference=float("inf")),
        CaseRow(3, "product", "crashed", failures={"child": "the process ended with status -11"}),
    ]
    lines = report(rows, 2).splitlines()
    assert lines[0] == "all: best peer / Tilewright 1.00 (geometric mean of 3), below 0.77 in 1"
    assert "wrong by inf: 2, wrong" in lines
    assert "failed: 3, crashed: the process ended with status -11" in lines
    assert lines[-2:] == ["| 1 | 0.50 | lost |", "| 2 | 1.00 | wrong |"]
