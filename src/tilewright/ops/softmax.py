"""Softmax and its relatives, along one axis."""

from collections.abc import Sequence

from tilewright.base.dtypes import DType, f32
from tilewright.base.dtypes import index as index_dtype
from tilewright.ops.build import Index, accumulator, tensor
from tilewright.ops.operator import FusionKind, Trait, operator
from tilewright.ops.reduction import reduce_over
from tilewright.ops.shapes import element, normalize_axis
from tilewright.symbolic.expr import Expr, binary, cast, const, equal, maximum, minimum, select, unary
from tilewright.symbolic.operations import BinaryOp, UnaryOp
from tilewright.tensor import build as te
from tilewright.tensor.ir import Tensor


@operator("Softmax", FusionKind.REDUCTION, Trait.FLAT_AXES | Trait.LIKE_FIRST)
def softmax(x: Tensor, *, axis: int = -1) -> Tensor:
    """``exp(x - max) / sum(exp(x - max))`` along ``axis``: multiplied by the quotient of 1 and the sum, which is at
    least 1, since a division of every element takes longer than all else."""
    over = (normalize_axis(axis, x.ndim),)
    wide = accumulator(x.dtype)
    lowered = _lowered(x, over, wide)
    raised = tensor(x.shape, lambda index: _weight(lowered[index]))
    total = reduce_over(raised, over, True, te.sum)
    share = tensor(total.shape, lambda index: binary(BinaryOp.DIV, const(1.0, wide), total[index]), name="share")
    return tensor(x.shape, lambda index: cast(raised[index] * element(share, index), x.dtype))


@operator("LogSoftmax", FusionKind.REDUCTION, Trait.FLAT_AXES | Trait.LIKE_FIRST)
def log_softmax(x: Tensor, *, axis: int = -1) -> Tensor:
    """``x - max - log(sum(exp(x - max)))`` along ``axis``."""
    over = (normalize_axis(axis, x.ndim),)
    wide = accumulator(x.dtype)
    lowered = _lowered(x, over, wide)
    total = reduce_over(lowered, over, True, te.sum, exp_up_to_one)
    logarithm = tensor(total.shape, lambda index: unary(UnaryOp.LOG, total[index]))
    return tensor(x.shape, lambda index: cast(lowered[index] - element(logarithm, index), x.dtype))


def exp_up_to_one(difference: Expr) -> Expr:
    """``exp`` of a difference to a maximum, which is at most 0: with that, it takes fewer instructions."""
    return unary(UnaryOp.EXP, minimum(difference, const(0.0, difference.dtype)))


def _weight(difference: Expr) -> Expr:
    """A term of the sum of a softmax."""
    return weight_up_to_one(difference, _LEAST_SHARE) if difference.dtype == f32 else exp_up_to_one(difference)


_LEAST = -87.0
"""Powers of e that are no subnormal numbers of f32."""
_LEAST_SHARE = -80.0
"""Powers of e whose quotients by sums of up to a thousand are no subnormal numbers of f32."""


def weight_up_to_one(difference: Expr, least: float = _LEAST) -> Expr:
    """``exp_up_to_one`` of numbers of f32, but 0 below ``least``, where that would be a subnormal number: making such
    numbers, and multiplying them, takes many times as long."""
    end, zero = const(least, f32), const(0.0, f32)
    return select(difference < end, zero, exp_up_to_one(maximum(difference, const(_LEAST, f32))))


def _lowered(x: Tensor, over: Sequence[int], wide: DType) -> Tensor:
    """``x - max``."""
    top = reduce_over(x, over, True, te.max)
    return tensor(x.shape, lambda index: cast(x[index], wide) - cast(element(top, index), wide))


@operator("Hardmax", FusionKind.REDUCTION)
def hardmax(x: Tensor, *, axis: int = -1) -> Tensor:
    """1 at the first of the largest elements along ``axis``, else 0."""
    at = normalize_axis(axis, x.ndim)
    along = te.reduce_axis((0, x.shape[at]), name="r")
    shape = (*x.shape[:at], const(1), *x.shape[at + 1 :])

    def find(*index: Expr) -> te.TupleReduction:
        return te.argmax((along.var, x[(*index[:at], along.var, *index[at + 1 :])]), axis=along)

    first, _ = te.compute(shape, find)

    def body(index: Index) -> Expr:
        chosen = equal(index[at], cast(element(first, index), index_dtype))
        return select(chosen, const(1, x.dtype), const(0, x.dtype))

    return tensor(x.shape, body)
