"""Nodes that are not in topological order are sorted, as ONNX Runtime does; those that need each other are refused."""

import logging
import random
import time

import numpy as np
import onnx
import pytest
from onnx import helper

import tilewright
from tests.frontend.models import model
from tilewright.base.errors import InvalidModel
from tilewright.frontend.onnx.read import importer
from tilewright.frontend.onnx.read.coverage import coverage
from tilewright.frontend.onnx.read.order import topological_order
from tilewright.graph import verify

X = np.linspace(-2, 2, 6, dtype=np.float32).reshape(2, 3)


def relu(source: str, made: str) -> onnx.NodeProto:
    return helper.make_node("Relu", [source], [made])


def net() -> list[onnx.NodeProto]:
    """Two ways from the input to the output, and a value that both read."""
    return [
        helper.make_node("Abs", ["x"], ["a"]),
        helper.make_node("Exp", ["a"], ["b"]),
        helper.make_node("Neg", ["a"], ["c"]),
        helper.make_node("Add", ["b", "c"], ["d"]),
        helper.make_node("Mul", ["d", "a"], ["e"]),
        helper.make_node("Split", ["e"], ["f", "g"], axis=0, num_outputs=2),
        helper.make_node("Sub", ["g", "f"], ["y"]),
    ]


@pytest.mark.parametrize("seed", range(20))
def test_any_order_is_the_same_model(seed: int) -> None:
    nodes = net()
    expected = importer.load(model(nodes, {"x": X}, ["y"]))
    random.Random(seed).shuffle(nodes)
    found = importer.load(model(nodes, {"x": X}, ["y"]))
    verify(found)
    assert sorted(map(str, found.nodes)) == sorted(map(str, expected.nodes))


def test_the_same_bits() -> None:
    (expected,) = tilewright.compile(model(net(), {"x": X}, ["y"])).run(None, {"x": X})
    (found,) = tilewright.compile(model(net()[::-1], {"x": X}, ["y"])).run(None, {"x": X})
    np.testing.assert_array_equal(found, expected)


def test_casts_at_the_end() -> None:
    """As converters to 16 bits leave them."""
    nodes = [
        helper.make_node("Relu", ["h"], ["r"]),
        helper.make_node("Cast", ["x"], ["h"], to=10),
        helper.make_node("Cast", ["r"], ["y"], to=1),
    ]
    (found,) = tilewright.compile(model(nodes, {"x": X}, ["y"])).run(None, {"x": X})
    np.testing.assert_array_equal(found, np.maximum(X.astype(np.float16), 0).astype(np.float32))


def test_it_is_said_once_and_only_then(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, logger="tilewright"):
        importer.load(model(net(), {"x": X}, ["y"]))
        assert caplog.messages == []
        importer.load(model(net()[::-1], {"x": X}, ["y"]))
        (message,) = caplog.messages
    assert "the model: the nodes are not in topological order" in message
    assert "node 6 (Abs) comes too late" in message


def test_what_is_in_order_stays() -> None:
    nodes = [relu("x", "a"), relu("x", "b"), relu("b", "c"), relu("a", "d")]
    assert topological_order(nodes) == range(4)
    assert list(topological_order([nodes[2], nodes[0], nodes[1], nodes[3]])) == [2, 0, 1, 3]


def branch(name: str, *nodes: onnx.NodeProto) -> onnx.GraphProto:
    return helper.make_graph(list(nodes), name, [], [onnx.ValueInfoProto(name=nodes[0].output[0])])


def conditional(*inside: onnx.NodeProto) -> onnx.NodeProto:
    other = branch("else", relu("x", "else_y"))
    return helper.make_node("If", ["true"], ["y"], then_branch=branch("then", *inside), else_branch=other)


TRUE = {"true": np.array(True)}


def test_a_branch_reads_what_is_made_later_outside() -> None:
    proto = model([conditional(relu("a", "then_y")), relu("x", "a")], {"x": X}, ["y"], TRUE)
    (found,) = tilewright.compile(proto).run(None, {"x": X})
    np.testing.assert_array_equal(found, np.maximum(X, 0))


