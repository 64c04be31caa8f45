"""Quantization to small integers: ``x = (q - zero_point) * scale`` (Jacob et al., 2018).

A scale or zero point is one number, one per position along an axis, or one per block of positions.
"""

from collections.abc import Callable, Sequence

from tilewright.base.dtypes import DType, f32, i8, i32, i64, u8
from tilewright.base.errors import BadProgram
from tilewright.ops.build import Index, tensor
from tilewright.ops.contraction import matmul
from tilewright.ops.convolution import conv
from tilewright.ops.operator import FusionKind, Trait, operator
from tilewright.ops.shapes import broadcast, element, normalize_axis, require_broadcast, same_extent, simplified
from tilewright.symbolic.expr import ONE, ZERO, Expr, binary, cast, const, equal, maximum, minimum, select, unary
from tilewright.symbolic.operations import BinaryOp, UnaryOp
from tilewright.tensor.ir import Tensor


@operator("QuantizeLinear", FusionKind.INJECTIVE)
def quantize_linear(
    x: Tensor,
    scale: Tensor,
    zero_point: Tensor | None = None,
    *,
    axis: int = 1,
    block_size: int = 0,
    dtype: DType | None = None,
    precision: DType | None = None,
) -> Tensor:
    """``round(x / scale) + zero_point``, to even and saturated; NaN is 0.

    The quotient is rounded to ``precision``, by default the dtype of ``scale``. The result has the dtype of
    ``zero_point``, or ``dtype`` (by default u8).
    """
    own = zero_point.dtype if zero_point is not None else dtype or u8
    if not own.is_int or own.bits > 16 or (dtype is not None and dtype != own):
        raise BadProgram(f"QuantizeLinear to {dtype or own}, zero point {zero_point}: there is i8, u8, i16 and u16")
    exact = precision or scale.dtype
    scale_at = parameter_of(x, scale, axis, block_size)
    zero_at = None if zero_point is None else parameter_of(x, zero_point, axis, block_size)

    def body(index: Index) -> Expr:
        quotient = binary(BinaryOp.DIV, cast(x[index], exact), cast(scale_at(index), exact))
        zero = None if zero_at is None else zero_at(index)
        return _rounded(cast(quotient, f32), zero, own)

    return tensor(x.shape, body)


def _rounded(value: Expr, zero_point: Expr | None, dtype: DType) -> Expr:
    """Computed in f32, which is exact for all integers that do not saturate."""
    whole = unary(UnaryOp.ROUND, value)
    return cast(whole if zero_point is None else whole + cast(zero_point, f32), dtype)


@operator("DequantizeLinear", FusionKind.INJECTIVE, Trait.WIDENS)
def dequantize_linear(
    x: Tensor,
    scale: Tensor,
    zero_point: Tensor | None = None,
    *,
    axis: int = 1,
    block_size: int = 0,
    dtype: DType | None = None,
) -> Tensor:
    """``(x - zero_point) * scale`` in f32, rounded to ``dtype`` (by default that of ``scale``)."""
    if not x.dtype.is_int or (zero_point is not None and zero_point.dtype != x.dtype):
        raise BadProgram(f"DequantizeLinear of {x} with the zero point {zero_point}: they need one integer dtype")
    own = dtype or scale.dtype
    wide = i32 if x.dtype.bits <= 16 else i64
    scale_at = parameter_of(x, scale, axis, block_size)
    zero_at = None if zero_point is None else parameter_of(x, zero_point, axis, block_size)

    def body(index: Index) -> Expr:
        value = x[index] if zero_at is None else cast(x[index], wide) - cast(zero_at(index), wide)
        return cast(cast(value, f32) * cast(scale_at(index), f32), own)

    return tensor(x.shape, body)


