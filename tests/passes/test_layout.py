"""Which values are stored in blocks, where copies go; and compiled networks against the graph evaluator."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.closeness import assert_near
from tests.passes.graphs import apply, value
from tests.passes.networks import HOST, LANES, Array, constant, conv, networks
from tilewright.base.dtypes import i64
from tilewright.base.numerics import Math
from tilewright.compilation import Options
from tilewright.driver import compile_graph
from tilewright.graph import Graph, Value, evaluate_graph, verify
from tilewright.loops.ir import Alloc
from tilewright.loops.visit import walk
from tilewright.passes.choose import choose
from tilewright.passes.layout import LaidOut
from tilewright.symbolic.expr import const
from tilewright.target.target import Target


def laid_out_of(graph: Graph, target: Target = HOST) -> LaidOut:
    """Layouts alone: strict numerics have few alternatives."""
    return choose(graph, target, Math.STRICT).apply()


def test_what_follows_a_convolution_is_blocked_until_someone_needs_it_plain() -> None:
    known: dict[Value, Array] = {}
    x = value("x", 1, 3, 6, 6)
    first = conv(known, x, 2 * LANES, "a")
    relu = apply("Relu", first.outputs, "b")
    pool = apply("ReduceMean", relu.outputs, "c", axes=(2, 3))
    flat = apply("Flatten", relu.outputs, "d")
    vector = apply("Flatten", pool.outputs, "e")
    graph = Graph("g", (x,), (*flat.outputs, *vector.outputs), (first, relu, pool, flat, vector), known)
    laid_out = laid_out_of(graph)
    verify(laid_out.graph)
    assert {v.name for v in laid_out.layouts} == {"a", "b", "c"}
    copies = [node for node in laid_out.graph.nodes if node.op.name == "Copy"]
    assert [node.inputs[0].name for node in copies if node.inputs[0]] == ["b"]  # one place of whole blocks needs none
    assert laid_out.graph.outputs == graph.outputs


def test_few_channels_stay_plain_and_outputs_are_plain() -> None:
    known: dict[Value, Array] = {}
    x = value("x", 1, 3, 6, 6)
    first = conv(known, x, LANES, "a")
    last = conv(known, first.outputs[0], LANES // 4, "b")
    graph = Graph("g", (x,), (*first.outputs, *last.outputs), (first, last), known)
    laid_out = laid_out_of(graph)
    assert {v.name for v in laid_out.layouts} & {"a", "a.blocked", "b"} == {"a.blocked"}
    assert laid_out.copies == {"a.blocked": "a"}
    assert [v.name for v in laid_out.graph.outputs] == ["a", "b"]


@pytest.mark.parametrize("starts", [(16, 48), (24, 32)])
def test_concatenation_keeps_whole_blocks(starts: tuple[int, int]) -> None:
    known: dict[Value, Array] = {}
    x = value("x", 1, 3, 24, 24)
    parts = [conv(known, x, filters, f"a{i}") for i, filters in enumerate(starts)]
    joined = apply("Concat", [part.outputs[0] for part in parts], "b", axis=1)
    graph = Graph("g", (x,), joined.outputs, (*parts, joined), known)
    blocked = {v.name for v in laid_out_of(graph, Target.parse("x86_64,znver4,l1=32K,l2=1M,l3=32M")).layouts}
    assert ("b.blocked" in blocked) is (starts[0] % 16 == 0)


@given(networks(), st.sampled_from([HOST, HOST.restricted("avx2")]))
@settings(max_examples=6, deadline=None)
def test_compiled_networks_compute_what_the_graph_says(graph: Graph, target: Target) -> None:
    (x,) = graph.inputs
    feeds = {"x": np.random.default_rng(0).standard_normal([int(str(e)) for e in x.shape]).astype(np.float32)}
    results = compile_graph(graph, Options(target, threads=2, checked=True)).executable.run(feeds)
    for result, expected in zip(results, evaluate_graph(graph, feeds), strict=True):
        assert_near(result, expected, 2e-5)


def test_a_convolution_in_groups_gets_its_data_in_blocks() -> None:
    known: dict[Value, Array] = {}
    x = value("x", 1, 2 * LANES, 6, 6)
    nodes = [conv(known, x, 2 * LANES, name, group=4) for name in "ab"]
    graph = Graph("g", (x,), tuple(v for node in nodes for v in node.outputs), tuple(nodes), known)
    laid_out = laid_out_of(graph)
    verify(laid_out.graph)
    assert [node.op.name for node in laid_out.graph.nodes] == ["Copy", "Conv", "Copy", "Conv", "Copy"]
    assert {v.name for v in laid_out.layouts} == {"x.in_blocks", "a.blocked", "b.blocked"}


def test_what_has_no_functional_form_reads_one_place_of_blocks_as_it_lies() -> None:
    known: dict[Value, Array] = {}
    x = value("x", 1, 3, 1, 1)
    made = conv(known, x, 64 * LANES, "a", kernel=1)
    updates = value("u", 1, 1, 1, 1)
    indices = Value("i", i64, updates.shape)
    known |= {indices: np.full((1, 1, 1, 1), 7, np.int64), updates: np.full((1, 1, 1, 1), 9, np.float32)}
    scattered = apply("ScatterElements", [*made.outputs, indices, updates], "b", axis=1)
    graph = Graph("g", (x,), scattered.outputs, (made, scattered), known)
    assert [v.name for v in laid_out_of(graph).layouts] == ["a"]
    feeds = {"x": np.random.default_rng(0).standard_normal((1, 3, 1, 1)).astype(np.float32)}
    (result,) = compile_graph(graph, Options(HOST, threads=1, checked=True)).executable.run(feeds)
    assert_near(result, evaluate_graph(graph, feeds)[0], 2e-5)


def test_names_that_look_like_ours_stay_what_they_are() -> None:
    known: dict[Value, Array] = {}
    x = value("x", 1, 2 * LANES, 24, 24)
    made = conv(known, x, 2 * LANES, "a", group=4)
    others = [apply("Relu", [x], name) for name in ("x.in_blocks", "a.blocked")]
    flat = apply("Flatten", made.outputs, "f")
    nodes = [made, *others, flat]
    graph = Graph("g", (x,), tuple(v for node in nodes for v in node.outputs), tuple(nodes), known)
    laid_out = laid_out_of(graph)
    verify(laid_out.graph)
    assert laid_out.graph.outputs == graph.outputs
    assert {v.name for v in laid_out.layouts} == {"x.in_blocks_1", "a.blocked_1"}
    assert laid_out.copies == {"x.in_blocks_1": "x", "a.blocked_1": "a"}


def test_a_normalization_of_what_a_convolution_makes() -> None:
    """It has more results than are used: mean and deviation."""
    known: dict[Value, Array] = {}
    x = value("x", 1, 3, 6, 6)
    made = conv(known, x, 2 * LANES, "a")
    norm = apply("LayerNormalization", [*made.outputs, constant(known, 6, 6)], "b", axis=2)
    graph = Graph("g", (x,), norm.outputs, (made, norm), known)
    feeds = {"x": np.random.default_rng(0).standard_normal((1, 3, 6, 6)).astype(np.float32)}
    (result,) = compile_graph(graph, Options(HOST, threads=1, checked=True)).executable.run(feeds)
    assert_near(result, evaluate_graph(graph, feeds)[0], 2e-5)


@pytest.mark.share(2)
@pytest.mark.parametrize("filters", [LANES + 1, 2 * LANES, 4 * LANES - 2])
@pytest.mark.parametrize("size", [1, 3, 7, 19])
@pytest.mark.parametrize("after", ["nothing", "elementwise", "sum"])
def test_blocks_leave_their_kernel_plain(filters: int, size: int, after: str) -> None:
    """One kernel computes in blocks, the last of which may not be full, and stores row-major; also what follows."""
    known: dict[Value, Array] = {}
    x = value("x", 2, 3, size, size)
    nodes = [conv(known, x, filters, "a"), apply("Relu", [value("a", 2, filters, size, size)], "b")]
    if after == "elementwise":
        nodes.append(apply("Mul", [nodes[-1].outputs[0], constant(known, 1, 1, size, size)], "c"))
    elif after == "sum":
        nodes.append(apply("ReduceSum", nodes[-1].outputs, "c", axes=(1,)))
    graph = Graph("g", (x,), nodes[-1].outputs, tuple(nodes), known)
    feeds = {"x": np.random.default_rng(0).standard_normal((2, 3, size, size)).astype(np.float32)}
    compiled = compile_graph(graph, Options(HOST, threads=1))
    (result,) = compiled.executable.run(feeds)
    assert_near(result, evaluate_graph(graph, feeds)[0], 2e-5)
    if compiled.layouts:
        assert (len(compiled.kernels) == 1) is (after != "sum")
    assert compiled.layouts or size < 19 or filters == LANES + 1  # whether blocks pay that are half empty depends


@pytest.mark.parametrize("groups", [2, 4])
def test_groups_of_whole_blocks_read_plain_data(groups: int) -> None:
    """All filters of a block then read the same channels, one after the other."""
    known: dict[Value, Array] = {}
    x = value("x", 1, 2 * LANES, 24, 24)
    node = conv(known, x, 4 * LANES if groups == 4 else 2 * LANES, "a", group=groups)
    mixed = conv(known, x, 2 * LANES, "b", group=4)
    copies = [n for n in laid_out_of(Graph("g", (x,), node.outputs, (node,), known)).graph.nodes if n != node]
    assert [n.outputs[0].name for n in copies if n.op.name == "Copy"] == ["a"]
    laid_out = laid_out_of(Graph("g", (x,), mixed.outputs, (mixed,), known))
    assert "x.in_blocks" in {v.name for v in laid_out.layouts}


@pytest.mark.share(2)
@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("size", [5, 7, 14, 16, 31, 50])
@pytest.mark.parametrize("target", [HOST, HOST.restricted("avx2")])
def test_depthwise_convolutions_of_plain_data_go_by_rows(size: int, stride: int, target: Target) -> None:
    known: dict[Value, Array] = {}
    x = value("x", 2, 2 * LANES, size, size)
    weight = constant(known, 2 * LANES, 1, 3, 3)
    attributes = {"pads": (1, 1, 1, 1), "strides": (stride, stride)}
    node = apply("Conv", [x, weight], "y", group=2 * LANES, **attributes)
    graph = Graph("g", (x,), node.outputs, (node,), known)
    feeds = {"x": np.random.default_rng(0).standard_normal((2, 2 * LANES, size, size)).astype(np.float32)}
    compiled = compile_graph(graph, Options(target, threads=1))
    (result,) = compiled.executable.run(feeds)
    assert_near(result, evaluate_graph(graph, feeds)[0], 2e-5)
    if size < 14:  # rows are short: whether they are worth a copy to blocks depends on the processor
        return
    assert len(compiled.kernels) == 1
    assert not compiled.layouts
    (tile,) = (stmt.buffer for stmt in walk(compiled.kernels[0].program.body) if isinstance(stmt, Alloc))
    width, outputs = target.vector_bits // 32, -(-size // stride)
    assert tile.shape[-1] == const(width if 2 * outputs > width else width // 2)  # a register for each row


@pytest.mark.parametrize(("size", "channels_last"), [(31, False), (5, True), (5, False)])
def test_padding_brings_channels_together_that_are_far_apart(size: int, channels_last: bool) -> None:
    """On many pages, or where they are together before."""
    known: dict[Value, Array] = {}
    shape = (2, size, size, 64) if channels_last else (2, 64, size, size)
    x = value("x", *shape)
    nodes = [apply("Transpose", [x], "t", perm=(0, 3, 1, 2))] if channels_last else []
    data = nodes[-1].outputs[0] if nodes else x
    nodes.append(conv(known, data, 2 * LANES, "a"))
    graph = Graph("g", (x,), nodes[-1].outputs, tuple(nodes), known)
    feeds = {"x": np.random.default_rng(0).standard_normal(shape).astype(np.float32)}
    compiled = compile_graph(graph, Options(HOST, threads=2, math=Math.STRICT))
    (result,) = compiled.executable.run(feeds)
    assert_near(result, evaluate_graph(graph, feeds)[0], 2e-5)
    allocated = [s.buffer for k in compiled.kernels for s in walk(k.program.body) if isinstance(s, Alloc)]
    padded = [buffer for buffer in allocated if buffer.name.startswith("padded")]
    assert [buffer.shape[-1] == const(LANES) for buffer in padded] == [channels_last or size > 5]


@pytest.mark.parametrize("is_plain", [False, True])
def test_tiles_that_leave_plain_have_few_lanes_to_store_apart(is_plain: bool) -> None:
    known: dict[Value, Array] = {}
    x = value("x", 1, 16, 12, 24)
    nodes = [conv(known, x, 64, "a", kernel=1)]
    if not is_plain:
        nodes.append(conv(known, nodes[0].outputs[0], 4, "b", kernel=1))
    graph = Graph("g", (x,), nodes[-1].outputs, tuple(nodes), known)
    zen4 = Target.parse("x86_64,znver4,l1=32K,l2=1M,l3=32M")
    by_blocks = replace(zen4, machine=replace(zen4.machine, tap_by_rows=2.0))  # else these are rows of places
    kernel = compile_graph(graph, Options(by_blocks, threads=1)).kernels[0]
    (tile,) = (stmt.buffer for stmt in walk(kernel.program.body) if isinstance(stmt, Alloc))
    panels = int(str(tile.shape[1]))
    assert panels <= 2 if is_plain else panels > 2
