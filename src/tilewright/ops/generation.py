"""Operators that generate tensors from numbers and shapes."""

from collections.abc import Sequence

from tilewright.base.dtypes import DType, f64, i64
from tilewright.base.errors import BadProgram
from tilewright.ops.build import Index, accumulator, tensor
from tilewright.ops.operator import FusionKind, Trait, operator
from tilewright.ops.shapes import element_count, show
from tilewright.symbolic.expr import ONE, ZERO, Expr, as_expr, cast, const, equal, maximum, select, unary
from tilewright.symbolic.operations import UnaryOp
from tilewright.symbolic.sizes import flat_index
from tilewright.symbolic.traversal import vars_in
from tilewright.tensor.ir import Tensor


@operator("EyeLike", FusionKind.INJECTIVE, Trait.LIKE_FIRST)
def eye_like(x: Tensor, *, dtype: DType | None = None, k: int = 0) -> Tensor:
    """A matrix of the shape of ``x`` with ones on its ``k``-th diagonal, else zeros."""
    if x.ndim != 2:
        raise BadProgram(f"EyeLike of {x}: it is no matrix")
    own = x.dtype if dtype is None else dtype
    return tensor(x.shape, lambda index: select(equal(index[1] - index[0], k), const(1, own), const(0, own)))


@operator("Range", FusionKind.INJECTIVE)
def range_(start: Tensor, delta: Tensor, *, count: int | Expr) -> Tensor:
    """``count`` numbers from ``start`` on, ``delta`` apart; 16-bit floats are computed in f32."""
    if start.dtype != delta.dtype:
        raise BadProgram(f"Range from {start} by {delta}: the dtypes differ")
    wide = accumulator(start.dtype)
    first, step = (cast(t[(ZERO,) * t.ndim], wide) for t in (start, delta))

    def body(index: Index) -> Expr:
        return cast(first + cast(index[0], wide) * step, start.dtype)

    return tensor((as_expr(count),), body)


@operator("RangeCount", FusionKind.INJECTIVE)
def range_count(start: Tensor, limit: Tensor, delta: Tensor) -> Tensor:
    """How many numbers a ``Range`` from ``start[1]`` to ``limit[1]`` by ``delta[1]`` has, i64[1]; -1 if it has no end.

    Floats are computed in f64.
    """
    if not start.dtype == limit.dtype == delta.dtype:
        raise BadProgram(f"RangeCount from {start} to {limit} by {delta}: the dtypes differ")
    is_float = start.dtype.is_float

    def body(index: Index) -> Expr:
        first, last, step = (cast(t[index], f64) if is_float else t[index] for t in (start, limit, delta))
        if is_float:
            steps = unary(UnaryOp.CEIL, (last - first) / step)
            has_end = (steps < const(float(MAX_COUNT), f64)) & ~equal(step, 0.0)
            return select(has_end, cast(maximum(steps, const(0.0, f64)), i64), const(-1, i64))
        steps = ZERO - (cast(first, i64) - cast(last, i64)) // cast(step, i64)
        return select(equal(step, 0), const(-1, i64), maximum(steps, ZERO))

    return tensor((ONE,), body)


MAX_COUNT = 1 << 62
"""Ranges of more numbers have no end."""


@operator("Elements", FusionKind.INJECTIVE)
def elements(*, values: Sequence[int | Expr], shape: Sequence[int], dtype: DType) -> Tensor:
    """A row-major tensor of integers or bools whose elements are expressions over run-time extents."""
    extents = tuple(map(as_expr, shape))
    listed = tuple(cast(as_expr(value), dtype) for value in values)
    if not listed or element_count(extents) != const(len(listed)):
        raise BadProgram(f"Elements: {len(listed)} values do not fill {show(extents)}")

    def choose(begin: int, end: int, flat: Expr) -> Expr:
        """By bisection, to keep nesting shallow."""
        if end - begin == 1:
            return listed[begin]
        middle = (begin + end) // 2
        return select(flat < middle, choose(begin, middle, flat), choose(middle, end, flat))

    dims = vars_in(listed)
    return tensor(extents, lambda index: choose(0, len(listed), flat_index(index, extents)), dims=dims)
