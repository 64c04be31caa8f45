"""Element types that native code has as codes: floats of 8 and 4 bits, integers of 4 and 2."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
import pytest
from _pytest.mark import ParameterSet
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

import tilewright
from tests.frontend.models import run_onnxruntime
from tilewright.base.errors import TilewrightError
from tilewright.frontend.onnx.read import importer

Array = NDArray[np.generic]
FLOATS: Mapping[int, type[np.generic]] = {
    TensorProto.FLOAT8E4M3FN: ml_dtypes.float8_e4m3fn,
    TensorProto.FLOAT8E4M3FNUZ: ml_dtypes.float8_e4m3fnuz,
    TensorProto.FLOAT8E5M2: ml_dtypes.float8_e5m2,
    TensorProto.FLOAT8E5M2FNUZ: ml_dtypes.float8_e5m2fnuz,
    TensorProto.FLOAT4E2M1: ml_dtypes.float4_e2m1fn,
}
INTEGERS: Mapping[int, type[np.generic]] = {
    TensorProto.INT4: ml_dtypes.int4,
    TensorProto.UINT4: ml_dtypes.uint4,
    TensorProto.INT2: ml_dtypes.int2,
    TensorProto.UINT2: ml_dtypes.uint2,
}
BYTES = [code for code in FLOATS if code != TensorProto.FLOAT4E2M1]


def name_of(code: int) -> str:
    return TensorProto.DataType.Name(code)


def some(codes: Iterable[int]) -> list[ParameterSet]:
    """All, of which all but the first are slow tests."""
    return [
        pytest.param(code, id=name_of(code), marks=[pytest.mark.slow] if position else [])
        for position, code in enumerate(codes)
    ]


def proto(
    nodes: Sequence[onnx.NodeProto],
    inputs: Mapping[str, tuple[int, Sequence[int | str]]],
    outputs: Mapping[str, int],
    constants: Sequence[TensorProto] = (),
) -> onnx.ModelProto:
    infos = [helper.make_tensor_value_info(name, code, shape) for name, (code, shape) in inputs.items()]
    results = [helper.make_tensor_value_info(name, code, None) for name, code in outputs.items()]
    graph = helper.make_graph(list(nodes), "g", infos, results, list(constants))
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 25)], ir_version=12)


def cast(code: int, *, saturate: int = 1) -> onnx.NodeProto:
    return helper.make_node("Cast", ["x"], ["y"], name="n", to=code, saturate=saturate)


def numbers(code: int) -> NDArray[np.float32]:
    """All numbers of the type, what is halfway between them, their neighbours, what is larger, and what is tiny."""
    own = np.arange(256, dtype=np.uint8).view(FLOATS[BYTES[0] if code == TensorProto.FLOAT4E2M1 else code])
    known = np.unique(own.astype(np.float32)[np.isfinite(own.astype(np.float32))])
    between = (known[1:] + known[:-1]) / 2
    near = [np.nextafter(between, np.float32(side)) for side in (-np.inf, np.inf)]
    special = np.array([np.inf, -np.inf, np.nan, 1e-45, -1e-45, 1e30, -1e30, 464, -464, 480, 61440, 65536], np.float32)
    random = np.random.default_rng(code).standard_normal(1000).astype(np.float32)
    return np.concatenate([known, between, *near, special, 100 * random, 1e-3 * random]).astype(np.float32)


def there_and_back(code: int, *, saturate: int) -> onnx.ModelProto:
    """Numbers rounded to a type."""
    back = helper.make_node("Cast", ["y"], ["z"], to=TensorProto.FLOAT)
    nodes = [cast(code, saturate=saturate), back]
    return proto(nodes, {"x": (TensorProto.FLOAT, [numbers(code).size])}, {"z": TensorProto.FLOAT})


@pytest.mark.parametrize("code", some(FLOATS))
def test_all_codes_are_decoded(code: int) -> None:
    count = 16 if code == TensorProto.FLOAT4E2M1 else 256
    x = np.arange(count, dtype=np.uint8).view(FLOATS[code])
    model = tilewright.compile(proto([cast(TensorProto.FLOAT)], {"x": (code, [count])}, {"y": TensorProto.FLOAT}))
    (found,) = model.run(None, {"x": x})
    np.testing.assert_array_equal(found, x.astype(np.float32))


@pytest.mark.parametrize("code", some(BYTES))
def test_numbers_are_rounded_as_onnxruntime_does(code: int) -> None:
    given, x = there_and_back(code, saturate=1), numbers(code)
    (found,) = tilewright.compile(given).run(None, {"x": x})
    np.testing.assert_array_equal(found, run_onnxruntime(given, {"x": x})[0])


@pytest.mark.parametrize("code", some(BYTES))
def test_without_saturation(code: int) -> None:
    """As ml-dtypes rounds: ONNX Runtime has 448 for 480 in E4M3FN, and NaN for 61440 in E5M2."""
    given, x = there_and_back(code, saturate=0), numbers(code)
    (found,) = tilewright.compile(given).run(None, {"x": x})
    np.testing.assert_array_equal(found, x.astype(FLOATS[code]).astype(np.float32))


@pytest.mark.parametrize("code", some(FLOATS))
def test_numbers_of_the_type_are_outputs(code: int) -> None:
    """Within the range, as no two libraries agree beyond it."""
    largest = float(ml_dtypes.finfo(FLOATS[code]).max)
    x = np.array([v for v in numbers(code) if abs(v) <= largest], np.float32)
    model = tilewright.compile(proto([cast(code)], {"x": (TensorProto.FLOAT, ["n"])}, {"y": code}))
    (found,) = model.run(None, {"x": x})
    assert found.dtype == FLOATS[code]
    np.testing.assert_array_equal(found.view(np.uint8), x.astype(FLOATS[code]).view(np.uint8))


@pytest.mark.parametrize("code", some(INTEGERS))
def test_integers_keep_their_last_bits(code: int) -> None:
    x = np.arange(-40, 40, dtype=np.int32)
    model = tilewright.compile(proto([cast(code)], {"x": (TensorProto.INT32, [80])}, {"y": code}))
    (found,) = model.run(None, {"x": x})
    assert found.dtype == INTEGERS[code]
    bits = 4 if name_of(code).endswith("4") else 2
    low = x & ((1 << bits) - 1)
    expected = low - ((low >> (bits - 1)) << bits) if name_of(code).startswith("I") else low
    np.testing.assert_array_equal(found.astype(np.int32), expected)


@pytest.mark.parametrize("code", some(INTEGERS))
def test_integers_of_few_bits_are_inputs(code: int) -> None:
    x = np.arange(-8, 16).astype(np.int32).astype(INTEGERS[code])
    model = tilewright.compile(proto([cast(TensorProto.INT32)], {"x": (code, [24])}, {"y": TensorProto.INT32}))
    np.testing.assert_array_equal(model.run(None, {"x": x})[0], x.astype(np.int32))


@pytest.mark.parametrize("code", some([TensorProto.FLOAT8E4M3FN, TensorProto.FLOAT8E5M2]))
@pytest.mark.parametrize("is_outside", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_quantized_products(code: int, is_outside: bool, tmp_path: Path) -> None:
    """Weights and activations in 8 bits, as quantizers write them."""
    random = np.random.default_rng(0)
    weight = random.standard_normal((32, 8)).astype(FLOATS[code])
    scales = random.uniform(0.1, 0.2, 8).astype(np.float32)
    x = random.standard_normal((4, 32)).astype(np.float32)
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "sx", "zero"], ["q"]),
        helper.make_node("DequantizeLinear", ["q", "sx", "zero"], ["a"]),
        helper.make_node("DequantizeLinear", ["w", "sw"], ["b"], axis=1),
        helper.make_node("MatMul", ["a", "b"], ["y"]),
    ]
    constants = [
        numpy_helper.from_array(np.float32(0.05), "sx"),
        helper.make_tensor("zero", code, [], [0.0]),
        numpy_helper.from_array(weight, "w"),
        numpy_helper.from_array(scales, "sw"),
    ]
    given = proto(nodes, {"x": (TensorProto.FLOAT, ["n", 32])}, {"y": TensorProto.FLOAT}, constants)
    onnx.save(given, tmp_path / "m.onnx", save_as_external_data=is_outside, size_threshold=0)
    (found,) = tilewright.compile(tmp_path / "m.onnx").run(None, {"x": x})
    rounded = np.clip(x / np.float32(0.05), *(s * float(ml_dtypes.finfo(FLOATS[code]).max) for s in (-1, 1)))
    a = rounded.astype(FLOATS[code]).astype(np.float64) * 0.05
    np.testing.assert_allclose(found, a @ (weight.astype(np.float64) * scales), rtol=1e-5, atol=1e-5)


POWERS = TensorProto.FLOAT8E8M0
MODES = [("up", 1), *(pytest.param(*way, marks=pytest.mark.slow) for way in [("up", 0), ("down", 1), ("nearest", 0)])]


def power_codes(x: NDArray[np.float32], mode: str, *, saturate: bool) -> NDArray[np.uint8]:
    """By ONNX's text of Cast: the exponents, from the mantissas in [1, 2) and exponents that frexp finds."""
    half, exponent = np.frexp(np.abs(x.astype(np.float64)))
    more = {"up": 2 * half > 1, "down": half < 0, "nearest": 2 * half >= 1.5}[mode]
    code = np.where(x == 0, -1, exponent - 1 + 127 + more)
    code = np.where(np.isinf(x), 255, code)
    ends = np.clip(code, 0, 254) if saturate else np.where((code > 254) | (np.abs(x) < 2.0**-127), 255, code)
    return np.where(np.isnan(x), 255, ends).astype(np.uint8)


