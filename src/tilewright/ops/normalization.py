"""Normalizations. Statistics of 16-bit floats are computed in f32.

Variances are means of squared differences: two passes, as the difference of two means of squares would cancel digits.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from tilewright.base.dtypes import DType
from tilewright.base.errors import BadProgram
from tilewright.ops.build import Index, accumulator, tensor
from tilewright.ops.operator import FusionKind, Trait, operator
from tilewright.ops.reduction import power_of, reduce_over, root_of
from tilewright.ops.shapes import (
    element,
    element_count,
    normalize_axes,
    normalize_axis,
    require_broadcast,
    same_extent,
    simplified,
)
from tilewright.symbolic.expr import ZERO, Const, Expr, binary, cast, const, equal, select, unary
from tilewright.symbolic.operations import BinaryOp, UnaryOp
from tilewright.tensor import build as te
from tilewright.tensor.ir import Reduction, Tensor


@dataclass(frozen=True, slots=True)
class _Statistics:
    """Statistics of ``x`` over some axes, which are kept with extent 1; all in ``dtype``."""

    mean: Tensor
    centered: Tensor
    """``x - mean``, of the shape of ``x``."""
    variance: Tensor

    def inverse_deviation(self, epsilon: float) -> Tensor:
        """``1 / sqrt(variance + epsilon)``."""
        return tensor(self.variance.shape, lambda index: _inverse_root(self.variance[index], epsilon))


def _inverse_root(value: Expr, epsilon: float) -> Expr:
    return binary(BinaryOp.DIV, const(1.0, value.dtype), unary(UnaryOp.SQRT, value + const(epsilon, value.dtype)))


def _statistics(x: Tensor, over: Sequence[int], wide: DType) -> _Statistics:
    mean = _mean(reduce_over(x, over, True, te.sum, lambda v: cast(v, wide)), x, over)
    centered = tensor(x.shape, lambda index: cast(x[index], wide) - element(mean, index))
    variance = _mean(reduce_over(centered, over, True, te.sum, lambda v: v * v), x, over)
    return _Statistics(mean, centered, variance)


def _mean(total: Tensor, x: Tensor, over: Sequence[int]) -> Tensor:
    count = cast(element_count(tuple(x.shape[a] for a in over)), total.dtype)
    return tensor(total.shape, lambda index: binary(BinaryOp.DIV, total[index], count))


@operator("LayerNormalization", FusionKind.REDUCTION, Trait.FLAT_AXES | Trait.LIKE_FIRST)
def layer_normalization(
    x: Tensor, scale: Tensor, bias: Tensor | None = None, *, axis: int = -1, epsilon: float = 1e-5
) -> tuple[Tensor, Tensor, Tensor]:
    """``(x - mean) / sqrt(variance + epsilon) * scale + bias`` over the axes from ``axis`` on (Ba et al., 2016).

    Also returns the mean and ``1 / sqrt(variance + epsilon)``.
    """
    over = tuple(range(normalize_axis(axis, x.ndim), x.ndim))
    require_broadcast(scale, x.shape, "the scale")
    if bias is not None:
        require_broadcast(bias, x.shape, "the bias")
    wide = accumulator(x.dtype)
    known = _statistics(x, over, wide)
    inverse = known.inverse_deviation(epsilon)

    def normalize(index: Index) -> Expr:
        value = known.centered[index] * element(inverse, index) * cast(element(scale, index), wide)
        return cast(value if bias is None else value + cast(element(bias, index), wide), x.dtype)

    return tensor(x.shape, normalize), known.mean, inverse


@operator("RMSNormalization", FusionKind.REDUCTION, Trait.FLAT_AXES | Trait.LIKE_FIRST)
def rms_normalization(x: Tensor, scale: Tensor, *, axis: int = -1, epsilon: float = 1e-5) -> Tensor:
    """``x / sqrt(mean(x * x) + epsilon) * scale`` over the axes from ``axis`` on (Zhang and Sennrich, 2019)."""
    over = tuple(range(normalize_axis(axis, x.ndim), x.ndim))
    require_broadcast(scale, x.shape, "the scale")
    wide = accumulator(x.dtype)
    squares = _mean(reduce_over(x, over, True, te.sum, lambda v: cast(v, wide) * cast(v, wide)), x, over)
    inverse = tensor(squares.shape, lambda index: _inverse_root(squares[index], epsilon))

    def normalize(index: Index) -> Expr:
        return cast(cast(x[index], wide) * element(inverse, index) * cast(element(scale, index), wide), x.dtype)

    return tensor(x.shape, normalize)


@operator("GroupNormalization", FusionKind.REDUCTION, Trait.LIKE_FIRST)
def group_normalization(x: Tensor, scale: Tensor, bias: Tensor, *, epsilon: float = 1e-5) -> Tensor:
    """``[batch, groups, elements]`` normalized along the elements, then scaled by channel (Wu and He, 2018).

    ``scale`` and ``bias`` are ``[channels]``; each group has equally many channels, one after the other.
    """
    if x.ndim != 3:
        raise BadProgram(f"{x} must have the shape [batch, groups, elements]")
    groups, elements = x.shape[1:]
    channels = scale.shape[0] if scale.ndim == 1 else None
    if channels is None or scale.shape != bias.shape:
        raise BadProgram(f"the scale {scale} and the bias {bias} must be vectors, one element for each channel")
    if isinstance(channels, Const) and isinstance(groups, Const) and not _divides(groups, channels):
        raise BadProgram(f"{channels} channels can't be divided into {groups} groups")
    per_group = simplified(channels // groups)
    per_channel = simplified(elements // per_group)
    wide = accumulator(x.dtype)
    known = _statistics(x, (2,), wide)
    inverse = known.inverse_deviation(epsilon)

    def normalize(index: Index) -> Expr:
        channel = simplified(index[1] * per_group) + (ZERO if per_group == const(1) else index[2] // per_channel)
        value = known.centered[index] * element(inverse, index)
        return cast(value * cast(scale[channel], wide) + cast(bias[channel], wide), x.dtype)

    return tensor(x.shape, normalize)


def _divides(divisor: Const, number: Const) -> bool:
    return int(number.value) % int(divisor.value) == 0 if divisor.value else not number.value


@operator("MeanVarianceNormalization", FusionKind.REDUCTION)
def mean_variance_normalization(x: Tensor, *, axes: Sequence[int] = (0, 2, 3), epsilon: float = 1e-9) -> Tensor:
    """``(x - mean) / (sqrt(variance) + epsilon)`` over ``axes``."""
    wide = accumulator(x.dtype)
    known = _statistics(x, normalize_axes(axes, x.ndim), wide)

    def body(index: Index) -> Expr:
        deviation = unary(UnaryOp.SQRT, element(known.variance, index)) + const(epsilon, wide)
        return cast(binary(BinaryOp.DIV, known.centered[index], deviation), x.dtype)

    return tensor(x.shape, body)


@operator("LpNormalization", FusionKind.REDUCTION)
def lp_normalization(x: Tensor, *, axis: int = -1, p: int = 2) -> Tensor:
    """``x`` divided by the ``p``-norm along ``axis``; 0 where the norm is 0."""
    wide = accumulator(x.dtype)
    over = (normalize_axis(axis, x.ndim),)
    powers = reduce_over(x, over, True, te.sum, lambda v: power_of(cast(v, wide), p))
    norm = tensor(powers.shape, lambda index: root_of(powers[index], p))

    def body(index: Index) -> Expr:
        length = element(norm, index)
        quotient = binary(BinaryOp.DIV, cast(x[index], wide), length)
        return cast(select(equal(length, 0), const(0, wide), quotient), x.dtype)

    return tensor(x.shape, body)


@operator("LRN", FusionKind.REDUCTION)
def local_response_normalization(
    x: Tensor, *, size: int, alpha: float = 1e-4, beta: float = 0.75, bias: float = 1.0
) -> Tensor:
    """``x / (bias + alpha / size * sum of squares of size channels around) ** beta`` (Krizhevsky et al., 2012)."""
    if x.ndim < 2:
        raise BadProgram(f"{x} must have the shape [batch, channels, ...]")
    if size < 1:
        raise BadProgram(f"size is {size}; it must be at least 1")
    wide = accumulator(x.dtype)
    before, after = (size - 1) // 2, size // 2
    if isinstance(x.shape[1], Const):  # larger windows contain no more elements
        before, after = (min(reach, int(x.shape[1].value)) for reach in (before, after))
    near = te.reduce_axis((0, const(before + after + 1)), name="k")

    def add(index: Index) -> Reduction:
        channel = index[1] + near.var - before
        value = cast(x[(index[0], channel, *index[2:])], wide)
        return te.sum(value * value, axis=near, where=(channel >= 0) & (channel < x.shape[1]))

    squares = tensor(x.shape, add)

    def body(index: Index) -> Expr:
        base = const(bias, wide) + const(alpha / size, wide) * squares[index]
        return cast(binary(BinaryOp.DIV, cast(x[index], wide), binary(BinaryOp.POW, base, const(beta, wide))), x.dtype)

    return tensor(x.shape, body)


@operator("BatchNormalization", FusionKind.INJECTIVE, Trait.LIKE_FIRST)
def batch_normalization(
    x: Tensor, scale: Tensor, bias: Tensor, mean: Tensor, variance: Tensor, *, epsilon: float = 1e-5
) -> Tensor:
    """``scale / sqrt(variance + epsilon) * (x - mean) + bias`` of each channel (Ioffe and Szegedy, 2015).

    Statistics are inputs (inference). All four parameters have the shape ``[channels]``; a vector has one channel.
    """
    channels = x.shape[1] if x.ndim > 1 else const(1)
    for role, parameter in {"scale": scale, "bias": bias, "mean": mean, "variance": variance}.items():
        if not x.ndim or parameter.ndim != 1 or not same_extent(parameter.shape[0], channels):
            raise BadProgram(f"the {role} {parameter} must have the shape [{channels}], one for each channel of {x}")
    wide = accumulator(x.dtype)
    factor = tensor(
        scale.shape, lambda index: cast(scale[index], wide) * _inverse_root(cast(variance[index], wide), epsilon)
    )

    def body(index: Index) -> Expr:
        channel = index[1] if x.ndim > 1 else ZERO
        centered = cast(x[index], wide) - cast(mean[channel], wide)
        return cast(factor[channel] * centered + cast(bias[channel], wide), x.dtype)

    return tensor(x.shape, body)
