"""ONNX's operators on quantized numbers."""

from collections.abc import Mapping, Sequence

from tilewright.base.dtypes import DType, f32, i32
from tilewright.frontend.onnx_proto import dtype_of
from tilewright.frontend.rules.convolution import kernel_of
from tilewright.frontend.rules.rule import Request, RuleFunction
from tilewright.frontend.rules.windows import window_attributes
from tilewright.graph import Value


def _dtype(request: Request, name: str) -> DType | None:
    code = request.integer(name, 0)
    return dtype_of(code, request.place) if code else None


def _quantize(request: Request) -> Sequence[Value]:
    result = request.apply(
        "QuantizeLinear",
        request.input(0),
        request.input(1),
        request.optional(2),
        axis=request.integer("axis", 1),
        block_size=request.integer("block_size", 0),
        dtype=_dtype(request, "output_dtype"),
        precision=_dtype(request, "precision"),
    )
    return [result]


def _dequantize(request: Request) -> Sequence[Value]:
    result = request.apply(
        "DequantizeLinear",
        request.input(0),
        request.input(1),
        request.optional(2),
        axis=request.integer("axis", 1),
        block_size=request.integer("block_size", 0),
        dtype=_dtype(request, "output_dtype"),
    )
    return [result]


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


def _offset(request: Request, matrix: Value, zero_point: Value | None) -> Value:
    wide = request.apply("Cast", matrix, to=i32)
    return wide if zero_point is None else request.apply("Sub", wide, request.apply("Cast", zero_point, to=i32))


def _product(request: Request, a: Value, a_zero: Value | None, b: Value, b_zero: Value | None) -> Value:
    """The product in i32, which wraps around."""
    left = _offset(request, a, None if a_zero is None else _along_rows(request, a_zero, a))
    return request.apply("MatMul", left, _offset(request, b, b_zero))


def _matmul_integer(request: Request) -> Sequence[Value]:
    return [_product(request, request.input(0), request.optional(2), request.input(1), request.optional(3))]


def _qlinear_matmul(request: Request) -> Sequence[Value]:
    a, a_scale, a_zero, b, b_scale, b_zero, y_scale, y_zero = map(request.input, range(8))
    product = _product(request, a, a_zero, b, b_zero)
    scales = [_along_rows(request, a_scale, a), b_scale, _along_rows(request, y_scale, a)]
    left, right, result = (request.apply("Cast", scale, to=f32) for scale in scales)
    multiplier = request.apply("Div", request.apply("Mul", left, right), result)
    return [request.apply("Requantize", product, multiplier, _along_rows(request, y_zero, a))]


def _along_channels(request: Request, parameter: Value, following: int) -> Value:
    """A scale or zero point: one number, or one for each output channel, after which ``following`` dimensions come."""
    if not parameter.shape:
        return parameter
    return request.apply("Unsqueeze", parameter, axes=tuple(range(1, following + 1)))


def _convolution(
    request: Request, x: Value, x_zero: Value | None, weight: Value, weight_zero: Value | None, bias: Value | None
) -> Value:
    """In i32, which wraps around. Padding is what the zero point stands for: 0 once that is subtracted."""
    if weight_zero is not None:
        weight_zero = _along_channels(request, weight_zero, len(weight.shape) - 1)
    left, right = _offset(request, x, x_zero), _offset(request, weight, weight_zero)
    attributes = window_attributes(request, x, kernel_of(request, weight))
    return request.apply("Conv", left, right, bias, **attributes, group=request.integer("group", 1))


def _conv_integer(request: Request) -> Sequence[Value]:
    x, weight = request.input(0), request.input(1)
    return [_convolution(request, x, request.optional(2), weight, request.optional(3), None)]


def _qlinear_conv(request: Request) -> Sequence[Value]:
    """The bias has the scale of the products."""
    x, x_scale, x_zero, weight, weight_scale, weight_zero, y_scale, y_zero = map(request.input, range(8))
    product = _convolution(request, x, x_zero, weight, weight_zero, request.optional(8))
    scale = request.apply("Mul", x_scale, _along_channels(request, weight_scale, len(weight.shape) - 2))
    return [request.apply("Requantize", product, request.apply("Div", scale, y_scale), y_zero)]


RULES: Mapping[str, RuleFunction] = {
    "ConvInteger": _conv_integer,
    "DequantizeLinear": _dequantize,
    "DynamicQuantizeLinear": _dynamic_quantize,
    "MatMulInteger": _matmul_integer,
    "QLinearConv": _qlinear_conv,
    "QLinearMatMul": _qlinear_matmul,
    "QuantizeLinear": _quantize,
}
