"""The cheapest graph of an e-graph, against all ways to choose."""

import random
from collections.abc import Collection, Iterator, Mapping

import numpy as np
import pytest

from tests.passes.graphs import apply, value
from tilewright.graph import Graph, Node, Value, evaluate_graph, make_node, verify
from tilewright.ops.operator import require
from tilewright.superopt.costs.provider import cost_by_nodes
from tilewright.superopt.search.egraph import EGraph, ENode
from tilewright.superopt.search.extraction import Extracted, extract, extract_greedily

X, Y, W = value("x", 4), value("y", 4), value("w", 4)
OPERATORS = ("Neg", "Relu", "Tanh", "Exp", "Add", "Sub", "Mul", "TopK")


class Drawn:
    """A cost for each operator, and nothing for copies."""

    def __init__(self, seed: int) -> None:
        draw = random.Random(seed)
        self._costs = {op: float(draw.randint(1, 20)) for op in OPERATORS} | {"Identity": 0.0}

    def of_node(self, node: Node, weights: Collection[str]) -> float:
        assert not all(v is None or v.name in weights for v in node.inputs), "weights cost nothing"
        return self._costs[node.op.name]

    def of_graph(self, graph: Graph) -> float:
        raise NotImplementedError


def drawn(seed: int) -> EGraph:
    """A graph, some of whose values were said to be equal, at random."""
    draw, nodes, values = random.Random(seed), list[Node](), [W, X, Y, X, Y]
    for position in range(20):
        op = draw.choice(OPERATORS)
        operands = [draw.choice(values) for _ in range(2 if op in ("Add", "Sub", "Mul") else 1)]
        if op == "TopK":
            nodes.append(make_node(require(op), operands, [f"v{position}", f"i{position}"], {"k": 4}))
        else:
            nodes.append(apply(op, operands, f"v{position}"))
        values.append(nodes[-1].outputs[0])
    outputs = tuple(dict.fromkeys(draw.sample(values[5:], 4)))
    egraph = EGraph(Graph("g", (X, Y), outputs, tuple(nodes), {W: np.ones(4, np.float32)}))
    for _ in range(8):
        a, b = draw.sample(values[5:], 2)
        egraph.union(a.name, b.name)
    egraph.rebuild()
    return egraph


def choices(egraph: EGraph, missing: frozenset[str], chosen: Mapping[str, ENode]) -> Iterator[Mapping[str, ENode]]:
    """All ways to choose a node for each class that is missing, and for what these read."""
    if not missing:
        yield chosen
        return
    name = min(missing)
    for one in egraph.nodes:
        if any(v.name == name for v in one.node.outputs):
            more = {**chosen, name: one}
            reads = {v.name for v in one.node.inputs if v is not None} - {"x", "y", "w"}
            yield from choices(egraph, (missing | reads) - more.keys(), more)


def has_circle(chosen: Mapping[str, ENode]) -> bool:
    made: set[str] = {"x", "y", "w"}
    for _ in chosen:
        made |= {name for name, one in chosen.items() if made.issuperset(v.name for v in one.node.inputs if v)}
    return len(made) < len(chosen) + 3


def least(egraph: EGraph, costs: Drawn) -> float:
    """The cost of the cheapest of all choices."""
    wanted = frozenset(egraph.find(v.name).name for v in egraph.graph.outputs)
    found: list[float] = []
    for chosen in choices(egraph, wanted, {}):
        if not has_circle(chosen):
            weights = {"w"}
            for _ in chosen:
                weights |= {n for n, one in chosen.items() if weights.issuperset(v.name for v in one.node.inputs if v)}
            nodes = {id(one): one.node for name, one in chosen.items() if name not in weights}
            found.append(sum(costs.of_node(node, weights) for node in nodes.values()))
    return min(found)


@pytest.mark.parametrize("seed", range(20))
def test_no_choice_is_cheaper(seed: int) -> None:
    egraph, costs = drawn(seed), Drawn(seed)
    greedy, exact = extract_greedily(egraph, costs), extract(egraph, costs, seconds=60)
    for found in (greedy, exact):
        verify(found.graph)
        assert found.graph.outputs == egraph.graph.outputs and found.graph.inputs == egraph.graph.inputs
        assert found.cost == cost_by_nodes(found.graph, costs)
    assert exact.is_proven
    assert exact.cost == least(egraph, costs) <= greedy.cost


def test_cost_is_that_of_the_nodes_that_are_not_weights() -> None:
    nodes = apply("Neg", [W], "n"), apply("Add", [X, value("n", 4)], "s"), apply("Exp", [value("s", 4)], "e")
    graph = Graph("g", (X,), nodes[2].outputs, nodes, {W: np.ones(4, np.float32)})
    costs = Drawn(3)
    weights = {"w", "n"}
    assert cost_by_nodes(graph, costs) == costs.of_node(nodes[1], weights) + costs.of_node(nodes[2], weights) > 0


def taken(graph: Graph, *equal: tuple[str, str]) -> Extracted:
    """The cheapest graph, if values were said to be equal that are; it computes the same."""
    egraph = EGraph(graph)
    for a, b in equal:
        egraph.union(a, b)
    egraph.rebuild()
    found = extract(egraph, Drawn(1), seconds=60)
    feeds = {v.name: np.random.default_rng(0).standard_normal(4).astype(np.float32) for v in graph.inputs}
    for old, new in zip(evaluate_graph(graph, feeds), evaluate_graph(found.graph, feeds), strict=True):
        np.testing.assert_array_equal(new, old)
    assert found.graph.outputs == graph.outputs
    return found


def test_an_output_that_is_an_input_is_copied() -> None:
    nodes = apply("Neg", [X], "n"), apply("Neg", [value("n", 4)], "m")
    (node,) = taken(Graph("g", (X,), nodes[1].outputs, nodes, {}), ("x", "m")).graph.nodes
    assert node.op.name == "Identity"


def test_an_output_that_is_a_constant_is_copied() -> None:
    nodes = apply("Neg", [W], "n"), apply("Neg", [value("n", 4)], "m")
    graph = taken(Graph("g", (X,), nodes[1].outputs, nodes, {W: np.ones(4, np.float32)}), ("w", "m")).graph
    assert [node.op.name for node in graph.nodes] == ["Identity"] and list(graph.constants) == [W]


def test_outputs_that_are_equal_are_computed_once() -> None:
    nodes = (
        apply("Exp", [X], "a"),
        apply("Neg", [X], "b"),
        apply("Neg", [value("b", 4)], "n"),
        apply("Exp", [value("n", 4)], "c"),
    )
    found = taken(Graph("g", (X,), (Value("c", X.dtype, X.shape), *nodes[0].outputs), nodes, {}), ("x", "n"))
    assert sorted(node.op.name for node in found.graph.nodes) == ["Exp", "Identity"]


def test_a_result_that_another_node_makes_has_another_name() -> None:
    """Of two sorted lists, one gives the values, the other the places."""
    first = make_node(require("TopK"), [X], ["a", "i"], {"k": 4})
    second = make_node(require("TopK"), [Y], ["b", "j"], {"k": 4})
    total = apply("Add", [*first.outputs[:1], *second.outputs[:1]], "s")
    graph = Graph("g", (X, Y), (*total.outputs, first.outputs[1], second.outputs[1]), (first, second, total), {})
    egraph = EGraph(graph)
    egraph.union("a", "b")
    egraph.rebuild()
    found = extract(egraph, Drawn(1), seconds=60)
    made = [v.name for node in found.graph.nodes for v in node.outputs]
    assert len(made) == len(set(made)) == 5 and found.graph.outputs == graph.outputs
