"""Groups: every node exactly once, in an order that runs, with the same results; and the groups of known graphs."""

import numpy as np
import pytest
from hypothesis import given, settings

import tilewright
from tests.frontend.models import run_onnxruntime, single_node
from tests.passes.graphs import Array, apply, feeds_of, random_graphs, value
from tilewright.graph import Graph, Node, Value, evaluate_node
from tilewright.graph.evaluate import evaluate_graph
from tilewright.ops import FusionKind
from tilewright.passes import fuse, normalize
from tilewright.passes.dominators import post_dominators
from tilewright.passes.fuse import MAX_NODES, MAX_OPERANDS, MAX_VIEWS, Group


def run(groups: tuple[Group, ...], graph: Graph, feeds: dict[str, Array]) -> list[Array]:
    """Each group on its inputs alone; only its outputs are kept."""
    known = {**graph.constants, **{v: feeds[v.name] for v in graph.inputs}}
    for group in groups:
        local = {v: known[v] for v in group.inputs}
        for node in group.nodes:
            local.update(zip(node.outputs, evaluate_node(node, local), strict=True))
        known.update({v: local[v] for v in group.outputs})
    return [known[v] for v in graph.outputs]


@given(graph=random_graphs())
@settings(max_examples=150, deadline=None)
def test_groups_compute_the_graph(graph: Graph) -> None:
    graph = normalize(graph)
    groups = fuse(graph)
    feeds = feeds_of(graph)
    for result, expected in zip(run(groups, graph, feeds), evaluate_graph(graph, feeds), strict=True):
        np.testing.assert_array_equal(result, expected)


@given(graph=random_graphs())
@settings(max_examples=150, deadline=None)
def test_nothing_is_computed_twice_and_one_value_leaves(graph: Graph) -> None:
    graph = normalize(graph)
    groups = fuse(graph)
    computed = [n.outputs[0] for g in groups for n in g.nodes if n.op.kind is not FusionKind.VIEW]
    assert sorted(v.name for v in computed) == sorted(
        n.outputs[0].name for n in graph.nodes if n.op.kind is not FusionKind.VIEW
    )
    assert all(len(group.outputs) == 1 for group in groups)
    reducing = {FusionKind.REDUCTION, FusionKind.CONTRACTION}
    assert all(sum(n.op.kind in reducing for n in group.nodes) <= 1 for group in groups)


@given(graph=random_graphs())
@settings(max_examples=150, deadline=None)
def test_post_dominators_by_removal(graph: Graph) -> None:
    """A node post-dominates a value if no output can be reached without it; the found one is the first of these."""
    graph = normalize(graph)
    found = post_dominators(graph)
    consumers = graph.consumers()

    def leaves_without(start: Value, avoided: Node | None) -> bool:
        stack, seen = [start], {start}
        while stack:
            current = stack.pop()
            if current in graph.outputs:
                return True
            for node in consumers.get(current, ()):
                if node is not avoided:
                    stack.extend(v for v in node.outputs if v not in seen)
                    seen.update(node.outputs)
        return False

    for node in graph.nodes:
        for start in node.outputs:
            all_of_them = [n for n in graph.nodes if leaves_without(start, None) and not leaves_without(start, n)]
            later = [n for n in all_of_them if n is not node]
            assert found.get(start) is (later[0] if later else None)


A, B, C = value("a", 4, 8), value("b", 8, 6), value("c", 6)


def text(graph: Graph) -> str:
    return "\n".join(map(str, fuse(graph)))


def test_diamond() -> None:
    """GELU: the product is used twice, and all of it stays in one kernel."""
    product = apply("MatMul", [A, B], "product")
    erf = apply("Erf", product.outputs, "erf")
    raised = apply("Add", [erf.outputs[0], C], "raised")
    gelu = apply("Mul", [product.outputs[0], raised.outputs[0]], "gelu")
    graph = Graph("g", (A, B, C), gelu.outputs, (product, erf, raised, gelu), {})
    assert text(graph) == "\n".join(
        [
            "group matmul_erf_add_mul(a, b, c):",
            "  product: f32[4, 6] = MatMul(a, b)",
            "  erf: f32[4, 6] = Erf(product)",
            "  raised: f32[4, 6] = Add(erf, c)",
            "  gelu: f32[4, 6] = Mul(product, raised)",
            "  return gelu",
        ]
    )


