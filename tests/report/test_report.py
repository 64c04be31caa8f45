"""The page of a database of records: what it says, and that it is well-formed and complete by itself."""

import re
import sqlite3
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.cli.schema import report
from tests.measure.jobs import HOST, job, product
from tests.report.balanced import Balanced
from tilewright.cli import main
from tilewright.measure.job import Job
from tilewright.measure.records import Records
from tilewright.measure.row import State
from tilewright.measure.verdicts import Outcome, Verdict
from tilewright.report.charts import Axis, Scale, Series, chart
from tilewright.report.history import Search, Trial, searches
from tilewright.report.page import page
from tilewright.report.tuning import tuning_sections


def ok(us: float, predicted: float | None = None) -> Outcome:
    return Outcome(Verdict.OK, times_us=(us,), predicted=predicted)


def search(*outcomes: Outcome) -> Search:
    trials = [Trial(0.5 * number, outcome) for number, outcome in enumerate(outcomes)]
    return Search(str(product("mm", 64)), HOST, 1, trials)


@pytest.fixture
def records(tmp_path: Path) -> Path:
    path = tmp_path / "r.db"
    traces = [job("mm", 6).trace, '{"version": 1, "steps": []}']
    with Records.open(path) as database, database.session({}) as session:
        for trace, us in zip(traces, (9.0, 4.0), strict=True):
            database.add(session, Job(str(product("mm", 64)), trace, HOST), ok(us))
        database.add(session, Job(str(product("mm", 64)), traces[0], HOST, seed=1), ok(1.0), State.REPEATED)
        database.add(session, Job(str(product("other", 6)), traces[0], HOST), Outcome(Verdict.CRASH, "SIGSEGV"))
    return path


def test_searches_are_by_program_and_without_what_was_repeated(records: Path) -> None:
    with Records.open(records) as database:
        first, second = searches(database)
    assert [trial.outcome.median_us for trial in first.trials] == [9.0, 4.0]
    assert first.trials[0].seconds == 0 <= first.trials[1].seconds
    assert (first.first_us, first.best_us) == (9.0, 4.0)
    assert second.best_us is None
    assert first.work is not None
    assert first.work.operations == 2 * 64**3


def test_the_best_so_far() -> None:
    crashed = Outcome(Verdict.CRASH, "SIGSEGV")
    way = list(search(crashed, ok(8.0), ok(9.0), ok(2.0), ok(5.0)).best_so_far())
    assert way == [(2, 0.5, 8.0), (4, 1.5, 2.0), (5, 2.0, 2.0)]
    assert list(search(crashed).best_so_far()) == []


def test_the_page_is_complete_and_well_formed() -> None:
    text = page("A & B", tuning_sections([search(ok(8.0), ok(2.0)), search(Outcome(Verdict.WRONG, "<wrong>"))]))
    parser = Balanced()
    parser.feed(text)
    assert parser.open == []
    assert "A &amp; B" in text
    assert "1 wrong" in text
    assert not re.search(r"(src|href)=|url\(|@import", text)
    assert len([ElementTree.fromstring(svg) for svg in re.findall(r"<svg.*?</svg>", text, re.DOTALL)]) == 3
    cells = re.findall(r"<td[^>]*>([^<]*)</td>", text)
    assert cells[:8] == ["kernel 1", "1", "2", "0", "8.0", "2.0", "4.00", "262.1"]


def test_times_in_the_order_of_their_predictions() -> None:
    text = page("p", tuning_sections([search(ok(8.0, -2.0), ok(4.0, 0.5), ok(9.0), ok(2.0, 3.0))]))
    (picture,) = re.findall(r"<svg[^>]*>\s*<title>Predicted.*?</svg>", text, re.DOTALL)
    heights = [float(height) for height in re.findall(r'<circle cx="[\d.]+" cy="([\d.]+)"', picture)]
    assert len(heights) == 3
    assert heights == sorted(heights, reverse=True)


def test_points_are_where_they_belong() -> None:
    dots = [(1.0, 10.0), (100.0, 1000.0), (-1.0, 5.0), (float("nan"), 5.0)]
    text = chart("t", Axis("x", Scale.LOGARITHMIC), Axis("y", Scale.LOGARITHMIC), [Series("s", dots, "red", False)])
    places = [tuple(map(float, pair)) for pair in re.findall(r'<circle cx="([\d.]+)" cy="([\d.]+)"', text)]
    assert len(places) == 2
    (left, bottom), (right, top) = places
    assert left < right
    assert bottom > top
    assert ">1e+03<" in text or ">1000<" in text
    assert "nothing to show" in chart("t", Axis("x"), Axis("y"), [])


def test_the_verb(records: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = tmp_path / "page.html"
    assert main(["report", str(records), "-o", str(output), "--json"]) == 0
    found = report("report", capsys.readouterr().out)
    assert found == {"records": str(records), "output": str(output), "kernels": 2, "trials": 3}
    assert output.read_text().startswith("<!doctype html>")
    assert main(["report", str(tmp_path / "none.db")]) == 2
    assert "tilewright tune makes them" in capsys.readouterr().err
    assert main(["report", str(records), "-o", str(tmp_path / "no" / "page.html")]) == 2
    assert "can't be written" in capsys.readouterr().err


def test_a_time_that_is_none(records: Path, capsys: pytest.CaptureFixture[str]) -> None:
    connection = sqlite3.connect(records)
    with connection:
        connection.execute("UPDATE record SET created = 'yesterday'")
    connection.close()
    assert main(["report", str(records)]) == 2
    assert "no time" in capsys.readouterr().err
