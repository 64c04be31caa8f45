"""Winograd's minimal filtering F(4x4, 3x3): convolutions with a quarter of the multiplications.

Lavin and Gray, "Fast Algorithms for Convolutional Neural Networks" (2016):
``Y = A^T [ (G g G^T) * (B^T d B) ] A`` for each tile of 4 x 4 outputs ``Y``, 6 x 6 inputs ``d`` and a filter ``g``. The
products of all tiles are 36 matrix products over the channels.
"""

from collections.abc import Callable, Sequence

import numpy as np
from numpy.polynomial.polynomial import polyfromroots
from numpy.typing import NDArray

from tilewright.base.dtypes import DType
from tilewright.base.errors import BadProgram
from tilewright.ops.build import Index, tensor
from tilewright.ops.operator import FusionKind, operator
from tilewright.ops.shapes import Shape
from tilewright.symbolic.expr import Expr, cast, const, select
from tilewright.tensor.ir import Tensor

TILE = 4
"""Outputs of a tile, in each direction."""
POINTS = 6
"""Inputs of a tile, in each direction: products for each output tile are the square of it."""

_ROOTS = (0.0, 0.625, -0.625, 1.5, -1.5)
"""Interpolation points, and infinity: errors are 2.4 times smaller than with 0, 1, -1, 2, -2, and all entries of the
matrices are exact. On the choice of points: Barabasz et al., "Error Analysis and Improving the Accuracy of Winograd
Convolution for Deep Neural Networks" (2020)."""

Matrix = NDArray[np.float64]


def _toom_cook(roots: Sequence[float]) -> tuple[Matrix, Matrix, Matrix]:
    """``B^T``, ``A^T`` and ``G`` of the algorithm that interpolates at ``roots`` and at infinity."""
    inputs, outputs, filters = np.zeros((POINTS, POINTS)), np.zeros((TILE, POINTS)), np.zeros((POINTS, 3))
    for row, root in enumerate(roots):
        others = [other for other in roots if other != root]
        inputs[row, :-1] = polyfromroots(others)
        outputs[:, row] = root ** np.arange(TILE)
        filters[row] = root ** np.arange(3) / np.prod(root - np.array(others))
    inputs[-1] = polyfromroots(roots)
    outputs[-1, -1] = filters[-1, -1] = 1.0
    return inputs, outputs, filters


_INPUT, _OUTPUT, _FILTER = _toom_cook(_ROOTS)


def transformed_filter(weight: NDArray[np.generic]) -> NDArray[np.float64]:
    """``G g G^T`` of filters ``[co, ci, 3, 3]``: ``[36, ci, co]``."""
    result = np.einsum("ai,ocij,bj->abco", _FILTER, weight.astype(np.float64), _FILTER, optimize=True)
    return result.reshape(POINTS * POINTS, weight.shape[1], weight.shape[0])


def tiles(extent: Expr) -> Expr:
    """How many tiles cover ``extent`` outputs."""
    return (extent + (TILE - 1)) // TILE


@operator("WinogradInput", FusionKind.OPAQUE)
def winograd_input(x: Tensor, *, pads: Sequence[int], outputs: Sequence[int]) -> Tensor:
    """``B^T d B`` of all tiles of ``x: [n, c, y, x]``, padded by zeros: ``[6, 6, n, tile y, tile x, c]``.

    ``pads``: top, left; ``outputs``: the extents of the convolution's result.
    """
    if x.ndim != 4 or len(pads) != 2 or len(outputs) != 2:
        raise BadProgram(f"WinogradInput of {x}: only convolutions in two dimensions have it")
    batch, channels, height, width = x.shape
    down, across = (tiles(const(extent)) for extent in outputs)

    def read(n: Expr, c: Expr, y: Expr, x_: Expr) -> Expr:
        inside = (y >= 0) & (y < height) & (x_ >= 0) & (x_ < width)
        return select(inside, x[n, c, y, x_], const(0.0, x.dtype))

    def place(index: Index) -> Expr:
        n, ty, tx, i, j, c = index
        return read(n, c, ty * TILE + i - pads[0], tx * TILE + j - pads[1])

    def by_rows(index: Index) -> Expr:
        n, ty, tx, a, j, c = index
        return _combination(_INPUT, a, lambda i: patch[n, ty, tx, i, j, c], x.dtype)

    def by_columns(index: Index) -> Expr:
        a, b, n, ty, tx, c = index
        return _combination(_INPUT, b, lambda j: half[n, ty, tx, a, j, c], x.dtype)

    points = const(POINTS)
    patch = tensor((batch, down, across, points, points, channels), place)
    half = tensor((batch, down, across, points, points, channels), by_rows)
    return tensor((points, points, batch, down, across, channels), by_columns)


@operator("WinogradOutput", FusionKind.CONTRACTION)
def winograd_output(products: Tensor, bias: Tensor | None = None, *, outputs: Sequence[int]) -> Tensor:
    """``A^T m A`` of all tiles, ``+ bias[c]``: ``[n, c, y, x]`` from ``[6, 6, n, tile y, tile x, c]``."""
    batch, channels = products.shape[2], products.shape[5]

    def by_rows(index: Index) -> Expr:
        n, ty, tx, i, b, c = index
        return _combination(_OUTPUT, i, lambda a: products[a, b, n, ty, tx, c], products.dtype)

    def by_columns(index: Index) -> Expr:
        n, c, y, x = index
        value = _combination(_OUTPUT, x % TILE, lambda b: half[n, y // TILE, x // TILE, y % TILE, b, c], products.dtype)
        return value if bias is None else value + cast(bias[c], products.dtype)

    rows: Shape = (batch, products.shape[3], products.shape[4], const(TILE), const(POINTS), channels)
    half = tensor(rows, by_rows)
    return tensor((batch, channels, *(const(extent) for extent in outputs)), by_columns)


def _combination(matrix: Matrix, row: Expr, read: Callable[[int], Expr], dtype: DType) -> Expr:
    """``sum over k of matrix[row][k] * read(k)``: ``row`` chooses among sums without products by 0 or 1."""
    result = _sum(matrix[-1], read, dtype)
    for position in reversed(range(len(matrix) - 1)):
        result = select(row < position + 1, _sum(matrix[position], read, dtype), result)
    return result


def _sum(factors: NDArray[np.float64], read: Callable[[int], Expr], dtype: DType) -> Expr:
    # A positive term first: the others are then added or subtracted, and none is negated.
    known = [(k, float(factor)) for k, factor in enumerate(factors) if factor]
    total: Expr | None = None
    for k, factor in sorted(known, key=lambda term: (term[1] < 0, term[0])):
        term = read(k) if abs(factor) == 1 else read(k) * const(abs(factor), dtype)
        total = term if total is None else total - term if factor < 0 else total + term
    assert total is not None, "no row of the matrices is zero"
    return total