@pytest.mark.parametrize(("mode", "saturate"), MODES)
def test_powers_of_two(mode: str, saturate: int) -> None:
    powers = np.arange(255, dtype=np.uint8).view(ml_dtypes.float8_e8m0fnu).astype(np.float32)
    some_x = [powers, 1.5 * powers[:-1], np.float32([0, np.inf, np.nan, 1e-45, 3.4e38])]
    some_x += [np.nextafter(each, np.float32(to)) for each in some_x[:2] for to in (0, 1e38)]
    x = np.concatenate(some_x).astype(np.float32)
    node = helper.make_node("Cast", ["x"], ["y"], to=POWERS, saturate=saturate, round_mode=mode)
    back = helper.make_node("Cast", ["y"], ["z"], to=TensorProto.FLOAT)
    given = proto([node, back], {"x": (TensorProto.FLOAT, ["n"])}, {"y": POWERS, "z": TensorProto.FLOAT})
    found, numbers_of_them = tilewright.compile(given).run(None, {"x": x})
    np.testing.assert_array_equal(found.view(np.uint8), power_codes(x, mode, saturate=bool(saturate)))
    np.testing.assert_array_equal(numbers_of_them, found.astype(np.float32))


@pytest.mark.parametrize("code", some([TensorProto.FLOAT4E2M1, TensorProto.FLOAT8E4M3FN, TensorProto.INT8]))
def test_scales_that_are_powers_of_two(code: int) -> None:
    """Weights as OCP MX has them: each block of 32 rows has one scale."""
    random = np.random.default_rng(0)
    weight = random.integers(-6, 7, (64, 8)).astype(FLOATS.get(code, np.int8))
    scale = random.integers(120, 130, (2, 8)).astype(np.uint8).view(ml_dtypes.float8_e8m0fnu)
    nodes = [
        helper.make_node("DequantizeLinear", ["w", "s"], ["b"], axis=0, block_size=32, output_dtype=1, name="n"),
        helper.make_node("MatMul", ["x", "b"], ["y"]),
    ]
    constants = [numpy_helper.from_array(weight, "w"), numpy_helper.from_array(scale, "s")]
    given = proto(nodes, {"x": (TensorProto.FLOAT, [3, 64])}, {"y": TensorProto.FLOAT}, constants)
    x = random.standard_normal((3, 64)).astype(np.float32)
    (found,) = tilewright.compile(given).run(None, {"x": x})
    wide = weight.astype(np.float64) * np.repeat(scale.astype(np.float64), 32, axis=0)
    np.testing.assert_allclose(found, x @ wide, rtol=1e-5, atol=1e-5)
    del given.graph.node[0].attribute[2]
    with pytest.raises(TilewrightError, match=r"node n \(DequantizeLinear\): .* give the attribute output_dtype"):
        importer.load(given)


