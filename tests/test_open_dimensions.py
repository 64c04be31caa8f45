"""Attention and row-wise operators along dimensions without upper bounds: one compiled model for all sizes."""

from collections.abc import Sequence

import numpy as np
import onnx
import pytest

import tilewright
from tests.frontend.models import run_onnxruntime
from tests.test_computed_shapes import CHECKED, Array, Extents, integers, model, node, random_feeds
from tilewright.base.numerics import Math
from tilewright.compilation import Options
from tilewright.driver import compile_graph
from tilewright.frontend.onnx.read import importer
from tilewright.insight.explain import explain
from tilewright.target.target import Target

LENGTHS = [2, 5, 31, 64, 65, 300]


def check(proto: onnx.ModelProto, sizes: Sequence[Extents], tolerance: float = 1e-5, math: str = "default") -> None:
    """One compiled model gives what ONNX Runtime does, at all sizes. ``symbolic`` refuses anything else."""
    ours = tilewright.compile(proto, dynamic="symbolic", math=math, threads=1, settings=CHECKED)
    for extents in sizes:
        feeds = random_feeds(proto, extents)
        if "mask" in feeds:
            feeds["mask"] = masks(feeds["mask"].shape)
        for found, wanted in zip(ours.run(None, feeds), run_onnxruntime(proto, feeds), strict=True):
            assert (found.dtype, found.shape) == (wanted.dtype, wanted.shape), extents
            np.testing.assert_allclose(found, wanted, rtol=tolerance, atol=tolerance, err_msg=str(extents))


def masks(shape: Sequence[int]) -> Array:
    """0 or minus infinity; some rows have nothing but the latter."""
    random = np.random.default_rng(sum(shape))
    is_seen = (random.random(shape) < 0.7) & (random.random((*shape[:-1], 1)) < 0.8)
    return np.where(is_seen, 0, -np.inf).astype(np.float32)


# Rows


ROWS = [
    node("Softmax", ["e"], ["r0"], axis=-1),
    node("LogSoftmax", ["e"], ["r1"], axis=-1),
    node("ReduceLogSumExp", ["e"], ["r2"], axes=[-1]),
    node("MeanVarianceNormalization", ["e"], ["r3"], axes=[2]),
    node("Softmax", ["e"], ["r4"], axis=1),
]


def test_rows_of_any_length() -> None:
    """With elementwise operators before and after them."""
    nodes = [node("Sigmoid", ["x"], ["e"]), *ROWS, *(node("Neg", [f"r{n}"], [f"y{n}"]) for n in range(len(ROWS)))]
    proto = model(nodes, {"x": ["b", "c", "n"]}, [f"y{n}" for n in range(len(ROWS))], {})
    check(proto, [*({"b": 2, "c": 3, "n": n} for n in LENGTHS), {"b": 0, "c": 1, "n": 4}], 1e-4)


# Attention


def attention(guard: Sequence[onnx.NodeProto], mask: Sequence[int | str]) -> onnx.ModelProto:
    """As PyTorch exports it: the scale is on both operands; ``guard`` makes ``w`` of the probabilities ``p``."""
    nodes = [
        node("Mul", ["q", "root"], ["qs"]),
        node("Transpose", ["k"], ["kt"], perm=[0, 1, 3, 2]),
        node("Mul", ["kt", "root"], ["ks"]),
        node("MatMul", ["qs", "ks"], ["scores"]),
        node("Add", ["scores", "mask"], ["masked"]),
        node("Softmax", ["masked"], ["p"], axis=-1),
        *guard,
        node("MatMul", ["w", "v"], ["y"]),
    ]
    long, other = ["b", 2, "n", 8], ["b", 2, "m", 8]
    inputs = {"q": long, "k": other, "v": other, "mask": mask}
    return model(nodes, inputs, ["y"], {"root": np.array(8**-0.25, np.float32), "zero": np.array(0, np.float32)})


GUARD = [node("IsNaN", ["p"], ["nan"]), node("Where", ["nan", "zero", "p"], ["w"])]