def test_the_nodes_of_a_branch() -> None:
    inside = conditional(relu("b", "then_y"), helper.make_node("Neg", ["x"], ["b"]))
    (found,) = tilewright.compile(model([inside], {"x": X}, ["y"], TRUE)).run(None, {"x": X})
    np.testing.assert_array_equal(found, np.maximum(-X, 0))


def test_a_name_that_a_branch_makes_itself() -> None:
    """It is no reason to put the node after the one outside that makes another value of that name."""
    inside = conditional(relu("b", "then_y"), relu("x", "b"))
    proto = model([inside, helper.make_node("Neg", ["y"], ["b"])], {"x": X}, ["b"], TRUE)
    (found,) = tilewright.compile(proto).run(None, {"x": X})
    np.testing.assert_array_equal(found, -np.maximum(X, 0))


def test_the_nodes_of_a_function() -> None:
    imports = [helper.make_opsetid("", 18)]
    body = [relu("b", "q"), helper.make_node("Neg", ["p"], ["b"])]
    function = helper.make_function("own", "F", ["p"], ["q"], body, imports)
    proto = model([helper.make_node("F", ["x"], ["y"], domain="own")], {"x": X}, ["y"])
    proto.functions.append(function)
    proto.opset_import.append(helper.make_opsetid("own", 1))
    (found,) = tilewright.compile(proto).run(None, {"x": X})
    np.testing.assert_array_equal(found, np.maximum(-X, 0))


def test_coverage_follows_what_was_refused() -> None:
    nodes = [relu("b", "y"), helper.make_node("Nonsense", ["x"], ["a"], domain="acme"), relu("a", "b")]
    assert [refusal.operator for refusal in coverage(model(nodes, {"x": X}, ["y"])).refusals] == ["acme.Nonsense"]


@pytest.mark.parametrize(
    ("nodes", "cycle"),
    [
        ([relu("y", "y")], r"node 0 \(Relu\) -> node 0 \(Relu\)"),
        ([relu("y", "a"), relu("a", "y")], r"node \d \(Relu\) -> node \d \(Relu\) -> node \d \(Relu\)"),
        ([relu("y", "z"), conditional(relu("z", "then_y"))], r"node \d \(\w+\) -> node 1 \(If\)|node 1 \(If\) -> "),
    ],
    ids=["itself", "two", "through a branch"],
)
def test_cycles(nodes: list[onnx.NodeProto], cycle: str) -> None:
    with pytest.raises(InvalidModel, match=f"which needs it in turn: .*({cycle}).* is a cycle; break it"):
        importer.load(model(nodes, {"x": X}, ["y"], TRUE))


def test_a_long_cycle_is_told_in_short() -> None:
    nodes = [relu(f"v{(k + 1) % 5000}", f"v{k}") for k in range(5000)]
    with pytest.raises(InvalidModel, match="is a cycle") as caught:
        importer.load(model(nodes, {"x": X}, ["v0"]))
    assert len(str(caught.value)) < 1000


def test_a_long_chain_backwards() -> None:
    nodes = [relu(f"v{k}", f"v{k + 1}") for k in range(20_000)][::-1]
    start = time.monotonic()
    assert list(topological_order(nodes)) == list(range(19_999, -1, -1))
    assert time.monotonic() - start < 5


@pytest.mark.parametrize("outputs", [[], ["y", "z"], ["", "z"]])
def test_numbers_of_outputs(outputs: list[str]) -> None:
    node = helper.make_node("Relu", ["x"], outputs, name="n")
    message = rf"node n \(Relu\) has {len(outputs)} outputs; Relu makes 1 to 1"
    with pytest.raises(InvalidModel, match=message):
        importer.load(model([node, relu("x", "w")], {"x": X}, ["w"]))


def test_a_node_whose_result_has_no_name_is_dead() -> None:
    nodes = [helper.make_node("Neg", ["x"], [""]), helper.make_node("Relu", ["x"], ["y", ""])]
    found = importer.load(model(nodes, {"x": X}, ["y"]))
    assert [node.op.name for node in found.nodes] == ["Relu"]
