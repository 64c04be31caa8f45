"""Convolutions over ``[batch, channels, spatial...]``, in any number of spatial dimensions."""

from collections.abc import Sequence
from math import prod

from tilewright.base.errors import BadProgram
from tilewright.ops.build import Index, accumulator, narrowed, tensor
from tilewright.ops.operator import Attributes, Batch, BatchAxis, FusionKind, Trait, operator
from tilewright.ops.shapes import same_extent, simplified
from tilewright.ops.windows import window
from tilewright.symbolic.expr import TRUE, Const, Expr, cast, const, equal
from tilewright.tensor import build as te
from tilewright.tensor.ir import Reduction, Tensor


def _images(attributes: Attributes, shapes: Sequence[tuple[int, ...]]) -> Batch | None:
    """Batch dimensions: images, and filters if each reads all channels; channels if each has its own filter."""
    images = BatchAxis((0, None), 0)
    match attributes, shapes:
        case {"group": int(group), **others}, ((_, channels, *_), (filters, 1, *_)) if channels == filters == group:
            return Batch((images, BatchAxis((1, 0), 1)), others, keeps=True)
        case _, ((_, _, *_), (_, _, *_)) if attributes.get("group", 1) == 1:
            return Batch((images, BatchAxis((None, 0), 1)), attributes, keeps=True)
        case _:
            return None


@operator("Conv", FusionKind.CONTRACTION, Trait.SUMS_CHANNELS, _images)
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

    ``x``: ``[N, group * CI, spatial...]``, ``weight``: ``[group * CO, CI, kernel...]``, ``bias``: ``[group * CO]``; ``g
    = co // CO`` is the group of ``co``. ``pads``: all begins, then all ends. Up to three stages: the padded input (if
    any), the sum of products, the bias.
    """
    if x.ndim != weight.ndim:
        raise BadProgram(f"{x} and the weight {weight} must have equally many dimensions")
    if x.dtype != weight.dtype:
        raise BadProgram(f"{x} and the weight {weight} must have one dtype")
    filters = weight.shape[0]
    per_group = filters_per_group(x, weight, group)
    sliding = window(x, weight.shape[2:], strides, pads, dilations)
    outputs = sliding.outputs(x.shape[2:])
    source, over = sliding.padded(x, const(0, x.dtype), outputs)
    taps = sliding.taps()
    depthwise = group > 1 and weight.shape[1] == const(1)
    channel = te.reduce_axis((0, weight.shape[1]), name="ci")
    wide = accumulator(x.dtype)

    def body(index: Index) -> Reduction:
        batch, filter_, *spatial = index
        inner = const(0) if depthwise else channel.var
        own = inner if group == 1 else (filter_ // per_group) * weight.shape[1] + inner
        element = source[(batch, own, *over.positions(spatial, taps))]
        factor = weight[(filter_, inner, *(k.var for k in taps))]
        axes = taps if depthwise else (channel, *taps)
        return te.sum(cast(element, wide) * cast(factor, wide), axis=axes)

    product = tensor((x.shape[0], filters, *outputs), body, name="conv")
    return narrowed(product if bias is None else add_bias(product, bias), x.dtype)


def filters_per_group(x: Tensor, weight: Tensor, group: int) -> Expr:
    """The number of filters of each group. Raises ``BadProgram`` if channels and filters do not fit ``group``."""
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
    """``product[n, c, ...] + bias[c]``. Raises ``BadProgram`` unless the bias has one element per channel."""
    if bias.ndim != 1 or not same_extent(bias.shape[0], product.shape[1]):
        raise BadProgram(f"the bias {bias} must have the shape [{product.shape[1]}], one for each output channel")
    return tensor(product.shape, lambda index: product[index] + cast(bias[index[1]], product.dtype), name="biased")


@operator("Col2Im", FusionKind.REDUCTION)
def columns_to_image(
    x: Tensor,
    *,
    image: Sequence[int],
    block: Sequence[int],
    strides: Sequence[int],
    pads: Sequence[int],
    dilations: Sequence[int],
) -> Tensor:
    """Blocks ``[N, C * block, places]`` added to their positions in the image ``[N, C, *image]`` (col2im)."""
    rank, size = len(image), prod(block)
    spans = zip(image, block, strides, dilations, pads[:rank], pads[rank:], strict=True)
    places = [
        (extent + before + after - (k - 1) * d - 1) // stride + 1 for extent, k, stride, d, before, after in spans
    ]
    if x.ndim != 3 or min(places) < 0 or x.shape[2] != const(prod(places)) or simplified(x.shape[1] % size) != const(0):
        raise BadProgram(f"{x} must have the shape [N, C * {size}, {prod(places)}] for an image of {list(image)}")
    taps = [te.reduce_axis((0, k), name=f"k{dim}") for dim, k in enumerate(block)]

    def body(index: Index) -> Reduction:
        batch, channel, *point = index
        row, place, inside = channel, const(0).as_expr(), TRUE.as_expr()
        for dim, i in enumerate(point):
            start = i + pads[dim] - taps[dim].var * dilations[dim]
            at = start // strides[dim]
            inside = inside & equal(start % strides[dim], 0) & (at >= 0) & (at < places[dim])
            row, place = row * block[dim] + taps[dim].var, place * places[dim] + at
        return te.sum(cast(x[batch, row, place], accumulator(x.dtype)), axis=taps, where=inside)

    return narrowed(tensor((x.shape[0], simplified(x.shape[1] // size), *map(const, image)), body), x.dtype)
