"""Products of quantized operands: what models mean that have ``DequantizeLinear`` and ``QuantizeLinear`` around one.

The product is that of the dequantized operands, in f32. Its alternatives compute the sum exactly, in integers, and
scale it once (Jacob et al., "Quantization and Training of Neural Networks for Efficient Integer-Arithmetic-Only
Inference", 2018); or in f32, as it is written.
"""

from collections.abc import Sequence

from tilewright.ops.build import Index, tensor
from tilewright.ops.contraction import matmul
from tilewright.ops.convolution import conv
from tilewright.ops.operator import FusionKind, Trait, operator
from tilewright.ops.quantization import dequantize_linear, quantize_linear
from tilewright.ops.shapes import broadcast, element
from tilewright.symbolic.expr import Expr
from tilewright.tensor.ir import Tensor


@operator("QuantizedConv", FusionKind.CONTRACTION, Trait.COMPOSITE)
def quantized_conv(
    x: Tensor,
    x_scale: Tensor,
    x_zero: Tensor | None,
    weight: Tensor,
    weight_scale: Tensor,
    weight_zero: Tensor | None = None,
    bias: Tensor | None = None,
    y_scale: Tensor | None = None,
    y_zero: Tensor | None = None,
    *,
    strides: Sequence[int] | None = None,
    pads: Sequence[int | Expr] | None = None,
    dilations: Sequence[int] | None = None,
    group: int = 1,
) -> Tensor:
    """The convolution of dequantized ``x`` and ``weight``, ``+ bias``; quantized if ``y_scale`` is given.

    ``x`` has one scale; the weight has one, or one for each filter. A ``bias`` of integers has the scale ``x_scale *
    weight_scale``.
    """
    data = dequantize_linear(x, x_scale, x_zero)
    filters = dequantize_linear(weight, weight_scale, weight_zero, axis=0)
    addend = bias if bias is None else _real(bias, x_scale, weight_scale)
    product = conv(data, filters, addend, strides=strides, pads=pads, dilations=dilations, group=group)
    return product if y_scale is None else quantize_linear(product, y_scale, y_zero)


@operator("QuantizedMatMul", FusionKind.CONTRACTION, Trait.COMPOSITE)
def quantized_matmul(
    a: Tensor,
    a_scale: Tensor,
    a_zero: Tensor | None,
    b: Tensor,
    b_scale: Tensor,
    b_zero: Tensor | None = None,
    bias: Tensor | None = None,
    y_scale: Tensor | None = None,
    y_zero: Tensor | None = None,
) -> Tensor:
    """The product of the dequantized matrices ``a [..., m, k]`` and ``b [k, n]``, ``+ bias [n]``; quantized if
    ``y_scale`` is given.

    ``a`` has one scale; ``b`` has one, or one for each column. A ``bias`` of integers has the scale ``a_scale *
    b_scale``.
    """
    product = matmul(dequantize_linear(a, a_scale, a_zero), dequantize_linear(b, b_scale, b_zero, axis=-1))
    if bias is not None:
        product = _sum(product, _real(bias, a_scale, b_scale))
    return product if y_scale is None else quantize_linear(product, y_scale, y_zero)


def _sum(a: Tensor, b: Tensor) -> Tensor:
    return tensor(broadcast(a.shape, b.shape), lambda index: element(a, index) + element(b, index))


def _real(bias: Tensor, first: Tensor, second: Tensor) -> Tensor:
    """``bias``, if it is real; else multiplied by the product of both scales."""
    if not bias.dtype.is_int:
        return bias

    def scale(index: Index) -> Expr:
        return element(first, index) * element(second, index)

    return dequantize_linear(bias, tensor(broadcast(first.shape, second.shape), scale), axis=0)