def test_a_rounding_that_there_is_not() -> None:
    node = helper.make_node("Cast", ["x"], ["y"], name="n", to=POWERS, round_mode="even")
    with pytest.raises(TilewrightError, match=r"node n \(Cast\): attribute round_mode is even; there are up, down"):
        importer.load(proto([node], {"x": (TensorProto.FLOAT, [2])}, {"y": POWERS}))


def test_what_only_moves_keeps_its_type(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Transpose", ["x"], ["t"], perm=[1, 0]),
        helper.make_node("Reshape", ["t", "shape"], ["y"]),
        helper.make_node("Identity", ["x"], ["z"]),
        helper.make_node("Shape", ["t"], ["s"]),
    ]
    code = TensorProto.FLOAT8E4M3FN
    given = proto(
        nodes,
        {"x": (code, [2, 3])},
        {"y": code, "z": code, "s": TensorProto.INT64},
        [numpy_helper.from_array(np.array([6]), "shape")],
    )
    tilewright.compile(given).save(tmp_path / "m.tw")
    x = np.arange(6).reshape(2, 3).astype(FLOATS[code])
    moved, same, shape = tilewright.load(tmp_path / "m.tw").run(["y", "z", "s"], {"x": x})
    assert moved.dtype == same.dtype == FLOATS[code]
    np.testing.assert_array_equal(moved, x.T.reshape(6))
    np.testing.assert_array_equal(same, x)
    np.testing.assert_array_equal(shape, [3, 2])


