"""Quantized numbers, by the evaluator and as native code, against ONNX Runtime."""

import numpy as np
import pytest
from numpy.typing import NDArray

import tilewright
from tests.frontend.exact_bytes import exact_bytes
from tests.frontend.models import single_node
from tests.ops.nodes import Array, NodeCase, check, run_reference
from tilewright.base.errors import InvalidModel
from tilewright.frontend.onnx.read import importer

random = np.random.default_rng(3)
EIGHT = [np.uint8, np.int8]
SIXTEEN = [np.uint16, np.int16]
SPECIAL = np.array([0.5, 1.5, 2.5, -0.5, -1.5, 126.5, 127.5, 254.5, 255.5, -128.5, 1e30, -1e30, 0.0, -0.0], np.float32)


def f(*shape: int, dtype: type = np.float32) -> NDArray[np.generic]:
    return random.uniform(-30, 30, shape).astype(dtype)


def scales(*shape: int, dtype: type = np.float32) -> NDArray[np.generic]:
    return random.uniform(0.05, 0.3, shape).astype(dtype)


def q(dtype: type, *shape: int) -> Array:
    info = np.iinfo(dtype)
    return random.integers(info.min, info.max, shape, endpoint=True).astype(dtype)


QUANTIZE = [
    *(NodeCase("QuantizeLinear", [f(3, 4, 5), scales(), q(dtype)]) for dtype in (*EIGHT, *SIXTEEN)),
    *(NodeCase("QuantizeLinear", [SPECIAL, np.array(1, np.float32), np.array(z, np.int8)]) for z in (0, 5, -128)),
    NodeCase("QuantizeLinear", [f(3, 4), scales()]),
    NodeCase("QuantizeLinear", [f(3, 4), scales(), q(np.uint8)], opset=10),
    *(NodeCase("QuantizeLinear", [f(3, 4, 5), scales(e), q(np.int8, e)], {"axis": a}) for a, e in ((0, 3), (-1, 5))),
    NodeCase("QuantizeLinear", [f(3, 4, 5), scales(4), q(np.uint8, 4)], opset=13),
    NodeCase("QuantizeLinear", [f(3, 7), scales(3, 4), q(np.uint8, 3, 4)], {"block_size": 2}, oracle=run_reference),
    NodeCase("QuantizeLinear", [f(6, 5), scales(2, 5)], {"block_size": 3, "axis": 0, "output_dtype": 3}),
    NodeCase("QuantizeLinear", [f(3, 4, dtype=np.float16), scales(dtype=np.float16), q(np.int8)], oracle=run_reference),
]
DEQUANTIZE = [
    *(NodeCase("DequantizeLinear", [q(dtype, 3, 40), scales(), q(dtype)]) for dtype in (*EIGHT, *SIXTEEN)),
    NodeCase("DequantizeLinear", [q(np.int32, 3, 4), scales()]),
    NodeCase("DequantizeLinear", [q(np.int32, 3, 4), scales(), np.array(0, np.int32)], opset=10),
    NodeCase("DequantizeLinear", [q(np.uint8, 3, 4, 5), scales(4), q(np.uint8, 4)]),
    NodeCase("DequantizeLinear", [q(np.uint8, 3, 4, 5), scales(5), q(np.uint8, 5)], {"axis": -1}),
    NodeCase("DequantizeLinear", [q(np.int8, 6, 5), scales(2, 5), q(np.int8, 2, 5)], {"block_size": 3, "axis": 0}),
    NodeCase("DequantizeLinear", [q(np.int8, 6, 5), scales(dtype=np.float16), q(np.int8)], tolerance=1e-3),
]
PRODUCTS = [
    *(
        NodeCase("MatMulInteger", [q(a, 5, 7), exact_bytes(q(b, 7, 6)), q(a), q(b)])
        for a, b in ((np.uint8, np.uint8), (np.uint8, np.int8), (np.int8, np.int8))
    ),
    NodeCase("MatMulInteger", [q(np.uint8, 5, 7), exact_bytes(q(np.int8, 7, 6))]),
    NodeCase("MatMulInteger", [q(np.uint8, 5, 7), exact_bytes(q(np.int8, 7, 6)), q(np.uint8), q(np.int8, 6)]),
    NodeCase("MatMulInteger", [q(np.uint8, 5, 7), exact_bytes(q(np.int8, 7, 6)), None, q(np.int8)]),
    NodeCase("MatMulInteger", [q(np.uint8, 2, 5, 7), q(np.uint8, 2, 7, 6), q(np.uint8), q(np.uint8)]),
    NodeCase("MatMulInteger", [q(np.uint8, 33, 300)], {}, [exact_bytes(q(np.int8, 300, 65)), q(np.uint8), q(np.int8)]),
]
CONVOLUTIONS = [
    NodeCase("ConvInteger", [q(np.uint8, 1, 3, 7, 8), q(np.uint8, 4, 3, 3, 3), q(np.uint8), q(np.uint8)]),
    NodeCase("ConvInteger", [q(np.uint8, 1, 3, 7, 8), q(np.uint8, 4, 3, 3, 3)], {"strides": [2, 1]}),
    NodeCase("ConvInteger", [q(np.uint8, 2, 3, 7, 8), q(np.uint8, 4, 3, 3, 3), q(np.uint8)], {"pads": [1, 0, 2, 1]}),
    NodeCase("ConvInteger", [q(np.uint8, 1, 4, 9), q(np.uint8, 6, 2, 3)], {"group": 2, "pads": [1, 1]}),
]


@pytest.mark.parametrize("case", [*QUANTIZE, *DEQUANTIZE, *PRODUCTS, *CONVOLUTIONS], ids=str)
def test_node(case: NodeCase) -> None:
    check(case)


