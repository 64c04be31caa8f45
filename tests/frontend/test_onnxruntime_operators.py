"""Operators of the domain ``com.microsoft`` against ONNX Runtime, with several attributes each."""

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx import helper, numpy_helper

import tilewright
from tests.frontend.exact_bytes import exact_bytes
from tests.frontend.models import run_onnxruntime
from tilewright.base.errors import BadFeed, InvalidModel, UnsupportedModel
from tilewright.compilation import prepare
from tilewright.frontend.onnx.read import importer
from tilewright.graph import evaluate_graph, verify
from tilewright.passes.attention import ATTENTIONS
from tilewright.passes.recognize import raised
from tilewright.passes.rules.index import index_of

Array: TypeAlias = NDArray[np.generic]
Given: TypeAlias = Sequence[Array | None]

HEADS, SIZE, BATCH, LENGTH, PAST = 4, 8, 2, 5, 3
HIDDEN = HEADS * SIZE


def some(every: int, *axes: Iterable[object]) -> list[object]:
    """All combinations, those between every so many of them as slow tests."""
    combined = enumerate(itertools.product(*axes))
    return [pytest.param(*case, marks=[pytest.mark.slow] if at % every else []) for at, case in combined]


def draw(*shape: int, seed: int = 0) -> NDArray[np.float32]:
    return np.random.default_rng((seed, *shape)).standard_normal(shape).astype(np.float32)


def codes(*shape: int, dtype: type = np.uint8, seed: int = 0) -> Array:
    info = np.iinfo(dtype)
    return np.random.default_rng((seed, *shape)).integers(info.min, info.max, shape, dtype, endpoint=True)


def model(
    op: str,
    inputs: Given,
    outputs: Sequence[str] = ("y",),
    constants: Sequence[int] = (),
    domain: str = "com.microsoft",
    opset: int = 21,
    since: int | None = None,
    **attributes: object,
) -> tuple[onnx.ModelProto, dict[str, Array]]:
    """A model of one node and its feeds; ``constants``: positions of inputs that are in the model."""
    named = {f"x{at}": array for at, array in enumerate(inputs) if array is not None}
    names = ["" if array is None else f"x{at}" for at, array in enumerate(inputs)]
    feeds = {name: array for name, array in named.items() if int(name[1:]) not in constants}
    infos = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
        for name, array in feeds.items()
    ]
    kept = [numpy_helper.from_array(array, name) for name, array in named.items() if name not in feeds]
    more = {} if since is None else {"opset": since}  # an attribute of that name
    node = helper.make_node(op, names, outputs, name="n", domain=domain, **more, **attributes)
    results = [onnx.ValueInfoProto(name=name) for name in outputs if name]
    graph = helper.make_graph([node], "g", infos, results, kept)
    opsets = [helper.make_opsetid("", opset), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10), feeds


def check(op: str, inputs: Given, **options: object) -> None:
    """Equal up to rounding; integers up to one, as ONNX Runtime rounds them in another order."""
    proto, feeds = model(op, inputs, **options)  # pyright: ignore[reportArgumentType]
    graph = importer.load(proto)
    verify(graph)
    for ours, theirs in zip(evaluate_graph(graph, feeds), run_onnxruntime(proto, feeds), strict=True):
        close(ours, theirs)


def close(ours: Array, theirs: Array) -> None:
    assert (ours.dtype, ours.shape) == (theirs.dtype, theirs.shape)
    exact = 1.01 if ours.dtype.itemsize == 1 else 2e-5
    np.testing.assert_allclose(ours.astype(np.float64), theirs.astype(np.float64), rtol=2e-5, atol=exact)


X, BIAS = draw(2, 3, 8), draw(8, seed=1)


@pytest.mark.parametrize(
    ("op", "inputs", "attributes"),
    [
        ("Gelu", [X], {}),
        ("BiasGelu", [X, BIAS], {}),
        ("FastGelu", [X], {}),
        ("FastGelu", [X, BIAS], {}),
        ("QuickGelu", [X], {}),
        ("QuickGelu", [X], {"alpha": 1.0}),
    ],
)
def test_activations(op: str, inputs: Given, attributes: Mapping[str, float]) -> None:
    check(op, inputs, **attributes)