@pytest.mark.parametrize(
    ("guard", "mask", "math"),
    [
        (GUARD, ["b", 1, "n", "m"], "default"),
        (GUARD, ["b", 1, 1, "m"], "strict"),
    ],
)
def test_masked_attention(guard: Sequence[onnx.NodeProto], mask: Sequence[int | str], math: str) -> None:
    """``strict`` keeps the scores in memory."""
    sizes = [{"b": b, "n": n, "m": m} for b, n, m in ((1, 1, 1), (2, 7, 5), (1, 70, 130), (1, 1, 700), (1, 9, 0))]
    check(attention(guard, mask), sizes, math=math)


def decoder() -> onnx.ModelProto:
    """A step with a cache: grouped queries, keys and values of the past, and a causal mask from computed shapes."""
    constants = {
        **{f"i{n}": integers(n) for n in (0, 1, 2, 3)},
        "zero": np.array(0),
        "one": np.array(1),
        "no": np.array(-np.inf, np.float32),
        "yes": np.array(0, np.float32),
        "scale": np.array(8**-0.5, np.float32),
    }
    nodes = [
        node("Concat", ["past_k", "k"], ["present_k"], axis=2),
        node("Concat", ["past_v", "v"], ["present_v"], axis=2),
        node("Shape", ["past_k"], ["past_shape"]),
        node("Gather", ["past_shape", "two"], ["p"]),
        node("Shape", ["present_k"], ["shape"]),
        node("Gather", ["shape", "two"], ["t"]),
        node("Range", ["zero", "t", "one"], ["places"]),
        node("Range", ["p", "t", "one"], ["own"]),
        node("Unsqueeze", ["own", "i1"], ["column"]),
        node("LessOrEqual", ["places", "column"], ["sees"]),
        node("Where", ["sees", "yes", "no"], ["mask"]),
        node("Transpose", ["present_k"], ["kt"], perm=[0, 1, 3, 2]),
        node("Unsqueeze", ["kt", "i2"], ["kg"]),
        node("Unsqueeze", ["present_v", "i2"], ["vg"]),
        node("MatMul", ["q", "kg"], ["products"]),
        node("Mul", ["products", "scale"], ["scores"]),
        node("Add", ["scores", "mask"], ["masked"]),
        node("Softmax", ["masked"], ["p_"], axis=-1),
        node("MatMul", ["p_", "vg"], ["y"]),
    ]
    past, new = ["b", 2, "past", 8], ["b", 2, "s", 8]
    inputs = {"q": ["b", 2, 3, "s", 8], "k": new, "v": new, "past_k": past, "past_v": past}
    return model(nodes, inputs, ["y", "present_k", "present_v"], {**constants, "two": np.array(2)})


def test_a_cache_of_any_length() -> None:
    lengths = ((1, 0, 1), (1, 0, 9), (2, 5, 1), (1, 64, 3), (3, 17, 20), (1, 900, 1), (1, 1, 64))
    check(decoder(), [{"b": b, "past": past, "s": s} for b, past, s in lengths])


def test_rows_without_bounds_stay_vectors() -> None:
    graph = importer.load(attention(GUARD, ["b", 1, "n", "m"]))
    made = compile_graph(graph, Options(Target.parse("x86_64,haswell"), threads=1, math=Math.STRICT))
    facts = explain(made, graph).kernels
    assert all(fact.vectorized for fact in facts)


def test_generation_step_by_step_is_the_whole_at_once() -> None:
    proto = decoder()
    ours = tilewright.compile(proto, dynamic="symbolic", threads=1)
    whole = random_feeds(proto, {"b": 1, "past": 0, "s": 70})
    (wanted, *_) = run_onnxruntime(proto, whole)
    cache = [whole["past_k"], whole["past_v"]]
    for step in range(70):
        own = {name: whole[name][..., step : step + 1, :] for name in ("q", "k", "v")}
        found, *cache = ours.run(None, {**own, "past_k": cache[0], "past_v": cache[1]})
        np.testing.assert_allclose(found, wanted[..., step : step + 1, :], rtol=1e-5, atol=1e-5)


