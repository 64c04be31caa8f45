"""``tune``, end to end: it measures, keeps what it found, and compile uses that."""

import json
import re
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper

import tilewright
from tests.cli.schema import report
from tests.frontend.models import model as make_model
from tilewright.base.errors import BadInput
from tilewright.cli import main
from tilewright.measure.records import Records
from tilewright.measure.row import State
from tilewright.measure.turns import Timing
from tilewright.networks.comparison import Comparison
from tilewright.target.target import Target
from tilewright.tune.kernel_tuner import FINALISTS, Setup

pytestmark = pytest.mark.usefixtures("short_turns")


@pytest.fixture
def model(tmp_path: Path) -> str:
    random = np.random.default_rng(0)
    weights = {"w": random.standard_normal((40, 24)).astype(np.float32)}
    nodes = [helper.make_node("MatMul", ["x", "w"], ["y"], name="product")]
    onnx.save(make_model(nodes, {"x": np.zeros((20, 40), np.float32)}, ["y"], weights), tmp_path / "m.onnx")
    return str(tmp_path / "m.onnx")


def tune(model: str, records: Path, *options: str) -> int:
    return main(["tune", model, "--records", str(records), "--threads", "1", "--json", *options])


def test_what_was_measured_is_not_measured_again(
    model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "records" / "r.db"
    assert tune(model, path, "--minutes", "0.001") == 0
    first = report("tune", capsys.readouterr().out)
    assert first["kernels"][0]["tried"] == Setup().first
    assert 2 < first["measured"] <= 40  # some candidates are scheduled alike; and the confirmed ones
    assert tune(model, path, "--minutes", "0.001") == 0
    again = report("tune", capsys.readouterr().out)
    more = again["kernels"][0]["tried"] - first["kernels"][0]["tried"]  # there is time for another round
    assert again["measured"] <= (more + 4 * FINALISTS if more else 0)
    for report_of in (first, again):
        del report_of["kernels"][0]["used"]  # whether it pays is measured each time
    assert more or again["kernels"] == first["kernels"]


@pytest.mark.parametrize(
    "options",
    [
        ("--search", "genetic", "--cost-model", "random"),
        pytest.param(("--search", "grid"), marks=pytest.mark.slow),
        pytest.param(("--cost-model", "random"), marks=pytest.mark.slow),
    ],
)
def test_who_proposes_can_be_chosen(
    options: tuple[str, ...], model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "r.db"
    assert tune(model, path, "--minutes", "0.001", *options) == 0
    assert report("tune", capsys.readouterr().out)["measured"] > 2


def test_compile_uses_what_is_better(
    model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A schedule that is kept is there in ``explain``; without records, or withdrawn, it is not."""
    path = tmp_path / "r.db"
    monkeypatch.setattr(Comparison, "is_kept", True)
    monkeypatch.setattr("tilewright.tune.model_tuner.CLEARLY", 1e9)
    assert tune(model, path, "--minutes", "0.001") == 0
    assert report("tune", capsys.readouterr().out)["kept"]

    def explained(*options: str) -> tuple[float | None, str]:
        """What was measured of the kernel's schedule, and what is said of records."""
        assert main(["explain", model, "--json", *options]) == 0
        explanation = report("explain", capsys.readouterr().out)["explanation"]
        told = [finding["reason"] for finding in explanation["findings"] if finding["kind"] in ("records", "untuned")]
        return explanation["kernels"][0]["measured_us"], " ".join(told)

    one, use = ("--threads", "1"), ("--records", str(path))
    microseconds, told = explained(*one, *use)
    assert microseconds is not None
    assert re.search(r"^\d+ schedules measured, the best is \d.* as fast as the analytic choice; confirmed", told)
    assert explained(*one) == (None, "their schedules are the analytic choice, and no record of a measurement is used")
    assert explained("--threads", "2", *use) == (None, "records exist for threads=1, none for threads=2")
    other = f"{Target.host()},l3=8M"
    assert explained(*one, *use, "--target", other)[1].startswith("records exist for other targets")
    assert main(["explain", model, "--records", str(tmp_path / "none.db")]) == 2
    assert "there is no file" in capsys.readouterr().err
    monkeypatch.setattr(Comparison, "is_kept", False)
    assert tune(model, path, "--minutes", "0.001") == 0
    assert not report("tune", capsys.readouterr().out)["kept"]
    with Records.open(path) as records:
        assert not any(record.state is State.CONFIRMED for record in records.all())
    assert "withdrawn" in explained(*one, *use)[1]


@pytest.mark.parametrize(
    ("before", "after", "is_kept"),
    [
        ((1.0,) * 4, (0.9, 0.9, 0.9, 1.1), True),
        ((1.0,) * 4, (0.9, 0.9, 1.1, 1.1), False),
        ((1.0,) * 4, (1.0,) * 4, False),
        # The machine is slower for some rounds: the median over all of them says another thing.
        ((1.0, 1.0, 2.0, 2.0), (0.9, 2.2, 1.9, 1.9), True),
        ((1.0, 1.0, 2.0, 2.0), (1.1, 1.1, 2.1, 1.0), False),
    ],
)
def test_what_was_found_is_kept_where_it_wins_most_rounds(
    before: tuple[float, ...], after: tuple[float, ...], is_kept: bool
) -> None:
    timings = [Timing(tuple((turn, turn, 5.0) for turn in turns)) for turns in (before, after)]
    assert Comparison(*timings).is_kept is is_kept
    same = Comparison(*timings, is_found=False)
    assert not same.is_kept
    assert same.ratio == 1.0


def test_a_search_that_ends_before_the_model_was_compared_changes_nothing(
    model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "r.db"

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("tilewright.tune.model_tuner.CLEARLY", 1e9)
    monkeypatch.setattr("tilewright.networks.tuning.settle", killed)
    assert tune(model, path, "--minutes", "0.001") == 130
    with Records.open(path) as records:
        states = [record.state for record in records.all()]
        assert states.count(State.REPEATED) > 1
        assert State.CONFIRMED not in states


def test_records_that_can_not_be_read_are_a_finding(model: str, tmp_path: Path) -> None:
    (tmp_path / "r.db").write_bytes(b"no database" * 100)
    findings = tilewright.compile(model, threads=1).explain(records=tmp_path / "r.db").findings
    assert next(finding.reason for finding in findings if finding.kind == "records").startswith("not used: ")
    with pytest.raises(BadInput, match=r"none\.db"):
        tilewright.compile(model, threads=1).explain(records=tmp_path / "none.db")


def test_a_damaged_file_is_a_warning_for_compile_and_an_error_for_tune(
    model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "r.db"
    path.write_bytes(b"no database" * 100)
    assert tune(model, path) == 2
    assert "no database of records" in capsys.readouterr().err
    assert main(["compile", model, "--records", str(path), "-o", str(tmp_path / "m.tw"), "--json"]) == 0
    assert "what was tuned before is not used" in caplog.text
    json.loads(capsys.readouterr().out)


def test_nothing_to_tune_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    nodes = [helper.make_node("Relu", ["x"], ["y"], name="r")]
    proto = make_model(nodes, {"x": np.zeros((2, 3), np.float32)}, ["y"])
    proto.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "n"
    onnx.save(proto, tmp_path / "m.onnx")
    assert tune(str(tmp_path / "m.onnx"), tmp_path / "r.db") == 2
    assert "give --shape" in capsys.readouterr().err
    assert main(["tune", str(tmp_path / "m.onnx")]) == 2  # the tests' environment has no place for records
    assert "give --records" in capsys.readouterr().err
