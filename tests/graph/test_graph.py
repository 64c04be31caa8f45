from dataclasses import replace

import numpy as np
import pytest

from tilewright.base.dtypes import boolean, f32, i64
from tilewright.base.errors import BadFeed, BadProgram, InternalError
from tilewright.graph import Graph, Node, Value, evaluate_graph, make_node, verify
from tilewright.ops import FusionKind, Operator, find
from tilewright.ops.build import tensor
from tilewright.symbolic.expr import Extent, const
from tilewright.tensor.ir import Tensor

N = Extent("n")
X = Value("x", f32, (N, const(3)))
C = Value("c", f32, (const(3),))


def node(op: str, inputs: list[Value | None], name: str, **attributes: object) -> Node:
    known = find(op)
    assert known is not None
    return make_node(known, inputs, [name], attributes)


def example() -> Graph:
    total = node("Add", [X, C], "total")
    mean = node("ReduceMean", [total.outputs[0]], "mean", axes=(1,), keepdims=False)
    return Graph("g", (X,), mean.outputs, (total, mean), {C: np.array([1, 2, 3], np.float32)})


def test_a_graph_prints_as_a_person_would_write_it() -> None:
    assert str(example()) == "\n".join(
        [
            "graph g(x: f32[n, 3]):",
            "  c: f32[3] = constant",
            "  total: f32[n, 3] = Add(x, c)",
            "  mean: f32[n] = ReduceMean(total, axes=(1,), keepdims=False)",
            "  return mean",
        ]
    )


def test_evaluation() -> None:
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    np.testing.assert_allclose(evaluate_graph(example(), {"x": x})[0], [3, 6])
    with pytest.raises(BadFeed, match="no value is given for x"):
        evaluate_graph(example(), {})
    with pytest.raises(BadFeed, match="can't have the shape"):
        evaluate_graph(example(), {"x": x[0]})
    with pytest.raises(BadFeed):
        evaluate_graph(example(), {"x": x.astype(np.float64)})


def test_make_node_names_the_place() -> None:
    add = find("Add")
    assert add is not None
    with pytest.raises(BadProgram, match=r"layer 3: shapes .* do not broadcast"):
        make_node(add, [X, Value("y", f32, (const(4),))], ["z"], {}, "layer 3")
    with pytest.raises(BadProgram, match="Add has 1 outputs, not 2"):
        make_node(add, [X, C], ["z", "w"], {})


def test_verify_finds_every_kind_of_fault() -> None:
    graph = example()
    verify(graph)
    total, mean = graph.nodes
    faults = {
        "uses total before": replace(graph, nodes=(mean, total)),
        "total is made twice": replace(graph, nodes=(total, total, mean)),
        "x is made twice": replace(graph, inputs=(X, X)),
        "outputs nothing are never made": replace(graph, outputs=(Value("nothing", f32, ()),)),
        "constant c: f32\\[3\\] holds float64": replace(graph, constants={C: np.zeros(3)}),
        "should be": replace(graph, nodes=(replace(total, outputs=(Value("total", i64, X.shape),)), mean)),
        "total: f32\\[n, 4\\] should be": replace(
            graph, nodes=(replace(total, outputs=(Value("total", f32, (N, const(4))),)), mean)
        ),
    }
    for message, faulty in faults.items():
        with pytest.raises(InternalError, match=message):
            verify(faulty)


def test_types_of_nodes_whose_attributes_are_only_equal() -> None:
    """What is known of one node holds for nodes with the same attributes, not with equal ones: 1 == 1.0 == True."""

    def fill(x: Tensor, *, number: bool | int | float) -> Tensor:
        dtype = {bool: boolean, int: i64, float: f32}[type(number)]
        return tensor(x.shape, lambda _: const(number, dtype))

    op = Operator("Fill", fill, FusionKind.INJECTIVE)
    made = [make_node(op, [X], [f"y{i}"], {"number": number}) for i, number in enumerate((1, 1.0, True))]
    assert [each.outputs[0].dtype for each in made] == [i64, f32, boolean]
