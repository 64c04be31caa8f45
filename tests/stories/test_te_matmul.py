"""Somebody follows docs/te.md: each step prints the loops that the page shows, and computes the product."""

import re
from pathlib import Path

import numpy as np
import pytest

import tilewright
from examples import te_matmul
from tilewright import te

PAGE = (Path(__file__).parents[2] / "docs" / "te.md").read_text()
BLOCKS: list[tuple[str, str]] = re.findall(r"^```(\w*)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


def test_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TILEWRIGHT_KEY_DIR", str(tmp_path / "key"))
    names: dict[str, object] = {}
    shown = 0
    for language, text in BLOCKS:
        if language == "python":
            exec(compile(text, "te.md", "exec"), names)
        else:
            assert str(names["s"]) == text
            shown += 1
    assert shown == 6
    a, b, c = (names[name] for name in "abc")
    assert isinstance(a, np.ndarray)
    assert isinstance(b, np.ndarray)
    np.testing.assert_allclose(c, a.astype(np.float64) @ b, atol=1e-3)  # type: ignore[arg-type]
    np.testing.assert_array_equal(tilewright.load("matmul.tw")(a, b), c)


def test_each_step_computes_the_product() -> None:
    """At a size of which tiles are no divisors, too."""
    steps = te_matmul.schedules(192) | {f"{title} (odd)": s for title, s in te_matmul.schedules(50).items()}
    assert len(steps) == 2 * 7
    for title, schedule in steps.items():
        assert te.build(schedule, threads=2).check()["C"].worst < 1e-5, title


def test_the_table(capsys: pytest.CaptureFixture[str]) -> None:
    te_matmul.main(["--size", "64", "--repeats", "1"])
    _, _, *rows = capsys.readouterr().out.splitlines()
    titles = ["As it is written", "Along the rows", "Tiles", "Sums in registers", "Packing", "All cores"]
    assert [row.split(" | ")[0] for row in rows] == [f"| {title}" for title in (*titles, "Without a schedule")]
