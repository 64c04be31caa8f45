"""Models in float16 and bfloat16: what is computed in float32, what stays in 16 bits, and results against float64."""

from collections.abc import Mapping

import ml_dtypes
import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx import helper, numpy_helper

import tilewright
from tests.frontend.models import run_onnxruntime
from tilewright.base.dtypes import DType, bf16, f16, f32
from tilewright.base.numerics import Math, Precision
from tilewright.compilation import Options, prepare
from tilewright.driver import compile_graph
from tilewright.frontend.onnx.read.importer import load
from tilewright.passes.precision import narrow
from tilewright.passes.widen import widen
from tilewright.target.target import Target

Array = NDArray[np.generic]
BEST = Target.parse("x86_64,znver4")
KINDS = {"float16": np.dtype(np.float16), "bfloat16": np.dtype(ml_dtypes.bfloat16)}


def drawn(*shape: int, seed: int = 0, kind: str = "float16") -> Array:
    scale = 1.0 / np.sqrt(shape[0]) if len(shape) > 1 else 1.0
    return (scale * np.random.default_rng(seed).standard_normal(shape)).astype(KINDS[kind])


def made(text: str, constants: Mapping[str, Array]) -> onnx.ModelProto:
    model = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["": 18]>\n{text}')
    for name, array in constants.items():
        code = helper.np_dtype_to_tensor_dtype(array.dtype)
        raw = helper.make_tensor(name, code, array.shape, array.tobytes(), raw=True)
        model.graph.initializer.append(raw)
    return model


def layers(kind: str = "float16") -> onnx.ModelProto:
    """Two products with an activation and a normalization between them."""
    text = f"""net ({kind}[m, 64] x) => ({kind}[m, 64] y) {{
      h = MatMul(x, a)  b1 = Add(h, b)  s = Sigmoid(b1)  g = Mul(b1, s)  n = LayerNormalization(g, c, d)
      y = MatMul(n, e)
    }}"""
    shapes = {"a": (64, 96), "b": (96,), "c": (96,), "d": (96,), "e": (96, 64)}
    return made(text, {n: drawn(*shape, seed=i, kind=kind) for i, (n, shape) in enumerate(shapes.items())})


def layers_in_f64(model: onnx.ModelProto, x: Array) -> NDArray[np.float64]:
    a, b, c, d, e = (numpy_helper.to_array(t).astype(np.float64) for t in model.graph.initializer)
    h = x.astype(np.float64) @ a + b
    g = h / (1 + np.exp(-h))
    centered = g - g.mean(-1, keepdims=True)
    n = centered / np.sqrt((centered**2).mean(-1, keepdims=True) + 1e-5) * c + d
    return n @ e


def relative(found: Array, expected: NDArray[np.float64]) -> float:
    return float(np.linalg.norm(found.astype(np.float64) - expected) / np.linalg.norm(expected))


def half_values(model: onnx.ModelProto) -> set[str]:
    """The results of nodes that have 16 bits, after all passes that always save work."""
    graph = prepare(load(model))
    return {v.name for node in graph.nodes for v in node.outputs if v.dtype in (f16, bf16)}


def test_errors_are_those_of_the_result_type() -> None:
    """ONNX Runtime rounds after each operator, or after groups of them."""
    model, x = layers(), drawn(5, 64, seed=9)
    expected = layers_in_f64(model, x)
    (found,) = tilewright.compile(model).run(None, {"x": x})
    (other,) = run_onnxruntime(model, {"x": x})
    assert found.dtype == np.float16
    assert relative(found, expected) < 2.0**-11
    assert relative(found, expected) <= relative(other, expected) * 1.05


def test_values_inside_are_float32() -> None:
    graph = widen(load(layers()))
    assert graph.halves.keys() >= {"h", "b1", "s", "g", "n"}
    assert [v.dtype for v in (*graph.inputs, *graph.outputs)] == [f16, f16]
    assert half_values(layers()) == {"y"}


def test_strict_rounds_after_each_operator() -> None:
    kept = prepare(load(layers()), math=Math.STRICT)
    assert {v.dtype for node in kept.nodes for v in node.outputs} == {f16}


@pytest.mark.parametrize("kind", list(KINDS))
def test_the_types_of_float32_models_are_unchanged(kind: str) -> None:
    text = "net (float[m, 64] x) => (float[m, 64] y) { y = Relu(x) }"
    graph = load(made(text, {}))
    assert widen(graph) is graph


def test_what_a_cast_rounds_stays_rounded() -> None:
    text = "net (float[m] x) => (float[m] y) { h = Cast <to = 10> (x)  t = Add(h, h)  y = Cast <to = 1> (t) }"
    x = np.array([1.0001, 2049.0, 40000.0, 70000.0], np.float32)
    (found,) = tilewright.compile(made(text, {})).run(None, {"x": x})
    with np.errstate(over="ignore"):
        rounded = x.astype(np.float16).astype(np.float32)
    np.testing.assert_array_equal(found, rounded + rounded)


def test_tables_and_caches_stay_in_16_bits() -> None:
    """A table is gathered, and a cache extended, as stored; a transposed weight is a weight."""
    text = """net (int64[n] ids, float16[past, 64] old) => (float16[total, 64] new, float16[n, 32] y) {
      e = Gather(table, ids)  k = MatMul(e, a)  new = Concat <axis = 0> (old, k)
      t = Transpose <perm = [1, 0]> (b)  y = MatMul(e, t)
    }"""
    constants = {"table": drawn(10, 64), "a": drawn(64, 64, seed=1), "b": drawn(32, 64, seed=2)}
    model = made(text, constants)
    graph = prepare(load(model))
    types = {v.name: v.dtype for v in (*graph.constants, *(o for node in graph.nodes for o in node.outputs))}
    assert types["table"] == types["e"] == types["new"] == f16
    assert {dtype for name, dtype in types.items() if name.startswith(("a", "t"))} == {f16, f32}
    feeds = {"ids": np.array([3, 9]), "old": drawn(3, 64, seed=4)}
    new, y = tilewright.compile(model).run(None, feeds)
    rows = constants["table"][feeds["ids"]].astype(np.float64)
    np.testing.assert_array_equal(new[:3], feeds["old"])
    assert relative(new[3:], rows @ constants["a"].astype(np.float64)) < 2.0**-11
    assert relative(y, rows @ constants["b"].astype(np.float64).T) < 2.0**-11


