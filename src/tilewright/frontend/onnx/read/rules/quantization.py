"""ONNX's operators on quantized numbers, but for convolutions, which are with their kind."""

from collections.abc import Mapping, Sequence

from tilewright.base.dtypes import f32
from tilewright.frontend.onnx.read.rules.rule import Request, RuleFunction
from tilewright.graph import Value
from tilewright.ops import Attribute


def _linear(request: Request, op: str, **more: Attribute) -> Sequence[Value]:
    """Both directions have the same operands, and nearly the same attributes."""
    operands = request.input(0), request.input(1), request.optional(2)
    axis, block_size = request.integer("axis", 1), request.integer("block_size", 0)
    dtype = request.dtype("output_dtype")
    return [request.apply(op, *operands, axis=axis, block_size=block_size, dtype=dtype, **more)]


def _quantize(request: Request) -> Sequence[Value]:
    return _linear(request, "QuantizeLinear", precision=request.dtype("precision"))


def _dequantize(request: Request) -> Sequence[Value]:
    return _linear(request, "DequantizeLinear")


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


def _matmul_integer(request: Request) -> Sequence[Value]:
    operands = request.input(0), request.input(1), request.optional(2), request.optional(3)
    return [request.apply("MatMulInteger", *operands)]


def _qlinear_matmul(request: Request) -> Sequence[Value]:
    a, a_scale, a_zero, b, b_scale, b_zero, y_scale, y_zero = map(request.input, range(8))
    product = request.apply("MatMulInteger", a, b, a_zero, b_zero)
    scales = [_along_rows(request, a_scale, a), b_scale, _along_rows(request, y_scale, a)]
    left, right, result = (request.apply("Cast", scale, to=f32) for scale in scales)
    multiplier = request.apply("Div", request.apply("Mul", left, right), result)
    return [request.apply("Requantize", product, multiplier, _along_rows(request, y_zero, a))]


RULES: Mapping[str, RuleFunction] = {
    "DequantizeLinear": _dequantize,
    "DynamicQuantizeLinear": _dynamic_quantize,
    "MatMulInteger": _matmul_integer,
    "QLinearMatMul": _qlinear_matmul,
    "QuantizeLinear": _quantize,
}
