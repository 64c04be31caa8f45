"""Operators that make tensors out of numbers and shapes."""

from tilewright.base.dtypes import DType
from tilewright.base.errors import BadProgram
from tilewright.ops.build import Index, accumulator, tensor
from tilewright.ops.operator import FusionKind, operator
from tilewright.symbolic.expr import ZERO, Expr, as_expr, cast, const, equal, select
from tilewright.tensor.ir import Tensor


@operator("EyeLike", FusionKind.INJECTIVE)
def eye_like(x: Tensor, *, dtype: DType | None = None, k: int = 0) -> Tensor:
    """A matrix of the shape of ``x`` with ones on its ``k``-th diagonal, else zeros."""
    if x.ndim != 2:
        raise BadProgram(f"EyeLike of {x}: it is no matrix")
    own = x.dtype if dtype is None else dtype
    return tensor(x.shape, lambda index: select(equal(index[1] - index[0], k), const(1, own), const(0, own)))


@operator("Range", FusionKind.INJECTIVE)
def range_(start: Tensor, delta: Tensor, *, count: int) -> Tensor:
    """``count`` numbers from ``start`` on, ``delta`` apart; 16-bit floats are computed in f32."""
    if start.dtype != delta.dtype:
        raise BadProgram(f"Range from {start} by {delta}: the dtypes differ")
    wide = accumulator(start.dtype)
    first, step = (cast(t[(ZERO,) * t.ndim], wide) for t in (start, delta))

    def body(index: Index) -> Expr:
        return cast(first + cast(index[0], wide) * step, start.dtype)

    return tensor((as_expr(count),), body)
