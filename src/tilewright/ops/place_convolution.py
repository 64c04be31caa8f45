"""Convolutions of few places as one product of matrices: all places are rows, and each filter is read once for them.

The rows of a row of seven places fill half of a tile, and there are seven such tiles for each filter. Places of a whole
image are rows with one distance between them, if they are counted along padded rows::

    0 1 2 3 4 5 6 . .      7 places, and 2 that a window of 3 reads further; the row below goes on with 9
    9 ...                  a tap is a move by ``9 * ky + kx``

What is computed for places between the rows is not read. Of volumes, each image may have rows of its own: then nothing
is computed between images. For strides, and where all that would be too much, each tap gets a copy of what all places
read.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod

from tilewright.base.dtypes import DType, bf16, f32, i8, i32, u8
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

    def element(value: Expr) -> Expr:
        return cast(unary(UnaryOp.FLUSH, value), bf16)

    moves = _Moves(filters, strides, pads, dilations, images, is_gathered)
    product = _places(x, weight, moves, _Data(element, const(0, bf16), f32))
    return product if bias is None else add_bias(product, bias)


@operator("PlaceDotConvolution", FusionKind.CONTRACTION, Trait.STORES_BLOCKS)
def place_dot_convolution(
    x: Tensor,
    weight: Tensor,
    around: Tensor | None = None,
    *,
    filters: int,
    strides: Sequence[int],
    pads: Sequence[int],
    dilations: Sequence[int],
    images: int = 0,
    is_gathered: bool = False,
) -> Tensor:
    """A convolution of ``x [N, C, spatial...]`` (bytes), padded with ``around`` (default 0): ``[N, filters,
    spatial...]`` in i32.

    ``weight [F/lanes, C/width, kernel..., width/4, lanes, 4]`` (i8) as for ``BlockedDotConvolution``; ``images``
    and ``is_gathered`` as for ``PlaceConv``.
    """
    if x.dtype not in (u8, i8) or weight.dtype != i8 or weight.ndim != x.ndim + 3:
        raise BadProgram(f"PlaceDotConvolution of {x} by {weight}: bytes, and filters of i8 in blocks are needed")
    padding = const(0, x.dtype) if around is None else around[(ZERO,) * around.ndim]
    moves = _Moves(filters, strides, pads, dilations, images, is_gathered)
    return _places(x, weight, moves, _Data(lambda value: value, padding, i32))


@dataclass(frozen=True, slots=True)
class _Moves:
    """The attributes of both."""

    filters: int
    strides: Sequence[int]
    pads: Sequence[int]
    dilations: Sequence[int]
    images: int
    is_gathered: bool


@dataclass(frozen=True, slots=True)
class _Data:
    """What products are made of: an ``element`` of the data, or ``padding``, in numbers of ``wide``."""

    element: Callable[[Expr], Expr]
    padding: Expr
    wide: DType


def _places(x: Tensor, weight: Tensor, moves: _Moves, of: _Data) -> Tensor:
    strips, blocks, *kernel, pairs, lanes, size = weight.shape
    dilations, images, is_gathered = moves.dilations, moves.images, moves.is_gathered
    sliding = window(x, tuple(kernel), moves.strides, moves.pads, dilations)
    outputs, taps = static(sliding.outputs(x.shape[2:])), static(tuple(kernel))
    if outputs is None or taps is None:
        raise BadProgram(f"places of {x} by {weight}: extents must be known")
    if images if is_gathered else any(stride != 1 for stride in moves.strides):
        raise BadProgram(
            f"places of {x}: those that are not gathered have strides of 1, not {tuple(moves.strides)}; those that are "
            f"have no images apart, not {images}"
        )
    axes = te.reduce_axis((0, blocks), name="c"), *sliding.taps()
    pair, inner = te.reduce_axis((0, pairs), name="p"), te.reduce_axis((0, size), name="g")
    padded = lines(outputs, taps, dilations)
    pitches = _pitches((outputs if is_gathered else padded)[images:])
    rows = sum((y - 1) * pitch for y, pitch in zip(outputs[images:], pitches, strict=True)) + 1
    shape = blocks, simplified(pairs * size)
    if is_gathered:
        data = _gathered(x, sliding, outputs, taps, shape, of)
    else:
        data = _in_lines(x, sliding, padded, images, shape, of)

    def body(index: Index) -> Reduction:
        batch, strip, *apart, row, lane = index
        block, *steps = (axis.var for axis in axes)
        channel = pair.var * size + inner.var
        if is_gathered:
            left = data[(batch, block, *steps, row, channel)]
        else:
            by = [k * d for k, d in zip(steps, dilations, strict=True)]
            whole = [y + step for y, step in zip(apart, by[:images], strict=True)]
            at = sum((step * pitch for step, pitch in zip(by[images:], pitches, strict=True)), row)
            left = data[(batch, block, *whole, at, channel)]
        right = weight[(strip, block, *steps, pair.var, lane, inner.var)]
        return te.sum(cast(left, of.wide) * cast(right, of.wide), axis=(*axes, pair, inner))

    sums = tensor((x.shape[0], strips, *map(const, outputs[:images]), const(rows), lanes), body, name="conv")

    def placed(index: Index) -> Expr:
        batch, filter_, *places = index
        row = sum((y * pitch for y, pitch in zip(places[images:], pitches, strict=True)), ZERO)
        return sums[(batch, filter_ // lanes, *places[:images], row, filter_ % lanes)]

    return tensor((x.shape[0], const(moves.filters), *map(const, outputs)), placed, name="places")


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


def _in_lines(
    x: Tensor, sliding: Window, extents: Sequence[int], images: int, shape: tuple[Expr, Expr], of: _Data
) -> Tensor:
    """``[N, blocks, images..., positions, width]``: the padded data, one position of an image after the other."""
    blocks, width = shape

    def body(index: Index) -> Expr:
        batch, block, *apart, position, channel = index
        places = [*apart, *_coordinates(position, extents[images:])]
        return _element(x, sliding, batch, block * width + channel, places, of)

    apart = map(const, extents[:images])
    return tensor((x.shape[0], blocks, *apart, const(prod(extents[images:])), width), body, name="lines")


def _gathered(
    x: Tensor, sliding: Window, outputs: Sequence[int], taps: Sequence[int], shape: tuple[Expr, Expr], of: _Data
) -> Tensor:
    """``[N, blocks, kernel..., places, width]``: what each tap reads."""
    blocks, width = shape

    def body(index: Index) -> Expr:
        batch, block, *moves, place, channel = index
        positions = sliding.positions(_coordinates(place, outputs), moves)
        return _element(x, sliding, batch, block * width + channel, positions, of)

    return tensor((x.shape[0], blocks, *map(const, taps), const(prod(outputs)), width), body, name="gathered")


def _element(x: Tensor, sliding: Window, batch: Expr, channel: Expr, positions: Sequence[Expr], of: _Data) -> Expr:
    """The element at ``positions`` of the padded data."""
    places = [at - begin for at, begin in zip(positions, sliding.begins, strict=True)]
    inside = [channel < x.shape[1]]
    for place, extent in zip(places, x.shape[2:], strict=True):
        inside += [place >= 0, place < extent]
    return select(all_of(*inside), of.element(x[(batch, channel, *places)]), of.padding)