def test_bfloat16_is_stored_and_multiplied_as_such() -> None:
    model, x = layers("bfloat16"), drawn(40, 64, seed=9, kind="bfloat16")
    graph = prepare(load(model))
    found = narrow(graph, Precision.FP32, BEST)
    assert found.dtype == bf16
    assert len(found.weights) == 2
    compiled = compile_graph(load(model), Options(BEST, threads=1))
    assert sum("vdpbf16ps_add(" in str(kernel.program) for kernel in compiled.kernels) == 2
    (y,) = tilewright.compile(model).run(None, {"x": x})
    assert y.dtype == KINDS["bfloat16"]
    assert relative(y, layers_in_f64(model, x)) < 2.0**-7


def test_only_what_was_bfloat16_is_stored_in_bfloat16() -> None:
    text = """net (float[m, 64] x) => (float[m, 64] y) {
      h = MatMul(x, a)  n = Cast <to = 16> (h)  q = MatMul(n, b)  w = Cast <to = 1> (q)  y = MatMul(w, a)
    }"""
    constants = {"a": drawn(64, 64).astype(np.float32), "b": drawn(64, 64, seed=1, kind="bfloat16")}
    found = narrow(prepare(load(made(text, constants))), Precision.FP32, BEST)
    assert set(found.weights) == {"q"}
    assert "h" not in found.values


@pytest.mark.parametrize("dtype", [f16, bf16], ids=str)
@pytest.mark.parametrize(
    "text",
    [
        "y = Softmax(x)",
        "y = CumSum(x, one)",
        "v, i = TopK <axis = 1> (x, two)  y = Neg(v)",
        "p = Pad(x, pads)  y = Exp(p)",
        "s = Shape(x)  z = ConstantOfShape(s)  c = CastLike(z, x)  y = Add(x, c)",
        "l = Less(x, x)  y = Where(l, x, x)",
        "a, b = Split <axis = 1, num_outputs = 2> (x)  m = Max(a, b)  y = Concat <axis = 1> (m, a)",
    ],
)
def test_operators_of_all_kinds(text: str, dtype: DType) -> None:
    """Against the operators as they are, which round after each one."""
    name = next(name for name, kind in KINDS.items() if kind == dtype.numpy)
    x = drawn(6, 8, seed=3, kind=name)
    integers = {"one": np.array(1), "two": np.array([2]), "pads": np.array([1, 0, 0, 2])}
    model = made(f"net ({name}[6, 8] x) => ({name}[r, c] y) {{ {text} }}", integers)
    (found,), (expected,) = (tilewright.compile(model, math=math).run(None, {"x": x}) for math in ("default", "strict"))
    assert found.dtype == expected.dtype == dtype.numpy
    np.testing.assert_allclose(
        found.astype(np.float64), expected.astype(np.float64), rtol=2.0 ** (-9 if dtype == f16 else -6), atol=1e-3
    )


@pytest.mark.parametrize(("rows", "stored"), [(1, np.float16), (2, np.float32)])
def test_weights_of_a_row_stay_in_16_bits(rows: int, stored: type) -> None:
    text = f"net (float16[{rows}, 64] x) => (float16[{rows}, 80] y) {{ y = MatMul(x, a) }}"
    weight, x = drawn(64, 80), drawn(rows, 64, seed=1)
    model = made(text, {"a": weight})
    compiled = compile_graph(load(model), Options(BEST, threads=1))
    assert {array.dtype for array in compiled.executable.constants if array.size >= 64 * 80} == {np.dtype(stored)}
    (found,) = tilewright.compile(model).run(None, {"x": x})
    assert relative(found, x.astype(np.float64) @ weight.astype(np.float64)) < 2.0**-11


def test_changed_weights_are_float32() -> None:
    """Only numbers of the narrow type are stored in it."""
    text = "net (float16[1, 64] x) => (float16[1, 80] y) { h = MatMul(x, a)  y = Mul(h, c) }"
    model = made(text, {"a": drawn(64, 80), "c": drawn(80, seed=1)})
    x = drawn(1, 64, seed=2)
    a, c = (numpy_helper.to_array(t).astype(np.float64) for t in model.graph.initializer)
    (found,) = tilewright.compile(model).run(None, {"x": x})
    assert relative(found, x.astype(np.float64) @ a * c) < 2.0**-11


def test_what_is_computed_with_is_widened_before_it_is_moved() -> None:
    """Patterns of operators, such as attention with repeated heads, are those of float32; an output is only moved."""
    text = """net (float16[past, 64] old, float16[n, 64] x) => (float16[1, total, 64] new, float16[1, total, 64] y) {
      c = Concat <axis = 0> (old, x)  new = Unsqueeze(c, axis)  e = Unsqueeze(c, axis)  y = Exp(e)
    }"""
    graph = prepare(load(made(text, {"axis": np.array([0])})))
    types = {value.name: value.dtype for node in graph.nodes for value in node.outputs}
    assert (types["c"], types["new"], types["e"]) == (f16, f16, f32)
