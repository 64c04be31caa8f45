"""Products with what comes before and after them: transposed operands, sums, activations, scales."""

from collections.abc import Mapping, Sequence

from tilewright.base.dtypes import f32
from tilewright.frontend.onnx.read.rules.microsoft.activations import activated
from tilewright.frontend.onnx.read.rules.microsoft.definition import Definition, by_onnx, number, same_shape_as, total
from tilewright.frontend.onnx.read.rules.rule import Request, RuleFunction
from tilewright.graph import Value


def _fused_matmul(request: Request) -> Sequence[Value]:
    """``alpha`` times the product of matrices, each perhaps transposed."""
    a, b = (_turned(request, position, side) for position, side in enumerate("AB"))
    product = request.apply("MatMul", a, b)
    alpha = request.number("alpha", 1.0)
    return [product if alpha == 1.0 else request.apply("Mul", product, number(request, alpha, product.dtype))]


def _turned(request: Request, position: int, side: str) -> Value:
    """An operand as a product takes it. Vectors stay; ``transBatch`` has the first axis before the last one."""
    value = request.input(position)
    axes = list(range(len(value.shape)))
    if len(axes) < 2:
        return value
    if request.integer(f"transBatch{side}", 0):
        if len(axes) < 3:
            raise request.invalid(f"transBatch{side} needs three dimensions, and there is {value!r}")
        axes = [*axes[1:-1], axes[0], axes[-1]]
    if request.integer(f"trans{side}", 0):
        axes[-2:] = axes[:-3:-1]
    return value if axes == sorted(axes) else request.apply("Transpose", value, perm=tuple(axes))


def _fused_gemm(request: Request) -> Sequence[Value]:
    factors = {name: request.number(name, 1.0) for name in ("alpha", "beta")}
    turns = {name: bool(request.integer(theirs, 0)) for name, theirs in _TURNS.items()}
    operands = [request.input(0), request.input(1), request.optional(2)]
    product = request.apply("Gemm", *operands, **factors, **turns)
    given = [name for name in ("activation_alpha", "activation_beta") if name in request.attributes]
    parameters = [request.number(name, 0.0) for name in given]
    return [activated(request, product, request.text("activation", ""), parameters)]


_TURNS = {"transpose_a": "transA", "transpose_b": "transB"}


def _fused_conv(request: Request) -> Sequence[Value]:
    """The convolution, plus the fourth input, and an activation of that."""
    window = {name: value for name, value in request.attributes.items() if not name.startswith("activation")}
    result = by_onnx(request, "Conv", [request.input(0), request.input(1), request.optional(2)], **window)
    added = same_shape_as(request, total(request, result, request.optional(3)), result, "the convolution and the sum")
    return [activated(request, added, request.text("activation", ""), request.numbers("activation_params"))]


def integer_product(
    request: Request,
    operands: tuple[Value, Value],
    scales: tuple[Value, Value],
    zeros: tuple[Value | None, Value | None],
    bias: Value | None,
) -> Value:
    """The product of integers without their zero points, by the product of both scales, and a bias."""
    product = request.apply("Cast", request.apply("MatMulInteger", *operands, *zeros), to=f32)
    return total(request, request.apply("Mul", product, request.apply("Mul", *scales)), bias)


def _integer_to_float(request: Request) -> Sequence[Value]:
    a, b, a_scale, b_scale = map(request.input, range(4))
    zeros = (request.optional(4), request.optional(5))
    return [integer_product(request, (a, b), (a_scale, b_scale), zeros, request.optional(6))]


def _dynamically_quantized(request: Request) -> Sequence[Value]:
    """``A`` is quantized by its own range."""
    a, b, b_scale = map(request.input, range(3))
    range_ = [request.apply(name, a, keepdims=False) for name in ("ReduceMin", "ReduceMax")]
    a_scale, a_zero = request.apply_many("QuantizationRange", range_, 2)
    codes = request.apply("QuantizeLinear", a, a_scale, a_zero)
    return [
        integer_product(request, (codes, b), (a_scale, b_scale), (a_zero, request.optional(3)), request.optional(4))
    ]


_WINDOW: Mapping[str, type] = {
    "auto_pad": str,
    "dilations": tuple,
    "group": int,
    "kernel_shape": tuple,
    "pads": tuple,
    "strides": tuple,
}
_TRANSPOSED: Mapping[str, type] = {"alpha": float, "transA": int, "transB": int}
_BATCHES: Mapping[str, type] = {"transBatchA": int, "transBatchB": int}
_ENDING: Mapping[str, type] = {"activation": str, "activation_alpha": float, "activation_beta": float}

RULES: Mapping[str, RuleFunction] = {
    "DynamicQuantizeMatMul": Definition(_dynamically_quantized, (3, 5)),
    "FusedConv": Definition(_fused_conv, (2, 4), 1, {**_WINDOW, "activation": str, "activation_params": tuple}),
    "FusedGemm": Definition(_fused_gemm, (2, 3), 1, {**_TRANSPOSED, "beta": float, **_ENDING}),
    "FusedMatMul": Definition(_fused_matmul, (2, 2), 1, {**_TRANSPOSED, **_BATCHES}),
    "MatMulIntegerToFloat": Definition(_integer_to_float, (4, 7)),
    "TransposeMatMul": Definition(_fused_matmul, (2, 2), 1, _TRANSPOSED),
}