def test_a_diamond_with_a_reduction_on_one_side_stays_apart() -> None:
    product = apply("MatMul", [A, B], "product")
    top = apply("ReduceMax", product.outputs, "top", axes=(1,))
    shifted = apply("Sub", [product.outputs[0], top.outputs[0]], "shifted")
    graph = Graph("g", (A, B), shifted.outputs, (product, top, shifted), {})
    assert [group.name for group in fuse(graph)] == ["matmul", "reducemax", "sub"]


def test_a_diamond_that_leaves_the_graph_in_the_middle_stays_apart() -> None:
    product = apply("MatMul", [A, B], "product")
    erf = apply("Erf", product.outputs, "erf")
    gelu = apply("Mul", [product.outputs[0], erf.outputs[0]], "gelu")
    graph = Graph("g", (A, B), (*erf.outputs, *gelu.outputs), (product, erf, gelu), {})
    assert [group.name for group in fuse(graph)] == ["matmul", "erf", "mul"]


def test_views_are_copied_into_every_reader() -> None:
    relu = apply("Relu", [A], "relu")
    turned = apply("Transpose", relu.outputs, "turned")
    up, down = apply("Exp", turned.outputs, "up"), apply("Neg", turned.outputs, "down")
    graph = Graph("g", (A,), (*up.outputs, *down.outputs, *turned.outputs), (relu, turned, up, down), {})
    assert text(graph) == "\n".join(
        [
            "group relu(a):",
            "  relu: f32[4, 8] = Relu(a)",
            "  return relu",
            "group transpose(relu):",
            "  turned: f32[8, 4] = Transpose(relu)",
            "  return turned",
            "group exp(relu):",
            "  turned: f32[8, 4] = Transpose(relu)",
            "  up: f32[8, 4] = Exp(turned)",
            "  return up",
            "group neg(relu):",
            "  turned: f32[8, 4] = Transpose(relu)",
            "  down: f32[8, 4] = Neg(turned)",
            "  return down",
        ]
    )


def test_bytes_are_dequantized_where_they_are_read() -> None:
    scale, rest = value("scale"), value("rest", 4, 6)
    steps = apply("QuantizeLinear", [rest, scale], "steps")
    real = apply("DequantizeLinear", [*steps.outputs, scale], "real")
    product = apply("MatMul", [A, B], "product")
    total = apply("Add", [product.outputs[0], real.outputs[0]], "total")
    less = apply("Neg", real.outputs, "less")
    graph = Graph("g", (A, B, rest, scale), (*total.outputs, *less.outputs), (steps, real, product, total, less), {})
    groups = fuse(graph)
    names = ["dequantizelinear_matmul_add", "dequantizelinear_neg", "quantizelinear"]
    assert sorted(group.name for group in groups) == names
    random = np.random.default_rng(0)
    feeds: dict[str, Array] = {v.name: random.random([int(str(e)) for e in v.shape], np.float32) for v in graph.inputs}
    for result, expected in zip(run(groups, graph, feeds), evaluate_graph(graph, feeds), strict=True):
        np.testing.assert_array_equal(result, expected)
    top = apply("ReduceMax", real.outputs, "top", axes=(1,))
    shared = Graph("g", (A, B, rest, scale), (*total.outputs, *top.outputs), (steps, real, product, total, top), {})
    assert "quantizelinear_dequantizelinear" in [group.name for group in fuse(shared)], "not all read single elements"


def test_producers_of_an_elementwise_group_join_it() -> None:
    left, right = apply("Exp", [A], "left"), apply("Neg", [A], "right")
    total = apply("Add", [left.outputs[0], right.outputs[0]], "total")
    graph = Graph("g", (A,), total.outputs, (left, right, total), {})
    assert [group.name for group in fuse(graph)] == ["exp_neg_add"]


def test_producers_with_other_readers_stay_out() -> None:
    left, right = apply("Exp", [A], "left"), apply("Neg", [A], "right")
    total = apply("Add", [left.outputs[0], right.outputs[0]], "total")
    top = apply("ReduceMax", right.outputs, "top", axes=(1,))
    graph = Graph("g", (A,), (*total.outputs, *top.outputs), (left, right, total, top), {})
    assert sorted(group.name for group in fuse(graph)) == ["exp_add", "neg", "reducemax"]


def test_a_long_chain_takes_little_time() -> None:
    nodes = [apply("Relu", [A], "v0")]
    for position in range(1, 3000):
        nodes.append(apply("Relu", nodes[-1].outputs, f"v{position}"))
    groups = fuse(Graph("g", (A,), nodes[-1].outputs, tuple(nodes), {}))
    assert {len(group.nodes) for group in groups} <= {MAX_NODES, 3000 % MAX_NODES}
    assert sum(len(group.nodes) for group in groups) == 3000


