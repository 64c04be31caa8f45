"""An alternative outside of the package: ``low_rank.py``, given by its user or found as an entry point."""

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import tilewright
from tests.extending.low_rank import LOW_RANK, factors
from tests.extending.packages import HERE, install
from tests.passes.graphs import value
from tests.tune.test_ways import Bench
from tilewright.base.errors import BadInput, InternalError
from tilewright.base.settings import Settings
from tilewright.cli import main
from tilewright.compilation import Options, Services
from tilewright.driver import compile_graph
from tilewright.graph import Node
from tilewright.loops.identity import identity
from tilewright.measure.records import Records
from tilewright.model import CompiledModel
from tilewright.passes.alternatives import Building, Facts, Way
from tilewright.passes.alternatives.known import BUILT_IN, GROUP, known
from tilewright.tune.measurer import Measurer
from tilewright.tune.recorded import recorded
from tilewright.tune.tasks import nodes_with_routes
from tilewright.tune.ways import WayTuner

RANK, ROWS, K, N = 32, 96, 256, 192
X = np.random.default_rng(1).standard_normal((ROWS, K)).astype(np.float32)
WAY = f"low rank {RANK}, plain"


def proto(rows: int | str = ROWS) -> onnx.ModelProto:
    """Two products, of which the first has a weight of low rank, and the second one of full rank."""
    random = np.random.default_rng(0)
    first = random.standard_normal((K, RANK)) @ random.standard_normal((RANK, N)) / 50
    second = random.standard_normal((N, 64)) / 20
    nodes = [
        helper.make_node("MatMul", ["x", "v"], ["a"], name="first"),
        helper.make_node("Relu", ["a"], ["b"], name="between"),
        helper.make_node("MatMul", ["b", "w"], ["y"], name="second"),
    ]
    values = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [rows, e]) for n, e in (("x", K), ("y", 64))]
    weights = [numpy_helper.from_array(a.astype(np.float32), n) for n, a in (("v", first), ("w", second))]
    graph = helper.make_graph(nodes, "g", values[:1], values[1:], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


def ways(model: CompiledModel) -> dict[str, str]:
    return {row.node.split()[1]: row.way for row in model.explain().nodes}


def weight_bytes(model: CompiledModel) -> int:
    return model.explain().memory.weight_bytes


@pytest.fixture
def path(tmp_path: Path) -> Path:
    onnx.save(proto(), tmp_path / "m.onnx")
    return tmp_path / "m.onnx"


def test_it_is_chosen_where_it_pays_and_computes_the_same() -> None:
    without, model = (tilewright.compile(proto(), threads=1, alternatives=given) for given in ((), [LOW_RANK]))
    assert ways(without) == {"first": "", "between": "", "second": ""}
    assert ways(model) == {"first": WAY, "between": "", "second": ""}
    assert weight_bytes(model) < weight_bytes(without) / 2
    session = onnxruntime.InferenceSession(proto().SerializeToString(), providers=["CPUExecutionProvider"])
    (expected,) = session.run(None, {"x": X})
    np.testing.assert_allclose(model.run(None, {"x": X})[0], expected, rtol=1e-4, atol=1e-4 * np.abs(expected).max())


def test_it_is_one_of_several_with_run_time_extents_and_in_artifacts(tmp_path: Path) -> None:
    model = tilewright.compile(proto("n"), dynamic="symbolic", threads=1, alternatives=[LOW_RANK])
    assert ways(model)["first"] == WAY
    model.save(tmp_path / "m.tw")
    expected = tilewright.compile(proto(), threads=1).run(None, {"x": X})[0]
    found = tilewright.load(tmp_path / "m.tw").run(None, {"x": X[:7]})[0]
    np.testing.assert_allclose(found, expected[:7], rtol=1e-4, atol=1e-4 * np.abs(expected).max())


def test_policies_hold_for_it() -> None:
    """Its sums have other terms; and it is refused where its weights had no room, which here are smaller."""
    strict = tilewright.compile(proto(), threads=1, math="strict", alternatives=[LOW_RANK])
    assert not any(ways(strict).values())
    lean = tilewright.compile(proto(), threads=1, memory_limit=weight_bytes(strict), alternatives=[LOW_RANK])
    assert ways(lean)["first"] == WAY


def test_where_it_does_not_pay_it_stays_away() -> None:
    """What is estimated for two products with thick factors is more than for one."""

    class Thick:
        name = "thick"

        def ways(self, node: Node, facts: Facts) -> Iterable[Way]:
            for way in LOW_RANK.ways(node, facts):
                yield replace(way, make=thick)

    def thick(node: Node, building: Building) -> None:
        x, weight, *_ = node.inputs
        assert weight is not None
        a = building.weight(weight, "a", lambda array: np.pad(factors(array)[0], ((0, 0), (0, N - RANK))))
        b = building.weight(weight, "b", lambda array: np.pad(factors(array)[1], ((0, N - RANK), (0, 0))))
        building.add(node.op, [building.add(node.op, [x, a], node, "thin"), b], node)

    assert not any(ways(tilewright.compile(proto(), threads=1, alternatives=[Thick()])).values())


def test_an_installed_one_needs_no_argument(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    install(tmp_path, GROUP, "low_rank", "low_rank_products:LOW_RANK", HERE / "low_rank.py")
    monkeypatch.syspath_prepend(tmp_path)
    assert ways(tilewright.compile(path, threads=1))["first"] == WAY
    assert main(["explain", str(path), "--threads", "1"]) == 0
    assert f"computed by {WAY} (1): node first" in capsys.readouterr().out


def test_models_with_it_are_others_in_the_cache(path: Path, tmp_path: Path) -> None:
    settings = Settings(cache_dir=tmp_path / "cache", key_dir=tmp_path / "keys", records=None)

    def made(*given: object) -> tuple[bool, int]:
        model = tilewright.compile(path, threads=1, alternatives=given, settings=settings)  # pyright: ignore
        return model.is_cached, sum(array.nbytes for array in model.executable.constants)

    plain, thin = made(), made(LOW_RANK)
    assert not plain[0] and not thin[0] and plain[1] > thin[1]
    assert made() == (True, plain[1])
    assert made(LOW_RANK) == (True, thin[1])

    class Unknown(type(LOW_RANK)):
        """Nobody can say what a class inside of a function does."""

    assert made(Unknown()) == made(Unknown()) == (False, thin[1])


@pytest.mark.parametrize("fastest", [WAY, "direct, plain"])
def test_what_was_measured_decides(fastest: str, tmp_path: Path) -> None:
    """``tilewright tune`` measures the kernels of both ways."""
    made = tilewright.compile(proto(), threads=1, alternatives=[LOW_RANK]).compiled
    graph, facts = made.choices.graph, made.choices.facts
    ((_, routes),) = nodes_with_routes(graph, facts)
    assert [route.name for route in routes] == ["direct, plain", WAY]
    fast = frozenset(identity(kernel) for route in routes if route.name == fastest for kernel in route.kernels)
    tuner = WayTuner(made.choices, 1, 0)
    with Records.open(tmp_path / "r.db") as records, records.session({}) as session:
        measurer = Measurer(Bench(fast), records, session)
        list(tuner.measure(measurer, lambda: True))
        tuner.accept(measurer)
    options = Options(facts.target, threads=1, alternatives=known([LOW_RANK]))
    with recorded(tmp_path / "r.db", facts.target, 1, lambda event: None) as tuned:
        again = compile_graph(graph, options, Services(tuned=tuned))
    assert again.choices.decisions["a"][0] == fastest


def test_nodes_of_one_form_may_have_other_ways() -> None:
    """Of other ranks."""
    made = tilewright.compile(proto(), threads=1, alternatives=[LOW_RANK]).compiled.choices
    ((node, _),) = nodes_with_routes(made.graph, made.facts)
    other = replace(node, inputs=(node.inputs[0], value("u", K, N)), outputs=(value("c", ROWS, N),))
    random = np.random.default_rng(2)
    weight = random.standard_normal((K, 5)) @ random.standard_normal((5, N))
    constants = {**made.graph.constants, value("u", K, N): weight.astype(np.float32)}
    graph = replace(made.graph, nodes=(node, other), constants=constants)
    names = [routes[1].name for _, routes in nodes_with_routes(graph, replace(made.facts, constants=constants))]
    assert names == [WAY, "low rank 5, plain"]


class Wrong:
    """Makes something else, or fails."""

    name = "wrong"

    def __init__(self, fails: bool) -> None:
        self._fails = fails

    def ways(self, node: Node, facts: Facts) -> Iterable[Way]:
        if self._fails:
            raise ZeroDivisionError("no")
        if node.op.name == "MatMul":
            yield Way(self.name, cycles=-1.0, make=other)


def other(node: Node, building: Building) -> None:
    building.append(replace(node, outputs=(replace(node.outputs[0], name="other"),)))


@pytest.mark.parametrize(("fails", "said"), [(True, "ZeroDivisionError: no"), (False, "it makes .*other")])
def test_one_that_fails_is_named(fails: bool, said: str) -> None:
    with pytest.raises(InternalError, match=rf"first \(MatMul\): the alternative wrong: {said}"):
        tilewright.compile(proto(), threads=1, alternatives=[Wrong(fails)], settings=Settings(repro_dir=None))


def test_what_is_no_alternative_is_refused() -> None:
    with pytest.raises(BadInput, match="alternatives="):
        tilewright.compile(proto(), alternatives=[3])  # pyright: ignore
    with pytest.raises(BadInput, match="knows only what is installed"):
        tilewright.compile(proto(), alternatives=[LOW_RANK], isolate=True)


def test_one_takes_the_place_of_its_name() -> None:
    mine = LOW_RANK.__class__()
    assert known([LOW_RANK, mine])[len(BUILT_IN) :] == (mine,)


def test_the_documentation_shows_the_file() -> None:
    shown = (HERE.parent.parent / "docs" / "extending.md").read_text()
    assert (HERE / "low_rank.py").read_text() in shown
