"""Reductions over trailing axes become reductions of rows; kernels read reshaped values where they lie."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.closeness import assert_near
from tests.passes.graphs import apply, value
from tilewright.compilation import Options
from tilewright.driver import compile_graph
from tilewright.graph import Graph, Node, Value, evaluate_graph, verify
from tilewright.kernels.relayout import blocked
from tilewright.passes.flatten import flatten_reductions
from tilewright.passes.fuse import fuse
from tilewright.passes.layout import LaidOut
from tilewright.passes.lower import to_kernel
from tilewright.target.target import Target

HOST = Target.host()
X = value("x", 2, 3, 4, 5)


def graph_of(*nodes: Node, constants: dict[Value, np.ndarray] | None = None) -> Graph:
    return Graph("g", (X,), nodes[-1].outputs, nodes, constants or {})


def check(graph: Graph, operators: list[str]) -> None:
    after = flatten_reductions(LaidOut(graph, {})).graph
    verify(after)
    assert after.outputs == graph.outputs
    assert [node.op.name for node in after.nodes] == operators
    feeds = {"x": np.random.default_rng(0).standard_normal((2, 3, 4, 5)).astype(np.float32)}
    compiled = compile_graph(graph, Options(HOST, threads=1, checked=True)).executable.run(feeds)
    for old, new, native in zip(evaluate_graph(graph, feeds), evaluate_graph(after, feeds), compiled, strict=True):
        assert_near(new, old, 2e-6)
        assert_near(native, old, 2e-6)


ROWS = ["Reshape", "ReduceMean", "Reshape"]


@pytest.mark.parametrize(
    ("axes", "operators"),
    [((2, 3), ROWS), ((-2, -1), ROWS), ((1, 2, 3), ROWS), ((3,), ["ReduceMean"]), ((1, 2), ROWS), ((1,), ROWS)],
)
@pytest.mark.parametrize("keepdims", [False, True])
def test_reductions(axes: tuple[int, ...], operators: list[str], keepdims: bool) -> None:
    rows = ROWS if axes == (3,) and not keepdims else operators
    check(graph_of(apply("ReduceMean", [X], "y", axes=axes, keepdims=keepdims)), rows)


@pytest.mark.parametrize("axes", [(0,), (0, 1), (0, 1, 2)])
@pytest.mark.parametrize("keepdims", [False, True])
def test_reductions_over_leading_axes(axes: tuple[int, ...], keepdims: bool) -> None:
    """Of whole rows: what is left lies side by side."""
    graph = graph_of(apply("ReduceMean", [X], "y", axes=axes, keepdims=keepdims))
    check(graph, ROWS)
    rows = flatten_reductions(LaidOut(graph, {})).graph.nodes[1].inputs[0]
    assert rows is not None
    assert len(rows.shape) == 2


@pytest.mark.parametrize("keepdims", [False, True])
def test_reductions_of_all_axes(keepdims: bool) -> None:
    check(graph_of(apply("ReduceMax", [X], "y", keepdims=keepdims)), ["Reshape", "ReduceMax", "Reshape"])


@pytest.mark.parametrize("operator", ["ReduceL2", "ReduceLogSumExp", "ReduceMax"])
def test_reductions_of_no_axes(operator: str) -> None:
    check(graph_of(apply(operator, [X], "y", noop_with_empty_axes=True)), [operator])


@pytest.mark.parametrize("axes", [(3,), (2,), (1, 3)])
def test_other_axes_stay(axes: tuple[int, ...]) -> None:
    """Single ones that at most one follows, and those that are apart."""
    laid_out = LaidOut(graph_of(apply("ReduceMax", [X], "y", axes=axes)), {})
    assert flatten_reductions(laid_out) == laid_out


@pytest.mark.parametrize(("axis", "shape"), [(0, (2, 60)), (1, (2, 3, 20)), (2, X.shape), (3, X.shape), (-4, (2, 60))])
@pytest.mark.parametrize("operator", ["Softmax", "LogSoftmax"])
def test_softmax_along_an_axis_that_others_follow(operator: str, axis: int, shape: tuple[int, ...]) -> None:
    """They are one: lanes run over all of them."""
    graph = graph_of(apply(operator, [X], "y", axis=axis))
    check(graph, [operator] if shape == X.shape else ["Reshape", operator, "Reshape"])
    nodes = flatten_reductions(LaidOut(graph, {})).graph.nodes
    (source,) = next(node for node in nodes if node.op.name == operator).inputs
    assert source is not None and tuple(map(str, source.shape)) == tuple(map(str, shape))


@pytest.mark.parametrize("axis", [1, 2, 3])
@pytest.mark.parametrize(("op", "parameters"), [("LayerNormalization", "sb"), ("RMSNormalization", "s")])
def test_normalizations(op: str, parameters: str, axis: int) -> None:
    shape = (3, 4, 5)[axis - 1 :]
    constants = {value(name, *shape): np.random.default_rng(1).standard_normal(shape) for name in parameters}
    constants = {v: array.astype(np.float32) for v, array in constants.items()}
    node = apply(op, [X, *constants], "y", axis=axis)
    normal = [op]
    check(graph_of(node, constants=constants), normal if axis == 3 else ["Reshape", *normal, "Reshape"])


def test_a_blocked_value_is_reduced_as_it_is() -> None:
    graph = graph_of(apply("Relu", [X], "r"), apply("ReduceMean", [value("r", 2, 3, 4, 5)], "y", axes=(2, 3)))
    laid_out = LaidOut(graph, {value("r", 2, 3, 4, 5): blocked(4, 2)})
    assert flatten_reductions(laid_out) == laid_out


def test_a_parameter_has_the_shape_that_a_reshape_gives_it() -> None:
    rows = apply("Reshape", [X], "rows", shape=(6, 20))
    graph = graph_of(rows, apply("Softmax", rows.outputs, "y", axis=1))
    (group,) = fuse(graph)
    kernel = to_kernel(group, LaidOut(graph, {}), HOST, {})
    assert [str(p.shape[0]) for p in kernel.program.params] == ["6", "6"]
    assert kernel.arguments[0] == X


@given(st.permutations([2, 3, 4, 5]), st.data())
@settings(max_examples=20)
def test_reshapes_between_elementwise_steps(extents: list[int], data: st.DataObject) -> None:
    """What is read both reshaped and as it is keeps its shape; chains of reshapes count as one."""
    first = apply("Reshape", [X], "a", shape=tuple(extents))
    second = apply("Flatten", first.outputs, "b", axis=data.draw(st.integers(0, 4)))
    third = apply("Reshape", second.outputs, "c", shape=(2, 3, 4, 5))
    last = apply("Add", [*third.outputs, X], "d") if data.draw(st.booleans()) else apply("Relu", third.outputs, "d")
    graph = graph_of(first, second, third, last)
    feeds = {"x": np.random.default_rng(0).standard_normal((2, 3, 4, 5)).astype(np.float32)}
    (result,) = compile_graph(graph, Options(HOST, threads=1, checked=True)).executable.run(feeds)
    np.testing.assert_array_equal(result, evaluate_graph(graph, feeds)[0])


def test_names_that_look_like_ours_stay_what_they_are() -> None:
    generator = np.random.default_rng(1)
    scale, twin = value("s", 4, 5), value("s.row", 20)
    constants = {v: generator.standard_normal([int(str(e)) for e in v.shape]).astype(np.float32) for v in (scale, twin)}
    norms = [apply("LayerNormalization", [X, scale], name, axis=2) for name in "ab"]
    others = [apply("Relu", [X], "a.rows"), apply("Reshape", [X], "b.flat", shape=(6, 20))]
    product = apply("Mul", [*others[1].outputs, twin], "p")
    nodes = (*norms, *others, product)
    graph = Graph("g", (X,), tuple(v for node in nodes for v in node.outputs), nodes, constants)
    after = flatten_reductions(LaidOut(graph, {})).graph
    verify(after)
    assert after.outputs == graph.outputs
    assert len(after.constants) == 3  # both normalizations share a row
    feeds = {"x": generator.standard_normal((2, 3, 4, 5)).astype(np.float32)}
    for new, old in zip(evaluate_graph(after, feeds), evaluate_graph(graph, feeds), strict=True):
        assert_near(new, old, 2e-6)
