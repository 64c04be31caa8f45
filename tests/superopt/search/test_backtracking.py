"""The search finds what costs less, and what it finds computes the same."""

from collections.abc import Collection

import numpy as np

from tests.closeness import assert_near
from tilewright.base.dtypes import f32
from tilewright.graph import Graph, Node, Value, evaluate_graph, make_node, verify
from tilewright.ops.operator import require
from tilewright.passes.rules import SEARCH, load_rules, parse_rules
from tilewright.superopt.search.backtracking import Backtracking, Limits
from tilewright.superopt.search.fingerprint import fingerprint
from tilewright.symbolic.expr import const

RANDOM = np.random.default_rng(0)


class Counted:
    """Every node costs 10, and what it makes a little."""

    def of_node(self, node: Node, weights: Collection[str]) -> float:
        elements = sum(int(np.prod([int(str(extent)) for extent in value.shape])) for value in node.outputs)
        return (0.0 if node.op.name in ("Slice", "Concat") else 10.0) + 0.01 * elements

    def of_graph(self, graph: Graph) -> float:
        return sum(self.of_node(node, ()) for node in graph.nodes)


def value(name: str, *shape: int) -> Value:
    return Value(name, f32, tuple(map(const, shape)))


def products(count: int, *, chained: bool = False) -> Graph:
    """Products of one matrix with several; ``chained``: each of what the one before made."""
    x = value("x", 3, 4)
    weights = [value(f"w{number}", 4, 4) for number in range(count)]
    nodes: list[Node] = []
    for number, weight in enumerate(weights):
        operand = nodes[-1].outputs[0] if chained and nodes else x
        nodes.append(make_node(require("MatMul"), [operand, weight], [f"y{number}"], {}))
    arrays = {weight: RANDOM.standard_normal((4, 4)).astype(np.float32) for weight in weights}
    return Graph("g", (x,), tuple(node.outputs[0] for node in nodes), tuple(nodes), arrays)


def same(before: Graph, after: Graph) -> None:
    verify(after)
    assert [v.name for v in after.outputs] == [v.name for v in before.outputs]
    feeds = {v.name: RANDOM.standard_normal([int(str(e)) for e in v.shape]).astype(np.float32) for v in before.inputs}
    for old, new in zip(evaluate_graph(before, feeds), evaluate_graph(after, feeds), strict=True):
        assert_near(new, old, 1e-5)


def test_queries_keys_and_values_become_one_product() -> None:
    graph = products(3)
    found = Backtracking(load_rules(SEARCH), Counted()).best(graph)
    live = [node for node in found.graph.nodes if node.op.name == "MatMul"]
    assert len(live) == 1
    assert found.cost < 20 < 30 < Backtracking((), Counted()).best(graph).cost
    assert [step.rule.name for step in found.steps] == ["products-of-one-matrix"] * 2
    assert found.steps[0].cost_before > found.steps[0].cost_after == found.steps[1].cost_before
    same(graph, found.graph)


def test_what_follows_from_the_other_is_not_joined() -> None:
    """Products by one matrix, one after the other: to join them would be a cycle."""
    graph = products(1)
    (weight,) = graph.constants
    again = make_node(require("MatMul"), [graph.outputs[0], weight], ["z"], {})
    chained = Graph("g", graph.inputs, again.outputs, (*graph.nodes, again), graph.constants)
    joining = [rule for rule in load_rules(SEARCH) if rule.name == "products-by-one-matrix"]
    assert Backtracking(joining, Counted()).best(chained).steps == ()


HILL = """
rule up
  for x[n]
  from Neg(x)
  to Mul(Exp(x), -1.0)

rule down
  for x[n]
  from Mul(Exp(x), -1.0)
  to Relu(x)
"""


class Hilly(Counted):
    """What lies between is dearer by a twentieth than what comes first."""

    def of_node(self, node: Node, weights: Collection[str]) -> float:
        return {"Neg": 100.0, "Exp": 52.0, "Mul": 52.0, "Relu": 10.0}[node.op.name]


