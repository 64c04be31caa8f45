"""Slices written in one way."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tilewright.base.dtypes import f32
from tilewright.graph import Graph, Value, evaluate_graph, make_node
from tilewright.ops.operator import require
from tilewright.passes.normalize import canonical_slices
from tilewright.symbolic.expr import const

BOUNDS = st.integers(-9, 9) | st.sampled_from([-(1 << 62), 1 << 62])


@given(st.integers(1, 6), st.integers(1, 4), BOUNDS, BOUNDS, st.sampled_from([-1, -2, 0, 1]))
def test_the_bounds_lie_in_the_dimension_and_cut_the_same(n: int, m: int, start: int, end: int, axis: int) -> None:
    x = Value("x", f32, (const(n), const(m)))
    attributes = {"starts": (start,), "ends": (end,), "axes": (axis,), "steps": (1,)}
    node = make_node(require("Slice"), [x], ["y"], attributes)
    graph = Graph("g", (x,), node.outputs, (node,), {})
    found = canonical_slices(graph)
    written = dict(found.nodes[0].attributes)
    extent = (n, m)[axis]
    assert written["axes"] == (axis % 2,)
    assert "steps" not in written
    assert 0 <= written["starts"][0] <= written["ends"][0] <= extent
    array = np.arange(n * m, dtype=np.float32).reshape(n, m)
    np.testing.assert_array_equal(evaluate_graph(found, {"x": array})[0], evaluate_graph(graph, {"x": array})[0])


def test_other_steps_stay() -> None:
    x = Value("x", f32, (const(6),))
    node = make_node(require("Slice"), [x], ["y"], {"starts": (5,), "ends": (-7,), "axes": (0,), "steps": (-1,)})
    graph = Graph("g", (x,), node.outputs, (node,), {})
    assert canonical_slices(graph).nodes == (node,)
