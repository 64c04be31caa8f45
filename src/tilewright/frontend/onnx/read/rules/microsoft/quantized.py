"""Operators between quantized numbers: those on real numbers, between dequantizing and quantizing.

So they are recognized with models that say it so (``passes.quantized``). ONNX Runtime rounds some of them by tables or
in another order: results may differ by one.
"""

from collections.abc import Mapping, Sequence

from tilewright.base.dtypes import f32
from tilewright.frontend.onnx.read.rules.microsoft.definition import Definition, by_onnx, number
from tilewright.frontend.onnx.read.rules.rule import Request, Rule, RuleFunction, same
from tilewright.graph import Value


def _real(request: Request, position: int, axis: int = 1) -> Value:
    """The numbers that the input at ``position`` means, by the scale and the zero point that follow it."""
    scale, zero = request.input(position + 1), request.optional(position + 2)
    return request.apply("DequantizeLinear", request.input(position), scale, zero, axis=axis)


def _quantized(request: Request, value: Value, position: int, like: Value) -> list[Value]:
    """``value`` by the scale and the zero point at ``position``, in the type of ``like``."""
    scale, zero = request.input(position), request.optional(position + 1)
    return [request.apply("QuantizeLinear", value, scale, zero, dtype=None if zero is not None else like.dtype)]


def _binary(operator: str) -> RuleFunction:
    def rule(request: Request) -> Sequence[Value]:
        result = request.apply(operator, _real(request, 0), _real(request, 3))
        return _quantized(request, result, 6, request.input(0))

    return rule


def _unary(operator: str, **defaults: float) -> RuleFunction:
    def rule(request: Request) -> Sequence[Value]:
        attributes = {name: request.number(name, value) for name, value in defaults.items()}
        result = request.apply(operator, _real(request, 0), **attributes)
        return _quantized(request, result, 3, request.input(0))

    return rule


def _softmax(request: Request) -> Sequence[Value]:
    """``opset``: of ONNX's softmax, which normalizes over all axes from the given one on before 13."""
    value, axis = _real(request, 0), request.integer("axis", -1)
    if request.integer("opset", 13) >= 13:
        return _quantized(request, request.apply("Softmax", value, axis=axis), 3, request.input(0))
    rows = request.apply("Softmax", request.apply("Flatten", value, axis=axis), axis=-1)
    result = request.apply("Reshape", rows, shape=value.shape, allow_zero=True)
    return _quantized(request, result, 3, request.input(0))


def _concat(request: Request) -> Sequence[Value]:
    """The scale and zero point of the result come first, then three inputs for each part."""
    count = len(request.inputs) - 2
    if count < 3 or count % 3:
        raise request.invalid("inputs are the scale and zero point of the result, then triples; give them so")
    parts = [_real(request, position) for position in range(2, len(request.inputs), 3)]
    result = request.apply("Concat", *parts, axis=request.integer("axis", 0))
    return _quantized(request, result, 0, request.input(2))


def _where(request: Request) -> Sequence[Value]:
    result = request.apply("Where", request.input(0), _real(request, 1), _real(request, 4))
    return _quantized(request, result, 7, request.input(1))


def _pooled(request: Request, operator: str) -> Sequence[Value]:
    is_last = bool(request.integer("channels_last", 0))
    result = _by_channels(request, operator, [_real(request, 0)], is_last=is_last)
    return _quantized(request, result, 3, request.input(0))


def _by_channels(request: Request, operator: str, inputs: Sequence[Value | None], *, is_last: bool) -> Value:
    """The result of ONNX's ``operator``, which has channels first; those of the first input may be last."""
    data, *others = inputs
    assert data is not None, "the first input is required"
    attributes = {name: value for name, value in request.attributes.items() if name != "channels_last"}
    rank = len(data.shape)
    if not is_last:
        return by_onnx(request, operator, inputs, **attributes)
    first = request.apply("Transpose", data, perm=(0, rank - 1, *range(1, rank - 1)))
    result = by_onnx(request, operator, [first, *others], **attributes)
    return request.apply("Transpose", result, perm=(0, *range(2, rank), 1))


