"""Convolutions by minimal filtering in their last one or two dimensions: F(4x4, 3x3), F(1x4, 1x7), F(4, 5), ...

Lavin and Gray, "Fast Algorithms for Convolutional Neural Networks" (2016): ``Y = A^T [ (G g G^T) * (B^T d B) ] A`` for
each tile of outputs ``Y``, with matrices of its own for each dimension; one of a single tap is left as it is, F(1, 1).
The products of all tiles are matrix products over the channels, one for each point. Dimensions before these remain sums
over the filter's taps within the products.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial

import numpy as np
from numpy.typing import NDArray

from tilewright.base.arrays import Array
from tilewright.base.dtypes import DType, i16, i32
from tilewright.base.errors import BadProgram
from tilewright.ops.build import Index, tensor
from tilewright.ops.minimal_filtering import Filtering, Matrix, filtering
from tilewright.ops.operator import FusionKind, operator
from tilewright.symbolic.expr import TRUE, ZERO, Expr, cast, const, select
from tilewright.tensor import build as te
from tilewright.tensor.ir import Reduction, Tensor


def transformed_filter(
    weight: Array, tile: Sequence[int], group: int, strides: Sequence[int] = (1, 1)
) -> NDArray[np.float32]:
    """``G g G^T`` of filters ``[co, ci, d..., y, x]``, or ``G g`` of ``[co, ci, x]``, as ``WinogradProducts`` reads it:
    ``[points, d, group, ci, co]``, ``co`` within a group. ``tile``, ``strides``: outputs and strides in the last
    dimensions.

    It is computed in float64, of some channels at a time: of all, that would take several times the result.
    """
    filters, channels = weight.shape[:2]
    if not any(weight.strides) and weight.size > 1:  # one number, broadcast: all filters are equal
        one = transformed_filter(np.array(weight[:1, :1]), tile, 1, strides)
        return np.broadcast_to(one, (*one.shape[:2], group, channels, filters // group))
    matrices = [one.filter for one in _filterings(tile, weight.shape[-len(tile) :], strides[: len(tile)])]
    down, across = matrices if len(matrices) == 2 else (np.ones((1, 1)), *matrices)
    planes = weight.reshape(group, filters // group, channels, -1, down.shape[1], across.shape[1])
    result = np.empty((len(down) * len(across), planes.shape[3], group, channels, filters // group), np.float32)
    step = max(1, _AT_ONCE * channels // result.size)
    for start in range(0, channels, step):
        some = planes[:, :, start : start + step].astype(np.float64)
        made = np.einsum("ai,gocdij,bj->abdgco", down, some, across, optimize=True)
        result[:, :, :, start : start + step] = made.reshape(*result.shape[:3], -1, result.shape[4])
    return result


def filter_in_words(weight: Array, tile: Sequence[int]) -> NDArray[np.int16]:
    """The same of filters of i8, without groups, times ``1 << SHIFT``, so that all numbers are integers."""
    return np.rint(transformed_filter(weight, tile, 1) * np.float32(1 << SHIFT)).astype(np.int16)


SHIFT = 2
"""Filters are multiplied by halves in each dimension (but with the largest tile)."""
_AT_ONCE = 1 << 18
"""Elements of filters that are transformed at a time."""


@operator("WinogradInput", FusionKind.OPAQUE)
def winograd_input(
    x: Tensor,
    around: Tensor | None = None,
    *,
    tile: Sequence[int],
    taps: Sequence[int],
    strides: Sequence[int],
    dilations: Sequence[int],
    depth: int,
    pads: Sequence[int],
    outputs: Sequence[int],
) -> Tensor:
    """``B^T d B`` of all tiles of ``x: [n, c, d..., y, x]``, padded with ``around`` (default 0): ``[p, p, n, d...,
    tile y, tile x, c]``; of ``[n, c, x]``, where ``tile`` has one number: ``[p, n, tile x, c]``. A dilation makes two
    dimensions of that of the tiles: ``[..., tile x, first x, c]``.

    ``tile``, ``taps``, ``strides``: outputs of a tile, taps of the filter, and strides, in each of the last dimensions;
    ``dilations``: the distances of these taps, and so of the outputs of a tile, where the stride is 1; ``depth``: taps
    along ``d``, at most one dimension; ``pads``: padding before the data, ``outputs``: extents of the convolution's
    result, in each dimension.
    """
    filterings = _filterings(tile, taps, strides)
    planes, moves = x.ndim - 2 - len(tile), [count * stride for count, stride in zip(tile, strides, strict=True)]
    if planes not in (0, 1) or len(pads) != x.ndim - 2 or len(outputs) != x.ndim - 2:
        raise BadProgram(f"WinogradInput of {x}: only convolutions in one to three dimensions have it")
    batch, channels, *extents = x.shape
    filling = const(0, x.dtype) if around is None else around[(ZERO,) * around.ndim]
    layers = tuple(const(extent + depth - 1) for extent in outputs[:planes])
    grid = tuple(map(const, tiles_along(outputs[planes:], tile, dilations)))
    outer, points = (batch, *layers, *grid), tuple(const(one.points) for one in filterings)

    def place(index: Index) -> Expr:
        (n, *d), tiles = index[: 1 + planes], index[1 + planes : len(outer)]
        *within, c = index[len(outer) :]
        inner = _places(tiles, within, moves, dilations)
        at = [position - pad for position, pad in zip((*d, *inner), pads, strict=True)]
        inside: Expr = TRUE
        for position, extent in zip(at, extents, strict=True):
            inside = inside & (position >= 0) & (position < extent)
        return select(inside, x[(n, c, *at)], filling)

    made = tensor((*outer, *points, channels), place)
    *earlier, last = _filtered_axes(filterings)
    for axis in earlier:
        made = tensor(made.shape, partial(_filtered, made, len(outer) + axis, filterings[axis].input))

    def leaving(index: Index) -> Expr:
        within, at, c = index[: len(tile)], index[len(tile) : -1], index[-1]
        return _filtered(made, len(outer) + last, filterings[last].input, (*at, *within, c))

    return tensor((*points, *outer, channels), leaving)


@operator("WinogradProducts", FusionKind.CONTRACTION)
def winograd_products(x: Tensor, w: Tensor, *, step: int) -> Tensor:
    """``sum over d, c of x[p, n, r + d * step, g, c] * w[p, d, g, c, o]``: ``[p, n, r, g, o]``; of i16 in i32.

    Rows are the tiles, layer by layer; ``step``: tiles of a layer.
    """
    points, batch, rows, group, channels = x.shape
    d, c = te.reduce_axis((0, w.shape[1]), name="d"), te.reduce_axis((0, channels), name="c")

    def product(index: Index) -> Reduction:
        p, n, r, g, o = index
        factors = x[p, n, r + d.var * step, g, c.var], w[p, d.var, g, c.var, o]
        left, right = (cast(factor, i32) for factor in factors) if x.dtype == i16 else factors
        return te.sum(left * right, axis=[d, c])

    return tensor((points, batch, rows - (w.shape[1] - 1) * step, group, w.shape[4]), product)


@operator("WinogradOutput", FusionKind.CONTRACTION)
def winograd_output(
    products: Tensor,
    bias: Tensor | None = None,
    *,
    tile: Sequence[int],
    taps: Sequence[int],
    strides: Sequence[int],
    dilations: Sequence[int],
    outputs: Sequence[int],
    shift: int = 0,
) -> Tensor:
    """``A^T m A`` of all tiles, ``+ bias[c]``: ``[n, c, d..., y, x]`` from ``[p, p, n, d..., tile y, tile x, c]``.

    ``tile``, ``taps``, ``strides``, ``dilations``, ``outputs``: as of ``WinogradInput``; ``shift``: of integers, to the
    right, before the bias is added.
    """
    filterings, axes = _filterings(tile, taps, strides), len(tile)
    points, outer, channels = products.shape[:axes], products.shape[axes:-1], products.shape[-1]
    planes, dtype = len(outputs) - axes, products.dtype

    def given(index: Index) -> Expr:
        return products[(*index[len(outer) : -1], *index[: len(outer)], index[-1])]

    made, within = tensor((*outer, *points, channels), given), list(points)
    *earlier, last = _filtered_axes(filterings)
    for axis in earlier:
        within[axis] = const(tile[axis])
        made = tensor((*outer, *within, channels), partial(_filtered, made, len(outer) + axis, filterings[axis].output))

    def leaving(index: Index) -> Expr:
        (n, c, *d), places = index[: 2 + planes], index[2 + planes :]
        tiles, inner = _tiles_of(places, tile, dilations)
        value = _filtered(made, len(outer) + last, filterings[last].output, (n, *d, *tiles, *inner, c))
        value = value >> const(shift, value.dtype) if shift else value
        return value if bias is None else value + cast(bias[c], dtype)

    return tensor((outer[0], channels, *(const(extent) for extent in outputs)), leaving)


def tiles_along(extents: Sequence[int], tile: Sequence[int], dilations: Sequence[int]) -> tuple[int, ...]:
    """The numbers of tiles in each dimension, and of the first outputs of tiles that alternate, where the outputs of a
    tile are apart."""
    counts = zip(extents, tile, dilations, strict=True)
    pairs = ((-(-extent // (distance * count)), distance) for extent, count, distance in counts)
    return tuple(number for tiles, distance in pairs for number in (tiles, distance)[: 1 + (distance > 1)])


def _places(
    tiles: Sequence[Expr], within: Sequence[Expr], moves: Sequence[int], dilations: Sequence[int]
) -> Iterator[Expr]:
    """Where an element of a tile is. ``moves``: from tile to tile."""
    left = iter(tiles)
    for move, distance, number in zip(moves, dilations, within, strict=True):
        step = next(left) * move + number
        yield step if distance == 1 else step * distance + next(left)


def _tiles_of(places: Index, tile: Sequence[int], dilations: Sequence[int]) -> tuple[Index, Index]:
    """The tile of an output, and its place there."""
    tiles: list[Expr] = []
    inner: list[Expr] = []
    for place, count, distance in zip(places, tile, dilations, strict=True):
        step = place if distance == 1 else place // distance
        tiles += [step // count] if distance == 1 else [step // count, place % distance]
        inner.append(step % count)
    return tuple(tiles), tuple(inner)


def _filterings(tile: Sequence[int], taps: Sequence[int], strides: Sequence[int]) -> list[Filtering]:
    return [filtering(*counts) for counts in zip(tile, taps, strides, strict=True)]


def _filtered_axes(filterings: Sequence[Filtering]) -> list[int]:
    """The dimensions with more than one point, or the last one."""
    return [axis for axis, one in enumerate(filterings) if one.points > 1] or [len(filterings) - 1]


def _filtered(source: Tensor, axis: int, matrix: Matrix, index: Index) -> Expr:
    """``matrix`` times ``source`` along ``axis``, at ``index``."""
    before, row, after = index[:axis], index[axis], index[axis + 1 :]
    return _combination(matrix, row, lambda k: source[(*before, k, *after)], source.dtype)


def _combination(matrix: Matrix, row: Expr, read: Callable[[Expr], Expr], dtype: DType) -> Expr:
    """``sum over k of matrix[row][k] * read(k)``: selects the sum of ``row``, without products by 0 or 1."""
    result = _sum(matrix[-1], read, dtype)
    for position in reversed(range(len(matrix) - 1)):
        result = select(row < position + 1, _sum(matrix[position], read, dtype), result)
    return result


def _sum(factors: NDArray[np.float64], read: Callable[[Expr], Expr], dtype: DType) -> Expr:
    # A positive term first: the others are then added or subtracted, without negation.
    known = [(k, float(factor)) for k, factor in enumerate(factors) if factor]
    total: Expr | None = None
    for k, factor in sorted(known, key=lambda term: (term[1] < 0, term[0])):
        term = read(const(k)) if abs(factor) == 1 else read(const(k)) * const(abs(factor), dtype)
        total = term if total is None else total - term if factor < 0 else total + term
    assert total is not None, "no row of the matrices is zero"
    return total
