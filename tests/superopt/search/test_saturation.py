"""Rules applied until nothing is new: what is found, what it computes, and how far it grows."""

import random
from collections.abc import Collection

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.passes.graphs import apply, random_graphs, value
from tilewright.graph import Array, Graph, Node, Value, evaluate_graph, verify
from tilewright.ops import FusionKind
from tilewright.passes.normalize import normalize
from tilewright.passes.rules import ALGEBRA, SEARCH, Rule, load_rules, parse_rules
from tilewright.superopt.costs.provider import cost_by_nodes
from tilewright.superopt.search.saturation import Budget, Limits, optimize_by_saturation, saturate

X = value("x", 6, 8)


class Launches:
    """Each node takes as long as any other; views, copies and slices a little less."""

    def of_node(self, node: Node, weights: Collection[str]) -> float:
        is_cheap = node.op.kind is FusionKind.VIEW or node.op.name in ("Concat", "Identity", "Slice")
        return 0.1 if is_cheap else 1.0

    def of_graph(self, graph: Graph) -> float:
        raise NotImplementedError


def graph_of(nodes: list[Node], outputs: tuple[Value, ...], weights: tuple[Value, ...] = ()) -> Graph:
    random_ = np.random.default_rng(0)
    made = {v for node in nodes for v in node.outputs}
    read = dict.fromkeys(v for node in nodes for v in node.inputs if v is not None)
    inputs = tuple(v for v in read if v not in made and v not in weights)
    shapes = {w: [int(str(extent)) for extent in w.shape] for w in weights}
    return Graph(
        "g",
        inputs,
        outputs,
        tuple(nodes),
        {w: random_.standard_normal(s).astype(np.float32) for w, s in shapes.items()},
    )


def is_same(before: Graph, after: Graph) -> bool:
    random_ = np.random.default_rng(1)
    feeds = {
        v.name: random_.standard_normal([int(str(e)) for e in v.shape]).astype(v.dtype.numpy) for v in before.inputs
    }
    pairs = zip(evaluate_graph(before, feeds), evaluate_graph(after, feeds), strict=True)
    return all(is_close(old, new) for old, new in pairs)


def is_close(old: Array, new: Array) -> bool:
    """Relative to the largest element: sums are in another order."""
    old, new = old.astype(np.float64), new.astype(np.float64)
    return np.array_equal(old, new, equal_nan=True) or float(np.abs(old - new).max()) <= 1e-4 * float(np.abs(old).max())


def products(count: int, operand: Value, name: str, *, columns: int = 5) -> tuple[list[Node], list[Value]]:
    weights = [value(f"{name}{i}.w", 8, columns) for i in range(count)]
    return [apply("MatMul", [operand, w], f"{name}{i}") for i, w in enumerate(weights)], weights


def attention() -> Graph:
    """One head: queries, keys and values of one matrix."""
    nodes, weights = products(3, X, "p", columns=8)
    q, k, v = (node.outputs[0] for node in nodes)
    turned = apply("Transpose", [k], "t", perm=(1, 0))
    scores = apply("MatMul", [q, *turned.outputs], "s")
    shares = apply("Softmax", scores.outputs, "a", axis=-1)
    mixed = apply("MatMul", [*shares.outputs, v], "o")
    return graph_of([*nodes, turned, scores, shares, mixed], mixed.outputs, tuple(weights))


def test_queries_keys_and_values_are_one_product() -> None:
    found = optimize_by_saturation(attention(), load_rules(SEARCH), Launches())
    verify(found.graph)
    assert found.is_proven and found.cost == cost_by_nodes(found.graph, Launches())
    assert {rule.name for rule in found.made} == {"products-of-one-matrix"}
    nodes = normalize(found.graph).nodes  # folds the joined weights
    (wide,) = (node for node in nodes if X in node.inputs)
    assert wide.op.name == "MatMul" and str(wide.outputs[0].shape[1]) == "24"
    assert [node.op.name for node in nodes].count("MatMul") == 3
    assert is_same(attention(), found.graph)


def test_without_rules_that_help_the_graph_stays() -> None:
    graph = attention()
    found = optimize_by_saturation(graph, load_rules(ALGEBRA), Launches())
    assert found.graph is graph and found.cost == cost_by_nodes(graph, Launches()) and not found.made