def test_bias_split_gelu() -> None:
    """ONNX Runtime has it on GPUs only."""
    proto, feeds = model("BiasSplitGelu", [X, BIAS])
    left, right = np.split((X + BIAS).astype(np.float64), 2, axis=-1)
    expected = left * right / 2 * (1 + np.vectorize(math.erf)(right / np.sqrt(2)))
    np.testing.assert_allclose(evaluate_graph(importer.load(proto), feeds)[0], expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("epsilon", "optional", "skip"),
    some(7, [1e-12, 0.1], [(), (3,), (3, 4), (4,)], [(2, 3, 8), (1, 3, 8), (3, 8)]),
)
def test_skip_layer_normalization(epsilon: float, optional: Sequence[int], skip: Sequence[int]) -> None:
    parts: list[Array | None] = [draw(8, seed=3) if at in optional else None for at in (3, 4)]
    inputs = [X, draw(*skip, seed=2), BIAS, *parts]
    check("SkipLayerNormalization", inputs, outputs=["y", "", "", "sum"], epsilon=epsilon)
    simplified = [*inputs[:3], parts[1]]
    check("SkipSimplifiedLayerNormalization", simplified, outputs=["y", "", "", "sum"], epsilon=epsilon)


def test_statistics_of_sums() -> None:
    """ONNX Runtime does not compute them on CPUs."""
    names = ["y", "mean", "inverse", "sum"]
    proto, feeds = model("SkipLayerNormalization", [X, X, BIAS], outputs=names, epsilon=0.1)
    _, mean, inverse, whole = evaluate_graph(importer.load(proto), feeds)
    np.testing.assert_allclose(mean, whole.mean(-1, keepdims=True), atol=1e-6)
    np.testing.assert_allclose(inverse, 1 / np.sqrt(whole.var(-1, keepdims=True) + 0.1), rtol=1e-5)
    proto, feeds = model("SkipSimplifiedLayerNormalization", [X, X, BIAS], outputs=names, epsilon=0.1)
    _, _, inverse, whole = evaluate_graph(importer.load(proto), feeds)
    np.testing.assert_allclose(inverse, 1 / np.sqrt((whole**2).mean(-1, keepdims=True) + 0.1), rtol=1e-5)


@pytest.mark.parametrize("opset", [13, 16, 21])
def test_normalizations_of_onnxs_own_domain(opset: int) -> None:
    check("SimplifiedLayerNormalization", [X, BIAS], domain="", opset=opset, axis=-1, epsilon=0.01, stash_type=1)
    check("LayerNormalization", [X, BIAS, BIAS], domain="", opset=opset, axis=-1, epsilon=0.01)


IDS = np.random.default_rng(0).integers(0, 7, (2, 5)).astype(np.int32)
SEGMENTS = np.random.default_rng(1).integers(0, 2, (2, 5)).astype(np.int32)


@pytest.mark.parametrize(
    ("has_segments", "places"),
    some(2, [False, True], [None, np.array([[4, 3, 2, 1, 0]], np.int32), IDS]),
)
def test_embed_layer_normalization(has_segments: bool, places: Array | None) -> None:
    words, positions, segments = draw(7, 8), draw(9, 8, seed=1), draw(2, 8, seed=2)
    given: list[Array | None] = [SEGMENTS, segments] if has_segments else [None, None]
    mask = (np.arange(5) < np.array([[3], [5]])).astype(np.int32)
    inputs = [IDS, given[0], words, positions, given[1], BIAS, draw(8, seed=4), mask, places]
    check("EmbedLayerNormalization", inputs, outputs=["y", "lengths", "sum"], epsilon=1e-6)
    check("EmbedLayerNormalization", [*inputs[:7], None, places], outputs=["y", "lengths"])


