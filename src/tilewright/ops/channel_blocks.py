"""Convolutions of bfloat16 over whole blocks of channels, which zeros fill up.

A row of a matrix unit's tile has the pairs of 32 channels. Sums over 80 channels run over blocks of 16, which fill half
of a row, and sums over 44 over none; with zeros for the missing ones, sums over 96 and over 64 fill all rows of tiles.
"""

from collections.abc import Sequence

from tilewright.base.dtypes import bf16, f32
from tilewright.base.errors import BadProgram
from tilewright.ops.build import Index, tensor
from tilewright.ops.convolution import add_bias
from tilewright.ops.operator import FusionKind, Trait, operator
from tilewright.ops.shapes import same_extent, simplified
from tilewright.ops.windows import window
from tilewright.symbolic.expr import Const, Expr, cast, const, select, unary
from tilewright.symbolic.operations import UnaryOp
from tilewright.symbolic.traversal import all_of
from tilewright.tensor import build as te
from tilewright.tensor.ir import Reduction, Tensor


@operator("WholeChannels", FusionKind.INJECTIVE)
def whole_channels(x: Tensor, *, channels: int, before: Sequence[int], after: Sequence[int]) -> Tensor:
    """``x [N, C, spatial...]`` rounded to bf16, with zeros behind its channels, of which there are ``channels`` then;
    ``before`` and ``after``: zeros around the spatial dimensions."""
    if x.dtype != f32 or not len(before) == len(after) == x.ndim - 2:
        raise BadProgram(f"WholeChannels of {x}: images of f32 are needed, and {len(before)} spatial dimensions")
    if not isinstance(x.shape[1], Const) or int(x.shape[1].value) > channels:
        raise BadProgram(f"WholeChannels of {x}: {channels} channels have no room for {x.shape[1]}")

    def body(index: Index) -> Expr:
        own = [*index[:2], *(place - b for place, b in zip(index[2:], before, strict=True))]
        inside = [] if x.shape[1] == const(channels) else [own[1] < x.shape[1]]
        for place, b, a, extent in zip(own[2:], before, after, x.shape[2:], strict=True):
            inside += [place >= 0] if b > 0 else []
            inside += [place < extent] if a > 0 else []
        value = cast(unary(UnaryOp.FLUSH, x[tuple(own)]), bf16)
        return select(all_of(*inside), value, const(0, bf16)) if inside else value

    around = zip(x.shape[2:], before, after, strict=True)
    return tensor((x.shape[0], const(channels), *(simplified(e + b + a) for e, b, a in around)), body)


@operator("PairConv", FusionKind.CONTRACTION, Trait.STORES_BLOCKS)
def pair_conv(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    *,
    filters: int,
    strides: Sequence[int],
    dilations: Sequence[int],
) -> Tensor:
    """A convolution of ``x [N, C, spatial...]`` (bf16) in f32: ``[N, filters, outputs...]``, ``+ bias``.

    ``weight [F/lanes, C/width, kernel..., width/2, lanes, 2]`` (bf16): filters and channels in blocks. Padding filters
    are not part of the result.
    """
    if {x.dtype, weight.dtype} != {bf16} or weight.ndim != x.ndim + 3:
        raise BadProgram(f"PairConv of {x} by {weight}: images of bf16, and filters in blocks of pairs are needed")
    strips, blocks, *kernel, pairs, lanes, size = weight.shape
    width = simplified(pairs * size)
    if not same_extent(x.shape[1], simplified(blocks * width)):
        raise BadProgram(f"PairConv of {x} by {weight}: it has not {blocks} blocks of {width} channels")
    if not isinstance(strips, Const) or not isinstance(lanes, Const) or filters > int(strips.value * lanes.value):
        raise BadProgram(f"PairConv by {weight}: there are no {filters} filters")
    sliding = window(x, tuple(kernel), strides, None, dilations)
    block, pair, inner = (te.reduce_axis((0, e), name=n) for n, e in (("c", blocks), ("p", pairs), ("g", size)))
    taps = sliding.taps()

    def body(index: Index) -> Reduction:
        batch, filter_, *outputs = index
        channel = block.var * width + pair.var * size + inner.var
        left = x[(batch, channel, *sliding.positions(outputs, taps))]
        right = weight[(filter_ // lanes, block.var, *(k.var for k in taps), pair.var, filter_ % lanes, inner.var)]
        return te.sum(cast(left, f32) * cast(right, f32), axis=(block, *taps, pair, inner))

    places = sliding.outputs(x.shape[2:])
    product = tensor((x.shape[0], const(filters), *places), body, name="conv")
    return product if bias is None else add_bias(product, bias)
