"""A normalization in one file: ``my.domain::PeakNorm``, as ``docs/extending.md`` shows it."""

from tilewright.frontend.onnx.read.foreign import OnnxOperator
from tilewright.frontend.onnx.read.rules import Rule
from tilewright.ops import FusionKind, Operator
from tilewright.ops.build import Index, accumulator, tensor
from tilewright.ops.reduction import reduce_over
from tilewright.ops.shapes import element, require_broadcast
from tilewright.symbolic.expr import Expr, binary, cast, const, unary
from tilewright.symbolic.operations import BinaryOp, UnaryOp
from tilewright.tensor import build as te
from tilewright.tensor.ir import Tensor


def peak_norm(x: Tensor, scale: Tensor, *, epsilon: float = 1e-6) -> Tensor:
    """``x / (max |x| + epsilon) * scale`` over the last axis."""
    require_broadcast(scale, x.shape, "the scale")
    wide = accumulator(x.dtype)
    peak = reduce_over(x, (x.ndim - 1,), True, te.max, lambda v: cast(unary(UnaryOp.ABS, v), wide))

    def normalize(index: Index) -> Expr:
        divisor = element(peak, index) + const(epsilon, wide)
        quotient = binary(BinaryOp.DIV, cast(x[index], wide), divisor)
        return cast(quotient * cast(element(scale, index), wide), x.dtype)

    return tensor(x.shape, normalize)


PEAK_NORM = OnnxOperator(
    "my.domain",
    "PeakNorm",
    Rule(Operator("my.domain.PeakNorm", peak_norm, FusionKind.REDUCTION), {"epsilon": "epsilon"}),
)