def test_alpha_says_over_which_hills_it_goes() -> None:
    x = value("x", 3)
    node = make_node(require("Neg"), [x], ["y"], {})
    graph = Graph("g", (x,), node.outputs, (node,), {})
    rules = parse_rules(HILL)  # not true: a search believes what it is given
    assert Backtracking(rules, Hilly(), Limits(alpha=1.05)).best(graph).cost == 10.0
    assert Backtracking(rules, Hilly(), Limits(alpha=1.03)).best(graph).steps == ()
    assert Backtracking(rules, Hilly(), Limits(alpha=1.05, nodes=0)).best(graph).steps == ()
    assert Backtracking(rules, Hilly(), Limits(pops=1)).best(graph).steps == ()
    assert Backtracking(rules, Hilly(), Limits(), lambda: False).best(graph).steps == ()


def test_fingerprints_forget_names_and_order_and_nothing_else() -> None:
    x, one, two = value("x", 2), value("a", 2), value("b", 2)
    relu, exp = (require(name) for name in ("Relu", "Exp"))

    def graph(*named: tuple[str, str]) -> Graph:
        made = {op: make_node(require(op), [x], [name], {}) for op, name in named}
        ends = make_node(require("Sub"), [made["Relu"].outputs[0], made["Exp"].outputs[0]], ["y"], {})
        return Graph("g", (x,), ends.outputs, (*made.values(), ends), {})

    first = graph(("Relu", "p"), ("Exp", "q"))
    assert fingerprint(first) == fingerprint(graph(("Exp", "p"), ("Relu", "q")))
    other = make_node(require("Sub"), [one, two], ["y"], {})
    for a, b in ((relu, exp), (exp, relu)):
        nodes = (make_node(a, [x], ["a"], {}), make_node(b, [x], ["b"], {}), other)
        same_terms = fingerprint(Graph("g", (x,), other.outputs, nodes, {})) == fingerprint(first)
        assert same_terms == (a is relu)


def test_the_cost_is_that_of_the_graph() -> None:
    """It is kept up to date by differences."""
    graph = products(8)
    search = Backtracking(load_rules(SEARCH), Counted())
    found = search.best(graph)
    assert abs(found.cost - search.cost(found.graph)) < 1e-6
    assert found.steps[-1].cost_after == found.cost
    same(graph, found.graph)


STAIRS = """
rule first
  for x[n]
  from Neg(x)
  to Exp(x)

rule second
  for x[n]
  from Exp(x)
  to Relu(x)
"""


class Descending(Counted):
    """Each step is cheaper than the one before."""

    def of_node(self, node: Node, weights: Collection[str]) -> float:
        return {"Neg": 100.0, "Exp": 50.0, "Relu": 10.0}[node.op.name]


def test_one_move_applies_all_rules_after_one_another() -> None:
    graph = Graph("g", (value("x", 3),), (), (), {})
    nodes = [make_node(require("Neg"), [graph.inputs[0]], [f"y{number}"], {}) for number in range(9)]
    outputs = tuple(node.outputs[0] for node in nodes)
    rules = parse_rules(STAIRS)  # not true: a search believes what it is given
    found = Backtracking(rules, Descending(), Limits(pops=1)).best(Graph("g", graph.inputs, outputs, tuple(nodes), {}))
    assert found.cost == 90.0
    assert [step.rule.name for step in found.steps] == ["first"] * 9 + ["second"] * 9


FOLDED = """
rule folded
  for x[m, k], v: weight[k, n], w: weight[k, n]
  from Sub(MatMul(x, v), MatMul(x, w))
  to MatMul(x, Sub(v, Mul(w, Add(Abs(w), Neg(Abs(w))))))
"""


def test_nodes_that_compute_weights_are_no_growth() -> None:
    """They are folded later, and there are many after a normalization has gone into its filters."""
    x = value("x", 3, 4)
    weights = [value(f"w{number}", 4, 4) for number in range(8)]
    products = [make_node(require("MatMul"), [x, w], [f"p{w.name}"], {}) for w in weights]
    pairs = zip(products[::2], products[1::2], strict=True)
    sums = [make_node(require("Sub"), [*a.outputs, *b.outputs], [f"y{n}"], {}) for n, (a, b) in enumerate(pairs)]
    arrays = {weight: np.ones((4, 4), np.float32) for weight in weights}
    graph = Graph("g", (x,), tuple(node.outputs[0] for node in sums), (*products, *sums), arrays)
    found = Backtracking(parse_rules(FOLDED), Counted(), Limits(nodes=0)).best(graph)
    assert len(found.steps) == 4
    assert len(found.graph.nodes) > len(graph.nodes)