def test_what_is_before_a_group_is_bounded_too() -> None:
    sides = [apply("Neg", [A], f"s{i}") for i in range(2 * MAX_NODES)]
    total = sides[0].outputs[0]
    sums = list[Node]()
    for position, side in enumerate(sides[1:]):
        sums.append(apply("Add", [total, *side.outputs], f"t{position}"))
        total = sums[-1].outputs[0]
    groups = fuse(Graph("g", (A,), (total,), (*sides, *sums), {}))
    assert max(len(group.nodes) for group in groups) <= MAX_NODES
    assert sum(len(group.nodes) for group in groups) == len(sides) + len(sums)


def test_groups_have_bounded_operands() -> None:
    """Sums of many inputs follow each other: together they would have thousands."""
    nodes, last, entering = [], C, [C]
    for step in range(20):
        more = [value(f"x{step}_{position}", 6) for position in range(60)]
        entering += more
        nodes.append(apply("Sum", [last, *more], f"s{step}"))
        last = nodes[-1].outputs[0]
    groups = fuse(Graph("g", tuple(entering), (last,), tuple(nodes), {}))
    assert all(sum(len(node.inputs) for node in group.nodes) <= MAX_OPERANDS for group in groups)
    assert [len(group.nodes) for group in groups] == [4] * 5


def test_views_of_views_are_computed_some_time() -> None:
    """Else each reader of a long chain has a copy of all of it."""
    nodes, last = [], A
    for step in range(100):
        nodes.append(apply("Transpose", [last], f"t{step}"))
        last = nodes[-1].outputs[0]
    groups = fuse(Graph("g", (A,), (last,), tuple(nodes), {}))
    assert [len(group.nodes) for group in groups] == [MAX_VIEWS + 1] * 3 + [1]


def test_dominators_over_many_skips() -> None:
    """What is made on the way down is read on the way up, last first: each meets far away."""
    nodes, down = [], [A]
    for step in range(1000):
        nodes.append(apply("Exp", [down[-1]], f"d{step}"))
        down.append(nodes[-1].outputs[0])
    last = down[-1]
    for step, before in enumerate(reversed(down[:-1])):
        nodes.append(apply("Add", [last, before], f"u{step}"))
        last = nodes[-1].outputs[0]
    found = post_dominators(Graph("g", (A,), (last,), tuple(nodes), {}))
    assert all(found[down[step]] is nodes[2000 - 1 - step] for step in range(1, 1000))


def _ending(*more: Node, outputs: int = 1) -> Graph:
    """A softmax that is regrouped at the end, and ``more``."""
    x = value("x", 6, 8)
    rows = apply("Softmax", [x], "rows")
    regrouped = apply("Reshape", rows.outputs, "y", shape=(2, 3, 8))
    ends = (regrouped.outputs[0], *(node.outputs[0] for node in more))[:outputs]
    return Graph("g", (x,), ends, (rows, regrouped, *more), {})


def test_a_kernel_stores_its_regrouped_result() -> None:
    (group,) = fuse(_ending())
    assert [value.name for value in group.outputs] == ["y"]


def test_others_read_what_is_regrouped() -> None:
    x = value("rows", 6, 8)
    assert len(fuse(_ending(apply("Relu", [x], "z"), outputs=2))) == 3
    y = value("y", 2, 3, 8)
    assert len(fuse(_ending(apply("Relu", [y], "z"), outputs=2))) == 3
    (rows, _) = _ending().nodes
    assert len(fuse(_ending(), in_blocks=rows.outputs)) == 2


@pytest.mark.parametrize("axis", [1, 2])
def test_regrouped_results_are_those_of_the_graph(axis: int) -> None:
    """A normalization over several axes is one of rows, whose result is regrouped."""
    x = np.random.default_rng(0).standard_normal((3, 4, 5, 6)).astype(np.float32)
    scale = np.ones(x.shape[axis:], np.float32)
    proto = single_node("LayerNormalization", {"x": x}, {"scale": scale}, axis=axis)
    compiled = tilewright.compile(proto)
    assert len(compiled.compiled.kernels) == 1
    (found,), (wanted,) = compiled.run(None, {"x": x}), run_onnxruntime(proto, {"x": x})
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)
