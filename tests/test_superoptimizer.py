"""Models compiled with a search: the same results, told what was done, and never a silent change of the rules."""

from collections import Counter
from collections.abc import Collection
from dataclasses import replace
from io import StringIO
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from rich.console import Console

import tilewright
from tests.closeness import assert_near
from tests.frontend.models import single_node
from tilewright.base.errors import BadInput
from tilewright.base.numerics import Math
from tilewright.base.settings import Settings
from tilewright.base.store import Recent
from tilewright.base.superopt import Superopt
from tilewright.compilation import ALONE, Options, compile_prepared, prepare
from tilewright.frontend.onnx.read import importer
from tilewright.graph import Graph, Node
from tilewright.insight.explain import Explanation
from tilewright.superopt.search.optimization import Search
from tilewright.superopt.search.result import Optimized
from tilewright.superoptimizer import CLEARLY, clearly_fastest, finalists, optimize_for, superoptimize, turns_of
from tilewright.target.target import Target

SIZE = 256


def twins(layers: int = 4) -> onnx.ModelProto:
    """Layers that add two products of what they are given: their weights could be added before."""
    random = np.random.default_rng(0)
    names = [f"{side}{layer}" for layer in range(layers) for side in "ab"]
    weights = {name: random.standard_normal((SIZE, SIZE)).astype(np.float32) / SIZE for name in names}
    nodes: list[onnx.NodeProto] = []
    state = "x"
    for layer in range(layers):
        nodes.append(helper.make_node("MatMul", [state, f"a{layer}"], [f"p{layer}"]))
        nodes.append(helper.make_node("MatMul", [state, f"b{layer}"], [f"q{layer}"]))
        nodes.append(helper.make_node("Add", [f"p{layer}", f"q{layer}"], [f"s{layer}"]))
        state = f"h{layer}" if layer + 1 < layers else "y"
        nodes.append(helper.make_node("Tanh", [f"s{layer}"], [state]))
    input_, output = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, SIZE]) for name in "xy")
    initializers = [numpy_helper.from_array(array, name) for name, array in weights.items()]
    graph = helper.make_graph(nodes, "twins", [input_], [output], initializers)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def feeds(model: onnx.ModelProto) -> dict[str, np.ndarray]:
    random = np.random.default_rng(1)
    return {v.name: random.standard_normal((1, SIZE)).astype(np.float32) for v in model.graph.input}


@pytest.mark.parametrize("level", ["fast", "max"])
@pytest.mark.usefixtures("short_turns")
def test_results_stay(level: str) -> None:
    model = twins()
    plain, searched = (tilewright.compile(model, superopt=given, threads=1) for given in ("off", level))
    (expected,), (found,) = (m.run(None, feeds(model)) for m in (plain, searched))
    assert_near(found, expected, 2e-6)


def test_weights_are_added_before_they_are_read() -> None:
    graph = prepare(importer.load(twins()))
    found = superoptimize(graph, Options(Target.host(), 1, superopt=Superopt.FAST))
    assert "sum-of-weights" in {step.rule.name for step in found.optimized.steps}
    assert found.optimized.cost_after < 0.9 * found.optimized.cost_before
    assert found.validation.is_complete
    assert sum(node.op.name == "MatMul" for node in found.compiled.graph.nodes) == 4
    assert superoptimize(graph, Options(Target.host(), 1)).optimized.steps == ()


@pytest.mark.usefixtures("short_turns")
def test_what_the_cache_has_can_be_explained(tmp_path: Path) -> None:
    path = tmp_path / "twins.onnx"
    onnx.save(twins(), path)
    settings = Settings(cache_dir=tmp_path / "cache" / "kernels", key_dir=tmp_path / "keys")
    first, again = (tilewright.compile(path, superopt="max", threads=1, settings=settings) for _ in range(2))
    assert again.is_cached
    assert not tilewright.compile(path, threads=1, settings=settings).is_cached
    assert again.explain().kernels == first.explain().kernels
    assert again.explain().rules == first.explain().rules


class Counting(Recent):
    """A cache that tells what was put into it."""

    def __init__(self) -> None:
        super().__init__(1000)
        self.added: list[str] = []

    def put(self, key: str, data: bytes) -> None:
        self.added.append(key)
        super().put(key, data)


@pytest.mark.usefixtures("short_turns")
def test_what_was_compiled_to_be_measured_is_not_compiled_again() -> None:
    cache, graph = Counting(), prepare(importer.load(twins(2)))
    options, services = Options(Target.host(), 1, superopt=Superopt.MAX), replace(ALONE, cache=cache)
    superoptimize(graph, options, services)
    added = list(cache.added)
    assert len(added) > 3
    assert len(set(added)) == len(added)
    superoptimize(graph, options, services)
    compile_prepared(graph, options, services)
    assert cache.added == added


def printed(explanation: Explanation) -> str:
    console = Console(width=80, record=True, file=StringIO())
    explanation.show(console)
    return console.export_text()


