"""The page of a database of records: what it says, and that it is well-formed and complete by itself."""

import re
import sqlite3
import sys
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.cli.schema import report
from tests.measure.jobs import HOST, product
from tests.report.balanced import Balanced
from tilewright.base.errors import BadInput
from tilewright.cli import main
from tilewright.cost.analytic import schedule
from tilewright.insight.peak import Bandwidth, Peak, Roof
from tilewright.loops.identity import identity
from tilewright.measure.job import Job
from tilewright.measure.records import Records
from tilewright.measure.row import Record, State
from tilewright.measure.verdicts import Outcome, Verdict
from tilewright.report.charts import Axis, Mark, Scale, Series, chart
from tilewright.report.history import Search, Trial, searches
from tilewright.report.page import page
from tilewright.report.tuning import tuning_sections
from tilewright.schedule.schedule import Schedule
from tilewright.target.target import Target
from tilewright.tune.recorded import named
from tilewright.tune.spaces import space_of
from tilewright.tune.tried import Became, Tried


def ok(us: float, predicted: float | None = None) -> Outcome:
    return Outcome(Verdict.OK, times_us=(us,), predicted=predicted)


PRODUCT = product("mm", 64)
OWN = schedule(Schedule(named(PRODUCT)), Target.parse(HOST)).trace.to_json()


def search(*outcomes: Outcome) -> Search:
    """The first candidate is the analytic choice; the others have schedules of their own."""
    traces = [OWN, *('{"version": 1, "steps": []}' + " " * number for number in range(1, len(outcomes)))]
    jobs = [Job(str(PRODUCT), trace, HOST) for trace in traces]
    records = [Record(job, outcome) for job, outcome in zip(jobs, outcomes, strict=True)]
    return Search(str(PRODUCT), HOST, 1, [Trial(0.5 * number, record) for number, record in enumerate(records)])


@pytest.fixture
def records(tmp_path: Path) -> Path:
    path = tmp_path / "r.db"
    traces = [OWN, '{"version": 1, "steps": []}']
    kernels = {identity(named(PRODUCT)): {"name": "k3_MatMul", "nodes": ["head (MatMul)"]}}
    with Records.open(path) as database, database.session({"kernels": kernels}) as session:
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
    assert first.tried is not None and second.tried is not None
    assert (first.tried.own_us, first.tried.best_us) == (1.0, 1.0)  # what was repeated counts for that
    assert first.tried.became is Became.WITHDRAWN
    assert second.tried.best_us is None
    assert (first.name, first.nodes) == ("k3_MatMul", ("head (MatMul)",))
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
    assert not re.search(r"<(script|link|image)|src=|href=\"(?!#)|url\((?!#)|@import", text)
    assert len([ElementTree.fromstring(svg) for svg in re.findall(r"<svg.*?</svg>", text, re.DOTALL)]) == 3
    cells = re.findall(r"<td[^>]*>([^<]*)</td>", text)
    assert cells[:9] == ["kernel 1", "1", "2", "0", "8.0", "2.0", "4.00", "262.1", "not confirmed yet"]


def test_the_first_candidate_is_not_taken_for_the_compilers_choice() -> None:
    """The search began with a slow one: what was gained is told from what the compiler does."""
    found = search(ok(2.0), ok(12.0), ok(1.9))
    found.measured = found.measured[::-1]
    assert found.tried is not None
    assert found.tried.gain == pytest.approx(2.0 / 1.9)


@pytest.mark.parametrize(
    ("states", "became"),
    [
        ((State.SEARCHED,), Became.OPEN),
        ((State.SEARCHED, State.REPEATED), Became.WITHDRAWN),
        ((State.REPEATED, State.CONFIRMED), Became.CONFIRMED),
    ],
)
def test_what_became_of_it(states: tuple[State, ...], became: Became) -> None:
    records = [Record(Job(str(PRODUCT), OWN, HOST, seed=n), ok(1.0), state) for n, state in enumerate(states)]
    assert Tried.of(PRODUCT, Target.parse(HOST), records).became is became