def parameter_of(x: Tensor, parameter: Tensor, axis: int, block_size: int) -> Callable[[Index], Expr]:
    """The element of a scale or zero point that belongs to an element of ``x``. Raises ``BadProgram``."""
    if block_size:
        at = normalize_axis(axis, x.ndim)
        blocks = simplified((x.shape[at] + (block_size - 1)) // block_size)
        wanted = (*x.shape[:at], blocks, *x.shape[at + 1 :])
        if block_size < 0 or parameter.ndim != x.ndim or not all(map(same_extent, parameter.shape, wanted)):
            raise BadProgram(f"{parameter} is no scale or zero point for blocks of {block_size} along axis {at} of {x}")
        return lambda index: parameter[(*index[:at], index[at] // block_size, *index[at + 1 :])]
    if all(extent == ONE for extent in parameter.shape):
        return lambda index: parameter[(ZERO,) * parameter.ndim]
    at = normalize_axis(axis, x.ndim)
    if parameter.ndim != 1 or not same_extent(parameter.shape[0], x.shape[at]):
        raise BadProgram(f"{parameter} is no scale or zero point for axis {at} of {x}")
    return lambda index: parameter[index[at]]


@operator("QuantizationRange", FusionKind.OPAQUE)
def quantization_range(lowest: Tensor, highest: Tensor) -> tuple[Tensor, Tensor]:
    """Scale (f32) and zero point (u8) such that all numbers from ``lowest`` to ``highest``, and 0, are within u8.

    If all numbers are 0, the scale is 1 (as in ONNX Runtime; ONNX's formula gives 0).
    """

    def bottom() -> Expr:
        return minimum(lowest[()], const(0.0, f32))

    def scale_of(_: Index) -> Expr:
        span = maximum(highest[()], const(0.0, f32)) - bottom()
        return select(equal(span, const(0.0, f32)), const(1.0, f32), binary(BinaryOp.DIV, span, const(255.0, f32)))

    scale = tensor((), scale_of)
    zero = tensor((), lambda _: _rounded(binary(BinaryOp.DIV, -bottom(), scale[()]), None, u8))
    return scale, zero


@operator("MatMulInteger", FusionKind.CONTRACTION, Trait.COMPOSITE)
def matmul_integer(a: Tensor, b: Tensor, a_zero: Tensor | None = None, b_zero: Tensor | None = None) -> Tensor:
    """The product of ``a - a_zero`` and ``b - b_zero`` in i32, which wraps around.

    A zero point is one number, or one for each row of ``a`` and each column of ``b``.
    """
    per_row = a_zero is not None and a_zero.ndim == 1 and a.ndim > 1
    rows = tensor((*a_zero.shape, ONE), lambda index: a_zero[index[0]]) if a_zero is not None and per_row else a_zero
    return matmul(_centered(a, rows), _centered(b, b_zero))


@operator("ConvInteger", FusionKind.CONTRACTION, Trait.COMPOSITE)
def conv_integer(
    x: Tensor,
    weight: Tensor,
    x_zero: Tensor | None = None,
    weight_zero: Tensor | None = None,
    *,
    strides: Sequence[int] | None = None,
    pads: Sequence[int | Expr] | None = None,
    dilations: Sequence[int] | None = None,
    group: int = 1,
) -> Tensor:
    """The convolution of ``x - x_zero`` by ``weight - weight_zero`` in i32, which wraps around.

    ``x`` has one zero point, which is also its padding; the weight has one, or one for each filter.
    """
    own = weight_zero
    if own is not None and own.ndim == 1:
        vector, ones = own, (ONE,) * (weight.ndim - 1)
        own = tensor((*vector.shape, *ones), lambda index: vector[index[0]])
    data, filters = _centered(x, x_zero), _centered(weight, own)
    return conv(data, filters, strides=strides, pads=pads, dilations=dilations, group=group)


def _centered(x: Tensor, zero: Tensor | None) -> Tensor:
    """The convolution in i32."""
    if x.dtype not in (i8, u8) or (zero is not None and zero.dtype != x.dtype):
        raise BadProgram(f"{x} with the zero point {zero}: both are i8, or both u8")
    if zero is not None:
        require_broadcast(zero, x.shape, "The zero point")

    def body(index: Index) -> Expr:
        return cast(x[index], i32) if zero is None else cast(x[index], i32) - cast(element(zero, index), i32)

    return tensor(x.shape, body)


@operator("Requantize", FusionKind.INJECTIVE, Trait.ELEMENTWISE)
def requantize(x: Tensor, multiplier: Tensor, zero_point: Tensor) -> Tensor:
    """``round(x * multiplier) + zero_point`` for integers ``x``, saturated to the type of ``zero_point``; broadcast."""

    def body(index: Index) -> Expr:
        scaled = cast(element(x, index), f32) * cast(element(multiplier, index), f32)
        return _rounded(scaled, element(zero_point, index), zero_point.dtype)

    return tensor(broadcast(x.shape, multiplier.shape, zero_point.shape), body)
