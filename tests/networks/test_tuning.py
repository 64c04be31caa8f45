"""Two networks in one budget, end to end: what they share is searched once, and each is kept or withdrawn by itself."""

import re
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper

import tilewright
from tests.cli.schema import report
from tests.frontend.models import model as make_model
from tilewright.base.errors import BadInput
from tilewright.base.search import Goal, Scheduling
from tilewright.cli import main
from tilewright.measure.records import Records
from tilewright.measure.row import State
from tilewright.measure.turns import Timing
from tilewright.model import CompiledModel
from tilewright.networks.comparison import Comparison
from tilewright.networks.plan import Plan
from tilewright.tune.model_tuner import ModelTuner, Progress
from tilewright.tune.scheduler.gradient import Gradient
from tilewright.tune.scheduler.objectives import Requirements, Speedup
from tilewright.tune.scheduler.round_robin import RoundRobin

pytestmark = pytest.mark.usefixtures("short_turns")


def chain(path: Path, *widths: int) -> str:
    """Products of matrices, one after the other."""
    random = np.random.default_rng(0)
    weights = {
        f"w{place}": random.standard_normal(shape).astype(np.float32) for place, shape in enumerate(pairwise(widths))
    }
    names = ["x", *(f"y{place}" for place in range(len(weights)))]
    nodes = [
        helper.make_node("MatMul", [names[place], f"w{place}"], [names[place + 1]], name=f"product{place}")
        for place in range(len(weights))
    ]
    onnx.save(make_model(nodes, {"x": np.zeros((20, widths[0]), np.float32)}, [names[-1]], weights), path)
    return str(path)


@pytest.fixture
def nets(tmp_path: Path) -> tuple[str, str]:
    """The first one has two products of 40 by 40, the second one of them and another one."""
    return chain(tmp_path / "a.onnx", 40, 40, 40), chain(tmp_path / "b.onnx", 40, 40, 24)


Ratio = Callable[[CompiledModel], float]


def compared_by(ratio: Ratio, patch: pytest.MonkeyPatch) -> list[CompiledModel]:
    """Every candidate is better than the analytic choice, and what whole models take is made up.

    Returns a list that will have the models with results, in the order in which they are compared.
    """
    found: list[CompiledModel] = []

    def in_turns(before: CompiledModel, after: CompiledModel, feeds: object) -> Comparison:
        found.append(after)
        times = (Timing(((seconds, seconds),) * 4) for seconds in (1.0, ratio(before)))
        return Comparison(*times)

    patch.setattr("tilewright.tune.model_tuner.CLEARLY", 1e9)
    patch.setattr("tilewright.networks.place.in_turns", in_turns)
    return found


def few_rounds(count: int, patch: pytest.MonkeyPatch) -> list[tuple[int, ...]]:
    """A search ends after so many rounds. Returns a list that will have the calls of its kernels in each network."""
    run, calls = ModelTuner.run, list[tuple[int, ...]]()

    def watched(self: ModelTuner, is_time_left: Callable[[], bool]) -> Iterator[Progress]:
        del is_time_left
        calls.extend(kernel.calls for kernel in self.kernels)
        rounds = iter(range(count))
        return run(self, lambda: next(rounds, None) is not None)

    patch.setattr(ModelTuner, "run", watched)
    return calls


def is_first(model: CompiledModel) -> bool:
    return model.outputs[0].static_shape == (20, 40)


def confirmed(path: Path) -> list[str]:
    with Records.open(path) as records:
        return [record.job.workload for record in records.all() if record.state is State.CONFIRMED]