@pytest.mark.parametrize("has_segments", [False, True])
def test_quantized_embed_layer_normalization(has_segments: bool) -> None:
    shapes = ((7, 8), (9, 8), (2, 8) if has_segments else None, (8,), (8,))
    tables = [None if shape is None else codes(*shape, seed=n) for n, shape in enumerate(shapes)]
    factors = [None if t is None else np.array(0.01 + 0.001 * n, np.float32) for n, t in enumerate(tables)]
    zeros = [None if table is None else np.array(100 + n, np.uint8) for n, table in enumerate(tables)]
    mask = (np.arange(5) < np.array([[3], [5]])).astype(np.int32)
    inputs = [IDS, SEGMENTS if has_segments else None, *tables, mask, *factors, *zeros]
    names = {"outputs": ["y", "lengths"], "epsilon": 1e-6}
    check("QEmbedLayerNormalization", inputs, constants=[*range(2, 7), *range(8, 18)], **names)


# Attention

MASK = (np.arange(LENGTH) < np.array([[3], [5]])).astype(np.int32)
WITH_PAST = np.concatenate([np.ones((BATCH, PAST), np.int32), MASK], axis=1)
CUBE = (np.random.default_rng(3).random((BATCH, LENGTH, LENGTH)) < 0.7).astype(np.int32) | np.eye(
    LENGTH, dtype=np.int32
)
MASKS = {
    "none": None,
    "rows": MASK,
    "cube": CUBE,
    "ends": np.array([3, 5], np.int32),
    "ends and begins": np.array([4, 5, 1, 0], np.int32),
}
DATA = draw(BATCH, LENGTH, 24)
WEIGHT, OF_WEIGHT = draw(24, 3 * HIDDEN) * np.float32(0.2), draw(3 * HIDDEN, seed=1)
SCORES = draw(1, HEADS, LENGTH, LENGTH, seed=5)


@pytest.mark.parametrize(
    ("mask", "attributes"), some(4, MASKS, [{}, {"unidirectional": 1, "scale": 0.5}, {"mask_filter_value": -3.0}])
)
def test_attention(mask: str, attributes: Mapping[str, float]) -> None:
    inputs = [DATA, WEIGHT, OF_WEIGHT, MASKS[mask], None, SCORES]
    check("Attention", inputs, num_heads=HEADS, **attributes)


def test_attention_with_other_sizes() -> None:
    weight, bias = draw(24, 2 * 16 + 8), draw(2 * 16 + 8)
    check("Attention", [DATA, weight, bias], num_heads=HEADS, qkv_hidden_sizes=[16, 16, 8])
    proto, feeds = model("Attention", [DATA, WEIGHT], num_heads=HEADS)
    zero, _ = model("Attention", [DATA, WEIGHT, np.zeros(3 * HIDDEN, np.float32)], num_heads=HEADS)
    (found,) = evaluate_graph(importer.load(proto), feeds)
    close(found, run_onnxruntime(zero, {**feeds, "x2": np.zeros(3 * HIDDEN, np.float32)})[0])


@pytest.mark.parametrize(("length", "causal"), some(3, [1, LENGTH], [0, 1]))
def test_attention_with_a_past(length: int, causal: int) -> None:
    past = draw(2, BATCH, HEADS, PAST, SIZE)
    mask = WITH_PAST[:, : PAST + length]
    inputs = [DATA[:, :length], WEIGHT, OF_WEIGHT, mask, past]
    check("Attention", inputs, outputs=["y", "present"], num_heads=HEADS, unidirectional=causal)


@pytest.mark.parametrize(("zeros", "causal"), some(3, [False, True], [1, 0]))
def test_quantized_attention(zeros: bool, causal: int) -> None:
    data, weight = codes(BATCH, LENGTH, 24), exact_bytes(codes(24, 3 * HIDDEN, dtype=np.int8))
    scales = [np.array(0.01, np.float32), np.array(0.005, np.float32)]
    points: list[Array | None] = [np.array(120, np.uint8), np.array(3, np.int8)] if zeros else [None, None]
    past = draw(2, BATCH, HEADS, PAST, SIZE)
    inputs = [data, weight, OF_WEIGHT, *scales, WITH_PAST, *points, past]
    check("QAttention", inputs, outputs=["y", "present"], num_heads=HEADS, unidirectional=causal)


@pytest.mark.parametrize(
    ("mask", "has_bias", "attributes"),
    some(5, ["none", "rows", "ends"], [False, True], [{}, {"unidirectional": 1}, {"scale": 0.3}]),
)
def test_multi_head_attention(mask: str, has_bias: bool, attributes: Mapping[str, float]) -> None:
    q, k, v = (draw(BATCH, LENGTH, HIDDEN, seed=s) for s in range(3))
    inputs = [q, k, v, OF_WEIGHT if has_bias else None, MASKS[mask], SCORES]
    check("MultiHeadAttention", inputs, num_heads=HEADS, **attributes)


