"""Models in bfloat16 and float16: the types of values, dot products, and results against float64."""

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from onnx import numpy_helper

import tilewright
from tilewright.backend.cpu.backend import CPU
from tilewright.base.dtypes import bf16, f16, f32
from tilewright.base.errors import BadInput
from tilewright.base.numerics import Precision
from tilewright.base.settings import Stage
from tilewright.compilation import Compiled, Options
from tilewright.driver import compile_graph
from tilewright.frontend.onnx.read.importer import load
from tilewright.passes.precision import narrow
from tilewright.target.target import Target

Array = NDArray[np.float32]
BEST, OLD = Target.parse("x86_64,znver4"), Target.parse("x86_64,znver3")
HOST = replace(Target.host(), machine=replace(Target.host().machine, pair_gain=2.0))
"""By dot products, wherever there are some."""
SIXTEEN = {Precision.BF16: (bf16, 2.0**-8), Precision.F16: (f16, 2.0**-11)}


CONVOLUTIONS = [
    (64, 48, "pads = [1, 1, 1, 1]"),
    (64, 64, "strides = [2, 2]"),
    (64, 40, "pads = [2, 0, 1, 3], dilations = [2, 1]"),
]


def drawn(*shape: int, seed: int = 0) -> Array:
    scale = 1.0 / np.sqrt(max(1, np.prod(shape[1:]))) if len(shape) > 1 else 1.0
    return (scale * np.random.default_rng(seed).standard_normal(shape)).astype(np.float32)


def made(text: str, constants: Mapping[str, Array]) -> onnx.ModelProto:
    model = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["": 18]>\n{text}')
    model.graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in constants.items())
    return model


def two_layers(depth: int, inner: int) -> onnx.ModelProto:
    text = f"""net (float[m, {depth}] x) => (float[m, {depth}] y) {{
      h = MatMul(x, a)  b1 = Add(h, b)  r = Relu(b1)  y = MatMul(r, c)
    }}"""
    return made(text, {"a": drawn(depth, inner), "b": drawn(inner), "c": drawn(inner, depth)})


def convolutions(channels: int, filters: int, size: int) -> onnx.ModelProto:
    text = f"""net (float[1, 3, {size}, {size}] x) => (float[1, {filters}, o, p] y) {{
      s = Conv <pads = [1, 1, 1, 1]> (x, stem)  t = Relu(s)
      u = Conv <pads = [1, 1, 1, 1], strides = [2, 2]> (t, a, b)  v = Relu(u)
      w = Conv(v, c)  z = Add(v, w)  y = Conv(z, d)
    }}"""
    weights = {"stem": drawn(channels, 3, 3, 3), "a": drawn(filters, channels, 3, 3), "b": drawn(filters)}
    return made(text, {**weights, "c": drawn(filters, filters, 1, 1), "d": drawn(filters, filters, 1, 1)})


def compiled(model: onnx.ModelProto, precision: Precision, target: Target) -> Compiled:
    return compile_graph(load(model), Options(target, threads=1, precision=precision))


def relative(y: NDArray[np.generic], expected: NDArray[np.generic]) -> float:
    wide = expected.astype(np.float64)
    return float(np.linalg.norm(y.astype(np.float64) - wide) / np.linalg.norm(wide))


def instructions(found: Compiled) -> list[str]:
    return [kernel.program.name for kernel in found.kernels if "vdpbf16ps_add(" in str(kernel.program)]


@pytest.mark.parametrize("precision", list(SIXTEEN))
@pytest.mark.parametrize(("rows", "depth", "inner"), [(1, 10, 64), (7, 64, 1000), (33, 48, 96), (5, 6, 3)])
def test_products_of_matrices(precision: Precision, rows: int, depth: int, inner: int) -> None:
    model, x = two_layers(depth, inner), drawn(rows, depth, seed=1)
    a, b, c = (numpy_helper.to_array(w).astype(np.float64) for w in model.graph.initializer)
    expected = np.maximum(x @ a + b, 0) @ c
    found = tilewright.compile(model, precision=precision)(x)
    assert isinstance(found, np.ndarray) and found.dtype == np.float32
    assert relative(found, expected) < 2 * SIXTEEN[precision][1]
    assert relative(found, expected) > 1e-6, "nothing was rounded"


@pytest.mark.parametrize("precision", list(SIXTEEN))
@pytest.mark.parametrize(("channels", "filters"), [(16, 32), (24, 40), (6, 5)])
def test_convolutions(precision: Precision, channels: int, filters: int) -> None:
    model, x = convolutions(channels, filters, 9), drawn(1, 3, 9, 9, seed=1)
    (expected,) = onnxruntime.InferenceSession(model.SerializeToString()).run(None, {"x": x})
    found = tilewright.compile(model, precision=precision)(x)
    assert isinstance(found, np.ndarray)
    assert relative(found, np.asarray(expected)) < 3 * SIXTEEN[precision][1]


