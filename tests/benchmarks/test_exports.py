"""What the comparison of exported networks counts as right, and its table; exporting itself needs torch."""

from pathlib import Path

import numpy as np

from benchmarks.agreement import TOLERANCE, difference, matched
from benchmarks.export_tables import report
from benchmarks.export_ways import Case, Sizes, Way
from benchmarks.exports import Finding, Verdict, keep, stored


def test_differences_are_relative_to_the_largest_number() -> None:
    exact = [np.array([100.0, 1.0], np.float32), np.array([3], np.int64)]
    near = [np.array([100.0, 1.005], np.float32), np.array([3], np.int64)]
    assert difference(exact, exact) == 0
    assert 0 < difference(near, exact) <= TOLERANCE
    assert difference([exact[0] + 1, exact[1]], exact) > TOLERANCE
    assert difference([exact[0][:1], exact[1]], exact) == float("inf")
    assert difference([exact[0], exact[1].astype(np.int32)], exact) == float("inf")
    assert difference(exact[:1], exact) == float("inf")


def test_what_is_not_finite_must_be_the_same() -> None:
    special = [np.array([np.nan, np.inf, 1.0], np.float32)]
    assert difference(special, special) == 0
    assert difference([np.array([0.0, np.inf, 1.0], np.float32)], special) == float("inf")
    assert difference([np.array([np.nan, np.inf, np.nan], np.float32)], special) == float("inf")


def test_boxes_are_matched_one_to_one() -> None:
    boxes = np.array([[0, 0, 4, 4], [0, 0, 4, 5], [0, 0, 4, 4]], np.float32)
    theirs = [boxes, np.array([1, 1, 2]), np.array([0.5, 0.4, 0.3], np.float32)]
    ours = [one[[2, 1, 0]] for one in theirs]
    assert difference(ours, theirs) > TOLERANCE
    assert difference(matched(ours, theirs), theirs) == 0
    twice = [one[[0, 0, 2]] for one in theirs]
    assert difference(matched(twice, theirs), theirs) > 0.1
    fewer = [one[:2] for one in theirs]
    assert difference(matched(fewer, theirs), theirs) == float("inf")
    none = [one[:0] for one in theirs]
    assert difference(matched(none, none), none) == 0


def test_each_export_has_a_file_of_its_own() -> None:
    names = {Case("bert", way, sizes).file for way in Way for sizes in Sizes}
    assert len(names) == len(Way) * len(Sizes)


def test_findings_are_kept_and_shown(tmp_path: Path) -> None:
    path = tmp_path / "results" / "exports.json"
    case, other = Case("bert", Way.DYNAMO, Sizes.OPEN), Case("vits", Way.MODULE, Sizes.FIXED)
    keep(path, case, Finding(Verdict.WRONG.value, "off by 1"))
    keep(path, other, Finding(Verdict.REFUSED.value, "BadInput: no"))
    keep(path, case, Finding(Verdict.RIGHT.value, "1e-7"))
    found = stored(path)
    assert found == {case: Finding("right", "1e-7"), other: Finding("refused", "BadInput: no")}
    text = report(found)
    assert "| bert | yes |  |" in text
    assert "| vits |  | refused |" in text
    assert "- vits, module, fixed: refused: BadInput: no" in text
    assert "bert" not in text.rpartition("\n\n")[2]
