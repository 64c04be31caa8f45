"""Convolutions by minimal filtering in their last two dimensions: F(2x2, 3x3), F(4x4, 3x3) and F(3x3, 2x2).

Lavin and Gray, "Fast Algorithms for Convolutional Neural Networks" (2016): ``Y = A^T [ (G g G^T) * (B^T d B) ] A`` for
each tile of ``tile`` x ``tile`` outputs ``Y``. The products of all tiles are matrix products over the channels, one for
each point. A dimension before the last two remains a sum over the filter's taps within the products.
"""

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from tilewright.base.arrays import Array
from tilewright.base.dtypes import DType, i16, i32
from tilewright.base.errors import BadProgram
from tilewright.ops.build import Index, tensor
from tilewright.ops.minimal_filtering import FILTERINGS, Matrix
from tilewright.ops.operator import FusionKind, operator
from tilewright.symbolic.expr import TRUE, ZERO, Expr, cast, const, select
from tilewright.tensor import build as te
from tilewright.tensor.ir import Reduction, Tensor


def transformed_filter(weight: Array, tile: int, group: int) -> NDArray[np.float32]:
    """``G g G^T`` of filters ``[co, ci, d..., y, x]``, as ``WinogradProducts`` reads them: ``[points^2, d, group, ci,
    co]``, ``co`` within a group.

    It is computed in float64, of some channels at a time: of all, that would take several times the result.
    """
    filtering = FILTERINGS[tile]
    filters, channels = weight.shape[:2]
    if not any(weight.strides) and weight.size > 1:  # one number, broadcast: all filters are equal
        one = transformed_filter(np.array(weight[:1, :1]), tile, 1)
        return np.broadcast_to(one, (*one.shape[:2], group, channels, filters // group))
    planes = weight.reshape(group, filters // group, channels, -1, filtering.taps, filtering.taps)
    result = np.empty((filtering.points**2, planes.shape[3], group, channels, filters // group), np.float32)
    step = max(1, _AT_ONCE * channels // result.size)
    for start in range(0, channels, step):
        some = planes[:, :, start : start + step].astype(np.float64)
        made = np.einsum("ai,gocdij,bj->abdgco", filtering.filter, some, filtering.filter, optimize=True)
        result[:, :, :, start : start + step] = made.reshape(*result.shape[:3], -1, result.shape[4])
    return result


def filter_in_words(weight: Array, tile: int) -> NDArray[np.int16]:
    """The same of filters of i8, without groups, times ``1 << SHIFT``, so that all numbers are integers."""
    return np.rint(transformed_filter(weight, tile, 1) * np.float32(1 << SHIFT)).astype(np.int16)


SHIFT = 2
"""Filters are multiplied by halves in each dimension (but with the largest tile)."""
_AT_ONCE = 1 << 18
"""Elements of filters that are transformed at a time."""


@operator("WinogradInput", FusionKind.OPAQUE)
def winograd_input(
    x: Tensor, around: Tensor | None = None, *, tile: int, depth: int, pads: Sequence[int], outputs: Sequence[int]
) -> Tensor:
    """``B^T d B`` of all tiles of ``x: [n, c, d..., y, x]``, padded with ``around`` (default 0): ``[p, p, n, d...,
    tile y, tile x, c]``.

    ``depth``: taps of the filter along ``d``, at most one dimension; ``pads``: padding before the data, ``outputs``:
    extents of the convolution's result, in each dimension.
    """
    filtering = FILTERINGS[tile]
    planes = x.ndim - 4
    if planes not in (0, 1) or len(pads) != x.ndim - 2 or len(outputs) != x.ndim - 2:
        raise BadProgram(f"WinogradInput of {x}: only convolutions in two and three dimensions have it")
    batch, channels, *extents = x.shape
    filling = const(0, x.dtype) if around is None else around[(ZERO,) * around.ndim]
    layers = tuple(const(extent + depth - 1) for extent in outputs[:planes])
    down, across = (const(-(-extent // tile)) for extent in outputs[planes:])

    def place(index: Index) -> Expr:
        n, *d, ty, tx, i, j, c = index
        at = [position - pad for position, pad in zip((*d, ty * tile + i, tx * tile + j), pads, strict=True)]
        inside: Expr = TRUE
        for position, extent in zip(at, extents, strict=True):
            inside = inside & (position >= 0) & (position < extent)
        return select(inside, x[(n, c, *at)], filling)

    def by_rows(index: Index) -> Expr:
        *outer, a, j, c = index
        return _combination(filtering.input, a, lambda i: patch[(*outer, i, j, c)], x.dtype)

    def by_columns(index: Index) -> Expr:
        a, b, *outer, c = index
        return _combination(filtering.input, b, lambda j: half[(*outer, a, j, c)], x.dtype)

    points = const(filtering.points)
    patch = tensor((batch, *layers, down, across, points, points, channels), place)
    half = tensor((batch, *layers, down, across, points, points, channels), by_rows)
    return tensor((points, points, batch, *layers, down, across, channels), by_columns)


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
    products: Tensor, bias: Tensor | None = None, *, tile: int, outputs: Sequence[int], shift: int = 0
) -> Tensor:
    """``A^T m A`` of all tiles, ``+ bias[c]``: ``[n, c, d..., y, x]`` from ``[p, p, n, d..., tile y, tile x, c]``.

    ``shift``: of integers, to the right, before the bias is added.
    """
    filtering = FILTERINGS[tile]
    points, _, *outer, channels = products.shape

    def by_rows(index: Index) -> Expr:
        *place, i, b, c = index
        return _combination(filtering.output, i, lambda a: products[(a, b, *place, c)], products.dtype)

    def by_columns(index: Index) -> Expr:
        n, c, *d, y, x = index
        at = (n, *d, y // tile, x // tile, y % tile)
        value = _combination(filtering.output, x % tile, lambda b: half[(*at, b, c)], products.dtype)
        value = value >> const(shift, value.dtype) if shift else value
        return value if bias is None else value + cast(bias[c], products.dtype)

    half = tensor((*outer, const(tile), points, channels), by_rows)
    return tensor((outer[0], channels, *(const(extent) for extent in outputs)), by_columns)


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
