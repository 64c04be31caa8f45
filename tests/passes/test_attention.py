"""Attention block by block: recognized where it pays, with the results of its parts; else nothing changes."""

from collections.abc import Sequence

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import tilewright
from tests.frontend.models import run_onnxruntime
from tests.test_computed_shapes import model, node, random_feeds
from tilewright.base.dtypes import boolean, f32
from tilewright.base.numerics import Math
from tilewright.compilation import Compiled, Options, compile_prepared
from tilewright.driver import compile_graph
from tilewright.frontend.onnx.read import importer
from tilewright.graph import Graph, Value, evaluate_graph, make_node
from tilewright.ops.operator import Attribute, require
from tilewright.passes.alternatives import Alternative, facts_of
from tilewright.passes.alternatives.attention import IN_BLOCKS, WITH_SCORES
from tilewright.passes.alternatives.direct import DIRECT
from tilewright.passes.attention import recognize_attention
from tilewright.symbolic.expr import const
from tilewright.target.target import Target

Nodes = Sequence[onnx.NodeProto]
HASWELL, SKYLAKE = (Target.parse(f"x86_64,{cpu}") for cpu in ("haswell", "skylake-avx512"))
LONG = 600


def attention(
    scale: Nodes = (),
    mask: Sequence[int] | None = None,
    guard: Nodes = (),
    outputs: Sequence[str] = ("y",),
    length: int = LONG,
) -> onnx.ModelProto:
    """Of two heads; ``scale`` makes ``scaled`` of ``products``, ``guard`` makes ``w`` of ``p``."""
    scores = "scaled" if scale else "products"
    nodes = [node("MatMul", ["q", "k"], ["products"]), *scale]
    if mask is not None:
        nodes.append(node("Add", [scores, "mask"], ["masked"]))
    nodes.append(node("Softmax", ["masked" if mask is not None else scores], ["p"], axis=-1))
    nodes += [*guard, node("MatMul", ["w" if guard else "p", "v"], ["y"])]
    inputs: dict[str, Sequence[int | str]] = {"q": [2, length, 8], "k": [2, 8, length], "v": [2, length, 8]}
    rows = np.arange(length).reshape(-1, 1) % 7 == 3
    flags = {"rows": rows, "squares": rows & rows.T}
    constants = {
        **flags,
        "c": np.array(0.25, np.float32),
        "four": np.array(4, np.float32),
        "none": np.array(0, np.float32),
    }
    return model(nodes, inputs if mask is None else {**inputs, "mask": mask}, outputs, constants)


BY_MUL = [node("Mul", ["products", "c"], ["scaled"])]
BY_DIV = [node("Div", ["products", "four"], ["scaled"])]
GUARD = [node("IsNaN", ["p"], ["nan"]), node("Where", ["nan", "none", "p"], ["w"])]
EMPTY = [node("Where", ["rows", "none", "p"], ["w"])]
FOUND = [
    attention(),
    attention(BY_MUL),
    attention(BY_DIV, [1, 1, LONG]),
    attention([], [2, LONG, LONG], GUARD),
    attention(BY_MUL, [LONG, 1], GUARD),
    attention(BY_MUL, [1, 1, LONG], EMPTY),
]
LEFT = [
    attention(outputs=["y", "p"]),
    attention([node("Mul", ["products", "products"], ["scaled"])]),
    attention(mask=[3, 1, LONG, LONG]),
    attention(guard=[node("IsNaN", ["p"], ["nan"]), node("Where", ["nan", "c", "p"], ["w"])]),
    attention(guard=[node("Where", ["squares", "none", "p"], ["w"])]),
]


def compiled(proto: onnx.ModelProto, target: Target | None) -> Compiled:
    return compile_graph(importer.load(proto), Options(target or Target.host(), threads=2))


def kernels(made: Compiled) -> set[str]:
    return {node.op.name for node in made.graph.nodes}


@pytest.mark.parametrize("proto", FOUND)
def test_it_is_recognized(proto: onnx.ModelProto) -> None:
    graph = importer.load(proto)
    found = recognize_attention(graph, facts_of(graph, SKYLAKE))
    (made,) = [node for node in found.nodes if node.op.name == "Attention"]
    attributes = dict(made.attributes)
    given = {info.name for info in proto.graph.input} | ({"rows"} if '"rows"' in str(proto.graph.node) else set())
    assert {value.name for value in made.inputs if value is not None} == given
    assert attributes["scale"] == (0.25 if len(proto.graph.node) > 3 and "scaled" in str(proto.graph) else 1.0)
    assert attributes["is_guarded"] == any(each.op_type == "IsNaN" for each in proto.graph.node)


