"""Reductions over axes, and normalizations along them. 16-bit floats are added up in f32."""

from collections.abc import Callable, Sequence

from tilewright.base.dtypes import f64, u8
from tilewright.ops.build import Index, accumulator, narrowed, tensor
from tilewright.ops.operator import FusionKind, operator
from tilewright.ops.shapes import element, element_count, normalize_axes, normalize_axis, require_broadcast
from tilewright.symbolic.expr import ONE, Expr, as_expr, binary, cast, const, unary
from tilewright.symbolic.operations import BinaryOp, UnaryOp
from tilewright.tensor import build as te
from tilewright.tensor.ir import Reduction, Tensor


def reduce_over(
    x: Tensor,
    axes: Sequence[int],
    keep: bool,
    reducer: Callable[..., Reduction],
    value: Callable[[Expr], Expr] = as_expr,
) -> Tensor:
    """``reducer`` over ``axes`` of ``value`` of the elements of ``x``; over no axes, the values themselves.

    ``keep`` leaves reduced axes with extent 1.
    """
    reduced = {axis: te.reduce_axis((0, x.shape[axis]), name=f"r{axis}") for axis in axes}
    shape = tuple(ONE if p in reduced else e for p, e in enumerate(x.shape) if keep or p not in reduced)
    kept = [p for p in range(x.ndim) if keep or p not in reduced]

    def read(index: Index) -> Expr:
        spatial = dict(zip(kept, index, strict=True))
        return value(x[tuple(reduced[p].var if p in reduced else spatial[p] for p in range(x.ndim))])

    if not reduced:
        return tensor(shape, read)
    return tensor(shape, lambda index: reducer(read(index), axis=tuple(reduced.values())))


def _axes(x: Tensor, axes: Sequence[int] | None, noop_with_empty_axes: bool) -> tuple[int, ...]:
    """The axes to reduce: none given means all, or none where the model says so."""
    return normalize_axes(axes or (() if noop_with_empty_axes else None), x.ndim)


def _enter(
    name: str, reducer: Callable[..., Reduction], value: Callable[[Expr], Expr] = as_expr, *, sums: bool = False
) -> None:
    def function(
        x: Tensor, *, axes: Sequence[int] | None = None, keepdims: bool = True, noop_with_empty_axes: bool = False
    ) -> Tensor:
        wide = accumulator(x.dtype) if sums else u8 if x.dtype.is_bool else x.dtype
        over = _axes(x, axes, noop_with_empty_axes)
        return narrowed(reduce_over(x, over, keepdims, reducer, lambda v: value(cast(v, wide))), x.dtype)

    operator(name, FusionKind.REDUCTION)(function)


_enter("ReduceSum", te.sum, sums=True)
_enter("ReduceSumSquare", te.sum, lambda v: v * v, sums=True)
_enter("ReduceProd", te.prod, sums=True)
_enter("ReduceMax", te.max)
_enter("ReduceMin", te.min)


@operator("ReduceL2", FusionKind.REDUCTION)
def reduce_l2(
    x: Tensor, *, axes: Sequence[int] | None = None, keepdims: bool = True, noop_with_empty_axes: bool = False
) -> Tensor:
    """The square root of the sum of squares; of integers, truncated."""
    over = _axes(x, axes, noop_with_empty_axes)
    wide = accumulator(x.dtype) if x.dtype.is_float else f64
    squares = reduce_over(x, over, keepdims, te.sum, lambda v: cast(v, wide) * cast(v, wide))
    return tensor(squares.shape, lambda index: cast(unary(UnaryOp.SQRT, squares[index]), x.dtype))


@operator("ReduceMean", FusionKind.REDUCTION)
def reduce_mean(
    x: Tensor, *, axes: Sequence[int] | None = None, keepdims: bool = True, noop_with_empty_axes: bool = False
) -> Tensor:
    """The arithmetic mean; of integers, truncated."""
    over = _axes(x, axes, noop_with_empty_axes)
    wide = accumulator(x.dtype)
    total = reduce_over(x, over, keepdims, te.sum, lambda v: cast(v, wide))
    count = cast(element_count(tuple(x.shape[axis] for axis in over)), wide)
    divide = BinaryOp.DIV if wide.is_float else BinaryOp.TRUNCDIV
    return tensor(total.shape, lambda index: cast(binary(divide, total[index], count), x.dtype))


@operator("Softmax", FusionKind.REDUCTION)
def softmax(x: Tensor, *, axis: int = -1) -> Tensor:
    """``exp(x - max) / sum(exp(x - max))`` along ``axis``."""
    over = (normalize_axis(axis, x.ndim),)
    wide = accumulator(x.dtype)
    top = reduce_over(x, over, True, te.max)

    def raise_(index: Index) -> Expr:
        return unary(UnaryOp.EXP, cast(x[index], wide) - cast(element(top, index), wide))

    raised = tensor(x.shape, raise_)
    total = reduce_over(raised, over, True, te.sum)
    return tensor(x.shape, lambda index: cast(binary(BinaryOp.DIV, raised[index], element(total, index)), x.dtype))


@operator("LayerNormalization", FusionKind.REDUCTION)
def layer_normalization(
    x: Tensor, scale: Tensor, bias: Tensor | None = None, *, axis: int = -1, epsilon: float = 1e-5
) -> tuple[Tensor, Tensor, Tensor]:
    """``(x - mean) / sqrt(variance + epsilon) * scale + bias`` over the axes from ``axis`` on (Ba et al., 2016).

    Also returns the mean and ``1 / sqrt(variance + epsilon)``. Mean, then the mean of squared differences: two passes,
    as one would cancel digits.
    """
    over = tuple(range(normalize_axis(axis, x.ndim), x.ndim))
    require_broadcast(scale, x.shape, "the scale")
    if bias is not None:
        require_broadcast(bias, x.shape, "the bias")
    wide = accumulator(x.dtype)
    count = cast(element_count(tuple(x.shape[a] for a in over)), wide)
    total = reduce_over(x, over, True, te.sum, lambda v: cast(v, wide))
    mean = tensor(total.shape, lambda index: binary(BinaryOp.DIV, total[index], count))
    centered = tensor(x.shape, lambda index: cast(x[index], wide) - element(mean, index))
    squares = reduce_over(centered, over, True, te.sum, lambda v: v * v)

    def invert(index: Index) -> Expr:
        variance = binary(BinaryOp.DIV, squares[index], count)
        return binary(BinaryOp.DIV, const(1.0, wide), unary(UnaryOp.SQRT, variance + const(epsilon, wide)))

    inverse = tensor(total.shape, invert)

    def normalize(index: Index) -> Expr:
        value = centered[index] * element(inverse, index) * cast(element(scale, index), wide)
        return cast(value if bias is None else value + cast(element(bias, index), wide), x.dtype)

    return tensor(x.shape, normalize), mean, inverse
