"""Byte matrix products and convolutions in the layout of dot-product instructions: with sums packed in groups."""

from collections.abc import Sequence

from tilewright.base.dtypes import i8, i16, i32, u8
from tilewright.base.errors import BadProgram
from tilewright.ops.build import Index, tensor
from tilewright.ops.operator import FusionKind, Trait, operator
from tilewright.ops.shapes import same_extent, simplified
from tilewright.ops.windows import window
from tilewright.symbolic.bounds import Bounds
from tilewright.symbolic.expr import ZERO, Const, Expr, ExprLike, as_expr, cast, const, maximum, minimum, select
from tilewright.symbolic.simplify import prove
from tilewright.symbolic.traversal import all_of
from tilewright.tensor import build as te
from tilewright.tensor.ir import Reduction, Tensor

LIMIT = 64
"""Two products of unsigned bytes by numbers up to this one are at most 255 * 64 * 2 = 32640: a sum in 16 bits."""


def limited(weight: Expr) -> Expr:
    """``weight`` from -``LIMIT`` to ``LIMIT``: itself, if it was known to be so."""
    return minimum(maximum(weight, const(-LIMIT, weight.dtype)), const(LIMIT, weight.dtype))


@operator("DotProducts", FusionKind.CONTRACTION)
def dot_products(a: Tensor, b: Tensor, *, columns: ExprLike, is_limited: bool = False) -> Tensor:
    """``a [..., m, k]`` (bytes) times a matrix packed as ``b [n/lanes, k/4, lanes, 4]`` (i8), accumulated in i32; or of
    i16, with groups of two.

    The matrix has ``columns`` columns: padding columns of ``b`` are not part of the result. ``is_limited``: numbers
    of ``b`` are ``limited`` first.
    """
    if a.ndim < 2 or b.ndim != 4 or not _are_bytes(a, b):
        raise BadProgram(f"DotProducts of {a} and {b}: a matrix of bytes and a packed one of i8 are needed")
    strips, groups, lanes, group = b.shape
    if not same_extent(a.shape[-1], simplified(groups * group)):
        raise BadProgram(f"DotProducts of {a} and {b}: {a.shape[-1]} columns against {groups} groups of {group} rows")
    outer, inner = te.reduce_axis((0, groups), name="k"), te.reduce_axis((0, group), name="g")

    def body(index: Index) -> Reduction:
        *rows, column = index
        left = a[(*rows, outer.var * group + inner.var)]
        right = b[column // lanes, outer.var, column % lanes, inner.var]
        return te.sum(_product(left, right, is_limited), axis=(outer, inner))

    product = tensor((*a.shape[:-1], simplified(strips * lanes)), body)
    shape = (*a.shape[:-1], as_expr(columns))
    return product if shape == product.shape else tensor(shape, lambda index: product[index])


@operator("ChannelGroups", FusionKind.INJECTIVE)
def channel_groups(
    x: Tensor, around: Tensor | None = None, *, before: Sequence[int], after: Sequence[int], group: int
) -> Tensor:
    """``[N, C, spatial...]`` as ``[N, C/group, spatial..., group]``, padded with ``around`` (default 0).

    ``before`` and ``after``: padding of the spatial dimensions. The last group is padded likewise.
    """
    channels = x.shape[1]
    filling = const(0, x.dtype) if around is None else around[(ZERO,) * around.ndim]
    extents = [simplified(e + b + a) for e, b, a in zip(x.shape[2:], before, after, strict=True)]

    def body(index: Index) -> Expr:
        batch, outer, *places, inner = index
        channel, own = outer * group + inner, [p - b for p, b in zip(places, before, strict=True)]
        is_filled = isinstance(channels, Const) and int(channels.value) % group == 0
        inside = [] if is_filled else [channel < channels]
        inside += [p >= ZERO for p, b in zip(own, before, strict=True) if b > 0]
        inside += [p < e for p, e, a in zip(own, x.shape[2:], after, strict=True) if a > 0]
        return select(all_of(*inside), x[(batch, channel, *own)], filling) if inside else x[(batch, channel, *own)]

    return tensor((x.shape[0], simplified((channels + (group - 1)) // group), *extents, const(group)), body)


@operator("DotConvolution", FusionKind.CONTRACTION, Trait.STORES_BLOCKS)
def dot_convolution(
    a: Tensor,
    b: Tensor,
    *,
    filters: int,
    strides: Sequence[int] | None = None,
    dilations: Sequence[int] | None = None,
    is_limited: bool = False,
) -> Tensor:
    """A convolution of ``a [N, C/4, spatial..., 4]`` (bytes) by ``b [F/lanes, C/4, kernel..., lanes, 4]`` (i8), in i32.

    Of i16, groups are of two. The result is ``[N, filters, spatial...]``; padding filters of ``b`` are not part of it.
    ``is_limited``: numbers of ``b`` are ``limited`` first.
    """
    rank = a.ndim - 3
    if rank < 1 or b.ndim != rank + 4 or not _are_bytes(a, b):
        raise BadProgram(f"DotConvolution of {a} by {b}: bytes in groups of channels, and filters of i8 are needed")
    strips, groups, *kernel, lanes, group = b.shape
    sliding = window(tensor(a.shape[:-1], lambda index: a[(*index, ZERO)]), tuple(kernel), strides, None, dilations)
    outer, inner = te.reduce_axis((0, groups), name="c"), te.reduce_axis((0, group), name="g")
    taps = sliding.taps()

    def body(index: Index) -> Reduction:
        batch, *places, filter_ = index
        left = a[(batch, outer.var, *sliding.positions(places, taps), inner.var)]
        right = b[(filter_ // lanes, outer.var, *(k.var for k in taps), filter_ % lanes, inner.var)]
        return te.sum(_product(left, right, is_limited), axis=(outer, *taps, inner))

    places = sliding.outputs(a.shape[2:-1])
    product = tensor((a.shape[0], *places, simplified(strips * lanes)), body)
    return tensor(
        (a.shape[0], const(filters), *places), lambda index: product[(index[0], *index[2:], index[1])], name="by_filter"
    )


@operator("BlockedDotConvolution", FusionKind.CONTRACTION, Trait.STORES_BLOCKS)
def blocked_dot_convolution(
    x: Tensor,
    weight: Tensor,
    around: Tensor | None = None,
    *,
    filters: int,
    group: int = 1,
    strides: Sequence[int] | None = None,
    pads: Sequence[int | Expr] | None = None,
    dilations: Sequence[int] | None = None,
    is_limited: bool = False,
) -> Tensor:
    """A convolution of ``x [N, C, spatial...]`` (bytes), padded with ``around`` (default 0), accumulated in i32.

    ``weight [F/lanes, C/group/lanes, kernel..., lanes/4, lanes, 4]`` (i8): blocks of channels, each in groups of four
    (if ``x`` is i16, of two); if ``group`` is not 1, filters of a group fill blocks, too. The result is ``[N, filters,
    spatial...]``; padding filters of ``weight`` are not part of it. With channels in blocks of as many lanes, the
    channels of a group of four are adjacent in ``x``, and a block of filters in the result. ``is_limited``: numbers of
    ``weight`` are ``limited`` first.
    """
    rank = x.ndim - 2
    if rank < 1 or weight.ndim != rank + 5 or not _are_bytes(x, weight):
        raise BadProgram(f"BlockedDotConvolution of {x} by {weight}: bytes, and filters of i8 in blocks are needed")
    strips, blocks, *kernel, parts, lanes, size = weight.shape
    width, per_group = simplified(parts * size), filters // group
    if not same_extent(x.shape[1], simplified(blocks * width * group)):
        wanted = f"{group} * {blocks} blocks of {width} channels"
        raise BadProgram(f"BlockedDotConvolution of {x} by {weight}: it has not {wanted}")
    if not prove(as_expr(filters) <= strips * lanes, Bounds({})):
        raise BadProgram(f"BlockedDotConvolution by {weight}: there are no {filters} filters")
    sliding = window(x, tuple(kernel), strides, pads, dilations)
    places = sliding.outputs(x.shape[2:])
    source, over = sliding.padded(x, const(0, x.dtype) if around is None else around[(ZERO,) * around.ndim], places)
    extents = {"c": blocks, "s": parts, "g": size}
    block, part, inner = (te.reduce_axis((0, extent), name=name) for name, extent in extents.items())
    taps = sliding.taps()

    def body(index: Index) -> Reduction:
        batch, filter_, *outputs = index
        channel = block.var * width + part.var * size + inner.var
        channel = channel if group == 1 else (filter_ // per_group) * (blocks * width) + channel
        left = source[(batch, channel, *over.positions(outputs, taps))]
        right = weight[(filter_ // lanes, block.var, *(k.var for k in taps), part.var, filter_ % lanes, inner.var)]
        return te.sum(_product(left, right, is_limited), axis=(block, *taps, part, inner))

    return tensor((x.shape[0], const(filters), *places), body)


@operator("ChannelConvolution", FusionKind.CONTRACTION, Trait.STORES_BLOCKS)
def channel_convolution(
    x: Tensor,
    weight: Tensor,
    around: Tensor | None = None,
    *,
    strides: Sequence[int] | None = None,
    pads: Sequence[int | Expr] | None = None,
    dilations: Sequence[int] | None = None,
) -> Tensor:
    """Each channel of ``x [N, C, spatial...]`` (u8), padded with ``around`` (default 0), by its own filter, in i32.

    ``weight [C/lanes, kernel..., lanes]`` (i8): the filters of ``lanes`` channels side by side, the last padded.
    """
    if x.ndim != weight.ndim or x.ndim < 3 or (x.dtype, weight.dtype) != (u8, i8):
        raise BadProgram(f"ChannelConvolution of {x} by {weight}: u8, and filters of i8 by lanes are needed")
    blocks, *kernel, lanes = weight.shape
    if not prove(x.shape[1] <= blocks * lanes, Bounds({})):
        raise BadProgram(f"ChannelConvolution of {x} by {weight}: there are filters for {blocks} * {lanes} channels")
    sliding = window(x, tuple(kernel), strides, pads, dilations)
    places = sliding.outputs(x.shape[2:])
    source, over = sliding.padded(x, const(0, u8) if around is None else around[(ZERO,) * around.ndim], places)
    taps = sliding.taps()

    def body(index: Index) -> Reduction:
        batch, channel, *outputs = index
        left = source[(batch, channel, *over.positions(outputs, taps))]
        right = weight[(channel // lanes, *(k.var for k in taps), channel % lanes)]
        return te.sum(cast(left, i32) * cast(right, i32), axis=taps)

    return tensor((*x.shape[:2], *places), body)


def _product(left: Expr, right: Expr, is_limited: bool) -> Expr:
    return cast(left, i32) * cast(limited(right) if is_limited else right, i32)


def _are_bytes(data: Tensor, weight: Tensor) -> bool:
    return data.dtype in (u8, i8, i16) and weight.dtype == i8