@pytest.mark.parametrize("proto", LEFT)
def test_other_graphs_are_left_as_they_are(proto: onnx.ModelProto) -> None:
    graph = importer.load(proto)
    assert recognize_attention(graph, facts_of(graph, SKYLAKE)).nodes == graph.nodes


def test_short_sequences_and_strict_sums_keep_their_scores() -> None:
    short, long = (importer.load(attention(BY_MUL, length=length)) for length in (9, LONG))
    assert recognize_attention(short, facts_of(short, SKYLAKE)).nodes == short.nodes
    assert recognize_attention(long, facts_of(long, SKYLAKE, Math.STRICT)).nodes == long.nodes


@pytest.mark.parametrize("target", [None, HASWELL])
def test_the_results_are_those_of_the_parts(target: Target | None) -> None:
    """Rows without a finite score are 0 with a guard, and NaN without one."""
    mask = np.where(np.random.default_rng(0).random((2, LONG, LONG)) < 0.5, 0, -np.inf).astype(np.float32)
    mask[:, 5] = -np.inf
    mask[:, :, :200] = -np.inf
    mask[:, 7] -= 300
    for guard in (GUARD, EMPTY, []) if target is None else (GUARD,):
        proto = attention(BY_MUL, [2, LONG, LONG], guard)
        feeds = {**random_feeds(proto, {}), "mask": mask}
        made = compiled(proto, target)
        assert "BlockAttention" in kernels(made)
        (found,) = made.executable.run(feeds)
        np.testing.assert_allclose(found, run_onnxruntime(proto, feeds)[0], rtol=1e-5, atol=1e-5)
        assert not found[:, 5].any() if guard is GUARD else np.isnan(found[:, 5]).all()


