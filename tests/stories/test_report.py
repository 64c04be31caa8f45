"""Somebody tunes a kernel with the template of docs/extending.md, and reads the report as docs/report.md says."""

import re
from html import unescape
from pathlib import Path

import pytest

import tilewright
from tests.cli.schema import report
from tests.extending.stripes import stripes
from tilewright import te
from tilewright.cli import main

pytestmark = pytest.mark.usefixtures("short_turns")


def matmul(size: int) -> te.TeSchedule:
    a, b = te.placeholder((size, size), name="A"), te.placeholder((size, size), name="B")
    k = te.reduce_axis((0, size), name="k")
    return te.create_schedule(te.compute((size, size), lambda y, x: te.sum(a[y, k] * b[k, x], axis=k), name="C"))


def tables(text: str) -> list[list[dict[str, str]]]:
    """The rows of each table of a page, by headings."""

    def cells(tag: str, line: str) -> list[str]:
        return [unescape(cell) for cell in re.findall(rf"<{tag}[^>]*>(.*?)</{tag}>", line)]

    found = re.findall(r"<table>(.*?)</table>", text, re.DOTALL)
    lines = [re.findall(r"<tr>(.*?)</tr>", table) for table in found]
    return [[dict(zip(cells("th", head), cells("td", row), strict=True)) for row in rows] for head, *rows in lines]


def test_tune_with_a_template_and_read_the_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    program = matmul(48).program
    best = tilewright.tune_kernel(program, template=stripes, trials=8, cost_model="random", records="records.db")
    assert main(["report", "records.db", "-o", "tuning.html", "--json"]) == 0
    told = report("report", capsys.readouterr().out)
    assert (told["kernels"], told["trials"]) == (1, best.tried)

    page = Path("tuning.html").read_text()
    overview, *others = tables(page)
    (row,) = overview
    assert (row["kernel"], row["threads"], row["tried"], row["failed"]) == (program.name, "1", str(best.tried), "0")
    assert row["state"] == ("confirmed" if best.is_kept else "withdrawn")
    assert float(row["gain"]) >= 1, "the fastest may be the analytic choice"

    (compared,) = others
    knobs = {"rows", "columns", "order", "written out"}
    decided = {each["knob"]: each["fastest"] for each in compared if each["fastest"]}
    analytic = {each["knob"]: each["analytic choice"] for each in compared if each["analytic choice"]}
    assert analytic, "what the compiler decides is known without measuring"
    assert decided == analytic or decided.keys() == knobs
    assert not {"rows", "columns"} & analytic.keys(), "the knobs of a template are its own"
    steps = re.search(r"steps of the fastest schedule</summary>\s*<pre>(.*?)</pre>", page, re.DOTALL)
    assert steps is not None
    if decided != analytic:
        _, inner = decided["rows"].split(", ")
        assert f"(None, {inner})" in unescape(steps[1])