def test_rules_that_were_applied_are_explained() -> None:
    graph = prepare(importer.load(twins()))
    found = superoptimize(graph, Options(Target.host(), 1, superopt=Superopt.FAST))
    explanation = tilewright.compile(twins(), superopt="fast", threads=1).explain()
    assert explanation.superopt == "fast"
    assert (explanation.rules[0].rule, explanation.rules[0].evidence) == ("sum-of-weights", "proved")
    applied = [step.rule.name for step in found.optimized.steps]
    assert {row.rule: row.times for row in explanation.rules} == Counter(applied)
    assert [row.rule for row in explanation.rules] == list(dict.fromkeys(applied))
    first = f"sum-of-weights ({applied.count('sum-of-weights')} times, proved, reassociates)"
    assert f"\nrules applied by superopt=fast: {first}" in printed(explanation)


@pytest.mark.parametrize(("level", "told"), [("off", False), ("fast", True)])
def test_where_no_rule_is_applied_that_is_said(level: str, told: bool) -> None:
    model = single_node("Relu", {"x": np.zeros((2, 3), np.float32)})
    explanation = tilewright.compile(model, superopt=level, threads=1).explain()
    assert (explanation.superopt, explanation.rules) == (level, ())
    assert ("rules applied by superopt=fast: none" in printed(explanation)) == told


def test_levels_are_known_by_name() -> None:
    with pytest.raises(BadInput, match="superopt='most': choose one of off, fast, max"):
        tilewright.compile(twins(), superopt="most")


class Elsewhere:
    """A runtime in which normalizations are slow by themselves, and whole graphs take what was measured."""

    def __init__(self, relative: float) -> None:
        self.relative = relative

    def of_node(self, node: Node, weights: Collection[str]) -> float:
        return 10.0 if node.op.name == "BatchNormalization" else 1.0

    def of_graph(self, graph: Graph) -> float:
        return 1.0 if is_normalized(graph) else self.relative


def is_normalized(graph: Graph) -> bool:
    return any(node.op.name == "BatchNormalization" and node.inputs[0] in graph.inputs for node in graph.nodes)


def normalized_image() -> Graph:
    x = np.ones((1, 3, 4, 4), np.float32)
    parameters = {name: np.linspace(0.5, 1.5, 3, dtype=np.float32) for name in ("scale", "bias", "mean", "variance")}
    return importer.load(single_node("BatchNormalization", {"x": x}, parameters))


@pytest.mark.parametrize("relative", [1.08, 0.995, 0.9])
def test_for_other_runtimes_a_graph_stays_unless_another_is_clearly_cheaper_as_a_whole(relative: float) -> None:
    """Also by rules that always run here: two kernels may be one there."""
    optimized = optimize_for(normalized_image(), Elsewhere(relative), Search.at(Superopt.FAST), Math.DEFAULT).optimized
    assert is_normalized(optimized.after) == (relative > 0.99)
    assert bool(optimized.steps) == (relative < 0.99)


def test_for_other_runtimes_what_seemed_cheap_is_measured_again() -> None:
    """The best of several may be so by chance."""

    class Once(Elsewhere):
        def of_graph(self, graph: Graph) -> float:
            found, self.relative = super().of_graph(graph), self.relative if is_normalized(graph) else 1.0
            return found

    optimized = optimize_for(normalized_image(), Once(0.5), Search.at(Superopt.FAST), Math.DEFAULT).optimized
    assert not optimized.steps and is_normalized(optimized.after)


@pytest.mark.parametrize(
    ("again", "expected"),
    [(0.5, ("quick", 0.5)), (CLEARLY, ("quick", CLEARLY)), (CLEARLY + 1e-9, None), (1.5, None)],
)
def test_what_was_fast_once_is_measured_again(again: float, expected: tuple[str, float] | None) -> None:
    """What the second measurement says holds; the others do not get another chance."""
    relative = {"slow": [1.2], "fair": [0.9], "quick": [0.8, again]}
    assert clearly_fastest(list(relative), lambda rivals: [relative[rival].pop(0) for rival in rivals]) == expected


def test_nothing_is_clearly_fastest_where_nothing_is_clearly_faster() -> None:
    assert clearly_fastest(["one", "other"], lambda rivals: [CLEARLY + 1e-9, 1.0][: len(rivals)]) is None
    assert clearly_fastest([], lambda rivals: [0.1 for _ in rivals]) is None


def test_each_estimate_proposes_what_is_measured() -> None:
    """In turns: the best by whole graphs, the best by the sums of nodes; of equal ones, the next one."""
    graph = prepare(importer.load(twins()))

    def proposed(*costs: tuple[float, float]) -> list[tuple[float, float]]:
        found = [Optimized(graph, graph, (), 10.0, whole, nodes) for whole, nodes in costs]
        return [(one.cost_after, one.cost_of_nodes) for one in finalists(found)]

    assert proposed((1, 4), (2, 3), (3, 2), (12, 1)) == [(1, 4), (12, 1), (2, 3)]
    assert proposed((1, 1), (2, 2), (3, 3), (4, 4)) == [(1, 1), (2, 2), (3, 3)]
    assert proposed((11, 5)) == [(11, 5)]


def test_short_models_are_measured_for_a_short_time() -> None:
    """At least a hundred runs of each, and less than a second for four of them."""
    for seconds in (2e-5, 1e-4, 1e-3):
        plan = turns_of(seconds)
        assert plan.rounds * plan.slot / seconds >= 100
    assert 4 * plan.rounds * (plan.slot + plan.rest) < 2
    slow = turns_of(1.0)
    assert slow.slot <= 0.1 and slow.budget <= 2
