"""Running sums and products along an axis: scans. 16-bit floats are accumulated in f32."""

from collections.abc import Callable

from tilewright.base.errors import BadProgram
from tilewright.ops.build import Index, accumulator, tensor
from tilewright.ops.operator import FusionKind, operator
from tilewright.ops.shapes import normalize_axis
from tilewright.symbolic.expr import ONE, Expr, cast, const
from tilewright.tensor.build import placeholder
from tilewright.tensor.ir import Tensor
from tilewright.tensor.scan import scan


def _accumulate(
    x: Tensor, axis: int, exclusive: bool, reverse: bool, combine: Callable[[Expr, Expr], Expr], neutral: int
) -> Tensor:
    """Row ``t`` of the scan combines the first ``t`` slices of ``x``: the result is all rows but the first or last."""
    at = normalize_axis(axis, x.ndim)
    extent, wide = x.shape[at], accumulator(x.dtype)
    if not (wide.is_float or wide.is_int):
        raise BadProgram(f"elements of {x} can't be accumulated")
    others = (*x.shape[:at], *x.shape[at + 1 :])

    def element(t: Expr, index: Index) -> Expr:
        row = extent - 1 - t if reverse else t
        return cast(x[(*index[:at], row, *index[at:])], wide)

    state = placeholder((extent + 1, *others), wide, "state")
    init = tensor((ONE, *others), lambda _: const(neutral, wide))
    update = tensor(state.shape, lambda i: combine(state[(i[0] - 1, *i[1:])], element(i[0] - 1, i[1:])))
    totals = scan(init, update, state, name="totals")

    def body(index: Index) -> Expr:
        row = extent - 1 - index[at] if reverse else index[at]
        return cast(totals[(row if exclusive else row + 1, *index[:at], *index[at + 1 :])], x.dtype)

    return tensor(x.shape, body)


@operator("CumSum", FusionKind.OPAQUE)
def cumulative_sum(x: Tensor, *, axis: int, exclusive: bool = False, reverse: bool = False) -> Tensor:
    """Sums of ``x`` along ``axis`` up to each element, itself included unless ``exclusive``; ``reverse``: from the end.

    Extents may be known at run time only.
    """
    return _accumulate(x, axis, exclusive, reverse, lambda a, b: a + b, 0)


@operator("CumProd", FusionKind.OPAQUE)
def cumulative_product(x: Tensor, *, axis: int, exclusive: bool = False, reverse: bool = False) -> Tensor:
    """Products instead of sums; otherwise as ``CumSum``."""
    return _accumulate(x, axis, exclusive, reverse, lambda a, b: a * b, 1)