def rounded(x: Array) -> Array:
    return x.astype(bf16.numpy).astype(np.float32)


@settings(max_examples=12)
@given(rows=st.integers(1, 20), depth=st.integers(1, 80), columns=st.integers(1, 80))
def test_operands_are_rounded_once_and_sums_are_not(rows: int, depth: int, columns: int) -> None:
    text = f"""net (float[{rows}, {depth}] x) => (float[{rows}, {columns}] y) {{
      r = Relu(x)  y = MatMul(r, a)
    }}"""
    weight, x = drawn(depth, columns), drawn(rows, depth, seed=1)
    found = tilewright.compile(made(text, {"a": weight}), target=HOST, precision="bf16")(x)
    paired = depth % 2 == 0 and Target.host().has("avx512bf16")
    left, right = rounded(np.maximum(x, 0)).astype(np.float64), (rounded(weight) if paired else weight)
    np.testing.assert_allclose(found, left @ right, rtol=1e-5, atol=1e-6)


@pytest.mark.skipif(not Target.host().has("avx512bf16"), reason="weights stay float32")
@pytest.mark.parametrize(("channels", "filters", "options"), CONVOLUTIONS)
def test_convolutions_of_rounded_operands(channels: int, filters: int, options: str) -> None:
    text = f"""net (float[1, {channels}, 21, 20] x) => (float[1, {filters}, o, p] y) {{
      r = Relu(x)  y = Conv <{options}> (r, a)
    }}"""
    weight, x = drawn(filters, channels, 3, 3), drawn(1, channels, 21, 20, seed=1)
    model = made(text, {"a": weight})
    found = tilewright.compile(model, target=HOST, precision="bf16", math="strict")(x)
    session = onnxruntime.InferenceSession(made(text, {"a": rounded(weight)}).SerializeToString())
    (expected,) = session.run(None, {"x": rounded(np.maximum(x, 0))})
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def test_what_is_narrow() -> None:
    """Inputs, outputs, statistics, and what products without a weight read and make stay wide."""
    text = """net (float[4, 64] x, float[64, 4] k) => (float[4, 64] y) {
      q = MatMul(x, a)  s = MatMul(q, k)  p = Softmax(s)  o = MatMul(p, x)
      m = ReduceMean(o, axes)  c = Sub(o, m)  y = MatMul(c, a)
    }"""
    model = made(text, {"a": drawn(64, 64)})
    model.graph.initializer.append(numpy_helper.from_array(np.array([1]), "axes"))
    found = narrow(load(model), Precision.BF16, BEST)
    assert found.dtype == bf16
    assert found.values == {"c"}
    assert set(found.weights) == {"q", "y"}


@pytest.mark.parametrize(("rows", "names"), [(4, {"m"}), (4096, {"q", "s", "p", "m", "o"})])
def test_small_values_stay_wide_between_elementwise_operators(rows: int, names: set[str]) -> None:
    """What stays in the first cache takes no less time in 16 bits."""
    text = f"""net (float[{rows}, 64] x) => (float[{rows}, 64] y) {{
      q = MatMul(x, a)  s = Sigmoid(q)  p = MatMul(x, b)  m = Mul(p, s)  n = MatMul(m, a)  o = Softmax(n)  y = Relu(o)
    }}"""
    model = made(text, {"a": drawn(64, 64), "b": drawn(64, 64)})
    for precision in SIXTEEN:
        assert narrow(load(model), precision, BEST).values == names


def test_all_layers_of_a_network_use_the_instruction() -> None:
    found = compiled(convolutions(16, 32, 12), Precision.BF16, BEST)
    assert len(instructions(found)) == 3
    stored = {v.dtype for kernel in found.kernels for v in kernel.program.params}
    assert stored == {bf16, f32}


@pytest.mark.parametrize(("columns", "tile"), [(48, "[1, 3, 16]"), (400, "[1, 4, 16]"), (512, "[1, 64]")])
def test_columns_that_are_no_whole_tiles_have_several_accumulators(columns: int, tile: str) -> None:
    text = f"net (float[1, 64] x) => (float[1, {columns}] y) {{ y = MatMul(x, a) }}"
    (kernel,) = compiled(made(text, {"a": drawn(64, columns)}), Precision.BF16, BEST).kernels
    assert re.search(rf"alloc \w+: f32{re.escape(tile)} in local", str(kernel.program))


def test_many_rows_are_wide_where_dot_products_are_no_faster() -> None:
    """On Intel's processors without a matrix unit; few rows have half of the bytes of weights to read."""
    intel = Target.parse("x86_64,emeraldrapids")
    few, many = (two_layers(256, 512) for _ in range(2))
    for model, rows in ((few, 2), (many, 256)):
        for value in (*model.graph.input, *model.graph.output):
            value.type.tensor_type.shape.dim[0].dim_value = rows
    for target, model, products in ((BEST, many, 2), (intel, many, 0), (intel, few, 2), (BEST, few, 2)):
        assert len(narrow(load(model), Precision.BF16, target).weights) == products
    images = convolutions(32, 32, 24)
    assert narrow(load(images), Precision.BF16, BEST).weights
    found = narrow(load(images), Precision.BF16, intel)
    assert not found.weights
    assert {found.stored(name) for name in ("t", "v", "z")} <= {f32, None}  # data of convolutions


