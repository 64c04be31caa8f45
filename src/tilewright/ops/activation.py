"""Activation functions. 16-bit floats are computed in f32 and rounded once."""

import math
from collections.abc import Callable
from enum import Enum

from tilewright.base.dtypes import DType, f64
from tilewright.base.errors import BadProgram
from tilewright.ops.build import accumulator, choice, tensor
from tilewright.ops.elementwise import elementwise
from tilewright.ops.operator import FusionKind, Trait, operator
from tilewright.ops.shapes import element, require_broadcast
from tilewright.symbolic.expr import Expr, as_expr, binary, cast, const, maximum, minimum, select, unary
from tilewright.symbolic.operations import BinaryOp, UnaryOp
from tilewright.tensor.ir import Tensor


def activation(x: Tensor, body: Callable[[Expr], Expr]) -> Tensor:
    """``body`` of each element, in the dtype that sums of such elements have. Raises ``BadProgram`` unless floats."""
    if not x.dtype.is_float:
        raise BadProgram(f"an activation function of {x}: it needs floats, not {x.dtype}")
    wide = accumulator(x.dtype)
    return elementwise(lambda v: cast(body(cast(v, wide)), x.dtype), x)


def softplus_of(v: Expr) -> Expr:
    """``log(1 + exp(v))``, without overflow."""
    small = unary(UnaryOp.EXP, -unary(UnaryOp.ABS, v))
    return maximum(v, _zero(v)) + unary(UnaryOp.LOG1P, small)


def _zero(v: Expr) -> Expr:
    return const(0, v.dtype)


def _quotient(a: Expr, b: Expr | float) -> Expr:
    return binary(BinaryOp.DIV, a, b)


@operator("Celu", FusionKind.INJECTIVE, Trait.ELEMENTWISE)
def celu(x: Tensor, *, alpha: float = 1.0) -> Tensor:
    """``max(x, 0) + min(alpha (exp(x / alpha) - 1), 0)`` (Barron, 2017)."""

    def body(v: Expr) -> Expr:
        bent = alpha * unary(UnaryOp.EXPM1, _quotient(v, alpha))
        return maximum(v, _zero(v)) + minimum(bent, _zero(v))

    return activation(x, body)


@operator("Elu", FusionKind.INJECTIVE, Trait.ELEMENTWISE)
def elu(x: Tensor, *, alpha: float = 1.0) -> Tensor:
    """``x``, and ``alpha (exp(x) - 1)`` where it is negative (Clevert et al., 2015)."""
    return activation(x, lambda v: select(v < 0.0, alpha * unary(UnaryOp.EXPM1, v), v))


@operator("Selu", FusionKind.INJECTIVE, Trait.ELEMENTWISE)
def selu(x: Tensor, *, alpha: float = 1.6732632423543772, gamma: float = 1.0507009873554805) -> Tensor:
    """``gamma`` times ``x``, or times ``alpha (exp(x) - 1)`` where it is not positive (Klambauer et al., 2017)."""
    return activation(x, lambda v: gamma * select(v > 0.0, v, alpha * unary(UnaryOp.EXPM1, v)))


@operator("LeakyRelu", FusionKind.INJECTIVE, Trait.ELEMENTWISE)
def leaky_relu(x: Tensor, *, alpha: float = 0.01) -> Tensor:
    """``x``, and ``alpha x`` where it is negative."""
    return activation(x, lambda v: select(v < 0.0, alpha * v, v))


@operator("PRelu", FusionKind.INJECTIVE, Trait.ELEMENTWISE)
def prelu(x: Tensor, slope: Tensor) -> Tensor:
    """``x``, and ``slope x`` where it is negative; ``slope`` broadcasts to ``x``."""
    require_broadcast(slope, x.shape, "PRelu: the slope")
    return tensor(x.shape, lambda index: select(x[index] < 0, element(slope, index) * x[index], x[index]))


