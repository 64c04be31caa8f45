"""Costs in ONNX Runtime: what is measured, how often, and that it runs; no times."""

import sys
from collections.abc import Mapping

import numpy as np
import onnx
import pytest

from examples.sentence_similarity.model import build_model
from tests.frontend.models import Array
from tests.frontend.test_minilm import CONFIG, make_weights
from tests.measure.test_turns import Clock
from tests.test_dynamic_models import convolutional
from tilewright.base.dtypes import f32, i64
from tilewright.base.errors import BadInput, Unsupported, UnsupportedModel
from tilewright.frontend.onnx.onnxruntime import prepared
from tilewright.frontend.onnx.read import importer
from tilewright.graph import Graph, Node, Value, make_node
from tilewright.measure.turns import Run
from tilewright.ops.operator import require
from tilewright.passes.normalize import normalize
from tilewright.passes.rules import index_of
from tilewright.superopt.costs.onnxruntime_timing import OnnxRuntimeCosts
from tilewright.superopt.costs.provider import CostProvider
from tilewright.symbolic.expr import Extent, const


class Machine:
    """Runs models in a second for each node, and another one for each model; keeps all that it was given."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.models: list[onnx.ModelProto] = []
        self.feeds: list[Mapping[str, Array]] = []

    def prepare(self, model: onnx.ModelProto, feeds: Mapping[str, Array], threads: int) -> Run:
        assert threads == 3
        self.models.append(model)
        self.feeds.append(feeds)
        ops = [node.op_type for node in model.graph.node]
        cost = 1.0 + sum({"Relu": 0.0, "MatMul": 5.0}.get(op, 1.0) for op in ops)
        return self.clock.spend(lambda _: cost)

    def costs(self, **sizes: int) -> OnnxRuntimeCosts:
        return OnnxRuntimeCosts(3, sizes, prepare=self.prepare, clock=self.clock)


def value(name: str, *shape: int | str) -> Value:
    return Value(name, f32, tuple(Extent(e) if isinstance(e, str) else const(e) for e in shape))


def matmul(x: Value, w: Value, result: str = "y") -> Node:
    return make_node(require("MatMul"), [x, w], [result], {})


def test_it_is_a_provider_of_costs() -> None:
    provider: CostProvider = Machine().costs()
    assert provider.of_node(matmul(value("x", 2, 3), value("w", 3, 4)), ["w"]) == 5.0


def test_nodes_that_are_alike_are_measured_once() -> None:
    machine = Machine()
    costs = machine.costs()
    first = matmul(value("x", 2, 3), value("w", 3, 4))
    assert costs.of_node(first, ["w"]) == costs.of_node(matmul(value("a", 2, 3), value("b", 3, 4), "c"), ["b"])
    assert len(machine.models) == 2, "the node, and a model that does nothing"
    costs.of_node(first, [])
    costs.of_node(matmul(value("x", 2, 5), value("w", 5, 4)), ["w"])
    assert len(machine.models) == 4
    concat = [make_node(require("Concat"), [value("x", 2, 2), value("y", 2, 2)], ["z"], {"axis": a}) for a in (0, 1)]
    for node in (*concat, *concat):
        costs.of_node(node, [])
    assert len(machine.models) == 6
    assert sorted(map(str, costs.table)) == [
        "Concat(f32[2, 2], f32[2, 2], axis=0)",
        "Concat(f32[2, 2], f32[2, 2], axis=1)",
        "MatMul(f32[2, 3], f32[3, 4])",
        "MatMul(f32[2, 3], weight f32[3, 4])",
        "MatMul(f32[2, 5], weight f32[5, 4])",
    ]


def test_weights_are_constants_of_the_model() -> None:
    machine = Machine()
    machine.costs().of_node(matmul(value("x", 2, 3), value("w", 3, 4)), ["w"])
    (model,) = [m for m in machine.models if m.graph.node[0].op_type == "MatMul"]
    assert [info.name for info in model.graph.input] == ["x"]
    assert [tensor.name for tensor in model.graph.initializer] == ["w"]


def test_a_node_costs_nothing_less_than_nothing() -> None:
    relu = make_node(require("Relu"), [value("x", 2)], ["y"], {})
    assert Machine().costs().of_node(relu, []) == 0.0


def test_run_time_extents_get_sizes() -> None:
    machine = Machine()
    costs = machine.costs(n=7)
    x = value("x", "n", 4)
    costs.of_node(make_node(require("Expand"), [x], ["y"], {"shape": (2, Extent("n"), 4)}), [])
    assert [feeds["x"].shape for feeds in machine.feeds] == [(), (7, 4)]
    dims = machine.models[1].graph.output[0].type.tensor_type.shape.dim
    assert [dim.dim_value for dim in dims] == [2, 7, 4]


def test_graphs_are_compared_with_the_first_one() -> None:
    """The machine becomes slower and slower; costs are as if it had stayed as it was."""
    machine = Machine()
    speed = 0.001

    def prepare(model: onnx.ModelProto, feeds: Mapping[str, Array], threads: int) -> Run:
        assert (set(feeds), threads) == ({"x"}, 3)
        cost = float(len(model.graph.node))
        return machine.clock.spend(lambda _: speed * cost * (1.0 + machine.clock.now))

    costs = OnnxRuntimeCosts(3, prepare=prepare, clock=machine.clock)
    graphs = [chain(length) for length in (2, 4, 1, 2)]
    first, *others = [costs.of_graph(graph) for graph in graphs]
    assert others == pytest.approx([2.0 * first, 0.5 * first, first], rel=0.05)


def chain(length: int) -> Graph:
    """So many activations, one after the other."""
    x = value("x", 4)
    nodes: list[Node] = []
    for position in range(length):
        source = nodes[-1].outputs[0] if nodes else x
        nodes.append(make_node(require("Tanh"), [source], [f"y{position}"], {}))
    return Graph("chain", (x,), nodes[-1].outputs, tuple(nodes), {})


def test_what_cant_be_written_is_an_error() -> None:
    node = make_node(require("CumProd"), [value("x", 3)], ["y"], {"axis": 0})
    with pytest.raises(UnsupportedModel, match="operator CumProd can't be written"):
        Machine().costs().of_node(node, [])


# ONNX Runtime itself


@pytest.mark.parametrize("which", ["images", "text"])
def test_nodes_and_graphs_run(which: str) -> None:
    """Each node by itself, and all together, with run-time extents; the clock ticks once for each look at it."""
    proto = convolutional() if which == "images" else build_model(make_weights(), "b", "s", CONFIG)
    graph = normalize(importer.load(proto))
    ticks = iter(range(1 << 30))
    costs = OnnxRuntimeCosts(1, {"b": 2, "s": 8, "h": 9, "w": 16}, clock=lambda: float(next(ticks)))
    weights = index_of(graph).weights
    nodes = [node for node in graph.nodes if node.outputs[0].name not in weights]
    for node in nodes:
        assert costs.of_node(node, weights) >= 0.0
    assert costs.of_graph(graph) > 0.0
    assert {kind.op.name for kind in costs.table} == {node.op.name for node in nodes}


def test_divisions_of_integers_and_indices() -> None:
    x, y = Value("x", i64, (const(4),)), Value("y", i64, (const(4),))
    data = value("data", 3, 5)
    nodes = [
        make_node(require("Div"), [x, y], ["z"], {}),
        make_node(require("Mod"), [x, y], ["z"], {}),
        make_node(require("Gather"), [data, x], ["z"], {"axis": 0}),
    ]
    ticks = iter(range(1 << 30))
    for weights in ([], ["y", "data"]):
        for node in nodes:
            OnnxRuntimeCosts(clock=lambda: float(next(ticks))).of_node(node, weights)


def test_a_model_that_is_refused() -> None:
    model = onnx.helper.make_model(
        onnx.helper.make_graph([onnx.helper.make_node("NoSuchThing", ["x"], ["y"])], "odd", [], [onnx.ValueInfoProto()])
    )
    with pytest.raises(BadInput, match="onnxruntime does not run odd: "):
        prepared(model, {"x": np.zeros(2)}, 1)


def test_without_onnxruntime(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(Unsupported, match=r"onnxruntime is not installed: pip install 'tilewright\[demo\]'"):
        prepared(onnx.ModelProto(), {}, 1)
