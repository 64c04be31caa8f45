"""The page of a search in sketches: their tree, and charts over trials."""

import re
from xml.etree import ElementTree

from tests.measure.jobs import HOST, product
from tests.report.balanced import Balanced
from tilewright.measure.job import Job
from tilewright.measure.row import Record
from tilewright.measure.verdicts import Outcome, Verdict
from tilewright.report.history import Search, Trial
from tilewright.report.page import page
from tilewright.report.sketches import GENERATION, Branch, sketch_charts, sketch_section, sketch_tree
from tilewright.report.tuning import tuning_sections

PROGRAM = str(product("mm", 64))
TILED, FUSED, DEEPER = "tile(C)", "cache_write(C), tile_and_fuse(C)", "cache_write(C), tile_and_fuse(C, 1)"


def ok(us: float, predicted: float | None = None) -> Outcome:
    return Outcome(Verdict.OK, times_us=(us,), predicted=predicted)


def search(*measured: tuple[str | None, Outcome]) -> Search:
    trials: list[Trial] = []
    for number, (label, outcome) in enumerate(measured):
        decisions = () if label is None else (("space", label), ("C.unroll", "16"))
        trace = '{"version": 1, "steps": []}' + " " * number
        trials.append(Trial(float(number), Record(Job(PROGRAM, trace, HOST, decisions=decisions), outcome)))
    return Search(PROGRAM, HOST, 1, trials)


SEARCH = search(
    (TILED, ok(9.0, -1.0)),
    (FUSED, ok(5.0, 0.5)),
    (FUSED, Outcome(Verdict.CRASH, "SIGSEGV")),
    (DEEPER, ok(4.0, 2.0)),
    ("template", ok(6.0)),
    ("no rule", Outcome(Verdict.WRONG, "")),
)


def counts(branch: Branch) -> tuple[int, int, float | None]:
    return branch.tried, branch.right, branch.best_us


def test_the_tree_has_a_branch_for_each_rule_and_block() -> None:
    tree = sketch_tree(SEARCH)
    assert tree is not None
    assert counts(tree) == (6, 4, 4.0)
    assert list(tree.branches) == [TILED, "cache_write(C)", "template", "no rule"]
    cached = tree.branches["cache_write(C)"]
    assert counts(cached) == (3, 2, 4.0)
    assert cached.alone is None
    assert {step: counts(one) for step, one in cached.branches.items()} == {
        "tile_and_fuse(C)": (2, 1, 5.0),
        "tile_and_fuse(C, 1)": (1, 1, 4.0),
    }
    alone = search((None, ok(1.0)))
    assert sketch_tree(alone) is None
    assert sketch_section(alone) == ""


def test_the_tree_is_read_from_the_fastest_down() -> None:
    text = sketch_section(SEARCH)
    parser = Balanced()
    parser.feed(text)
    assert parser.open == []
    lines = re.findall(r"<li>(?:<b>)?<code>(.*?)</code>(?:</b>)?: (.*?)(?=<)", text)
    assert lines == [
        ("cache_write(C)", "3 measured, 1 failed, best 4.0 us"),
        ("tile_and_fuse(C, 1)", "1 measured, best 4.0 us"),
        ("tile_and_fuse(C)", "2 measured, 1 failed, best 5.0 us"),
        ("template", "1 measured, best 6.0 us"),
        (TILED, "1 measured, best 9.0 us"),
        ("no rule", "1 measured, 1 failed, none right"),
    ]
    assert re.findall(r"<b><code>(.*?)</code>", text) == ["cache_write(C)", "tile_and_fuse(C, 1)"]


def test_steps_without_an_alternative_are_one_line() -> None:
    text = sketch_section(search((DEEPER, ok(4.0)), (TILED, ok(5.0))))
    assert f"<code>{DEEPER}</code>" in text
    assert text.count("<li>") == 2


def test_a_sketch_to_which_others_add_steps_is_a_line_of_its_own() -> None:
    text = sketch_section(search(("rfactor(S)", ok(4.0)), ("rfactor(S), tile(C)", ok(5.0)), ("rfactor(S)", ok(6.0))))
    assert re.findall(r"<code>(.*?)</code>(?:</b>)?: (\d)", text) == [
        ("rfactor(S)", "3"),
        ("nothing more", "2"),
        ("tile(C)", "1"),
    ]
    assert re.findall(r"<b><code>(.*?)</code>", text) == ["rfactor(S)", "nothing more"]


def test_charts_tell_sketches_and_scores() -> None:
    many = search(*((f"tile(B{n % 8})", ok(float(n + 1), n / 10 - 2)) for n in range(2 * GENERATION + 5)))
    sketches, scores = sketch_charts(many)
    for svg in (sketches, scores):
        ElementTree.fromstring(svg)
    assert [f"tile(B{n})" in sketches for n in range(8)] == [True] * 6 + [False] * 2
    assert "others" in sketches
    assert all(name in scores for name in ("highest", "median", "lowest"))
    assert sketch_charts(search((None, ok(1.0)))) == []


def test_the_page_shows_it() -> None:
    text = page("p", tuning_sections([SEARCH]))
    assert '<ul class="sketches">' in text
    assert "Sketches, by trials" in text
    assert "steps of the fastest schedule" in text
