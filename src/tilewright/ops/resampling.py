"""Resampling of grids, one axis at a time, by tables (``interpolation``)."""

from functools import reduce

from tilewright.base.dtypes import index as index_dtype
from tilewright.base.errors import BadProgram
from tilewright.ops.build import Index, accumulator, tensor
from tilewright.ops.operator import FusionKind, Trait, operator
from tilewright.ops.shapes import normalize_axis, same_extent
from tilewright.symbolic.expr import Const, Expr, ExprLike, as_expr, cast, const, maximum, minimum
from tilewright.tensor import build as te
from tilewright.tensor.ir import Reduction, Tensor

UNROLLED = 4
"""Maximum number of products in a sum that is unrolled into one expression."""


@operator("Repeat", FusionKind.VIEW, Trait.MOVES)
def repeat(x: Tensor, *, axis: int, times: int) -> Tensor:
    """Each element along ``axis`` repeated ``times`` times, at least once."""
    if times < 1:
        raise BadProgram(f"Repeat: times={times} must be at least 1")
    at = normalize_axis(axis, x.ndim)
    shape = (*x.shape[:at], x.shape[at] * times, *x.shape[at + 1 :])
    return tensor(shape, lambda index: x[(*index[:at], index[at] // times, *index[at + 1 :])])


@operator("Resample", FusionKind.REDUCTION)
def resample(x: Tensor, indices: Tensor, weights: Tensor, *, axis: int) -> Tensor:
    """``sum over t of weights[i, t] * x[..., indices[i, t], ...]`` for each ``i`` along ``axis``.

    ``indices`` and ``weights``: ``[after, taps]``. Integers give an f32 result; 16-bit floats are computed in f32 and
    rounded.
    """
    at = normalize_axis(axis, x.ndim)
    if indices.ndim != 2 or len(weights.shape) != 2 or not all(map(same_extent, indices.shape, weights.shape)):
        raise BadProgram(f"Resample: {indices} and {weights} must have one shape, [elements, taps]")
    shape = (*x.shape[:at], indices.shape[0], *x.shape[at + 1 :])
    wide = accumulator(x.dtype) if x.dtype.is_float else weights.dtype
    result = x.dtype if x.dtype.is_float else wide

    def product(index: Index, tap: ExprLike) -> Expr:
        row = (index[at], as_expr(tap))
        # The table is in range; the checks guard against other fed tables.
        place = maximum(minimum(cast(indices[row], index_dtype), x.shape[at] - 1), 0)
        return cast(x[(*index[:at], place, *index[at + 1 :])], wide) * cast(weights[row], wide)

    count = indices.shape[1]
    if isinstance(count, Const) and 0 < count.value <= UNROLLED:
        taps = range(int(count.value))
        return tensor(shape, lambda index: cast(reduce(_add, [product(index, tap) for tap in taps]), result))
    along = te.reduce_axis((0, count), name="t")

    def total(index: Index) -> Reduction:
        return te.sum(product(index, along.var), axis=along)

    summed = tensor(shape, total)
    return summed if result == wide else tensor(shape, lambda index: cast(summed[index], result))


def _add(a: Expr, b: Expr) -> Expr:
    return a + b


@operator("AffineGrid", FusionKind.INJECTIVE)
def affine_grid(theta: Tensor, *, spatial: tuple[int, ...], align_corners: bool = False) -> Tensor:
    """The images under an affine map of the points of a regular grid over ``[-1, 1]`` in each dimension.

    ``theta``: ``[N, D, D + 1]`` for ``D = len(spatial)``; the result is ``[N, *spatial, D]``. Coordinates are in
    reverse order of dimensions (x, y, z). ``align_corners``: the ends are centres of elements, else their outer edges.
    """
    rank = len(spatial)
    if theta.ndim != 3 or theta.shape[1:] != (const(rank), const(rank + 1)):
        raise BadProgram(f"AffineGrid: {theta} must have the shape [N, {rank}, {rank + 1}]")
    dtype = theta.dtype

    def coordinate(i: Expr, extent: int) -> Expr:
        if align_corners:
            step = 2 / (extent - 1) if extent > 1 else 0.0
            return cast(i, dtype) * const(step, dtype) - const(1.0 if extent > 1 else 0.0, dtype)
        return (cast(i * 2 + 1, dtype)) * const(1 / extent, dtype) - const(1.0, dtype)

    def body(index: Index) -> Expr:
        batch, *place, row = index
        point = [coordinate(i, extent) for i, extent in zip(place, spatial, strict=True)][::-1]
        terms = [theta[batch, row, const(column)] * value for column, value in enumerate(point)]
        return reduce(_add, terms) + theta[batch, row, const(rank)]

    return tensor((theta.shape[0], *map(const, spatial), const(rank)), body)