@pytest.mark.parametrize("seconds", [0.0, 60.0])
def test_exact_or_greedy(seconds: float) -> None:
    """Greedily, no product is worth merging: for each alone, a slice comes on top."""
    found = optimize_by_saturation(attention(), load_rules(SEARCH), Launches(), Limits(seconds=seconds))
    assert (found.graph.nodes != attention().nodes) == bool(seconds)


def cells(steps: int, gates: int) -> Graph:
    """As in NasRNN: each gate is the sum of a product of the input and one of the state."""
    nodes, weights = list[Node](), list[Value]()
    state = value("h", 6, 8)
    for step in range(steps):
        ours, own = products(gates, value(f"x{step}", 6, 8), f"x{step}.", columns=8)
        theirs, others = products(gates, state, f"h{step}.", columns=8)
        sums = [
            apply("Add", [*a.outputs, *b.outputs], f"g{step}.{i}")
            for i, (a, b) in enumerate(zip(ours, theirs, strict=True))
        ]
        nodes += [*ours, *theirs, *sums]
        weights += [*own, *others]
        for i, gate in enumerate(sums[1:]):
            nodes.append(apply("Mul", [*(sums[0] if not i else nodes[-1]).outputs, *gate.outputs], f"m{step}.{i}"))
        state = nodes[-1].outputs[0]
    return graph_of(nodes, (state,), tuple(weights))


@pytest.mark.parametrize("nodes", [120, 300, 2000])
def test_merging_stays_within_the_budget(nodes: int) -> None:
    graph = cells(steps=2, gates=8)
    done = saturate(graph, load_rules(SEARCH), Budget(rounds=8, nodes=nodes, merging_rounds=8))
    assert all(one.nodes <= nodes for one in done.rounds)
    assert done.rounds[-1].left == 0 or nodes < 2000
    assert len(done.rounds) < 8 or done.rounds[-1].applied == 0


@pytest.mark.parametrize("count", [2, 3, 8, 16])
def test_of_n_products_less_than_n_squared_are_made(count: int) -> None:
    nodes, weights = products(count, X, "p")
    graph = graph_of(nodes, tuple(node.outputs[0] for node in nodes), tuple(weights))
    done = saturate(graph, load_rules(SEARCH), Budget(rounds=20, nodes=10**6, merging_rounds=20))
    made = [one for one in done.egraph.nodes if one.node.op.name == "MatMul"]
    assert len(made) == count * (count + 1) // 2  # one for each range
    widest = max(int(str(one.node.outputs[0].shape[1])) for one in made)
    assert widest == 5 * count


def test_merging_stops_after_its_rounds() -> None:
    nodes, weights = products(4, X, "p")
    graph = graph_of(nodes, tuple(node.outputs[0] for node in nodes), tuple(weights))
    done = saturate(graph, load_rules(SEARCH), Budget(merging_rounds=1))
    widest = max(int(str(one.node.outputs[0].shape[1])) for one in done.egraph.nodes if one.node.op.name == "MatMul")
    assert widest == 10


MERGE = parse_rules("""rule merge
for a[m, k], b[k, n1], c[k, n2]
let t = MatMul(a, Concat(b, c, axis=1))
from MatMul(a, b); MatMul(a, c)
to Slice(t, axes=(-1,), starts=(0,), ends=(n1,)); Slice(t, axes=(-1,), starts=(n1,), ends=(n1 + n2,))""")


def test_what_would_be_made_of_itself_is_not_merged() -> None:
    """The second product reads the first."""
    x, w = value("x", 4, 4), value("w", 4, 4)
    first = apply("MatMul", [x, w], "p")
    second = apply("MatMul", [x, *first.outputs], "q")
    done = saturate(graph_of([first, second], second.outputs), MERGE)
    assert [(one.applied, one.cyclic) for one in done.rounds] == [(0, 2)]


def test_a_value_may_equal_what_is_computed_from_it() -> None:
    rules = parse_rules("rule twice\nfor a[*s]\nfrom Neg(Neg(a))\nto a")
    nodes = [apply("Tanh", [X], "t")]
    for position in range(4):
        nodes.append(apply("Neg", nodes[-1].outputs, f"n{position}"))
    last = apply("Relu", nodes[-1].outputs, "r")
    graph = graph_of([*nodes, last], last.outputs)
    found = optimize_by_saturation(graph, rules, Launches())
    assert [node.op.name for node in found.graph.nodes] == ["Tanh", "Relu"] and is_same(graph, found.graph)


