"""A template, a searcher and a cost model outside of the package: given by who tunes, or found as entry points."""

import logging
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper

from tests.cli.schema import report
from tests.extending.hill_climber import HILL_CLIMBING
from tests.extending.packages import HERE, install
from tests.extending.straight_lines import STRAIGHT_LINES, LinearModel
from tests.extending.stripes import stripes
from tests.frontend.models import model as make_model
from tests.measure.jobs import product
from tilewright.base.errors import BadInput
from tilewright.base.events import Recorder, Searched
from tilewright.base.search import Model, Search
from tilewright.cli import main
from tilewright.loops.interpreter import interpret
from tilewright.measure.records import Records
from tilewright.measure.row import State
from tilewright.space.space import Space
from tilewright.target.target import Target
from tilewright.tune.kernel import tune_kernel
from tilewright.tune.strategy import COST_MODELS, SEARCHERS, model_named, search_named

pytestmark = pytest.mark.usefixtures("short_turns")

PRODUCT = product("mm", 12)
RANDOM = np.random.default_rng(0)
INPUTS = {name: RANDOM.standard_normal((12, 12)).astype(np.float32) for name in "AB"}


def test_a_template_is_searched_by_a_searcher_of_ones_own(tmp_path: Path) -> None:
    found = tune_kernel(PRODUCT, template=stripes, search=HILL_CLIMBING, trials=12, records=tmp_path / "r.db")
    assert 12 <= found.tried < 24
    assert 0 < found.microseconds <= found.analytic_microseconds
    (result,) = interpret(found.schedule.program, INPUTS).values()
    np.testing.assert_allclose(result, INPUTS["A"].astype(np.float64) @ INPUTS["B"], rtol=1e-4, atol=1e-5)
    with Records.open(tmp_path / "r.db") as records:
        traces = [record.job.trace for record in records.all()]
        used = records.best(PRODUCT, str(Target.host()), 1, State.CONFIRMED)
    assert bool(used) is (found.microseconds < found.analytic_microseconds)
    space = Space.of(stripes, PRODUCT)
    assert space.schedule(space.digits({"rows": (6, 2), "columns": (3, 4), "order": (1, 0), "written out": 1}))
    assert len(set(traces)) >= 12


def test_a_hill_is_climbed() -> None:
    space = Space.of(stripes, PRODUCT)
    climber = HILL_CLIMBING.searcher(space, lambda digits: np.zeros(len(digits)), 0)
    first = climber.propose(8)
    climber.learn(first, np.arange(8.0))
    following = climber.propose(8)
    assert ((following != first[-1]).sum(axis=1) == 1).sum() >= 4
    assert len(np.unique(np.concatenate([first, following]), axis=0)) == 16


def test_a_cost_model_of_ones_own_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    learned: list[int] = []
    fit = LinearModel.fit

    def watched(self: LinearModel, features: np.ndarray, throughputs: np.ndarray) -> None:
        learned.append(len(features))
        fit(self, features, throughputs)

    monkeypatch.setattr(LinearModel, "fit", watched)
    told = Recorder()
    assert tune_kernel(PRODUCT, cost_model=STRAIGHT_LINES, trials=8, listener=told).tried >= 8
    *_, last = told.events
    assert isinstance(last, Searched)
    assert last.candidates >= 8
    assert last.analytic_us is not None
    assert 0 < (last.fastest_us or 0) <= last.analytic_us
    assert learned == [4, 8]
    model = LinearModel()
    features = RANDOM.standard_normal((40, 3))
    fit(model, features, np.exp(features @ [1.0, -2.0, 0.5]))
    scores = model.score(features)
    np.testing.assert_array_equal(np.argsort(scores), np.argsort(features @ [1.0, -2.0, 0.5]))


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    install(tmp_path, SEARCHERS, "hills", "climbing_hills:HILL_CLIMBING", HERE / "hill_climber.py")
    install(tmp_path, COST_MODELS, "lines", "lines_that_are_straight:STRAIGHT_LINES", HERE / "straight_lines.py")
    install(tmp_path, SEARCHERS, "nonsense", "climbing_hills:np")
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


def test_installed_ones_have_names(installed: Path, caplog: pytest.LogCaptureFixture) -> None:
    del installed
    with caplog.at_level(logging.WARNING, "tilewright"):
        assert search_named("hills").asks_a_model is False
    assert "nonsense" in caplog.text
    assert hasattr(model_named("lines"), "rater")
    assert (search_named("genetic"), model_named("trees")) == (Search.GENETIC, Model.TREES)
    with pytest.raises(BadInput, match="there is annealing, beam, evolution, genetic, grid, hills, random"):
        search_named("up")


def test_the_command_line_knows_them(installed: Path, capsys: pytest.CaptureFixture[str]) -> None:
    weights = {"w": np.eye(24, 16, dtype=np.float32)}
    nodes = [helper.make_node("MatMul", ["x", "w"], ["y"], name="product")]
    onnx.save(make_model(nodes, {"x": np.zeros((8, 24), np.float32)}, ["y"], weights), installed / "m.onnx")
    own = ["--records", str(installed / "r.db"), "--threads", "1", "--json", "--minutes", "0.001"]
    for options in (["--search", "hills"], ["--cost-model", "lines"]):
        assert main(["tune", str(installed / "m.onnx"), *own, *options]) == 0
        assert report("tune", capsys.readouterr().out)["measured"] > 2
    assert main(["tune", str(installed / "m.onnx"), *own, "--cost-model", "curves"]) == 2
    assert "there is lines, random, statements, tree-gru, trees" in capsys.readouterr().err
