"""An elementwise operator in one file: ``my.domain::Swish2``, as ``docs/extending.md`` shows it."""

from tilewright.frontend.onnx.read.foreign import OnnxOperator
from tilewright.frontend.onnx.read.rules import Rule
from tilewright.ops import FusionKind, Operator, Trait
from tilewright.ops.elementwise import elementwise
from tilewright.symbolic.expr import const, unary
from tilewright.symbolic.operations import UnaryOp
from tilewright.tensor.ir import Tensor


def swish2(x: Tensor, *, beta: float = 1.0) -> Tensor:
    """``x * sigmoid(beta * x)``, twice."""
    return elementwise(lambda v: v * unary(UnaryOp.SIGMOID, v * const(beta, v.dtype)) * const(2.0, v.dtype), x)


SWISH2 = OnnxOperator(
    "my.domain",
    "Swish2",
    Rule(Operator("my.domain.Swish2", swish2, FusionKind.INJECTIVE, Trait.ELEMENTWISE), {"beta": "beta"}),
)
