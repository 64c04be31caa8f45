"""Convolutions of few places as one product of matrices: all places are rows, and each filter is read once for them.

The rows of a row of seven places fill half of a tile, and there are seven such tiles for each filter. Places of a whole
image are rows with one distance between them, if they are counted along padded rows::

    0 1 2 3 4 5 6 . .      7 places, and 2 that a window of 3 reads further; the row below goes on with 9
    9 ...                  a tap is a move by ``9 * ky + kx``

What is computed for places between the rows is not read. Of volumes, each image may have rows of its own: then nothing
is computed between images. For strides, and where all that would be too much, each tap gets a copy of what all places
read.
"""

from collections.abc import Sequence
from math import prod

from tilewright.base.dtypes import bf16, f32
from tilewright.base.errors import BadProgram
from tilewright.ops.build import Index, tensor
from tilewright.ops.convolution import add_bias
from tilewright.ops.operator import FusionKind, Trait, operator
from tilewright.ops.shapes import simplified, static
from tilewright.ops.windows import Window, window
from tilewright.symbolic.expr import ZERO, Expr, cast, const, select, unary
from tilewright.symbolic.operations import UnaryOp
from tilewright.symbolic.traversal import all_of
from tilewright.tensor import build as te
from tilewright.tensor.ir import Reduction, Tensor


@operator("PlaceConv", FusionKind.CONTRACTION, Trait.STORES_BLOCKS)
def place_conv(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    *,
    filters: int,
    strides: Sequence[int],
    pads: Sequence[int],
    dilations: Sequence[int],
    images: int = 0,
    is_gathered: bool = False,
) -> Tensor:
    """A convolution of ``x [N, C, spatial...]`` (f32), in bf16: ``[N, filters, spatial...]`` in f32 ``+ bias``.

    ``weight [F/lanes, C/width, kernel..., width/2, lanes, 2]`` (bf16): blocks of filters and of channels, with zeros.
    ``images``: how many leading spatial dimensions are apart; places along the others are rows together. If
    ``is_gathered``, each tap has a copy of what all places read; else strides are 1.
    """
    if x.dtype != f32 or weight.dtype != bf16 or weight.ndim != x.ndim + 3:
        raise BadProgram(f"PlaceConv of {x} by {weight}: images of f32, and filters of bf16 in blocks are needed")
    strips, blocks, *kernel, pairs, lanes, size = weight.shape
    sliding = window(x, tuple(kernel), strides, pads, dilations)
    outputs, taps = static(sliding.outputs(x.shape[2:])), static(tuple(kernel))
    if outputs is None or taps is None:
        raise BadProgram(f"PlaceConv of {x} by {weight}: extents must be known")
    if images if is_gathered else any(stride != 1 for stride in strides):
        raise BadProgram(
            f"PlaceConv of {x}: places that are not gathered have strides of 1, not {tuple(strides)}; those that are "
            f"have no images apart, not {images}"
        )
    axes = te.reduce_axis((0, blocks), name="c"), *sliding.taps()
    pair, inner = te.reduce_axis((0, pairs), name="p"), te.reduce_axis((0, size), name="g")
    pitches = _pitches((outputs if is_gathered else lines(outputs, taps, dilations))[images:])
    rows = sum((y - 1) * pitch for y, pitch in zip(outputs[images:], pitches, strict=True)) + 1
    shape = blocks, simplified(pairs * size)
    gathered = _gathered(x, sliding, outputs, taps, shape) if is_gathered else None
    data = _in_lines(x, sliding, lines(outputs, taps, dilations), images, shape) if gathered is None else gathered

    def body(index: Index) -> Reduction:
        batch, strip, *apart, row, lane = index
        block, *moves = (axis.var for axis in axes)
        channel = pair.var * size + inner.var
        if is_gathered:
            left = data[(batch, block, *moves, row, channel)]
        else:
            steps = [k * d for k, d in zip(moves, dilations, strict=True)]
            whole = [y + step for y, step in zip(apart, steps[:images], strict=True)]
            at = sum((step * pitch for step, pitch in zip(steps[images:], pitches, strict=True)), row)
            left = data[(batch, block, *whole, at, channel)]
        right = weight[(strip, block, *moves, pair.var, lane, inner.var)]
        return te.sum(cast(left, f32) * cast(right, f32), axis=(*axes, pair, inner))

    apart = map(const, outputs[:images])
    sums = tensor((x.shape[0], strips, *apart, const(rows), lanes), body, name="conv")

    def placed(index: Index) -> Expr:
        batch, filter_, *places = index
        row = sum((y * pitch for y, pitch in zip(places[images:], pitches, strict=True)), ZERO)
        return sums[(batch, filter_ // lanes, *places[:images], row, filter_ % lanes)]

    product = tensor((x.shape[0], const(filters), *map(const, outputs)), placed, name="places")
    return product if bias is None else add_bias(product, bias)


def lines(outputs: Sequence[int], taps: Sequence[int], dilations: Sequence[int]) -> tuple[int, ...]:
    """The extents of the padded data along which places are counted."""
    return tuple(y + (k - 1) * d for y, k, d in zip(outputs, taps, dilations, strict=True))


def _pitches(extents: Sequence[int]) -> tuple[int, ...]:
    """The distances of neighbours along each dimension, in row-major order."""
    return tuple(prod(extents[place + 1 :]) for place in range(len(extents)))


def _coordinates(flat: Expr, extents: Sequence[int]) -> list[Expr]:
    """The place of number ``flat`` in a box."""
    pairs = zip(extents, _pitches(extents), strict=True)
    return [flat // pitch if place == 0 else flat // pitch % extent for place, (extent, pitch) in enumerate(pairs)]


def _in_lines(x: Tensor, sliding: Window, extents: Sequence[int], images: int, shape: tuple[Expr, Expr]) -> Tensor:
    """``[N, blocks, images..., positions, width]``: the padded data, one position of an image after the other."""
    blocks, width = shape

    def body(index: Index) -> Expr:
        batch, block, *apart, position, channel = index
        places = [*apart, *_coordinates(position, extents[images:])]
        return _element(x, sliding, batch, block * width + channel, places)

    apart = map(const, extents[:images])
    return tensor((x.shape[0], blocks, *apart, const(prod(extents[images:])), width), body, name="lines")


def _gathered(
    x: Tensor, sliding: Window, outputs: Sequence[int], taps: Sequence[int], shape: tuple[Expr, Expr]
) -> Tensor:
    """``[N, blocks, kernel..., places, width]``: what each tap reads."""
    blocks, width = shape

    def body(index: Index) -> Expr:
        batch, block, *moves, place, channel = index
        positions = sliding.positions(_coordinates(place, outputs), moves)
        return _element(x, sliding, batch, block * width + channel, positions)

    return tensor((x.shape[0], blocks, *map(const, taps), const(prod(outputs)), width), body, name="gathered")


def _element(x: Tensor, sliding: Window, batch: Expr, channel: Expr, positions: Sequence[Expr]) -> Expr:
    """The rounded element at ``positions`` of the padded data."""
    places = [at - begin for at, begin in zip(positions, sliding.begins, strict=True)]
    inside = [channel < x.shape[1]]
    for place, extent in zip(places, x.shape[2:], strict=True):
        inside += [place >= 0, place < extent]
    value = cast(unary(UnaryOp.FLUSH, x[(batch, channel, *places)]), bf16)
    return select(all_of(*inside), value, const(0, bf16))
