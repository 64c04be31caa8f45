"""Operators on quantized numbers."""

from collections.abc import Mapping, Sequence

from tilewright.base.dtypes import f32, u8
from tilewright.frontend.onnx.write.forms.form import FormFunction, Writing
from tilewright.frontend.onnx.write.forms.windows import slid
from tilewright.frontend.onnx.write.forms.writer import OnnxAttribute, code_of
from tilewright.ops.shapes import static
from tilewright.symbolic.expr import const


def _quantize(writing: Writing) -> None:
    """The quotient is rounded to the type of both operands."""
    x, scale, zero = writing.value(0), writing.value(1), writing.optional(2)
    exact = writing.dtype("precision") or scale.dtype
    operands = [writing.cast(value.name, value.dtype, exact) for value in (x, scale)]
    dtype = writing.dtype("dtype") if zero is None else None
    writing.result(
        "QuantizeLinear",
        [*operands, writing.input(2)],
        axis=writing.integer("axis"),
        block_size=writing.integer("block_size") or None,
        output_dtype=None if dtype is None else code_of(dtype),
    )


def _dequantize(writing: Writing) -> None:
    """The result has the type of the scale; other types are rounded from f32."""
    scale = writing.value(1)
    wide = scale.dtype if writing.output.dtype == scale.dtype else f32
    operands = [writing.input(0), writing.cast(scale.name, scale.dtype, wide), writing.input(2)]
    places = {"axis": writing.integer("axis"), "block_size": writing.integer("block_size") or None}
    if wide == writing.output.dtype:
        writing.result("DequantizeLinear", operands, **places)
    else:
        product = writing.apply("DequantizeLinear", operands, **places)
        writing.result("Cast", [product], to=code_of(writing.output.dtype))


def _range(writing: Writing) -> None:
    """The scale and zero point from both ends of the range."""
    ends = [writing.apply("Reshape", [name, writing.vector((1,))]) for name in writing.inputs]
    both = writing.apply("Concat", ends, axis=0)
    _, scale, zero = writing.apply_many("DynamicQuantizeLinear", [both], 3)
    writing.result_at(0, "Identity", [scale])
    writing.result_at(1, "Identity", [zero])


def _requantize(writing: Writing) -> None:
    x, multiplier, zero = (writing.value(position) for position in range(3))
    scaled = writing.apply("Mul", [writing.cast(value.name, value.dtype, f32) for value in (x, multiplier)])
    rounded = writing.apply("Round", [scaled])
    moved = writing.apply("Add", [rounded, writing.cast(zero.name, zero.dtype, f32)])
    limits = [writing.scalar(limit, f32) for limit in (zero.dtype.min, zero.dtype.max)]
    writing.result("Cast", [writing.apply("Clip", [moved, *limits])], to=code_of(zero.dtype))


def _weight_product(writing: Writing) -> None:
    """By DequantizeLinear, which takes zero points of the type of the codes only."""
    codes, scale, zero = writing.value(1), writing.value(2), writing.optional(3)
    is_transposed, size = bool(writing.integer("transposed")), writing.integer("block_size")
    if zero is not None and zero.dtype != codes.dtype:
        raise writing.unsupported(f"its zero points are {zero.dtype}, and its codes {codes.dtype}; round zero points")
    axis = int(is_transposed) if size else int(not is_transposed)
    operands = [codes.name, writing.cast(scale.name, scale.dtype, f32), writing.input(3)]
    weight = writing.apply("DequantizeLinear", operands, axis=axis, block_size=size or None)
    if is_transposed:
        weight = writing.apply("Transpose", [weight], perm=[1, 0])
    writing.result("MatMul", [writing.input(0), weight])


def _unpack(writing: Writing) -> None:
    """Both halves of each byte, side by side."""
    x = writing.value(0)
    halves = [
        writing.apply("BitwiseAnd", [x.name, writing.scalar(15, u8)]),
        writing.apply("BitShift", [x.name, writing.scalar(4, u8)], direction="RIGHT"),
    ]
    last = writing.vector((len(x.shape),))
    both = writing.apply("Concat", [writing.apply("Unsqueeze", [half, last]) for half in halves], axis=len(x.shape))
    writing.result_reshaped(both, (*x.shape, const(2)))


def _quantized_convolution(writing: Writing) -> None:
    """Dequantized, convolved, and quantized if there is a scale for it."""
    kernel = writing.value(3).shape[2:]
    options = {"group": writing.integer("group"), "kernel_shape": static(kernel)} | slid(
        writing, kernel, None
    ).attributes
    left, right = _operands(writing, 0)
    bias = _real_bias(writing)
    _finish(writing, "Conv", [left, right, *([] if bias is None else [bias])], **options)


def _quantized_matmul(writing: Writing) -> None:
    left, right = _operands(writing, 1)
    bias = _real_bias(writing)
    if bias is None:
        _finish(writing, "MatMul", [left, right])
    else:
        _finish(writing, "Add", [writing.apply("MatMul", [left, right]), bias])


def _operands(writing: Writing, axis: int) -> tuple[str, str]:
    """Both operands in f32; the second has scales along ``axis``."""
    left = writing.apply("DequantizeLinear", [writing.input(place) for place in range(3)])
    return left, writing.apply("DequantizeLinear", [writing.input(place) for place in range(3, 6)], axis=axis)


def _real_bias(writing: Writing) -> str | None:
    """The constant term in f32."""
    bias = writing.optional(6)
    if bias is None or not bias.dtype.is_int:
        return None if bias is None else bias.name
    scale = writing.apply("Mul", [writing.input(1), writing.input(4)])
    return writing.apply("Mul", [writing.cast(bias.name, bias.dtype, f32), scale])


def _finish(writing: Writing, op: str, inputs: Sequence[str], **options: OnnxAttribute | None) -> None:
    if writing.optional(7) is None:
        writing.result(op, inputs, **options)
    else:
        writing.result("QuantizeLinear", [writing.apply(op, inputs, **options), writing.input(7), writing.input(8)])


FORMS: Mapping[str, FormFunction] = {
    "DequantizeLinear": _dequantize,
    "QuantizationRange": _range,
    "QuantizeLinear": _quantize,
    "QuantizedConv": _quantized_convolution,
    "QuantizedMatMul": _quantized_matmul,
    "Requantize": _requantize,
    "UnpackCodes": _unpack,
    "WeightProduct": _weight_product,
}