class Approximation(Enum):
    """By what the normal distribution is approximated."""

    NONE = "none"
    TANH = "tanh"


@operator("Gelu", FusionKind.INJECTIVE, Trait.ELEMENTWISE)
def gelu(x: Tensor, *, approximate: str = "none") -> Tensor:
    """``x`` times the normal distribution's ``P(X <= x)`` (Hendrycks and Gimpel, 2016); ``tanh`` approximates it."""
    by = choice(Approximation, approximate, "Gelu: approximate")

    def exact(v: Expr) -> Expr:
        return 0.5 * v * (1.0 + unary(UnaryOp.ERF, v * math.sqrt(0.5)))

    def by_tanh(v: Expr) -> Expr:
        inner = math.sqrt(2 / math.pi) * (v + 0.044715 * (v * v * v))
        return 0.5 * v * (1.0 + unary(UnaryOp.TANH, inner))

    return activation(x, exact if by is Approximation.NONE else by_tanh)


@operator("HardSigmoid", FusionKind.INJECTIVE, Trait.ELEMENTWISE)
def hard_sigmoid(x: Tensor, *, alpha: float = 0.2, beta: float = 0.5) -> Tensor:
    """``alpha x + beta`` within 0 and 1."""
    return activation(x, lambda v: _within_unit(alpha * v + beta))


@operator("HardSwish", FusionKind.INJECTIVE, Trait.ELEMENTWISE)
def hard_swish(x: Tensor) -> Tensor:
    """``x`` times ``x / 6 + 1 / 2`` within 0 and 1 (Howard et al., 2019)."""
    return activation(x, lambda v: v * _within_unit(v * (1 / 6) + 0.5))


def _within_unit(v: Expr) -> Expr:
    return maximum(minimum(v, const(1.0, v.dtype)), _zero(v))


@operator("Mish", FusionKind.INJECTIVE, Trait.ELEMENTWISE)
def mish(x: Tensor) -> Tensor:
    """``x tanh(softplus(x))`` (Misra, 2019)."""
    return activation(x, lambda v: v * unary(UnaryOp.TANH, softplus_of(v)))


@operator("Softplus", FusionKind.INJECTIVE, Trait.ELEMENTWISE)
def softplus(x: Tensor) -> Tensor:
    """``log(1 + exp(x))``."""
    return activation(x, softplus_of)


@operator("Softsign", FusionKind.INJECTIVE, Trait.ELEMENTWISE)
def softsign(x: Tensor) -> Tensor:
    """``x / (1 + |x|)``."""
    return activation(x, lambda v: _quotient(v, 1.0 + unary(UnaryOp.ABS, v)))


@operator("Swish", FusionKind.INJECTIVE, Trait.ELEMENTWISE)
def swish(x: Tensor, *, alpha: float = 1.0) -> Tensor:
    """``x sigmoid(alpha x)`` (Ramachandran et al., 2017)."""
    return activation(x, lambda v: v * unary(UnaryOp.SIGMOID, alpha * v))


@operator("ThresholdedRelu", FusionKind.INJECTIVE, Trait.ELEMENTWISE)
def thresholded_relu(x: Tensor, *, alpha: float = 1.0) -> Tensor:
    """``x`` where it is above ``alpha``, else 0."""
    return activation(x, lambda v: select(v > alpha, v, _zero(v)))


@operator("Shrink", FusionKind.INJECTIVE, Trait.ELEMENTWISE)
def shrink(x: Tensor, *, bias: float = 0.0, lambd: float = 0.5) -> Tensor:
    """``x`` moved by ``bias`` towards 0 where it is beyond ``lambd``, else 0; integers in f64, truncated."""
    wide: DType = accumulator(x.dtype) if x.dtype.is_float else f64

    def body(element: Expr) -> Expr:
        v = cast(element, wide)
        moved = select(v < -lambd, v + bias, select(v > lambd, v - bias, as_expr(0, wide)))
        return cast(moved, x.dtype)

    return elementwise(body, x)