def test_integers_are_quantized_as_floats() -> None:
    """ONNX Runtime has no kernel for it."""
    x, scale, zero = np.array([-(2**31), -1000, -3, 0, 5, 77, 2**31 - 1], np.int32), np.float32(0.5), np.int8(-7)
    expected = np.clip(np.rint(x / np.float64(scale)) + zero, -128, 127).astype(np.int8)
    check(NodeCase("QuantizeLinear", [x, np.array(scale), np.array(zero)], oracle=lambda *_: [expected]))


def test_a_zero_point_for_each_row() -> None:
    a, b, zero = q(np.uint8, 5, 7), q(np.uint8, 7, 6), q(np.uint8, 5)
    expected = (a.astype(np.int32) - zero[:, None].astype(np.int32)) @ b.astype(np.int32)
    check(NodeCase("MatMulInteger", [a, b, zero], oracle=lambda *_: [expected.astype(np.int32)]))


@pytest.mark.parametrize("dtype", EIGHT)
@pytest.mark.parametrize("per_column", [False, True])
def test_quantized_product(dtype: type, per_column: bool) -> None:
    columns = (6,) if per_column else ()
    operands = [q(dtype, 5, 7), scales(), q(dtype), q(dtype, 7, 6), scales(*columns), q(dtype, *columns)]
    case = NodeCase("QLinearMatMul", [*operands, np.array(3.0, np.float32), q(dtype)])
    feeds = case.feeds
    (result,) = tilewright.compile(case.model()).run(None, feeds)
    a, a_scale, a_zero, b, b_scale, b_zero, y_scale, y_zero = (feeds[f"x{n}"].astype(np.float64) for n in range(8))
    info = np.iinfo(dtype)
    exact = (a - a_zero) @ (b - b_zero) * (a_scale * b_scale / y_scale)
    expected = np.clip(np.rint(exact) + y_zero, info.min, info.max)
    assert result.dtype == dtype
    near_a_half = abs(exact - np.floor(exact) - 0.5) < 1e-3
    np.testing.assert_array_equal(result[~near_a_half], expected[~near_a_half])
    assert abs(result - expected).max() <= 1


@pytest.mark.parametrize("per_channel", [False, True])
@pytest.mark.parametrize("dtype", EIGHT)
def test_quantized_convolution(dtype: type, per_channel: bool) -> None:
    channels = (4,) if per_channel else ()
    x, weight = q(dtype, 1, 3, 7, 8), exact_bytes(q(np.int8, 4, 3, 3, 2))
    zeros = np.array(5, dtype), np.zeros(channels, np.int8), np.array(9, dtype)
    factors = scales(), scales(*channels), np.array(20.0, np.float32)
    bias = random.integers(-900, 900, 4).astype(np.int32)
    inputs = [x, factors[0], zeros[0], weight, factors[1], zeros[1], factors[2], zeros[2], bias]
    check(NodeCase("QLinearConv", inputs, {"pads": [1, 1, 0, 1], "strides": [1, 2]}))


@pytest.mark.parametrize("x", [f(4, 5), abs(f(9)), -abs(f(3, 2)), np.zeros((2, 3), np.float32), f(1)])
def test_dynamic_quantization(x: Array) -> None:
    check(NodeCase("DynamicQuantizeLinear", [x], outputs=3))


def test_nan_and_a_scale_of_zero_are_defined() -> None:
    x, scale, zero = (
        np.array([np.nan, np.inf, -np.inf, 1, 0], np.float32),
        np.array(0, np.float32),
        np.array(3, np.uint8),
    )
    proto = single_node("QuantizeLinear", {"x": x, "scale": scale, "zero": zero})
    (result,) = tilewright.compile(proto).run(None, {"x": x, "scale": scale, "zero": zero})
    np.testing.assert_array_equal(result, [0, 255, 0, 255, 0])


@pytest.mark.parametrize(
    ("case", "message"),
    [
        (NodeCase("QuantizeLinear", [f(3, 4), scales(3)]), "is no scale or zero point for axis 1"),
        (NodeCase("QuantizeLinear", [f(3, 4), scales(3, 3)], {"block_size": 2}), "for blocks of 2 along axis 1"),
        (NodeCase("QuantizeLinear", [f(3), scales()], {"output_dtype": 1}), "there is i8, u8, i16 and u16"),
        (NodeCase("DequantizeLinear", [q(np.int8, 3), scales(), q(np.uint8)]), "takes both of one type"),
    ],
)
def test_what_breaks_the_rules_is_named(case: NodeCase, message: str) -> None:
    with pytest.raises(InvalidModel, match=rf"node n \({case.op}\).*{message}"):
        importer.load(case.model())


@pytest.mark.parametrize("dtype", EIGHT)
@pytest.mark.parametrize("odd", [False, True])
def test_what_is_no_number_or_is_between_two(dtype: type, odd: bool) -> None:
    """NaN becomes 0, halves are rounded to even before the zero point is added; in vectors and remainders."""
    info = np.iinfo(dtype)
    halves = np.arange(-600, 601, dtype=np.float32) / 2
    x = np.concatenate([halves, np.array([np.nan, np.inf, -np.inf, 3e38, -3e38, 2**31, 1e-45], np.float32)])
    zero = np.array((info.min + info.max) // 2 + odd, dtype)
    whole = np.clip(np.rint(x.astype(np.float64)) + zero, info.min, info.max)
    expected = np.where(np.isnan(x), 0, whole).astype(dtype)
    check(NodeCase("QuantizeLinear", [x, np.array(1, np.float32), zero], oracle=lambda *_: [expected]))
