"""Rows, their file, and the tables made of them."""

import math
from pathlib import Path

import pytest

from benchmarks.accuracy import Accuracy
from benchmarks.results import Compilation, Results, Row, load, save
from benchmarks.tables import geometric_mean, markdown, milliseconds, report, shortened, splice


def row(case: str, peer: str, *slots: float, threads: int = 1, failure: str = "") -> Row:
    median = sorted(slots)[len(slots) // 2] if slots else 0.0
    return Row(case, threads, peer, failure, slots, median, 0.5, Accuracy(1e-7, 2e-7) if slots else None)


RESULTS = Results(
    "2 cores of some processor",
    "Python 3.11",
    (
        row("first", "onnxruntime", 0.010, 0.010, 0.020),
        row("first", "tilewright", 0.005, 0.006, 0.010),
        row("second", "onnxruntime", 0.1, 0.1, 0.1),
        row("second", "tilewright", 0.2, 0.2, 0.2),
        row("third", "onnxruntime", 0.001, 0.001, 0.001),
        row("third", "tilewright", failure="UnsupportedModel: node 'n' (Loop)"),
    ),
    (
        Compilation("first", 2, "", 3.0, 2.0, 0.5, 0.25, 0.125, 0.1, 2_500_000),
        Compilation("third", 2, "UnsupportedModel: Loop"),
    ),
)
REPORT = """\
2 cores of some processor. Python 3.11.

1 thread, median milliseconds (ratio to ONNX Runtime, below 1 is faster):

|  | ONNX Runtime | Tilewright | fastest other / Tilewright |
|---|---:|---:|---:|
| first | 10.0 (1.00) | 6.00 (0.50) | 1.67 |
| second | 100 (1.00) | 200 (2.00) | 0.50 |
| third | 1.00 (1.00) | fails |  |
| geometric mean of ratios | 1.00 | 1.00 of 2 | 0.91, at least 1 in 1 of 2 |

Share of the floating-point peak, by the operations of the operators' definitions, 1 is all of it:

|  | ONNX Runtime | Tilewright |
|---|---:|---:|
| first | 0.50 | 0.50 |
| second | 0.50 | 0.50 |
| third | 0.50 |  |

Error against float64, relative in the norm and largest difference over largest value:

|  | ONNX Runtime | Tilewright |
|---|---:|---:|
| first | 1.0e-07, 2.0e-07 | 1.0e-07, 2.0e-07 |
| second | 1.0e-07, 2.0e-07 | 1.0e-07, 2.0e-07 |
| third | 1.0e-07, 2.0e-07 |  |

Compiling with Tilewright; its artifact, loaded and run once, beyond importing NumPy:

|  | cold, s (CPU s) | warm, s (CPU s) | artifact, s (CPU s) | artifact, MB |
|---|---:|---:|---:|---:|
| first | 3.00 (2.00) | 0.50 (0.25) | 0.12 (0.10) | 2.5 |
| third | fails |  |  |  |

What failed:

- third, Tilewright: UnsupportedModel: node 'n' (Loop)
- third, Tilewright: UnsupportedModel: Loop"""


def test_report() -> None:
    assert report(RESULTS) == REPORT


def test_results_come_back_from_their_file(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "results.json"
    save(RESULTS, path)
    assert load(path) == RESULTS
    assert load(tmp_path / "none.json").rows == ()


def test_rows_of_a_case_are_replaced_together() -> None:
    changed = RESULTS.with_rows([row("second", "tilewright", 0.3)])
    assert changed.row("second", 1, "tilewright") == row("second", "tilewright", 0.3)
    assert changed.row("second", 1, "onnxruntime") is None, "a ratio to another run's baseline means nothing"
    assert changed.row("first", 1, "onnxruntime") == RESULTS.row("first", 1, "onnxruntime")
    again = changed.with_compilation(Compilation("first", 2, "", 9.0))
    assert [c.cold for c in again.compilations] == [0.0, 9.0]


def test_ratios_are_taken_within_rounds() -> None:
    ratio = RESULTS.ratio("first", 1, "tilewright", "onnxruntime")
    assert ratio is not None
    assert (ratio.low, ratio.median, ratio.high) == pytest.approx((0.5, 0.5, 0.55))
    assert RESULTS.ratio("third", 1, "tilewright", "onnxruntime") is None
    assert RESULTS.ratio("first", 2, "tilewright", "onnxruntime") is None


def test_geometric_mean_does_not_depend_on_the_baseline() -> None:
    assert geometric_mean([0.5, 2.0]) == pytest.approx(1.0)
    assert geometric_mean([0.2, 0.3]) == pytest.approx(1 / geometric_mean([5.0, 1 / 0.3]))
    assert geometric_mean([4.0, 1.0, 2.0]) == pytest.approx(math.prod([4.0, 1.0, 2.0]) ** (1 / 3))


@pytest.mark.parametrize(
    ("seconds", "text"), [(1.2345, "1234"), (0.0999, "99.9"), (0.01, "10.0"), (0.00999, "9.99"), (3.7e-5, "0.0370")]
)
def test_milliseconds_have_three_digits(seconds: float, text: str) -> None:
    assert milliseconds(seconds) == text


def test_long_reasons_are_shortened() -> None:
    assert shortened("short") == "short"
    assert shortened("x" * 300) == "x" * 197 + "..."


def test_splice_replaces_what_is_between_markers() -> None:
    document = "before\n<!-- begin t -->\nold\n<!-- end t -->\nafter\n"
    once = splice(document, "t", markdown([["a", "b"], ["c", "1"]]))
    assert once == "before\n<!-- begin t -->\n| a | b |\n|---|---:|\n| c | 1 |\n<!-- end t -->\nafter\n"
    assert splice(once, "t", "old") == document
    with pytest.raises(ValueError, match="no markers <!-- begin other -->"):
        splice(document, "other", "")
