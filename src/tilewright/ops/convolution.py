"""Convolutions over ``[batch, channels, spatial...]``, in any number of spatial dimensions."""

from collections.abc import Sequence

from tilewright.base.errors import BadProgram
from tilewright.ops.build import Index, accumulator, narrowed, tensor
from tilewright.ops.operator import FusionKind, operator
from tilewright.ops.shapes import same_extent, simplified
from tilewright.ops.windows import window
from tilewright.symbolic.expr import Const, Expr, cast, const
from tilewright.tensor import build as te
from tilewright.tensor.ir import Reduction, Tensor


@operator("Conv", FusionKind.CONTRACTION)
def conv(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    *,
    strides: Sequence[int] | None = None,
    pads: Sequence[int | Expr] | None = None,
    dilations: Sequence[int] | None = None,
    group: int = 1,
) -> Tensor:
    """``sum over ci, k of x[n, g * CI + ci, y * stride + k * dilation - pad] * weight[co, ci, k]``, ``+ bias[co]``.

    ``x``: ``[N, group * CI, spatial...]``, ``weight``: ``[group * CO, CI, kernel...]``, ``bias``: ``[group * CO]``;
    ``g = co // CO`` is the group of ``co``. ``pads``: all begins, then all ends. Up to three stages: the padded input
    (where there is padding), the sum of products, the bias.
    """
    if x.ndim != weight.ndim:
        raise BadProgram(f"{x} and the weight {weight} must have equally many dimensions")
    if x.dtype != weight.dtype:
        raise BadProgram(f"{x} and the weight {weight} must have one dtype")
    filters = weight.shape[0]
    per_group = _filters_per_group(x, weight, group)
    sliding = window(x, weight.shape[2:], strides, pads, dilations)
    outputs = sliding.outputs(x.shape[2:])
    source = sliding.padded(x, const(0, x.dtype), outputs)
    taps = sliding.taps()
    depthwise = group > 1 and weight.shape[1] == const(1)
    channel = te.reduce_axis((0, weight.shape[1]), name="ci")
    wide = accumulator(x.dtype)

    def body(index: Index) -> Reduction:
        batch, filter_, *spatial = index
        inner = const(0) if depthwise else channel.var
        own = inner if group == 1 else (filter_ // per_group) * weight.shape[1] + inner
        element = source[(batch, own, *sliding.positions(spatial, taps))]
        factor = weight[(filter_, inner, *(k.var for k in taps))]
        axes = taps if depthwise else (channel, *taps)
        return te.sum(cast(element, wide) * cast(factor, wide), axis=axes)

    product = tensor((x.shape[0], filters, *outputs), body, name="conv")
    return narrowed(product if bias is None else add_bias(product, bias), x.dtype)


def _filters_per_group(x: Tensor, weight: Tensor, group: int) -> Expr:
    """How many filters each group has. Raises ``BadProgram`` if channels and filters do not fit ``group``."""
    if group < 1:
        raise BadProgram(f"group is {group}; it must be at least 1")
    channels, filters = x.shape[1], weight.shape[0]
    if not same_extent(channels, weight.shape[1] * group):
        raise BadProgram(
            f"{x} has {channels} channels, but the weight {weight} with group {group} takes "
            f"{simplified(weight.shape[1] * group)}"
        )
    if isinstance(filters, Const) and int(filters.value) % group:
        raise BadProgram(f"the {filters} filters of the weight {weight} can't be divided into {group} groups")
    return simplified(filters // group)


def add_bias(product: Tensor, bias: Tensor) -> Tensor:
    """``product[n, c, ...] + bias[c]``. Raises ``BadProgram`` unless there is one for each channel."""
    if bias.ndim != 1 or not same_extent(bias.shape[0], product.shape[1]):
        raise BadProgram(f"the bias {bias} must have the shape [{product.shape[1]}], one for each output channel")
    return tensor(product.shape, lambda index: product[index] + cast(bias[index[1]], product.dtype), name="biased")
