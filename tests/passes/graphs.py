"""Random graphs that are valid by construction, for properties of passes."""

from collections.abc import Sequence

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray

from tilewright.base.dtypes import f32
from tilewright.graph import Graph, Node, Value, make_node
from tilewright.ops import find
from tilewright.symbolic.expr import const

Array = NDArray[np.generic]
SHAPE = (2, 3, 4)
UNARY = ("Relu", "Tanh", "Neg", "Identity", "Softmax", "Transpose", "Reshape", "ReduceMax", "Cast")
BINARY = ("Add", "Mul", "Max", "MatMul", "Where", "Concat")
NORMAL = 5.0
"""No element of a constant or of what is fed is larger."""
LARGEST = 1e4
"""Products that might be larger are not drawn: chains of them overflow, and right results differ then."""


def apply(op: str, inputs: Sequence[Value], name: str, **attributes: object) -> Node:
    known = find(op)
    assert known is not None, op
    return make_node(known, inputs, [name], attributes)


def value(name: str, *shape: int) -> Value:
    return Value(name, f32, tuple(map(const, shape)))


@st.composite
def random_graphs(draw: st.DrawFn) -> Graph:
    """Up to twelve nodes over values of shape SHAPE (some are shaped back), with dead ones and several outputs."""
    inputs = tuple(value(f"x{i}", *SHAPE) for i in range(draw(st.integers(1, 2))))
    constants = {value(f"c{i}", *SHAPE): _constant(draw(st.integers(0, 1))) for i in range(draw(st.integers(0, 2)))}
    values = [*inputs, *constants]
    bounds = dict.fromkeys(values, NORMAL)
    nodes: list[Node] = []

    def add(op: str, operands: Sequence[Value], **attributes: object) -> Value:
        nodes.append(apply(op, operands, f"v{len(nodes)}", **attributes))
        return nodes[-1].outputs[0]

    for _ in range(draw(st.integers(1, 12))):
        op = draw(st.sampled_from(UNARY + BINARY))
        a, b = draw(st.sampled_from(values)), draw(st.sampled_from(values))
        bound = _bound(op, bounds[a], bounds[b])
        if bound > LARGEST:
            op, bound = "Tanh", 1.0
        values.append(_grown(op, a, b, add))
        bounds[values[-1]] = bound
    made = [v for node in nodes for v in node.outputs]
    outputs = draw(st.lists(st.sampled_from(made), min_size=1, max_size=3, unique=True))
    return Graph("random", inputs, tuple(outputs), tuple(nodes), constants)


def _grown(op: str, a: Value, b: Value, add: object) -> Value:
    """A value of shape SHAPE again, by one node or a few."""
    match op:
        case "Softmax":
            return add(op, [a], axis=1)
        case "Cast":
            return add(op, [a], to=f32)
        case "Transpose":
            return add("Transpose", [add("Transpose", [a], perm=(2, 0, 1))], perm=(1, 2, 0))
        case "Reshape":
            return add("Reshape", [add("Relu", [add("Reshape", [a], shape=(6, 4))])], shape=SHAPE)
        case "ReduceMax":
            return add("Add", [add("ReduceMax", [a], axes=(1,)), b])
        case "MatMul":
            return add("MatMul", [a, add("MatMul", [add("Transpose", [b], perm=(0, 2, 1)), b])])
        case "Where":
            return add("Where", [add("Less", [a, b]), b, a])
        case "Concat":
            return add("Slice", [add("Concat", [a, b], axis=0)], starts=(1,), ends=(3,), axes=(0,))
        case _ if op in UNARY:
            return add(op, [a])
        case _:
            return add(op, [a, b])


def _bound(op: str, a: float, b: float) -> float:
    """What no element of ``_grown(op, ...)`` exceeds, where none of the operands exceeds ``a`` and ``b``."""
    match op:
        case "Tanh" | "Softmax":
            return 1.0
        case "Add" | "ReduceMax":
            return a + b
        case "Mul":
            return a * b
        case "MatMul":
            return SHAPE[2] * a * (SHAPE[1] * b * b)
        case "Max" | "Where" | "Concat":
            return max(a, b)
        case _:
            return a


def _constant(seed: int) -> Array:
    return np.random.default_rng(seed).standard_normal(SHAPE).astype(np.float32)


def feeds_of(graph: Graph) -> dict[str, Array]:
    return {v.name: _constant(100 + i) for i, v in enumerate(graph.inputs)}