def test_products_of_one_row_have_kernels_of_their_own() -> None:
    """Decoding reads all weights for one row: other tiles are best for that. The weights are stored once."""
    random = np.random.default_rng(0)
    constants = {"w": random.standard_normal((64, 200)).astype(np.float32), "v": random.standard_normal((200, 16))}
    nodes = [node("MatMul", ["x", "w"], ["h"]), node("Relu", ["h"], ["r"]), node("MatMul", ["r", "v"], ["y"])]
    proto = model(nodes, {"x": ["b", "n", 64]}, ["y"], {**constants, "v": constants["v"].astype(np.float32)})
    ours = tilewright.compile(proto, dynamic="symbolic", threads=1)
    singles = [variant.kernel for kernel in ours.compiled.kernels for variant in kernel.variants]
    assert len(singles) == 2 and all(not single.program.dims for single in singles)
    assert len(ours.executable.constants) == 2
    for b, n in ((1, 1), (1, 2), (2, 1), (3, 40), (0, 1)):
        feeds = random_feeds(proto, {"b": b, "n": n})
        np.testing.assert_allclose(ours.run(None, feeds)[0], run_onnxruntime(proto, feeds)[0], rtol=1e-4, atol=1e-4)


def test_there_is_no_kernel_of_one_row_where_an_image_of_one_place_leaves_none() -> None:
    random = np.random.default_rng(0)
    shapes = {"f": (32, 3, 4, 4), "v": (32, 48)}
    constants = {name: random.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
    nodes = [node("Conv", ["x", "f"], ["c"], kernel_shape=[4, 4], strides=[4, 4]), node("Tanh", ["p"], ["y"])]
    nodes[1:1] = [node("Transpose", ["c"], ["t"], perm=[0, 2, 3, 1]), node("MatMul", ["t", "v"], ["p"])]
    proto = model(nodes, {"x": [1, 3, "h", "w"]}, ["y"], constants)
    ours = tilewright.compile(proto, dynamic="symbolic", threads=1)
    assert not any(kernel.variants for kernel in ours.compiled.kernels)
    feeds = random_feeds(proto, {"h": 9, "w": 13})
    np.testing.assert_allclose(ours.run(None, feeds)[0], run_onnxruntime(proto, feeds)[0], rtol=1e-4, atol=1e-4)


def test_a_dimension_may_be_the_sum_of_others() -> None:
    """As exporters name that of all tokens of a language model; what does not fit is refused."""
    nodes = [
        node("Concat", ["past", "new"], ["all"], axis=1),
        node("Add", ["all", "mask"], ["y"]),
    ]
    inputs = {"past": ["b", "p"], "new": ["b", "s"], "mask": ["b", "p + s"]}
    proto = model(nodes, inputs, ["y"], {})
    ours = tilewright.compile(proto, dynamic="symbolic", threads=1)
    for p, s in ((0, 3), (4, 1), (70, 5)):
        feeds = random_feeds(proto, {"b": 2, "p": p, "s": s, "p + s": p + s})
        np.testing.assert_array_equal(ours.run(None, feeds)[0], run_onnxruntime(proto, feeds)[0])
    with pytest.raises(tilewright.BadFeed, match=r"is 6, and has to be 5 for the other inputs"):
        ours.run(None, random_feeds(proto, {"b": 2, "p": 4, "s": 1, "p + s": 6}))
    static = tilewright.compile(proto, shapes={"past": (2, 4), "new": (2, 1)})
    assert [spec.shape for spec in static.inputs] == [(2, 4), (2, 1), (2, 5)]
    with pytest.raises(tilewright.InvalidModel, match=r"gives 6 for dimension p \+ s, which is 5"):
        tilewright.compile(proto, shapes={"past": (2, 4), "new": (2, 1), "mask": (2, 6)})
