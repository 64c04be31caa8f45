"""Products of different rows by one matrix are one product."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.closeness import assert_near
from tests.passes.graphs import apply, value
from tilewright.base.numerics import Math
from tilewright.compilation import Options
from tilewright.driver import compile_graph
from tilewright.graph import Graph, Node, Value, evaluate_graph, verify
from tilewright.passes.shared_weights import share_weights
from tilewright.target.target import Target

WIDE = 64
RANDOM = np.random.default_rng(0)


def weights(*names: str) -> dict[Value, np.ndarray]:
    return {value(name, WIDE, WIDE): RANDOM.standard_normal((WIDE, WIDE), np.float32) / 8 for name in names}


def rows(*names: str, count: int = 1) -> tuple[Value, ...]:
    return tuple(value(name, count, WIDE) for name in names)


def joined(graph: Graph) -> Counter[str]:
    """The operators after the pass, which keeps results."""
    after = share_weights(graph)
    verify(after)
    assert after.outputs == graph.outputs
    feeds = {v.name: RANDOM.standard_normal([int(str(n)) for n in v.shape], np.float32) for v in graph.inputs}
    for old, new in zip(evaluate_graph(graph, feeds), evaluate_graph(after, feeds), strict=True):
        assert_near(new, old, 2e-6)
    return Counter(node.op.name for node in after.nodes)


def cells(steps: int, layers: int) -> Graph:
    """tanh(x u + h w) for each step, layer upon layer."""
    below = list(rows(*(f"x{step}" for step in range(steps))))
    inputs, constants, nodes = list(below), dict[Value, np.ndarray](), list[Node]()
    for layer in range(layers):
        (state,) = rows(f"h{layer}")
        inputs.append(state)
        constants |= weights(f"u{layer}", f"w{layer}")
        u, w = list(constants)[-2:]
        for step in range(steps):
            name = f"{layer}.{step}"
            given = apply("MatMul", [below[step], u], f"given{name}")
            kept = apply("MatMul", [state, w], f"kept{name}")
            added = apply("Add", [given.outputs[0], kept.outputs[0]], f"sum{name}")
            nodes += [given, kept, added, apply("Tanh", added.outputs, f"state{name}")]
            below[step] = state = nodes[-1].outputs[0]
    return Graph("cells", tuple(inputs), tuple(below), tuple(nodes), constants)


@pytest.mark.parametrize(("steps", "layers"), [(5, 1), (3, 2)])
def test_products_of_inputs_join_and_those_of_states_do_not(steps: int, layers: int) -> None:
    found = joined(cells(steps, layers))
    assert (found["MatMul"], found["Slice"]) == (layers * (1 + steps), layers * steps)


def test_networks_compute_what_numpy_does() -> None:
    graph = cells(4, 1)
    u, w = (np.asarray(array, np.float32) for array in graph.constants.values())
    feeds = {v.name: RANDOM.standard_normal((1, WIDE), np.float32) for v in graph.inputs}
    state, states = feeds["h0"], list[np.ndarray]()
    for step in range(4):
        state = np.tanh(feeds[f"x{step}"] @ u + state @ w)
        states.append(state)
    for math in Math:
        compiled = compile_graph(graph, Options(Target.host(), threads=1, checked=True, math=math))
        for result, expected in zip(compiled.executable.run(feeds), states, strict=True):
            assert_near(result, expected, 4e-6)


def test_rows_that_are_read_by_several_are_put_together_once() -> None:
    x, y = rows("x", "y")
    constants = weights("u", "w")
    nodes = [apply("MatMul", [v, w], f"{v.name}{w.name}") for v in (x, y) for w in constants]
    results = tuple(node.outputs[0] for node in nodes)
    after = share_weights(Graph("g", (x, y), results, tuple(nodes), constants))
    assert Counter(node.op.name for node in after.nodes) == {"Concat": 1, "MatMul": 2, "Slice": 4}


def test_gemm_with_what_is_added_to_all_rows() -> None:
    x, y = rows("x", "y", count=2)
    constants = weights("w")
    addend = value("a", WIDE)
    operands = [*constants, addend]
    constants[addend] = RANDOM.standard_normal(WIDE, np.float32)
    nodes = [apply("Gemm", [v, *operands], f"{v.name}w", alpha=0.5, transpose_b=True) for v in (x, y)]
    results = tuple(node.outputs[0] for node in nodes)
    assert joined(Graph("g", (x, y), results, tuple(nodes), constants)) == {"Concat": 1, "Gemm": 1, "Slice": 2}


def test_rows_of_each_image_of_a_batch_join() -> None:
    x, y = value("x", 2, 1, WIDE), value("y", 2, 1, WIDE)
    constants = weights("w")
    nodes = [apply("MatMul", [v, *constants], f"{v.name}w") for v in (x, y)]
    results = tuple(node.outputs[0] for node in nodes)
    assert joined(Graph("g", (x, y), results, tuple(nodes), constants)) == {"Concat": 1, "MatMul": 1, "Slice": 2}


@pytest.mark.parametrize("count", [4, 32])
def test_many_rows_stay_apart(count: int) -> None:
    """Copying them takes as long as reading the matrix again."""
    x, y = rows("x", "y", count=count)
    constants = weights("w")
    nodes = [apply("MatMul", [v, *constants], f"{v.name}w") for v in (x, y)]
    results = tuple(node.outputs[0] for node in nodes)
    assert joined(Graph("g", (x, y), results, tuple(nodes), constants)) == {"MatMul": 2}


def test_transposed_rows_stay_apart() -> None:
    x, y = value("x", WIDE, 1), value("y", WIDE, 1)
    constants = weights("w")
    nodes = [apply("Gemm", [v, *constants], f"{v.name}w", transpose_a=True) for v in (x, y)]
    results = tuple(node.outputs[0] for node in nodes)
    assert joined(Graph("g", (x, y), results, tuple(nodes), constants)) == {"Gemm": 2}


@settings(max_examples=40)
@given(st.data())
def test_random_chains_have_no_cycles(data: st.DataObject) -> None:
    """Products by three matrices, of any values made before."""
    constants = weights("u", "v", "w")
    values, nodes = list(rows("x", "y")), list[Node]()
    inputs = tuple(values)
    for number in range(data.draw(st.integers(2, 12))):
        left = data.draw(st.sampled_from(values))
        if data.draw(st.booleans()):
            nodes.append(apply("MatMul", [left, data.draw(st.sampled_from(list(constants)))], f"p{number}"))
        else:
            nodes.append(apply("Add", [left, data.draw(st.sampled_from(values))], f"s{number}"))
        values += nodes[-1].outputs
    joined(Graph("g", inputs, tuple(node.outputs[0] for node in nodes), tuple(nodes), constants))
