"""ONNX's operators on quantized numbers, except convolutions."""

from collections.abc import Mapping, Sequence

from tilewright.base.dtypes import f32
from tilewright.frontend.onnx.read.narrow import Narrow
from tilewright.frontend.onnx.read.rules.narrow_types import (
    dequantized,
    quantized,
    target_of,
    with_scale_of_numbers,
)
from tilewright.frontend.onnx.read.rules.rule import Request, Rule, RuleFunction, same
from tilewright.graph import Value


def _dynamic_quantize(request: Request) -> Sequence[Value]:
    x = request.input(0)
    lowest = request.apply("ReduceMin", x, keepdims=False)
    highest = request.apply("ReduceMax", x, keepdims=False)
    scale, zero_point = request.apply_many("QuantizationRange", [lowest, highest], 2)
    results = [request.apply("QuantizeLinear", x, scale, zero_point), scale, zero_point]
    return results[: request.outputs]


def _along_rows(request: Request, parameter: Value, matrix: Value) -> Value:
    """A scale or zero point of the left matrix: one number, or one for each row."""
    per_row = len(parameter.shape) == 1 and len(matrix.shape) > 1
    return request.apply("Unsqueeze", parameter, axes=(1,)) if per_row else parameter


def _qlinear_matmul(request: Request) -> Sequence[Value]:
    a, a_scale, a_zero, b, b_scale, b_zero, y_scale, y_zero = map(request.input, range(8))
    product = request.apply("MatMulInteger", a, b, a_zero, b_zero)
    scales = [_along_rows(request, a_scale, a), b_scale, _along_rows(request, y_scale, a)]
    left, right, result = (request.apply("Cast", scale, to=f32) for scale in scales)
    multiplier = request.apply("Div", request.apply("Mul", left, right), result)
    return [request.apply("Requantize", product, multiplier, _along_rows(request, y_zero, a))]


_LINEAR = {**same("axis", "block_size"), "output_dtype": "dtype"}
_QUANTIZE = Rule("QuantizeLinear", {**_LINEAR, **same("precision")}, ignored=frozenset({"saturate"}))
_DEQUANTIZE = Rule("DequantizeLinear", _LINEAR)


def _quantize(request: Request) -> Sequence[Value]:
    """The type of the result is that of the zero point, or the attribute output_dtype."""
    zero = request.optional(2)
    to = target_of(request, "output_dtype") if zero is None else request.importer.narrow(zero)
    given = with_scale_of_numbers(request)
    return [quantized(given, to)] if isinstance(to, Narrow) else _QUANTIZE(given)


def _dequantize(request: Request) -> Sequence[Value]:
    narrow = request.importer.narrow(request.input(0))
    is_float = narrow is not None and not narrow.dtype.is_int
    given = with_scale_of_numbers(request)
    if given is not request and target_of(request, "output_dtype") is None:
        raise request.invalid("the scale has codes, which no result has: give the attribute output_dtype")
    return [dequantized(given, narrow)] if narrow is not None and is_float else _DEQUANTIZE(given)


RULES: Mapping[str, RuleFunction] = {
    "DequantizeLinear": _dequantize,
    "DynamicQuantizeLinear": _dynamic_quantize,
    "MatMulInteger": Rule("MatMulInteger"),
    "QLinearMatMul": _qlinear_matmul,
    "QuantizeLinear": _quantize,
}
