"""Normalization keeps what a graph computes; each pass does what it is for."""

import numpy as np
import pytest
from hypothesis import given, settings

from tests.passes.graphs import apply, feeds_of, random_graphs, value
from tests.profiles import examples
from tilewright.base.dtypes import f32, i64
from tilewright.graph import Graph, evaluate_graph, verify
from tilewright.passes import normalize
from tilewright.passes.normalize import (
    FOLD_LIMIT,
    eliminate_common_subexpressions,
    eliminate_dead_code,
    eliminate_identities,
    fold_constants,
)

PASSES = [
    fold_constants,
    eliminate_identities,
    eliminate_common_subexpressions,
    eliminate_dead_code,
    normalize,
]


@pytest.mark.parametrize("rewrite", PASSES, ids=lambda p: p.__name__)
@given(graph=random_graphs())
@examples(25, by_night=200)
def test_the_meaning_stays(rewrite: object, graph: Graph) -> None:
    after = rewrite(graph)
    verify(after)
    assert (after.inputs, after.outputs) == (graph.inputs, graph.outputs)
    assert len(after.nodes) <= len(graph.nodes)
    feeds = feeds_of(graph)
    for before, now in zip(evaluate_graph(graph, feeds), evaluate_graph(after, feeds), strict=True):
        assert np.isfinite(before).all(), "what is drawn must not overflow"
        np.testing.assert_array_equal(now, before)


@given(graph=random_graphs())
@settings(max_examples=40, deadline=None)
def test_normalizing_twice_changes_nothing(graph: Graph) -> None:
    once = normalize(graph)
    assert str(normalize(once)) == str(once)


X = value("x", 2)
C = value("c", 2)


def test_constants_are_folded_up_to_the_output() -> None:
    inner = apply("Neg", [C], "inner")
    outer = apply("Relu", inner.outputs, "outer")
    graph = Graph("g", (X,), outer.outputs, (inner, outer), {C: np.array([1, -2], np.float32)})
    after = normalize(graph)
    assert [str(node) for node in after.nodes] == ["outer: f32[2] = Relu(inner)"]
    assert after.constants[inner.outputs[0]].tolist() == [-1, 2]


def test_large_results_are_not_folded() -> None:
    one = value("one", 1)
    grown = apply("Expand", [one], "grown", shape=(FOLD_LIMIT // 4 + 1,))
    total = apply("ReduceSum", grown.outputs, "total")
    graph = Graph("g", (), total.outputs, (grown, total), {one: np.ones(1, np.float32)})
    assert len(normalize(graph).nodes) == 2


def test_equal_nodes_and_constants_become_one() -> None:
    d = value("d", 2)
    first, second = apply("Add", [X, C], "first"), apply("Add", [X, d], "second")
    product = apply("Mul", [first.outputs[0], second.outputs[0]], "product")
    same = {C: np.ones(2, np.float32), d: np.ones(2, np.float32)}
    after = normalize(Graph("g", (X,), product.outputs, (first, second, product), same))
    assert [str(node) for node in after.nodes] == [
        "first: f32[2] = Add(x, c)",
        "product: f32[2] = Mul(first, first)",
    ]
    assert list(after.constants) == [C]


def test_negative_zero_is_another_constant() -> None:
    d = value("d", 2)
    difference = apply("Sub", [C, d], "difference")
    sums = apply("Add", [X, difference.outputs[0]], "sum")
    values = {C: np.zeros(2, np.float32), d: np.full(2, -0.0, np.float32)}
    graph = eliminate_common_subexpressions(Graph("g", (X,), sums.outputs, (difference, sums), values))
    assert set(graph.constants) == {C, d}


def test_constants_that_differ_in_one_element_are_others() -> None:
    names = [value(name, 1000) for name in ("a", "b", "c", "d")]
    arrays = [np.ones(1000, np.float32) for _ in names]
    arrays[1][7] = 2
    arrays[2][999] = 2
    both = apply("Add", names[:2], "both"), apply("Add", names[2:], "others")
    total = apply("Add", [both[0].outputs[0], both[1].outputs[0]], "total")
    graph = Graph("g", (), total.outputs, (*both, total), dict(zip(names, arrays, strict=True)))
    assert set(eliminate_common_subexpressions(graph).constants) == set(names[:3])


def test_nodes_that_do_nothing_disappear_but_not_outputs() -> None:
    cast = apply("Cast", [X], "cast", to=f32)
    shaped = apply("Reshape", cast.outputs, "shaped", shape=(2,))
    relu = apply("Relu", shaped.outputs, "relu")
    kept = apply("Identity", [X], "kept")
    graph = Graph("g", (X,), (*relu.outputs, *kept.outputs), (cast, shaped, relu, kept), {})
    assert [str(node) for node in normalize(graph).nodes] == ["relu: f32[2] = Relu(x)", "kept: f32[2] = Identity(x)"]


def test_constants_of_other_shapes_are_others() -> None:
    d = value("d", 1, 2)
    wide = apply("Add", [C, d], "wide")
    values = {C: np.ones(2, np.float32), d: np.ones((1, 2), np.float32)}
    graph = eliminate_common_subexpressions(Graph("g", (), wide.outputs, (wide,), values))
    assert set(graph.constants) == {C, d}


def test_a_cast_to_another_dtype_stays() -> None:
    cast = apply("Cast", [X], "cast", to=i64)
    shaped = apply("Reshape", cast.outputs, "shaped", shape=(1, 2))
    assert len(normalize(Graph("g", (X,), shaped.outputs, (cast, shaped), {})).nodes) == 2


def test_nodes_with_other_attributes_are_others() -> None:
    square = value("square", 2, 2)
    plain, turned = (apply("Transpose", [square], f"perm{p}", perm=p) for p in ((0, 1), (1, 0)))
    total = apply("Add", [plain.outputs[0], turned.outputs[0]], "total")
    graph = eliminate_common_subexpressions(Graph("g", (square,), total.outputs, (plain, turned, total), {}))
    assert len(graph.nodes) == 3