def test_multi_head_attention_of_others_and_with_a_past() -> None:
    q, k, v = draw(BATCH, 3, HIDDEN), draw(BATCH, LENGTH, HIDDEN, seed=1), draw(BATCH, LENGTH, 2 * HIDDEN, seed=2)
    check("MultiHeadAttention", [q, k, v], num_heads=HEADS)
    given = [draw(BATCH, HEADS, LENGTH, SIZE, seed=s) for s in (1, 2)]
    check("MultiHeadAttention", [q, *given], num_heads=HEADS)
    past = [draw(BATCH, HEADS, PAST, SIZE, seed=s) for s in (3, 4)]
    same = [draw(BATCH, LENGTH, HIDDEN, seed=s) for s in range(3)]
    inputs = [*same, OF_WEIGHT, WITH_PAST, None, *past]
    check("MultiHeadAttention", inputs, outputs=["y", "k", "v"], num_heads=HEADS, unidirectional=1)


COSINES, SINES = (f(np.arange(20)[:, None] * 0.3 ** np.arange(SIZE // 2)).astype(np.float32) for f in (np.cos, np.sin))


@pytest.mark.parametrize(
    ("interleaved", "places"),
    some(3, [0, 1], [np.array([2], np.int64), np.array([[4, 3, 2, 1, 0], [9, 8, 1, 2, 3]], np.int64)]),
)
def test_rotary_embedding(interleaved: int, places: Array) -> None:
    whole, split = draw(BATCH, LENGTH, HIDDEN), draw(BATCH, HEADS, LENGTH, SIZE)
    for data in (whole, split):
        check("RotaryEmbedding", [data, places, COSINES, SINES], interleaved=interleaved)
    tables = [COSINES[:, :2], SINES[:, :2]]
    partly = {"rotary_embedding_dim": 4, "num_heads": HEADS}
    check("RotaryEmbedding", [whole, places, *tables], interleaved=interleaved, **partly)


WIDE = 16
"""ONNX Runtime wants the size of heads to be a multiple."""
TABLES = [f(np.arange(20)[:, None] * 0.3 ** np.arange(WIDE // 2)).astype(np.float32) for f in (np.cos, np.sin)]


def grouped(length: int, lengths: Sequence[int], room: int, whole: int, *, packed: bool) -> list[Array | None]:
    """Operands of ``GroupQueryAttention``: ``room`` places in the cache, and of ``whole`` keys with the new ones."""
    q, k, v = draw(BATCH, length, HEADS * WIDE), *(draw(BATCH, length, 2 * WIDE, seed=s) for s in (1, 2))
    parts = [np.concatenate([q, k, v], axis=2), None, None] if packed else [q, k, v]
    old = [draw(BATCH, 2, room, WIDE, seed=s) if room else None for s in (3, 4)]
    return [*parts, *old, np.array(lengths, np.int32), np.array(whole, np.int32), *TABLES]


GROUPED = (
    {"do_rotary": 1},
    {},
    {"do_rotary": 1, "rotary_interleaved": 1},
    {"local_window_size": 2},
    {"softcap": 2.0, "scale": 0.7},
)


@pytest.mark.parametrize(("packed", "attributes"), some(4, [False, True], GROUPED))
def test_group_query_attention(packed: bool, attributes: Mapping[str, float]) -> None:
    """A prompt, and then one token; in a cache that is full, and in one with room."""
    options = {"num_heads": HEADS, "kv_num_heads": 2, "constants": [6], "outputs": ["y", "k", "v"], **attributes}
    check("GroupQueryAttention", grouped(LENGTH, [LENGTH - 1] * 2, 0, LENGTH, packed=packed), **options)
    check("GroupQueryAttention", grouped(1, [PAST] * 2, PAST, PAST + 1, packed=packed), **options)


@pytest.mark.parametrize(("lengths", "new"), [([4, 6], 1), ([5], 3)])
def test_a_cache_with_room(lengths: Sequence[int], new: int) -> None:
    """Places beyond the last key are not defined."""
    given = [
        None if x is None else x[: len(lengths)] if x.ndim > 2 else x for x in grouped(new, lengths, 9, 7, packed=False)
    ]
    options = {"num_heads": HEADS, "kv_num_heads": 2, "do_rotary": 1}
    proto, feeds = model("GroupQueryAttention", given, ("y", "k", "v"), [6], **options)
    ours, theirs = evaluate_graph(importer.load(proto), feeds), run_onnxruntime(proto, feeds)
    close(ours[0], theirs[0])
    for own, other in zip(ours[1:], theirs[1:], strict=True):
        assert own.shape == other.shape
        for row, length in enumerate(lengths):
            close(own[row, :, : length + 1], other[row, :, : length + 1])


def test_prompts_of_different_lengths() -> None:
    """What follows a prompt is not defined."""
    lengths = [2, LENGTH - 1]
    options = {"num_heads": HEADS, "kv_num_heads": 2, "do_rotary": 1}
    given = grouped(LENGTH, lengths, 0, LENGTH, packed=False)
    proto, feeds = model("GroupQueryAttention", given, ("y", "k", "v"), [6], **options)
    ours, theirs = evaluate_graph(importer.load(proto), feeds)[0], run_onnxruntime(proto, feeds)[0]
    for row, length in enumerate(lengths):
        close(ours[row, : length + 1], theirs[row, : length + 1])


# Products


@pytest.mark.parametrize("turns", [(), ("transA",), ("transB",), ("transBatchA",), ("transBatchB", "transB")])
@pytest.mark.parametrize("alpha", [1.0, 0.25])
def test_fused_matmul(turns: Sequence[str], alpha: float) -> None:
    square = 4
    inputs = [draw(square, square, square), draw(square, square, square, seed=1)]
    check("FusedMatMul", inputs, alpha=alpha, **dict.fromkeys(turns, 1))


@pytest.mark.parametrize(
    "ending",
    [
        {},
        {"activation": "Relu"},
        {"activation": "LeakyRelu", "activation_alpha": 0.2},
        {"activation": "HardSigmoid", "activation_alpha": 0.3, "activation_beta": 0.4},
        {"activation": "Tanh"},
    ],
)
def test_fused_gemm(ending: Mapping[str, object]) -> None:
    options = ending or {"activation": "Sigmoid"}
    inputs = [draw(5, 3), draw(4, 5, seed=1), draw(4, seed=2)]
    check("FusedGemm", inputs, transA=1, transB=1, alpha=0.5, beta=2.0, **options)


@pytest.mark.parametrize(
    "ending",
    [
        {"activation": "Relu"},
        {"activation": "Clip", "activation_params": [-0.5, 0.5]},
        {"activation": "LeakyRelu", "activation_params": [0.2]},
        {"activation": "HardSigmoid", "activation_params": [0.3, 0.4]},
    ],
)
@pytest.mark.parametrize("has_sum", [False, True])
def test_fused_conv(ending: Mapping[str, object], has_sum: bool) -> None:
    inputs = [draw(1, 4, 6, 6), draw(4, 4, 3, 3, seed=1), draw(4, seed=2)]
    more = [draw(1, 4, 6, 6, seed=3)] if has_sum else []
    check("FusedConv", [*inputs, *more], pads=[1, 1, 1, 1], strides=[1, 1], **ending)


@pytest.mark.parametrize(("dtype", "columns", "has_more"), some(3, [np.uint8, np.int8], [(), (6,)], [False, True]))
def test_products_of_integers(dtype: type, columns: tuple[int, ...], has_more: bool) -> None:
    weight, scale = exact_bytes(codes(8, 6, dtype=dtype)), np.asarray(np.abs(draw(*columns)) * np.float32(0.01))
    zero = codes(*columns, dtype=dtype, seed=1) if has_more else None
    bias = draw(6) if has_more else None
    check("DynamicQuantizeMatMul", [X, weight, scale, zero, bias])
    a_scale, a_zero = np.array(0.02, np.float32), np.array(100, np.uint8) if has_more else None
    check("MatMulIntegerToFloat", [codes(2, 3, 8), weight, a_scale, scale, a_zero, zero, bias])


# Between quantized numbers


def scales(*factors: float) -> list[Array]:
    return [np.array(factor, np.float32) for factor in factors]


@pytest.mark.parametrize("dtype", [np.uint8, pytest.param(np.int8, marks=pytest.mark.slow)])
def test_quantized_operators(dtype: type) -> None:
    a, b = codes(2, 3, 4, dtype=dtype), codes(2, 3, 4, dtype=dtype, seed=1)
    (sa, sb, sc), za, zb, zc = scales(0.02, 0.05, 0.04), *(np.array(z, dtype) for z in (5, 20, 9))
    known = {"constants": [1, 2, 4, 5, 6, 7]}
    for op in ("QLinearAdd", "QLinearMul"):
        check(op, [a, sa, za, b, sb, zb, sc, zc], **known)
    check("QLinearAdd", [a, sa, za, codes(4, dtype=dtype), sb, zb, sc, zc], **known)
    check("QLinearSigmoid", [a, sa, za, *scales(1 / 256), np.array(0, dtype)], constants=[1, 2, 3, 4])
    check("QLinearLeakyRelu", [a, sa, za, sc, zc], constants=[1, 2, 3, 4], alpha=0.3)
    zero = np.array(0 if dtype is np.uint8 else -128, dtype)
    for axis, opset in ((-1, 13), (1, 11)):
        check("QLinearSoftmax", [a, sa, za, *scales(1 / 256), zero], axis=axis, since=opset, constants=[1, 2, 3, 4])
    parts = [sc, zc, a, sa, za, b, sb, zb]
    check("QLinearConcat", parts, constants=[0, 1, 3, 4, 6, 7], axis=1)
    choice = np.random.default_rng(0).random((2, 3, 4)) < 0.5
    check("QLinearWhere", [choice, a, sa, za, b, sb, zb, sc, zc], constants=[2, 3, 5, 6, 7, 8])


@pytest.mark.parametrize(("dtype", "channels_last"), some(3, [np.uint8, np.int8], [0, 1]))
def test_quantized_pooling(dtype: type, channels_last: int) -> None:
    data = codes(1, 6, 6, 6, dtype=dtype)
    rest = [*scales(0.02), np.array(5, dtype), *scales(0.015), np.array(9, dtype)]
    common = {"channels_last": channels_last, "constants": [1, 2, 3, 4]}
    check("QLinearGlobalAveragePool", [data, *rest], **common)
    for attributes in ({}, {"pads": [1, 1, 1, 1], "strides": [2, 2]}, {"pads": [1] * 4, "count_include_pad": 1}):
        check("QLinearAveragePool", [data, *rest], kernel_shape=[3, 3], **common, **attributes)


@pytest.mark.parametrize("channels_last", [0, 1])
def test_quantized_convolutions(channels_last: int) -> None:
    """As ONNX Runtime saves them with all of its optimizations."""
    data = codes(1, 5, 6, 4) if channels_last else codes(1, 4, 5, 6)
    filters = exact_bytes(codes(3, 4, 3, 3, dtype=np.int8))
    parameters = [*scales(0.02), np.array(120, np.uint8), filters, *scales(0.01), np.array(0, np.int8)]
    bias = np.array([100, -200, 300], np.int32)
    inputs = [data, *parameters, *scales(0.1), np.array(130, np.uint8), bias]
    options = {"channels_last": channels_last, "constants": [*range(1, 9)]}
    check("QLinearConv", inputs, pads=[1, 1, 1, 1], strides=[1, 2], **options)
    if channels_last:
        check("NhwcMaxPool", [data], kernel_shape=[2, 2], strides=[2, 1], pads=[0, 1, 0, 1])


@pytest.mark.parametrize(
    ("dtype", "turned", "columns", "is_real"), some(5, [np.uint8, np.int8], [0, 1], [(), (6,)], [False, True])
)
def test_quantized_gemm(dtype: type, turned: int, columns: tuple[int, ...], is_real: bool) -> None:
    a, b = codes(5, 8, dtype=dtype), exact_bytes(codes(*(6, 8) if turned else (8, 6), dtype=np.int8))
    b_scale, b_zero = np.abs(draw(*columns)) * np.float32(0.01) + np.float32(0.001), np.zeros(columns, np.int8)
    bias = np.random.default_rng(0).integers(-500, 500, 6).astype(np.int32)
    inputs: list[Array | None] = [a, *scales(0.02), np.array(7, dtype), b, b_scale, b_zero, bias]
    ending = [] if is_real else [*scales(0.03), np.array(11, dtype)]
    check("QGemm", [*inputs, *ending], constants=[1, 2, 3, 4, 5, 6, 7, 8], transB=turned)


def test_scales_of_ort() -> None:
    """Its own domain has them for 16 bits."""
    check("QuantizeLinear", [X, *scales(0.01), np.array(300, np.uint16)], constants=[1, 2])
    check("DequantizeLinear", [codes(3, 4, dtype=np.int16), *scales(0.01), np.array(3, np.int16)], constants=[1, 2])


# What is refused


@pytest.mark.parametrize(
    ("op", "inputs", "attributes", "error", "text"),
    [
        ("Gelu", [X], {"beta": 1.0}, UnsupportedModel, "attribute beta is not supported"),
        ("QuickGelu", [X], {"alpha": 1}, InvalidModel, "attribute alpha is 1, not a number"),
        ("BiasGelu", [X], {}, InvalidModel, "it has 1 inputs; BiasGelu takes 2 to 2"),
        ("BiasGelu", [BIAS, X], {}, InvalidModel, "has not the shape of"),
        ("Attention", [DATA, WEIGHT], {}, InvalidModel, "attribute num_heads is missing"),
        ("Attention", [DATA, WEIGHT], {"num_heads": 5}, InvalidModel, "5 heads do not divide the hidden size 32"),
        ("Attention", [DATA, WEIGHT], {"num_heads": 4, "do_rotary": 1}, UnsupportedModel, "for GPUs only"),
        ("Attention", [DATA, WEIGHT, None, MASK[:, 1:]], {"num_heads": 4}, InvalidModel, "should have the shape"),
        ("MultiHeadAttention", [DATA], {"num_heads": 4}, UnsupportedModel, "packed .* for CPUs"),
        ("FusedGemm", [X[0], X[0].T], {"activation": "Sin"}, UnsupportedModel, "the activation Sin is not supported"),
        ("LongformerAttention", [X], {}, UnsupportedModel, "no definition of the operator com.microsoft::Longformer"),
    ],
)
def test_refusals(op: str, inputs: Given, attributes: Mapping[str, float], error: type[Exception], text: str) -> None:
    proto, _ = model(op, inputs, **attributes)
    with pytest.raises(error, match=rf"node n \({op}\): .*{text}"):
        importer.load(proto)


def test_domains_that_are_not_imported_and_those_of_one_processor() -> None:
    proto, _ = model("Gelu", [X])
    del proto.opset_import[1]
    with pytest.raises(InvalidModel, match=r"node n \(Gelu\): opset_import does not say .* com\.microsoft"):
        importer.load(proto)
    proto.graph.node[0].domain = "com.microsoft.nchwc"
    with pytest.raises(UnsupportedModel, match="ORT_ENABLE_EXTENDED"):
        importer.load(proto)


# In a model


def test_attention_is_recognized() -> None:
    """With a causal mask and padding, of a length known only at run time."""
    proto, _ = opened(LENGTH)
    graph = prepare(importer.load(proto))
    index = index_of(graph)
    made = [raised(node, index, {"MatMul": ATTENTIONS}).op.name for node in graph.nodes]
    assert made.count("Attention") == 1


def opened(length: int) -> tuple[onnx.ModelProto, dict[str, Array]]:
    """``Attention`` of any batch and length."""
    inputs = [DATA[:, :length], WEIGHT, OF_WEIGHT, MASK[:, :length]]
    proto, feeds = model("Attention", inputs, constants=[1, 2], num_heads=HEADS, unidirectional=1)
    for info in proto.graph.input:
        for dim, name in zip(info.type.tensor_type.shape.dim, ("b", "s"), strict=False):
            dim.dim_param = name
    return proto, feeds


@pytest.mark.slow
def test_a_mask_of_another_dimension() -> None:
    """Exporters do not say that the mask is as long as the past and the sequence: a run checks it."""
    past = draw(2, BATCH, HEADS, PAST, SIZE)
    inputs = [DATA, WEIGHT, OF_WEIGHT, WITH_PAST, past]
    proto, feeds = model("Attention", inputs, ("y", "present"), [1, 2], num_heads=HEADS, unidirectional=1)
    names = {"x0": ("b", "s"), "x3": ("b", "t"), "x4": ("two", "b", "heads", "p")}
    for info in proto.graph.input:
        for dim, name in zip(info.type.tensor_type.shape.dim, names[info.name], strict=False):
            if name not in ("two", "heads"):
                dim.dim_param = name
    graph = importer.load(proto)
    for ours, theirs in zip(evaluate_graph(graph, feeds), run_onnxruntime(proto, feeds), strict=True):
        close(ours, theirs)
    longer = {**feeds, "x3": np.ones((BATCH, PAST + LENGTH + 1), np.int32)}
    with pytest.raises(BadFeed, match=r"x3|extent"):
        tilewright.compile(proto, threads=1).run(None, longer)


@pytest.mark.slow
def test_attention_of_any_length() -> None:
    made = tilewright.compile(opened(LENGTH)[0], threads=1)
    for length in (LENGTH, 3):
        proto, feeds = opened(length)
        close(made.run(None, feeds)[0], run_onnxruntime(proto, feeds)[0])


def decoder() -> onnx.ModelProto:
    """As exporters of language models write it: any past, and lengths from the shape and the sum of a mask."""
    nodes = [
        helper.make_node("Shape", ["mask"], ["shape"]),
        helper.make_node("Gather", ["shape", "one"], ["long"], axis=0),
        helper.make_node("Cast", ["long"], ["whole"], to=onnx.TensorProto.INT32),
        helper.make_node("ReduceSum", ["mask", "axis"], ["sums"], keepdims=0),
        helper.make_node("Sub", ["sums", "one"], ["last"]),
        helper.make_node("Cast", ["last"], ["lengths"], to=onnx.TensorProto.INT32),
        helper.make_node(
            "GroupQueryAttention",
            ["q", "k", "v", "past_k", "past_v", "lengths", "whole", "cosines", "sines"],
            ["y", "new_k", "new_v"],
            domain="com.microsoft",
            num_heads=HEADS,
            kv_num_heads=2,
            do_rotary=1,
        ),
    ]
    kept = {"one": np.array(1), "axis": np.array([1]), "cosines": TABLES[0], "sines": TABLES[1]}
    float_, shapes = onnx.TensorProto.FLOAT, {"q": HEADS * WIDE, "k": 2 * WIDE, "v": 2 * WIDE}
    infos = [helper.make_tensor_value_info(n, float_, ["b", "s", size]) for n, size in shapes.items()]
    infos += [helper.make_tensor_value_info(n, float_, ["b", 2, "p", WIDE]) for n in ("past_k", "past_v")]
    infos.append(helper.make_tensor_value_info("mask", onnx.TensorProto.INT64, ["b", "t"]))
    results = [onnx.ValueInfoProto(name=name) for name in ("y", "new_k", "new_v")]
    tensors = [numpy_helper.from_array(array, name) for name, array in kept.items()]
    graph = helper.make_graph(nodes, "g", infos, results, tensors)
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


@pytest.mark.slow
def test_decoding_with_any_past() -> None:
    """One model for the prompt, and for each token after it."""
    proto = decoder()
    made = tilewright.compile(proto, threads=1, dynamic="symbolic")
    past = [np.zeros((BATCH, 2, 0, WIDE), np.float32)] * 2
    for step, new in enumerate((LENGTH, 1, 1)):
        q, k, v = (draw(BATCH, new, size, seed=step) for size in (HEADS * WIDE, 2 * WIDE, 2 * WIDE))
        mask = np.ones((BATCH, past[0].shape[2] + new), np.int64)
        feeds = {"q": q, "k": k, "v": v, "past_k": past[0], "past_v": past[1], "mask": mask}
        ours, theirs = made.run(None, feeds), run_onnxruntime(proto, feeds)
        for own, other in zip(ours, theirs, strict=True):
            close(own, other)
        past = ours[1:]
