"""Activation functions. 16-bit floats are computed in f32 and rounded once."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum

from tilewright.base.dtypes import DType, f64
from tilewright.base.errors import BadProgram
from tilewright.ops.build import accumulator, choice, tensor
from tilewright.ops.elementwise import elementwise
from tilewright.ops.operator import FusionKind, Trait, operator
from tilewright.ops.shapes import element, require_broadcast
from tilewright.symbolic.expr import Expr, as_expr, cast, const, maximum, minimum, select
from tilewright.tensor.functions import abs, erf, exp, expm1, log1p, sigmoid, tanh
from tilewright.tensor.ir import Tensor


def activation(x: Tensor, body: Callable[[Expr], Expr]) -> Tensor:
    """``body`` of each element, computed in the dtype of sums. Raises ``BadProgram`` unless floats."""
    if not x.dtype.is_float:
        raise BadProgram(f"an activation function of {x}: it needs floats, not {x.dtype}")
    wide = accumulator(x.dtype)
    return elementwise(lambda v: cast(body(cast(v, wide)), x.dtype), x)


def _zero(x: Expr) -> Expr:
    return const(0, x.dtype)


def _within_unit(x: Expr) -> Expr:
    return maximum(minimum(x, const(1.0, x.dtype)), _zero(x))


def _softplus(x: Expr) -> Expr:
    """``log(1 + exp(x))``, without overflow."""
    return maximum(x, _zero(x)) + log1p(exp(-abs(x)))


@dataclass(frozen=True, slots=True)
class Form:
    """A function of ``(x, alpha, beta)``; defaults of the parameters that it has."""

    function: Callable[[Expr, Expr, Expr], Expr]
    alpha: float | None = None
    beta: float | None = None

    def of(self, alpha: float, beta: float) -> Callable[[Expr], Expr]:
        """The function of ``x``."""
        return lambda x: self.function(x, const(alpha, x.dtype), const(beta, x.dtype))


ACTIVATIONS: Mapping[str, Form] = {
    # Barron, 2017
    "Celu": Form(lambda x, alpha, _: maximum(x, _zero(x)) + minimum(alpha * expm1(x / alpha), _zero(x)), 1.0),
    # Clevert et al., 2015
    "Elu": Form(lambda x, alpha, _: select(x < 0.0, alpha * expm1(x), x), 1.0),
    "HardSigmoid": Form(lambda x, alpha, beta: _within_unit(alpha * x + beta), 0.2, 0.5),
    # Howard et al., 2019
    "HardSwish": Form(lambda x, _alpha, _beta: x * _within_unit(x * (1 / 6) + 0.5)),
    "LeakyRelu": Form(lambda x, alpha, _: select(x < 0.0, alpha * x, x), 0.01),
    # Misra, 2019
    "Mish": Form(lambda x, _alpha, _beta: x * tanh(_softplus(x))),
    "Softplus": Form(lambda x, _alpha, _beta: _softplus(x)),
    "Softsign": Form(lambda x, _alpha, _beta: x / (1.0 + abs(x))),
    # Ramachandran et al., 2017
    "Swish": Form(lambda x, alpha, _: x * sigmoid(alpha * x), 1.0),
    "ThresholdedRelu": Form(lambda x, alpha, _: select(x > alpha, x, _zero(x)), 1.0),
}
"""Operators that are one function of an element and numbers."""


def _enter(name: str, form: Form) -> None:
    def plain(x: Tensor) -> Tensor:
        return activation(x, form.of(0.0, 0.0))

    def with_alpha(x: Tensor, *, alpha: float = form.alpha or 0.0) -> Tensor:
        return activation(x, form.of(alpha, 0.0))

    def with_both(x: Tensor, *, alpha: float = form.alpha or 0.0, beta: float = form.beta or 0.0) -> Tensor:
        return activation(x, form.of(alpha, beta))

    function = plain if form.alpha is None else with_alpha if form.beta is None else with_both
    operator(name, FusionKind.INJECTIVE, Trait.ELEMENTWISE)(function)


for _name, _form in ACTIVATIONS.items():
    _enter(_name, _form)


@operator("Selu", FusionKind.INJECTIVE, Trait.ELEMENTWISE)
def selu(x: Tensor, *, alpha: float = 1.6732632423543772, gamma: float = 1.0507009873554805) -> Tensor:
    """``gamma`` times ``x``, or times ``alpha (exp(x) - 1)`` where it is not positive (Klambauer et al., 2017)."""
    return activation(x, lambda v: gamma * select(v > 0.0, v, alpha * expm1(v)))


@operator("PRelu", FusionKind.INJECTIVE, Trait.ELEMENTWISE | Trait.LIKE_FIRST)
def prelu(x: Tensor, slope: Tensor) -> Tensor:
    """``x``, and ``slope x`` where it is negative; ``slope`` broadcasts to ``x``."""
    require_broadcast(slope, x.shape, "PRelu: the slope")
    return tensor(x.shape, lambda index: select(x[index] < 0, element(slope, index) * x[index], x[index]))


class Approximation(Enum):
    """Approximations of the normal distribution."""

    NONE = "none"
    TANH = "tanh"


@operator("Gelu", FusionKind.INJECTIVE, Trait.ELEMENTWISE)
def gelu(x: Tensor, *, approximate: str = "none") -> Tensor:
    """``x`` times the normal distribution's ``P(X <= x)`` (Hendrycks and Gimpel, 2016); ``tanh`` approximates it."""
    by = choice(Approximation, approximate, "Gelu: approximate")

    def exact(v: Expr) -> Expr:
        return 0.5 * v * (1.0 + erf(v * math.sqrt(0.5)))

    def by_tanh(v: Expr) -> Expr:
        inner = math.sqrt(2 / math.pi) * (v + 0.044715 * (v * v * v))
        return 0.5 * v * (1.0 + tanh(inner))

    return activation(x, exact if by is Approximation.NONE else by_tanh)


@operator("Shrink", FusionKind.INJECTIVE, Trait.ELEMENTWISE)
def shrink(x: Tensor, *, bias: float = 0.0, lambd: float = 0.5) -> Tensor:
    """``x`` moved by ``bias`` towards 0 where it is beyond ``lambd``, else 0; integers in f64, truncated."""
    wide: DType = accumulator(x.dtype) if x.dtype.is_float else f64

    def body(element: Expr) -> Expr:
        v = cast(element, wide)
        moved = select(v < -lambd, v + bias, select(v > lambd, v - bias, as_expr(0, wide)))
        return cast(moved, x.dtype)

    return elementwise(body, x)
