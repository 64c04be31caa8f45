"""Normalizations of ``[batch, channels, spatial...]`` with parameters for each channel."""

from tilewright.base.errors import BadProgram
from tilewright.ops.build import Index, accumulator, tensor
from tilewright.ops.operator import FusionKind, operator
from tilewright.ops.shapes import same_extent
from tilewright.symbolic.expr import Expr, binary, cast, const, unary
from tilewright.symbolic.operations import BinaryOp, UnaryOp
from tilewright.tensor.ir import Tensor


@operator("BatchNormalization", FusionKind.INJECTIVE)
def batch_normalization(
    x: Tensor, scale: Tensor, bias: Tensor, mean: Tensor, variance: Tensor, *, epsilon: float = 1e-5
) -> Tensor:
    """``scale / sqrt(variance + epsilon) * (x - mean) + bias`` of each channel (Ioffe and Szegedy, 2015).

    Statistics are given (inference). All four parameters have the shape ``[channels]``.
    """
    for role, parameter in {"scale": scale, "bias": bias, "mean": mean, "variance": variance}.items():
        require_channels(x, parameter, role)
    wide = accumulator(x.dtype)

    def invert(index: Index) -> Expr:
        deviation = unary(UnaryOp.SQRT, cast(variance[index], wide) + const(epsilon, wide))
        return binary(BinaryOp.DIV, cast(scale[index], wide), deviation)

    factor = tensor(scale.shape, invert)

    def body(index: Index) -> Expr:
        channel = channel_of(index)
        centered = cast(x[index], wide) - cast(mean[channel], wide)
        return cast(factor[channel] * centered + cast(bias[channel], wide), x.dtype)

    return tensor(x.shape, body)


def channel_of(index: Index) -> Expr:
    """The index of the channel; a vector has one channel."""
    return index[1] if len(index) > 1 else const(0)


def require_channels(x: Tensor, parameter: Tensor, role: str) -> None:
    """Raises ``BadProgram`` unless ``parameter`` has one element for each channel of ``x``."""
    channels = x.shape[1] if x.ndim > 1 else const(1)
    if not x.ndim or parameter.ndim != 1 or not same_extent(parameter.shape[0], channels):
        raise BadProgram(f"the {role} {parameter} must have the shape [{channels}], one for each channel of {x}")
