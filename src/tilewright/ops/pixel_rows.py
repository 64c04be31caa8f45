"""Convolutions of few channels as dot products of narrow numbers: over rows of pixels, in which the taps of a row of a
window are neighbours.

Three channels fill no block, and have no pairs; seven taps of four numbers are fourteen pairs that lie side by side::

    row of the window:    r g b 0  r g b 0  r g b 0  ...      of 7 pixels, then one ``step`` further for the next place
"""

from collections.abc import Sequence

from tilewright.base.dtypes import bf16, f32, i8, i32, u8
from tilewright.base.errors import BadProgram
from tilewright.ops.build import Index, tensor
from tilewright.ops.convolution import add_bias
from tilewright.ops.operator import FusionKind, Trait, operator
from tilewright.ops.shapes import simplified
from tilewright.symbolic.expr import Const, Expr, cast, const, select, unary
from tilewright.symbolic.operations import UnaryOp
from tilewright.symbolic.traversal import all_of
from tilewright.tensor import build as te
from tilewright.tensor.ir import Reduction, Tensor

_WIDE = {(bf16, bf16): f32, (u8, i8): i32, (i8, i8): i32}
"""What sums of products of two types are added up in."""


@operator("PixelRows", FusionKind.INJECTIVE)
def pixel_rows(x: Tensor, *, before: Sequence[int], extents: Sequence[int], size: int) -> Tensor:
    """``[N, C, spatial...]`` rounded to bf16 as ``[N, extents..., size]``: pixels of ``size`` numbers, of which the
    first are the channels, and the others 0.

    ``before``: zeros before the data along each spatial dimension; behind the data there are as many as are needed.
    """
    if x.dtype != f32 or not len(before) == len(extents) == x.ndim - 2:
        raise BadProgram(f"PixelRows of {x}: images of f32 are needed, and {len(extents)} spatial dimensions")
    _, channels, *spatial = x.shape
    if not isinstance(channels, Const) or int(channels.value) > size:
        raise BadProgram(f"PixelRows of {x}: pixels of {size} numbers have no room for {channels} channels")

    def body(index: Index) -> Expr:
        batch, *places, channel = index
        own = [place - b for place, b in zip(places, before, strict=True)]
        inside = [channel < channels] if int(channels.value) < size else []
        for place, b, extent, own_extent in zip(own, before, extents, spatial, strict=True):
            inside += [place >= 0] if b > 0 else []
            inside += [] if simplified(own_extent + b) == const(extent) else [place < own_extent]
        value = cast(unary(UnaryOp.FLUSH, x[(batch, channel, *own)]), bf16)
        return select(all_of(*inside), value, const(0, bf16)) if inside else value

    return tensor((x.shape[0], *map(const, extents), const(size)), body)


@operator("PixelRowConv", FusionKind.CONTRACTION, Trait.STORES_BLOCKS)
def pixel_row_conv(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    *,
    filters: int,
    places: int,
    step: int,
    strides: Sequence[int],
    dilations: Sequence[int],
) -> Tensor:
    """A convolution of ``x [N, rows..., numbers]`` in f32 or i32: ``[N, filters, outputs..., places]``, ``+ bias``.

    ``weight [F/lanes, kernel..., words, lanes, n]``, both operands of bf16, and ``n`` is 2, or of bytes, and ``n`` is 4
    (of the weight i8): the filters of ``lanes`` results side by side; padding
    filters are not part of the result. The window moves by ``strides`` along rows, by a ``step`` of numbers along each.
    """
    rank = x.ndim - 2
    wide = _WIDE.get((x.dtype, weight.dtype))
    if wide is None or weight.ndim != rank + 4 or not len(strides) == len(dilations) == rank:
        raise BadProgram(
            f"PixelRowConv of {x} by {weight}: rows of bf16 or bytes, and filters in words of them are needed"
        )
    strips, *kernel, words, lanes, size = weight.shape
    reaches = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
    rows = zip(x.shape[1:-1], reaches, strides, strict=True)
    outputs = [simplified((extent - reach) // stride + 1) for extent, reach, stride in rows]
    taps = [te.reduce_axis((0, k), name=f"k{dim}") for dim, k in enumerate(kernel)]
    pair, inner = te.reduce_axis((0, words), name="p"), te.reduce_axis((0, size), name="g")

    def body(index: Index) -> Reduction:
        batch, filter_, *rows, place = index
        at = [y * s + k.var * d for y, k, s, d in zip(rows, taps, strides, dilations, strict=True)]
        left = x[(batch, *at, place * step + pair.var * size + inner.var)]
        right = weight[(filter_ // lanes, *(k.var for k in taps), pair.var, filter_ % lanes, inner.var)]
        return te.sum(cast(left, wide) * cast(right, wide), axis=(*taps, pair, inner))

    if not isinstance(strips, Const) or not isinstance(lanes, Const) or filters > int(strips.value * lanes.value):
        raise BadProgram(f"PixelRowConv by {weight}: there are no {filters} filters")
    product = tensor((x.shape[0], const(filters), *outputs, const(places)), body, name="conv")
    return product if bias is None else add_bias(product, bias)