def test_what_a_type_is_not_for_is_refused() -> None:
    code = TensorProto.FLOAT8E4M3FN
    add = helper.make_node("Add", ["x", "x"], ["y"], name="n")
    with pytest.raises(TilewrightError, match=r"node n \(Add\).*FLOAT8E4M3FN.*Cast"):
        importer.load(proto([add], {"x": (code, [2])}, {"y": code}))
    body = helper.make_graph(
        [
            helper.make_node("Identity", ["go"], ["on"]),
            helper.make_node("Identity", ["a"], ["b"]),
        ],
        "body",
        [helper.make_tensor_value_info(*one) for one in (("i", 7, []), ("go", 9, []), ("a", code, [2]))],
        [helper.make_tensor_value_info(*one) for one in (("on", 9, []), ("b", code, [2]))],
    )
    loop = helper.make_node("Loop", ["count", "", "x"], ["y"], name="n", body=body)
    with pytest.raises(TilewrightError, match=r"node n \(Loop\).*FLOAT8E4M3FN.*Cast"):
        importer.load(proto([loop], {"count": (7, []), "x": (code, [2])}, {"y": code}))
    branches = {
        f"{name}_branch": helper.make_graph(
            [helper.make_node("Identity", ["x"], [name])],
            name,
            [],
            [helper.make_tensor_value_info(name, code, [2])],
        )
        for name in ("then", "else")
    }
    choice = helper.make_node("If", ["c"], ["y"], name="n", **branches)
    with pytest.raises(TilewrightError, match=r"node n \(If\).*FLOAT8E4M3FN.*Cast"):
        importer.load(proto([choice], {"c": (9, []), "x": (code, [2])}, {"y": code}))


def test_onnxruntime_is_a_reference() -> None:
    code = TensorProto.FLOAT8E4M3FN
    nodes = [cast(TensorProto.FLOAT), helper.make_node("Cast", ["y"], ["z"], to=code)]
    model = tilewright.compile(proto(nodes, {"x": (code, [3])}, {"y": TensorProto.FLOAT, "z": code}))
    assert model.compare({"x": np.array([1, -2.5, 448]).astype(FLOATS[code])}).agrees