def _convolution(request: Request) -> Sequence[Value]:
    """The filters are as in ONNX."""
    is_last = bool(request.integer("channels_last", 0))
    inputs = [request.input(0), *(request.optional(at) for at in range(1, 9))]
    return [_by_channels(request, "QLinearConv", inputs, is_last=is_last)]


def _largest(request: Request) -> Sequence[Value]:
    return [_by_channels(request, "MaxPool", [request.input(0)], is_last=True)]


def _average_pool(request: Request) -> Sequence[Value]:
    return _pooled(request, "AveragePool")


def _global_average_pool(request: Request) -> Sequence[Value]:
    return _pooled(request, "GlobalAveragePool")


def _mean(request: Request) -> Sequence[Value]:
    axes, keeps = request.ints("axes"), bool(request.integer("keepdims", 1))
    result = request.apply("ReduceMean", _real(request, 0), axes=axes, keepdims=keeps)
    return _quantized(request, result, 3, request.input(0))


def _gemm(request: Request) -> Sequence[Value]:
    """``C``, integers by the product of both scales, is added; without the scale of a result it stays real."""
    turns = {"transpose_a": bool(request.integer("transA", 0)), "transpose_b": bool(request.integer("transB", 0))}
    columns = 0 if turns["transpose_b"] else 1
    alpha, bias = request.number("alpha", 1.0), request.optional(6)
    if bias is not None:
        scales = request.apply("Mul", request.input(1), request.input(4))
        scales = scales if alpha == 1.0 else request.apply("Mul", scales, number(request, alpha, f32))
        bias = request.apply("DequantizeLinear", bias, scales, axis=len(bias.shape) - 1)
    result = request.apply("Gemm", _real(request, 0), _real(request, 3, columns), bias, **turns, alpha=alpha)
    if request.optional(7) is None:
        return [result]
    return _quantized(request, result, 7, request.input(0))


def _linear(operator: str) -> Rule:
    return Rule(operator, {**same("axis", "block_size"), "output_dtype": "dtype"})


_SCALE: Mapping[str, type] = {"axis": int, "block_size": int}
_WINDOW: Mapping[str, type] = {
    "auto_pad": str,
    "dilations": tuple,
    "kernel_shape": tuple,
    "pads": tuple,
    "strides": tuple,
}
_POOLING: Mapping[str, type] = {**_WINDOW, "ceil_mode": int, "channels_last": int, "count_include_pad": int}

RULES: Mapping[str, RuleFunction] = {
    "DequantizeLinear": Definition(_linear("DequantizeLinear"), (2, 3), 1, _SCALE),
    "NhwcMaxPool": Definition(_largest, (1, 1), 1, {**_WINDOW, "ceil_mode": int}, required=["kernel_shape"]),
    "QGemm": Definition(_gemm, (6, 9), 1, {"alpha": float, "transA": int, "transB": int}),
    "QLinearAdd": Definition(_binary("Add"), (7, 8)),
    "QLinearAveragePool": Definition(_average_pool, (4, 5), 1, _POOLING, required=["kernel_shape"]),
    "QLinearConv": Definition(_convolution, (8, 9), 1, {**_WINDOW, "channels_last": int, "group": int}),
    "QLinearConcat": Definition(_concat, (5, 1 << 16), 1, {"axis": int}, required=["axis"]),
    "QLinearGlobalAveragePool": Definition(_global_average_pool, (5, 5), 1, {"channels_last": int}),
    "QLinearLeakyRelu": Definition(_unary("LeakyRelu", alpha=0.01), (4, 5), 1, {"alpha": float}),
    "QLinearMul": Definition(_binary("Mul"), (7, 8)),
    "QLinearReduceMean": Definition(_mean, (4, 5), 1, {"axes": tuple, "keepdims": int}),
    "QLinearSigmoid": Definition(_unary("Sigmoid"), (4, 5)),
    "QLinearSoftmax": Definition(_softmax, (5, 5), 1, {"axis": int, "opset": int}),
    "QLinearWhere": Definition(_where, (9, 9)),
    "QuantizeLinear": Definition(_linear("QuantizeLinear"), (2, 3), 1, _SCALE),
}
