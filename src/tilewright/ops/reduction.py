"""Reductions over axes. 16-bit floats are added up in f32."""

from collections.abc import Callable, Sequence

from tilewright.base.dtypes import DType, f64, u8
from tilewright.base.errors import BadProgram
from tilewright.ops.batches import reduced_rows
from tilewright.ops.build import Index, accumulator, narrowed, tensor
from tilewright.ops.movement import without_axes
from tilewright.ops.operator import FusionKind, Trait, operator
from tilewright.ops.shapes import element, element_count, normalize_axes
from tilewright.symbolic.expr import ONE, Expr, as_expr, binary, cast, const, select, unary
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
    """``reducer`` over ``axes`` of ``value`` of the elements of ``x``; without axes, the values themselves.

    ``keep``: keep reduced axes with extent 1.
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
    """The axes to reduce: None means all, or none if the model says so."""
    return normalize_axes(axes or (() if noop_with_empty_axes else None), x.ndim)


def _real(dtype: DType) -> DType:
    """The float dtype in which to compute roots and logarithms of sums."""
    return accumulator(dtype) if dtype.is_float else f64


def _comparable(dtype: DType) -> DType:
    return u8 if dtype.is_bool else dtype


def _quotient(total: Expr, count: Expr) -> Expr:
    return binary(BinaryOp.DIV if total.dtype.is_float else BinaryOp.TRUNCDIV, total, count)


def _enter(
    name: str,
    reducer: Callable[..., Reduction],
    wide: Callable[[DType], DType],
    value: Callable[[Expr], Expr] = as_expr,
    finish: Callable[[Expr, Expr], Expr] | None = None,
) -> None:
    """``value`` of elements reduced, then ``finish`` of that and of their number: in the dtype ``wide`` of theirs."""

    def function(
        x: Tensor, *, axes: Sequence[int] | None = None, keepdims: bool = True, noop_with_empty_axes: bool = False
    ) -> Tensor:
        dtype, over = wide(x.dtype), _axes(x, axes, noop_with_empty_axes)
        total = reduce_over(x, over, keepdims, reducer, lambda v: value(cast(v, dtype)))
        if (last := finish) is None:
            return narrowed(total, x.dtype)
        count = cast(element_count(tuple(x.shape[axis] for axis in over)), dtype)
        return tensor(total.shape, lambda index: cast(last(total[index], count), x.dtype))

    operator(name, FusionKind.REDUCTION, Trait.FLAT_AXES, batched=reduced_rows)(function)


_enter("ReduceSum", te.sum, accumulator)
_enter("ReduceL1", te.sum, accumulator, lambda v: unary(UnaryOp.ABS, v))
_enter("ReduceL2", te.sum, _real, lambda v: v * v, lambda total, _: unary(UnaryOp.SQRT, total))
_enter("ReduceSumSquare", te.sum, accumulator, lambda v: v * v)
_enter("ReduceLogSum", te.sum, _real, finish=lambda total, _: unary(UnaryOp.LOG, total))
_enter("ReduceMean", te.sum, accumulator, finish=_quotient)
_enter("ReduceProd", te.prod, accumulator)
_enter("ReduceMax", te.max, _comparable)
_enter("ReduceMin", te.min, _comparable)


@operator("ReduceLp", FusionKind.REDUCTION, Trait.FLAT_AXES)
def reduce_lp(x: Tensor, *, p: int, axes: Sequence[int] | None = None, keepdims: bool = True) -> Tensor:
    """The ``p``-th root of the sum of ``|x| ** p``."""
    wide = _real(x.dtype)
    powers = reduce_over(x, normalize_axes(axes, x.ndim), keepdims, te.sum, lambda v: power_of(cast(v, wide), p))
    return tensor(powers.shape, lambda index: cast(root_of(powers[index], p), x.dtype))


def power_of(value: Expr, p: int) -> Expr:
    """``|value| ** p``. Raises ``BadProgram`` if ``p`` is below 1."""
    if p < 1:
        raise BadProgram(f"p is {p}; a norm needs at least 1")
    if p == 2:
        return value * value
    size = unary(UnaryOp.ABS, value)
    return size if p == 1 else binary(BinaryOp.POW, size, const(p, value.dtype))


def root_of(value: Expr, p: int) -> Expr:
    """``value ** (1 / p)``."""
    if p <= 2:
        return unary(UnaryOp.SQRT, value) if p == 2 else value
    return binary(BinaryOp.POW, value, const(1.0 / p, value.dtype))


@operator("ReduceLogSumExp", FusionKind.REDUCTION, Trait.FLAT_AXES)
def reduce_log_sum_exp(
    x: Tensor, *, axes: Sequence[int] | None = None, keepdims: bool = True, noop_with_empty_axes: bool = False
) -> Tensor:
    """``log(sum(exp(x)))``, computed as ``max + log(sum(exp(x - max)))`` to avoid overflow."""
    over = _axes(x, axes, noop_with_empty_axes)
    wide = _real(x.dtype)
    top = finite(reduce_over(x, over, True, te.max, lambda v: cast(v, wide)))
    raised = tensor(x.shape, lambda index: unary(UnaryOp.EXP, cast(x[index], wide) - element(top, index)))
    total = reduce_over(raised, over, True, te.sum)
    result = tensor(total.shape, lambda index: cast(unary(UnaryOp.LOG, total[index]) + top[index], x.dtype))
    return result if keepdims or not over else without_axes(result, over)


def finite(top: Tensor) -> Tensor:
    """``top`` with infinities replaced by 0: the difference of an infinity and itself would be NaN."""

    def body(index: Index) -> Expr:
        return select(unary(UnaryOp.ISINF, top[index]), const(0.0, top.dtype), top[index])

    return tensor(top.shape, body)