@pytest.mark.parametrize(("channels", "filters", "options"), CONVOLUTIONS)
def test_wide_products_round_nothing(channels: int, filters: int, options: str) -> None:
    text = f"""net (float[1, {channels}, 21, 20] x) => (float[1, {filters}, o, p] y) {{
      r = Relu(x)  y = Conv <{options}> (r, a)
    }}"""
    model, x = made(text, {"a": drawn(filters, channels, 3, 3)}), drawn(1, channels, 21, 20, seed=1)
    target = replace(HOST, machine=replace(HOST.machine, pair_gain=1.0))
    if not target.has("avx512bf16") or target.has("amx-bf16"):
        pytest.skip("no dot products that could be left out")
    found = tilewright.compile(model, target=target, precision="bf16", math="strict")(x)
    (expected,) = onnxruntime.InferenceSession(model.SerializeToString()).run(None, {"x": x})
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


def test_without_the_instruction_values_are_narrow_and_products_wide() -> None:
    found = compiled(two_layers(64, 64), Precision.BF16, OLD)
    assert instructions(found) == []
    assert any(p.dtype == bf16 for kernel in found.kernels for p in kernel.program.params)


def test_unused_without_precision() -> None:
    assert instructions(compiled(two_layers(64, 64), Precision.FP32, BEST)) == []


def test_an_artifact_has_its_precision(tmp_path: Path) -> None:
    model = tilewright.compile(two_layers(64, 64), precision="bf16")
    model.save(tmp_path / "net.tw")
    loaded = tilewright.load(tmp_path / "net.tw")
    assert loaded.precision is Precision.BF16
    x = drawn(3, 64, seed=2)
    np.testing.assert_array_equal(loaded(x), model(x))


def test_an_unknown_precision_names_the_known_ones() -> None:
    with pytest.raises(BadInput, match="bf16"):
        tilewright.compile(two_layers(4, 4), precision="bfloat")


def test_values_are_rounded_by_an_instruction() -> None:
    found = compiled(convolutions(16, 32, 12), Precision.BF16, BEST)
    texts = [CPU.listing(kernel.program, BEST, Stage.ASM) for kernel in found.kernels]
    assert sum("vdpbf16ps" in text for text in texts) == 3
    stores = [k.program.params[-1].dtype == bf16 for k in found.kernels]
    assert ["vcvtneps2bf16" in text for text in texts] == stores


def test_dot_products_of_arm() -> None:
    target = Target.parse("aarch64,neoverse-v1")
    found = compiled(convolutions(16, 32, 12), Precision.BF16, target)
    texts = [CPU.listing(kernel.program, target, Stage.ASM) for kernel in found.kernels]
    assert sum("bfdot" in text for text in texts) == 3
    plain = compiled(convolutions(16, 32, 12), Precision.BF16, Target.parse("aarch64,neoverse-n1"))
    assert not any("bfdot" in str(kernel.program) for kernel in plain.kernels)


@pytest.mark.skipif(not Target.host().has("avx512bf16"), reason="rounds by other instructions")
def test_subnormal_numbers_count_as_zero() -> None:
    text = "net (float[4, 64] x) => (float[4, 64] y) { h = MatMul(x, a)  r = Relu(h)  y = MatMul(r, a) }"
    model = made(text, {"a": np.eye(64, dtype=np.float32)})
    x = np.full((4, 64), 2.0**-130, np.float32)
    np.testing.assert_array_equal(tilewright.compile(model, precision="bf16")(x), np.zeros((4, 64)))


@pytest.mark.parametrize(("declared", "feed"), [("1, 32, h, 7", (1, 32, 9, 7)), ("n, 32, h, w", (2, 32, 5, 9))])
def test_open_sizes_of_convolutions(declared: str, feed: tuple[int, ...]) -> None:
    """The copy of the data to blocks sees it in another shape, with the extents at other positions."""
    text = (
        f"net (float[{declared}] x) => (float[a, b, o, p] y) {{ r = Relu(x)  y = Conv <pads = [1, 1, 1, 1]> (r, w) }}"
    )
    model, x = made(text, {"w": drawn(64, 32, 3, 3)}), drawn(*feed, seed=1)
    found = tilewright.compile(model, precision="bf16", dynamic="symbolic").run(None, {"x": x})[0]
    (expected,) = onnxruntime.InferenceSession(model.SerializeToString()).run(None, {"x": x})
    assert relative(found, np.asarray(expected)) < 2.0**-8
