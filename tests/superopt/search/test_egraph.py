"""Classes of values, against equality closed by brute force; and the cheapest graph, against all choices."""

from collections.abc import Mapping, Sequence
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.passes.graphs import apply, value
from tilewright.base.errors import InternalError
from tilewright.graph import Graph, Node, make_node
from tilewright.ops.operator import require
from tilewright.superopt.search.egraph import EGraph

X, Y = value("x", 4), value("y", 4)


@st.composite
def small_graphs(draw: st.DrawFn) -> Graph:
    """Elementwise nodes that often read the same."""
    values, nodes = [X, Y], list[Node]()
    for position in range(draw(st.integers(1, 10))):
        operands = [draw(st.sampled_from(values)) for _ in range(2)]
        op = draw(st.sampled_from(["Neg", "Relu", "Add", "Sub"]))
        nodes.append(apply(op, operands if op in ("Add", "Sub") else operands[:1], f"v{position}"))
        values += nodes[-1].outputs
    return Graph("g", (X, Y), (values[-1],), tuple(nodes), {})


def closed(graph: Graph, equal: Sequence[tuple[str, str]]) -> Mapping[str, int]:
    """The number of the class of each value: congruence, pair by pair, until nothing changes."""
    of = {v.name: number for number, v in enumerate([X, Y, *(v for node in graph.nodes for v in node.outputs)])}

    def unite(a: str, b: str) -> bool:
        one, other = of[a], of[b]
        of.update({name: one for name, number in of.items() if number == other})
        return one != other

    def key(node: Node) -> tuple[str, tuple[int, ...]]:
        operands = [of[v.name] for v in node.inputs if v is not None]
        return node.op.name, tuple(sorted(operands) if node.op.name == "Add" else operands)

    for a, b in equal:
        unite(a, b)
    changed = True
    while changed:
        pairs = [(a, b) for a, b in combinations(graph.nodes, 2) if key(a) == key(b)]
        changed = any([unite(a.outputs[0].name, b.outputs[0].name) for a, b in pairs])
    return of


@given(small_graphs(), st.data())
def test_classes_are_what_follows(graph: Graph, data: st.DataObject) -> None:
    names = ["x", "y", *(v.name for node in graph.nodes for v in node.outputs)]
    equal = data.draw(st.lists(st.tuples(st.sampled_from(names), st.sampled_from(names)), max_size=4))
    egraph = EGraph(graph)
    for a, b in equal:
        egraph.union(a, b)
        if data.draw(st.booleans()):
            egraph.rebuild()
    egraph.rebuild()
    of = closed(graph, equal)
    for a, b in combinations(names, 2):
        assert (egraph.find(a) == egraph.find(b)) == (of[a] == of[b])
    assert len(egraph.classes) == len(set(of.values()))
    for name in names:  # the oldest stands for all
        assert egraph.find(name).name == next(other for other in names if of[other] == of[name])
    assert len({one.key for one in egraph.nodes}) == len(egraph.nodes)
    assert all(v == egraph.find(v.name) for one in egraph.nodes for v in (*one.node.inputs, *one.node.outputs) if v)


def test_what_follows_may_be_older() -> None:
    """Only that the last two are equal tells that the values are which the first two read."""
    relu, exp = apply("Relu", [X], "relu"), apply("Exp", [X], "exp")
    readers = apply("Neg", relu.outputs, "a"), apply("Neg", exp.outputs, "b")
    equal = apply("Tanh", [X], "c"), apply("Tanh", [Y], "d")
    egraph = EGraph(Graph("g", (X, Y), (), (relu, exp, *readers, *equal), {}))
    for one, other in (("relu", "c"), ("exp", "d"), ("x", "y")):
        egraph.union(one, other)
    egraph.rebuild()
    assert egraph.find("a") == egraph.find("b")


@given(small_graphs(), st.data())
def test_a_view_can_make_each_class(graph: Graph, data: st.DataObject) -> None:
    names = [v.name for node in graph.nodes for v in node.outputs]
    egraph = EGraph(graph)
    for _ in range(data.draw(st.integers(0, 4))):
        egraph.union(data.draw(st.sampled_from(names)), data.draw(st.sampled_from(names)))
    egraph.rebuild()
    view = egraph.view()
    made = {"x", "y"}
    for name in view.order:
        makers = view.lookup.producers.get(name, ())
        assert name in ("x", "y") or makers
        assert all(made.issuperset(v.name for v in node.inputs if v) for node in makers)
        made.add(name)
    for name in view.order:
        beneath = {other for other in view.order if view.is_made_of(name, other)}
        reads = {v.name for node in view.lookup.producers.get(name, ()) for v in node.inputs if v}
        assert beneath == {name}.union(*({o for o in view.order if view.is_made_of(read, o)} for read in reads))


def test_types_that_differ_are_never_equal() -> None:
    egraph = EGraph(Graph("g", (X,), (X,), (apply("Reshape", [X], "r", shape=(2, 2)),), {}))
    with pytest.raises(InternalError, match="can't be equal"):
        egraph.union("x", "r")


def test_all_results_of_equal_nodes_are_equal() -> None:
    first = make_node(require("TopK"), [X], ["a", "i"], {"k": 2})
    second = make_node(require("TopK"), [Y], ["b", "j"], {"k": 2, "axis": -1})
    egraph = EGraph(Graph("g", (X, Y), (), (first, second), {}))
    assert egraph.find("a") != egraph.find("b")
    egraph.union("x", "y")
    egraph.rebuild()
    assert egraph.find("a") == egraph.find("b") and egraph.find("i") == egraph.find("j")


@pytest.mark.parametrize(("written", "is_one"), [({}, True), ({"alpha": 0.01}, True), ({"alpha": 0.02}, False)])
def test_attributes_that_are_as_by_default_may_be_left_out(written: Mapping[str, float], is_one: bool) -> None:
    nodes = apply("LeakyRelu", [X], "p"), apply("LeakyRelu", [X], "q", **written)
    egraph = EGraph(Graph("g", (X,), (), nodes, {}))
    assert (egraph.find("p") == egraph.find("q")) == is_one


def test_attributes_are_equal_to_the_bit() -> None:
    nodes = apply("LeakyRelu", [X], "p", alpha=0.0), apply("LeakyRelu", [X], "q", alpha=-0.0)
    egraph = EGraph(Graph("g", (X,), (), nodes, {}))
    assert egraph.find("p") != egraph.find("q")


def test_weights_are_known_by_any_of_their_nodes() -> None:
    w = value("w", 4)
    nodes = apply("Neg", [w], "n"), apply("Relu", [X], "r"), apply("Neg", [*apply("Relu", [X], "r").outputs], "m")
    egraph = EGraph(Graph("g", (X,), (nodes[2].outputs[0],), nodes, {w: np.ones(4, np.float32)}))
    assert egraph.view().lookup.weights == {"w", "n"}
    egraph.union("n", "r")
    egraph.rebuild()
    assert egraph.view().lookup.weights == {"w", "n", egraph.find("m").name}