def test_the_operator_of_onnx_at_all_sizes() -> None:
    """Grouped queries, and a causal mask."""
    sizes = {"q": [1, 6, "m", 8], "k": [1, 2, "n", 8], "v": [1, 2, "n", 8]}
    infos = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in sizes.items()]
    made = node("Attention", ["q", "k", "v"], ["y"], is_causal=1)
    graph = helper.make_graph([made], "g", infos, [onnx.ValueInfoProto(name="y")])
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=10)
    ours = tilewright.compile(proto, dynamic="symbolic", threads=2)
    assert "BlockAttention" in kernels(ours.compiled)
    for m, n in ((1, 1), (9, 20), (64, 64), (150, 150)):
        feeds = random_feeds(proto, {"m": m, "n": n})
        np.testing.assert_allclose(ours.run(None, feeds)[0], run_onnxruntime(proto, feeds)[0], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("is_guarded", [False, True])
@pytest.mark.parametrize("way", [WITH_SCORES, IN_BLOCKS])
def test_every_way_computes_the_operator(way: Alternative, is_guarded: bool) -> None:
    shapes = {"q": (2, 1, 7, 4), "k": (3, 4, 70), "v": (2, 1, 70, 9), "mask": (7, 70), "empty": (3, 7, 1)}
    kinds = {"empty": boolean}
    values = [Value(name, kinds.get(name, f32), tuple(map(const, shape))) for name, shape in shapes.items()]
    made = make_node(require("Attention"), values, ["y"], {"scale": 0.5, "is_guarded": is_guarded})
    graph = Graph("g", tuple(values), made.outputs, (made,), {})
    random = np.random.default_rng(4)
    feeds = {name: random.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
    feeds["mask"][2] = -np.inf
    given = {**feeds, "empty": feeds["empty"] > 0.5}
    options = Options(Target.host(), threads=1, alternatives=(DIRECT, way))
    (found,) = compile_prepared(graph, options).executable.run(given)
    np.testing.assert_allclose(found, evaluate_graph(graph, given)[0], rtol=1e-5, atol=1e-5)


def in_blocks(shapes: Sequence[tuple[int, ...]], width: int, **sizes: Attribute) -> Graph:
    """Two nodes that compute attention; the shapes are those of queries, keys and values."""
    q, k, v = (Value(name, f32, tuple(map(const, shape))) for name, shape in zip("qkv", shapes, strict=True))
    panels = make_node(require("KeyPanels"), [k], ["panels"], {"width": width})
    made = make_node(require("BlockAttention"), [q, *panels.outputs, v], ["y"], {"scale": 0.5, **sizes})
    return Graph("g", (q, k, v), made.outputs, (panels, made), {})


@pytest.mark.parametrize(
    ("shapes", "width", "sizes"),
    [
        ([(5, 3), (3, 9), (9, 2)], 4, {"rows": 2, "lanes": 2, "columns": 2, "tiles": 2}),
        ([(2, 1, 4, 3), (3, 3, 8), (1, 3, 8, 5)], 4, {"rows": 3, "lanes": 4, "columns": 4, "tiles": 1}),
    ],
)
def test_tiles_of_any_size(shapes: Sequence[tuple[int, ...]], width: int, sizes: dict[str, Attribute]) -> None:
    """By the interpreter, against NumPy; batches and heads are broadcast."""
    random = np.random.default_rng(1)
    q, k, v = (random.standard_normal(shape) for shape in shapes)
    weights = np.exp(q @ k * 0.5)
    expected = weights / weights.sum(-1, keepdims=True) @ v
    feeds = {"q": q.astype(np.float32), "k": k.astype(np.float32), "v": v.astype(np.float32)}
    (found,) = evaluate_graph(in_blocks(shapes, width, **sizes), feeds)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def grouped(heads: int, mask: Sequence[int | str]) -> onnx.ModelProto:
    """As exporters write it: each of two heads of keys and values is repeated for three of queries; both are scaled."""
    shapes = {"merged": np.array([1, 6, -1, 8]), "times": np.array([1, 1, 3, 1, 1])}
    nodes = [node("Mul", ["q", "root"], ["scaled_q"])]
    for name in "kv":
        nodes += [
            node("Unsqueeze", [name, "two"], [f"{name}5"]),
            node("Expand", [f"{name}5", "times"], [f"{name}_expanded"]),
            node("Reshape", [f"{name}_expanded", "merged"], [f"{name}_all"]),
        ]
    nodes += [
        node("Transpose", ["k_all"], ["columns"], perm=[0, 1, 3, 2]),
        node("Mul", ["columns", "root"], ["scaled_k"]),
        node("MatMul", ["scaled_q", "scaled_k"], ["products"]),
        node("Add", ["products", "mask"], ["masked"]),
        node("Softmax", ["masked"], ["p"], axis=-1),
        node("MatMul", ["p", "v_all"], ["y"]),
    ]
    inputs = {"q": [1, heads, "m", 8], "k": [1, 2, "n", 8], "v": [1, 2, "n", 8], "mask": mask}
    numbers = {"root": np.array(8**-0.25, np.float32), "two": np.array([2])}
    return model(nodes, inputs, ["y"], {**shapes, **numbers})


@pytest.mark.share(2)
@pytest.mark.parametrize("mask", [["m", "n"], [1, 1, "m", "n"], [1, 6, "m", "n"], [1, 1, 1, "n"]])
def test_grouped_queries_share_keys(mask: Sequence[int | str]) -> None:
    """These are not repeated; the mask may be that of all heads, or of each."""
    proto = grouped(6, mask)
    ours = tilewright.compile(proto, dynamic="symbolic", threads=1)
    (made,) = [each for each in ours.compiled.graph.nodes if each.op.name == "BlockAttention"]
    assert [value.name for value in made.inputs[1:3] if value is not None] == ["k", "v"]
    assert dict(made.attributes)["group"] == 3 and "KeyPanels" not in kernels(ours.compiled)
    for m, n in ((1, 1), (1, 130), (2, 5), (7, 300)):
        feeds = random_feeds(proto, {"m": m, "n": n})
        np.testing.assert_allclose(ours.run(None, feeds)[0], run_onnxruntime(proto, feeds)[0], rtol=1e-5, atol=1e-5)


def test_one_head_of_queries_is_no_group() -> None:
    proto = grouped(1, ["m", "n"])
    ours = tilewright.compile(proto, dynamic="symbolic", threads=1)
    feeds = random_feeds(proto, {"m": 3, "n": 40})
    np.testing.assert_allclose(ours.run(None, feeds)[0], run_onnxruntime(proto, feeds)[0], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("way", [WITH_SCORES, IN_BLOCKS])
@pytest.mark.parametrize("heads", [1, 6])
def test_every_way_computes_groups(way: Alternative, heads: int) -> None:
    shapes = {"q": (2, 6, 7, 4), "keys": (2, 3, 70, 4), "v": (2, 3, 70, 9), "mask": (2, heads, 7, 70)}
    values = [Value(name, f32, tuple(map(const, shape))) for name, shape in shapes.items()]
    given: dict[str, Attribute] = {"scale": 0.5, "are_rows": True, "group": 2}
    made = make_node(require("Attention"), values, ["y"], given)
    graph = Graph("g", tuple(values), made.outputs, (made,), {})
    random = np.random.default_rng(4)
    feeds = {name: random.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
    options = Options(Target.host(), threads=1, alternatives=(DIRECT, way))
    (found,) = compile_prepared(graph, options).executable.run(feeds)
    keys, v = (np.repeat(feeds[name], 2, axis=1) for name in ("keys", "v"))
    weights = np.exp(feeds["q"] @ keys.swapaxes(-1, -2) * 0.5 + feeds["mask"])
    np.testing.assert_allclose(found, weights / weights.sum(-1, keepdims=True) @ v, rtol=1e-4, atol=1e-5)
