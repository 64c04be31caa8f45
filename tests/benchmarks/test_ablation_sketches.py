"""The ablation of sketches: boxes are parts of all sketches, tables hold what was measured, searches are replayed."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import ClassVar
from xml.etree import ElementTree

import numpy as np
import pytest

from benchmarks.ablation import record_sketches, sketches
from benchmarks.ablation.programs import naive, product, softmax
from benchmarks.ablation.record_sketches import path_of
from benchmarks.ablation.sketch_box import SketchBox
from benchmarks.ablation.sketch_table import SketchTable, TableCandidates, described, read
from benchmarks.ablation.sketches import WAYS, curve, report, trials_to
from tilewright import te
from tilewright.base.errors import ScheduleError
from tilewright.measure.job import Job
from tilewright.measure.verdicts import Outcome, Verdict
from tilewright.target.target import Target

TARGET = replace(Target.host(), cores=1)
SMALL: dict[str, Callable[[], te.Tensor]] = {"softmax": lambda: softmax(8, 24), "product": lambda: product(24, 16, 36)}


@pytest.fixture(name="box", scope="module")
def made_box() -> SketchBox:
    return SketchBox.of(naive(softmax(8, 24)), TARGET, 160)


def made_up(box: SketchBox, part: float = 1.0) -> SketchTable:
    """Times by a formula over what the knobs are set to; one in twenty fails."""
    random = np.random.default_rng(0)
    digits = random.permutation(box.everything())
    digits = digits[: int(part * len(digits))]
    features = np.nan_to_num(box.union.features(digits))
    weights = random.standard_normal((2, features.shape[1]))
    times = 50 + 40 * np.abs(np.sin(features @ weights.T / 4)).sum(axis=1)
    times[random.random(len(times)) < 0.05] = np.inf
    return SketchTable.empty(box.union).plus(digits, times)


def test_a_box_has_all_sketches_and_the_same_values_in_each(box: SketchBox) -> None:
    digits = box.everything()
    assert 80 < len(digits) <= 160
    assert len(np.unique(digits, axis=0)) == len(digits)
    assert box.union.allowed(digits).all()
    assert box.union.labels == box.whole.labels
    values: dict[str, set[object]] = {}
    for member in box.union.members:
        for knob in member.knobs:
            assert values.setdefault(knob.name, set(knob.values)) == set(knob.values)
    assert max(map(len, values.values())) > 1


def test_candidates_of_a_box_are_those_of_the_space(box: SketchBox) -> None:
    for digits in box.everything()[::23]:
        decided = dict(box.union.decisions(digits))
        place, _ = box.union.own_digits(digits)
        member = box.whole.members[place]
        wanted = {knob.name: value for knob in member.knobs for value in knob.values}
        wanted |= box.union.members[place].describe(box.union.own_digits(digits)[1])
        try:
            trace = str(member.schedule(member.digits(wanted)).trace)
        except ScheduleError:
            continue
        assert str(box.schedule(digits).trace) == trace
        assert decided["space"] == box.whole.labels[place]


def test_tables_are_read_back(box: SketchBox, tmp_path: Path) -> None:
    table = made_up(box)
    table.save(tmp_path / "t.npz")
    found = SketchTable.load(tmp_path / "t.npz")
    assert described(found.union) == described(box.union)
    assert described(read(described(box.union))) == described(box.union)
    for name in ("digits", "microseconds", "is_careful"):
        np.testing.assert_array_equal(getattr(found, name), getattr(table, name))
    with pytest.raises(ScheduleError, match="is not scheduled"):
        found.union.schedule(found.digits[0])


@pytest.mark.parametrize("part", [1.0, 0.5])
def test_candidates_of_a_table_and_no_others(box: SketchBox, part: float) -> None:
    table = made_up(box, part)
    space = TableCandidates(table)
    assert (space.rows(table.digits) == np.arange(len(table.digits))).all()
    everything = box.everything()
    known = {tuple(row) for row in table.digits.tolist()}
    assert [tuple(row) in known for row in everything.tolist()] == space.allowed(everything).tolist()
    drawn = space.sample(900, np.random.default_rng(0))
    assert space.allowed(drawn).all()
    members = np.bincount(drawn[:, 0])
    assert members.min() > 0.5 * members.mean(), "sketches are equally likely"
    ordered = sorted(known)
    for decided in (1, 3, len(space.radices)):
        for digits in everything[::37]:
            begins = [row for row in ordered if row[:decided] == tuple(digits[:decided].tolist())]
            completed = space.completed(digits[None], decided)
            assert space.allowed(completed)[0] == bool(begins)
            if begins:
                assert tuple(completed[0].tolist()) == begins[0]


def test_some_sketches_are_left_out(box: SketchBox) -> None:
    space = TableCandidates(made_up(box), ["no rule"])
    (place,) = (place for place, label in enumerate(box.union.labels) if label == "no rule")
    assert (space.sample(50, np.random.default_rng(0))[:, 0] == place).all()
    others = box.everything()
    assert space.allowed(others).sum() == (others[:, 0] == place).sum()


@pytest.mark.share(2)
@pytest.mark.parametrize("way", WAYS)
def test_a_search_is_replayed(box: SketchBox, way: str) -> None:
    table = made_up(box)
    found = curve(table, WAYS[way], 60, seed=1)
    assert found.shape == (60,)
    assert (np.diff(found[np.isfinite(found)]) <= 0).all()
    assert (curve(table, WAYS[way], 30, seed=1) == found[:30]).all()
    whole = curve(table, WAYS[way], 160, seed=1)[-1]
    assert (whole > 1) if way == "limited space" else (whole == 1)


def test_a_search_with_a_model_needs_fewer_trials(box: SketchBox) -> None:
    table = made_up(box)
    curves = {way: np.stack([curve(table, WAYS[way], 250, seed) for seed in range(5)]) for way in ("full", "random")}
    needed = {way: float(np.median(trials_to(found, 1.05))) for way, found in curves.items()}
    assert needed["full"] < needed["random"]


class Bench:
    """Times that depend on the schedule alone. One that can be had for a `Pool`."""

    asked: ClassVar[list[str]] = []

    def __init__(self, builders: int) -> None:
        del builders

    def __enter__(self) -> "Bench":
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def measure_all(self, jobs: Iterable[Job]) -> Iterator[tuple[Job, Outcome]]:
        for job in jobs:
            type(self).asked.append(job.id)
            time = np.random.default_rng(int(job.id[:8], 16)).uniform(1, 9)
            yield job, Outcome(Verdict.WRONG, "") if time > 8.5 else Outcome(Verdict.OK, times_us=(2 * time, time))


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record_sketches, "PROGRAMS", SMALL)
    monkeypatch.setattr(record_sketches, "Pool", Bench)
    Bench.asked = []


@pytest.mark.usefixtures("small")
def test_recording_goes_on_and_what_it_recorded_is_reported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = ["--programs", "softmax,product", "--most", "40", "--folder", str(tmp_path)]

    def asked_for(minutes: str) -> int:
        Bench.asked = []
        record_sketches.main([*arguments, "--minutes", minutes, "--turn", "16"])
        return len(Bench.asked)

    with monkeypatch.context() as patched:
        ticks = iter(np.arange(0.0, 100.0))
        patched.setattr(record_sketches.time, "monotonic", lambda: next(ticks))
        first = asked_for(f"{5 / 60}")
    partial = {name: SketchTable.load(path_of(tmp_path, name)) for name in SMALL}
    assert {len(table.digits) for table in partial.values()} == {16}
    assert first > 16
    asked_for("1")
    for name, before in partial.items():
        table = SketchTable.load(path_of(tmp_path, name))
        assert len(table.digits) > 24
        assert len(np.unique(table.digits, axis=0)) == len(table.digits)
        np.testing.assert_array_equal(table.digits[:16], before.digits)
        fastest = np.argsort(table.microseconds)[: record_sketches.FASTEST // 2]
        assert table.is_careful[fastest].sum() >= 1
    assert asked_for("1") <= 2 * record_sketches.FASTEST, "only what is one of the fastest now"

    page = tmp_path / "page.md"
    page.write_text("before\n<!-- begin sketch ablation -->\n<!-- end sketch ablation -->\nafter\n")
    replay = ["--programs", "product", "--folder", str(tmp_path), "--seeds", "1", "--trials", "64"]
    capsys.readouterr()
    monkeypatch.setattr(sketches, "ProcessPoolExecutor", InThisProcess)
    sketches.main([*replay, "--write", "--document", str(page), "--picture", str(tmp_path / "p.svg")])
    printed = capsys.readouterr().out
    assert "Trials until something is within 5 % of the table's best, fewest first" in printed
    assert all(f"| {way} |" in printed for way in WAYS)
    assert "best after 64" in printed
    assert "best after 256" not in printed
    assert printed.strip() in page.read_text()
    assert page.read_text().endswith("(../p.svg)\n<!-- end sketch ablation -->\nafter\n")
    drawn = (tmp_path / "p.svg").read_text()
    ElementTree.fromstring(drawn)
    assert all(f">{way}<" in drawn for way in WAYS)
    with pytest.raises(SystemExit, match="record_sketches"):
        sketches.main(["--programs", "other", "--folder", str(tmp_path)])
    with pytest.raises(SystemExit, match="another box"):
        record_sketches.main([*arguments[:2], "--most", "90", "--folder", str(tmp_path)])


class InThisProcess:
    """In place of a pool of processes."""

    def __enter__(self) -> "InThisProcess":
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def map(self, function: Callable[[object], object], items: Iterable[object]) -> Iterator[object]:
        return map(function, items)


def test_the_order_is_by_medians_and_quartiles_are_told(box: SketchBox) -> None:
    table = made_up(box)
    steps = {way: 10 * (place + 1) for place, way in enumerate(WAYS)}
    curves = {
        ("softmax", way): np.stack([np.where(np.arange(80) + 1 < step + seed, 2.0, 1.0) for seed in range(5)])
        for way, step in steps.items()
    }
    text = report({"softmax": table}, curves)
    assert ", ".join(f"{way} {step + 2}" for way, step in list(steps.items())[:3]) in text
    assert "| full | 12 (11 to 13) | 1.00 (1.00 to 1.00) |" in text
    late = np.full((5, 80), 3.0)
    assert "| full | > 80 (> 80 to > 80) |" in report({"softmax": table}, {**curves, ("softmax", "full"): late})