LAWS = parse_rules("""
rule sum-of-sums
  for a[*s], b[*s], c[*s]
  from Add(Add(a, b), c)
  to Add(a, Add(b, c))
rule factor
  for a[*s], b[*s], c[*s]
  from Add(Mul(a, b), Mul(a, c))
  to Mul(a, Add(b, c))
rule twice
  for a[*s]
  from Add(a, a)
  to Mul(a, 2.0)
rule negation-twice
  for a[*s]
  from Neg(Neg(a))
  to a
rule square
  for a[*s]
  from Mul(Neg(a), Neg(a))
  to Mul(a, a)
rule turned-back
  for a[p, q, r]
  from Transpose(Transpose(a, perm=(2, 0, 1)), perm=(1, 2, 0))
  to a
rule products
  for a[b, m, k], c[b, k, l], d[b, l, n]
  from MatMul(MatMul(a, c), d)
  to MatMul(a, MatMul(c, d))
rule common-factor
  for a[*s], b[*s], c[*s]
  from Mul(a, b); Mul(a, c)
  to Mul(b, a); Mul(c, a)
""")


class Any:
    """Costs at random, so that any of the graphs may be the cheapest."""

    def __init__(self, seed: int) -> None:
        self._draw = random.Random(seed)
        self._costs: dict[str, float] = {}

    def of_node(self, node: Node, weights: Collection[str]) -> float:
        shapes = [v.shape for v in (*node.inputs, *node.outputs) if v is not None]
        return self._costs.setdefault(f"{node.op} {node.attributes} {shapes}", self._draw.random())

    def of_graph(self, graph: Graph) -> float:
        raise NotImplementedError


@st.composite
def algebra(draw: st.DrawFn) -> Graph:
    """Sums, products and views of values of one shape, mostly of the last few: there is much to rewrite."""
    shape = (2, 4, 4)
    x, w, v = value("x", *shape), value("w", 4, 4), value("v", 4, 4)
    nodes, values = list[Node](), [x]

    def add(op: str, operands: list[Value], **attributes: object) -> Value:
        nodes.append(apply(op, operands, f"v{len(nodes)}", **attributes))
        return nodes[-1].outputs[0]

    for _ in range(draw(st.integers(2, 10))):
        a, b = draw(st.sampled_from(values[-3:])), draw(st.sampled_from(values[-3:]))
        match draw(st.sampled_from(["Add", "Mul", "Neg", "Transpose", "Twice", "MatMul", "MatMul", "Max", "Product"])):
            case "Transpose":
                values.append(add("Transpose", [add("Transpose", [a], perm=(2, 0, 1))], perm=(1, 2, 0)))
            case "Twice":
                values.append(add("Neg", [add("Neg", [a])]))
            case "MatMul":
                values.append(add("MatMul", [a, draw(st.sampled_from([w, v]))]))
            case "Product":
                values.append(add("MatMul", [a, b]))
            case "Neg":
                values.append(add("Neg", [a]))
            case op:
                values.append(add(op, [a, b]))
    outputs = draw(st.lists(st.sampled_from([n.outputs[0] for n in nodes]), min_size=1, max_size=3, unique=True))
    constants = {w: np.eye(4, dtype=np.float32)[[1, 0, 3, 2]], v: np.full((4, 4), 0.25, np.float32)}
    return Graph("g", (x,), tuple(outputs), tuple(nodes), constants)


@settings(max_examples=80)
@given(st.one_of(algebra(), random_graphs()), st.integers(0, 5))
def test_what_is_extracted_computes_the_same(graph: Graph, seed: int) -> None:
    rules: list[Rule] = [*LAWS, *load_rules(ALGEBRA), *load_rules(SEARCH)]
    found = optimize_by_saturation(graph, rules, Any(seed), Limits(Budget(rounds=3, nodes=300)))
    verify(found.graph)
    assert found.graph.outputs == graph.outputs
    assert is_same(graph, found.graph)