def rows(found: Search) -> list[tuple[str, ...]]:
    text = page("p", tuning_sections([found]))
    compared = re.search(r"<th>knob</th>.*?</table>", text, re.DOTALL)
    cells = r"<td[^>]*>(.*?)</td>" * 3
    return [] if compared is None else re.findall(cells, compared[0])


def test_decisions_beside_those_of_the_analytic_choice() -> None:
    space = space_of(named(PRODUCT), Target.parse(HOST))
    analytic = space.analytic()
    assert analytic is not None
    decided = space.describe(analytic)
    faster = space.digits({**decided, "written out": 0 if decided["written out"] else 1})
    jobs = [
        Job(str(PRODUCT), space.schedule(digits).trace.to_json(), HOST, decisions=space.decisions(digits))
        for digits in (analytic, faster)
    ]
    trials = [Trial(0, Record(job, ok(us))) for job, us in zip(jobs, (2.0, 1.0), strict=True)]
    found = rows(Search(str(PRODUCT), HOST, 1, trials))
    assert [name for name, _, _ in found] == [knob.name for knob in space.knobs]
    assert [name for name, best, own in found if best != own] == ["written out"]
    assert ("tile", *2 * [str(decided["tile"])[1:-1]]) in found


def test_decisions_of_the_analytic_choice_itself_and_of_a_schedule_from_elsewhere() -> None:
    own = rows(search(ok(1.0), ok(2.0)))
    assert own and all(best == analytic for _, best, analytic in own)
    assert rows(search(ok(2.0), ok(1.0))) == [], "nobody knows the knobs of this schedule"


def test_roofs_are_drawn() -> None:
    peak = Peak(1, 100.0, (Bandwidth(Roof.MEMORY, 1 << 28, 10.0),))
    with_roof, without = (page("p", tuning_sections([search(ok(8.0))], peaks)) for peaks in ({1: peak}, None))
    assert "roof: arithmetic and memory" in with_roof
    assert "roof:" not in without


def test_a_browser_is_not_sent_elsewhere() -> None:
    text = chart("t", Axis("x"), Axis("y"), [Series("s", [(1.0, 2.0)], "red")])
    assert not re.search(r"<image|@import|url\(http", text)
    assert text == chart("t", Axis("x"), Axis("y"), [Series("s", [(1.0, 2.0)], "red")])


def places(picture: str) -> list[tuple[float, float]]:
    """Of dots: across, and down."""
    return [
        (float(x), float(y)) for x, y in re.findall(r'<use [^>]*x="([\d.]+)" y="([\d.]+)"[^>]*fill-opacity', picture)
    ]


def test_times_in_the_order_of_their_predictions() -> None:
    text = page("p", tuning_sections([search(ok(8.0, -2.0), ok(4.0, 0.5), ok(9.0), ok(2.0, 3.0))]))
    (picture,) = [svg for svg in re.findall(r"<svg.*?</svg>", text, re.DOTALL) if "Predicted" in svg]
    heights = [down for _, down in places(picture)]
    assert len(heights) == 3
    assert heights == sorted(heights, reverse=True)


def test_points_are_where_they_belong() -> None:
    dots = [(1.0, 10.0), (100.0, 1000.0), (-1.0, 5.0), (float("nan"), 5.0)]
    text = chart("t", Axis("x", Scale.LOGARITHMIC), Axis("y", Scale.LOGARITHMIC), [Series("s", dots, "red")])
    (left, bottom), (right, top) = places(text)
    assert left < right
    assert bottom > top
    assert "nothing to show" in chart("t", Axis("x"), Axis("y"), [])


def test_a_band_is_behind_its_line() -> None:
    line = Series("s", [(1.0, 2.0), (3.0, 2.5)], "red", Mark.STEPS, [(1.0, 1.5, 2.5), (3.0, 2.0, 3.0)])
    shaded, alone = (chart("t", Axis("x"), Axis("y"), [one]) for one in (line, replace(line, band=())))
    assert shaded.count("fill-opacity: 0.15") == 1
    assert "fill-opacity: 0.15" not in alone


def test_without_matplotlib_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(BadInput, match=r"tilewright\[report\]"):
        chart("t", Axis("x"), Axis("y"), [Series("s", [(1.0, 2.0)], "red")])


@pytest.mark.usefixtures("short_turns")
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