def test_what_two_networks_share_is_tuned_once_and_kept_where_it_helps(
    nets: tuple[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first network is faster with what was found, the second one is not, and not slower either."""
    path, calls = tmp_path / "r.db", few_rounds(2, monkeypatch)
    compared_by(lambda model: 0.5 if is_first(model) else 1.0, monkeypatch)
    assert main(["tune", *nets, "--records", str(path), "--threads", "1", "--json"]) == 0
    told = report("tune", capsys.readouterr().out)
    assert calls == [(2, 1), (0, 1)]
    first, second = told["networks"]
    assert (told["objective"], told["scheduler"], first["kept"], second["kept"]) == ("sum", "gradient", True, False)
    assert [(kernel["weight"], kernel["tried"], kernel["used"]) for kernel in first["kernels"]] == [(2, 4, True)]
    assert [(kernel["weight"], kernel["used"]) for kernel in second["kernels"]] == [(1, True), (1, False)]
    assert first["kernels"][0]["after_us"] == second["kernels"][0]["after_us"]
    assert len(confirmed(path)) == 1

    settings = tilewright.Settings(records=path)
    for net in nets:
        kernels = tilewright.compile(net, threads=1, settings=settings).explain().kernels
        assert [kernel.measured_us is not None for kernel in kernels] == [True, False][: len(kernels)]


def test_nothing_is_accepted_that_makes_a_network_slower(
    nets: tuple[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "r.db"
    few_rounds(2, monkeypatch)
    models = compared_by(lambda model: 0.5 if is_first(model) else 2.0, monkeypatch)
    assert main(["tune", *nets, "--records", str(path), "--threads", "1"]) == 0
    shown = capsys.readouterr().out
    assert f"{nets[0]}: 1000.000 ms before, 500.000 ms after" in shown
    assert shown.count("the analytic choices stay") == 2
    assert confirmed(path) == []
    assert list(map(is_first, models)) == [True, False, False]


def test_python_has_it_too(nets: tuple[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With requirements, of which that of the second network is met at once."""
    calls = few_rounds(5, monkeypatch)
    compared_by(lambda model: 0.5, monkeypatch)
    first, second = tilewright.tune_models(
        nets, records=tmp_path / "r.db", objective="requirements", requirements=(1e-9, 1e6), threads=1
    )
    assert (first.is_kept, second.is_kept) == (True, True)
    assert calls == [(2, 1), (0, 1)]
    assert [kernel.tried for kernel in first.kernels] == [4 + 4 + 4 + 4]  # all but the first round of the other
    assert [kernel.tried for kernel in second.kernels] == [16, 4]


WRONG: list[tuple[list[str], str]] = [
    (["--objective", "requirements"], "needs the time that is required of each model"),
    (["--requirement", "a.onnx=5ms", "--requirement", "b.onnx=5ms"], "ask for the objective requirements"),
    (["--objective", "requirements", "--requirement", "a.onnx=5ms"], "no time is required of b.onnx"),
    (["--objective", "requirements", "--requirement", "c.onnx=5ms"], "the models are a.onnx, b.onnx"),
    (["--objective", "requirements", "--requirement", "a.onnx=5"], "write a time above 0, such as 5ms"),
    (["--objective", "requirements", "--requirement", "a.onnx=0ms"], "write a time above 0, such as 5ms"),
    (["--requirement", "5ms"], "write NAME=VALUE"),
    (["--scheduler", "round-robin", "--objective", "speedup"], "round-robin looks at no objective"),
    (["a.onnx"], "a.onnx is given twice"),
    (["--shape", "z=1x2"], "no model has an input 'z'"),
    (["--patience", "0"], "no whole number of at least 1"),
]


@pytest.mark.parametrize(
    ("arguments", "told"), WRONG, ids=lambda item: " ".join(item) if isinstance(item, list) else ""
)
def test_wrong_arguments_are_refused_before_anything_is_compiled(
    arguments: list[str], told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in "ab":
        chain(tmp_path / f"{name}.onnx", 8, 8)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("tilewright.api.compile", None)
    models = ["a.onnx", "b.onnx", *(arguments if arguments == ["a.onnx"] else [])]
    options = [] if arguments == ["a.onnx"] else arguments
    try:
        status = main(["tune", *models, "--records", "r.db", *options])
    except SystemExit as left:
        status = int(str(left.code))
    assert status == 2
    assert told in " ".join(capsys.readouterr().err.split())


PYTHON: list[tuple[dict[str, object], str]] = [
    ({"models": []}, "models=[]"),
    ({"models": ["a.onnx", 3]}, "models="),
    ({"objective": "up"}, "no objective called 'up'; there is requirements, speedup, sum"),
    ({"scheduler": "up"}, "no scheduler called 'up'; there is gradient, round-robin"),
    ({"objective": "requirements"}, "needs the time"),
    ({"requirements": (1.0,)}, "ask for the objective requirements"),
    ({"requirements": (0.0,)}, "requirements="),
    ({"patience": 0}, "patience=0"),
    ({"shapes": [{}, {}, {}]}, "shapes= has 3 entries"),
    ({"records": "/nowhere/none/r.db"}, "/nowhere/none"),
]


@pytest.mark.parametrize(("given", "told"), PYTHON, ids=lambda item: item if isinstance(item, str) else "")
def test_python_refuses_wrong_arguments(given: dict[str, object], told: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tilewright.networks.models.compile_model", None)
    if "records" in given:
        monkeypatch.setattr(Path, "mkdir", _read_only)
    with pytest.raises(BadInput, match=re.escape(told)):
        tilewright.tune_models(**{"models": ["a.onnx", "b.onnx"], "records": "r.db", **given})


def _read_only(path: Path, **_: object) -> None:
    raise OSError(f"{path} is on a disk that is read only")


def test_plans_make_schedulers() -> None:
    assert Plan(seed=3, patience=4).scheduler(()) == Gradient(seed=3, patience=4)
    assert Plan(scheduling=Scheduling.ROUND_ROBIN, patience=4).scheduler(()) == RoundRobin(patience=4)
    required = Plan(goal=Goal.REQUIREMENTS, requirements=(1.0, 2.0))
    assert required.scheduler((3.0, 4.0)) == Gradient(Requirements((1.0, 2.0)), (3.0, 4.0))
    assert Plan(goal=Goal.SPEEDUP).scheduler((3.0, 4.0)) == Gradient(Speedup((3.0, 4.0)), (3.0, 4.0))
