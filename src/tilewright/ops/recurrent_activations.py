"""The activation functions of recurrent layers, by ONNX's names."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from tilewright.base.errors import BadProgram
from tilewright.ops.activation import softplus_of
from tilewright.symbolic.expr import Expr, binary, const, maximum, minimum, select
from tilewright.symbolic.operations import BinaryOp
from tilewright.tensor.functions import abs, expm1, sigmoid, tanh

Activation: TypeAlias = Callable[[Expr], Expr]
_Function: TypeAlias = Callable[[Expr, Expr, Expr], Expr]


@dataclass(frozen=True, slots=True)
class Form:
    """A function of ``(x, alpha, beta)``; defaults of the parameters that it has."""

    function: _Function
    alpha: float | None = None
    beta: float | None = None


def activation(name: str, alpha: float, beta: float) -> Activation:
    """The function called ``name``. Raises ``BadProgram`` if there is none."""
    form = FORMS.get(name)
    if form is None:
        raise BadProgram(f"there is no activation {name}; known: {', '.join(FORMS)}")
    return lambda x: form.function(x, const(alpha, x.dtype), const(beta, x.dtype))


def _zero(x: Expr) -> Expr:
    return const(0.0, x.dtype)


def _one(x: Expr) -> Expr:
    return const(1.0, x.dtype)


FORMS: Mapping[str, Form] = {
    "Affine": Form(lambda x, alpha, beta: alpha * x + beta, 1.0, 0.0),
    "Elu": Form(lambda x, alpha, _: select(x >= _zero(x), x, alpha * expm1(x)), 1.0),
    "HardSigmoid": Form(lambda x, a, b: maximum(minimum(a * x + b, _one(x)), _zero(x)), 0.2, 0.5),
    "LeakyRelu": Form(lambda x, alpha, _: select(x >= _zero(x), x, alpha * x), 0.01),
    "Relu": Form(lambda x, _alpha, _beta: maximum(x, _zero(x))),
    "ScaledTanh": Form(lambda x, alpha, beta: alpha * tanh(beta * x), 1.0, 1.0),
    "Sigmoid": Form(lambda x, _alpha, _beta: sigmoid(x)),
    "Softplus": Form(lambda x, _alpha, _beta: softplus_of(x)),
    "Softsign": Form(lambda x, _alpha, _beta: binary(BinaryOp.DIV, x, _one(x) + abs(x))),
    "Tanh": Form(lambda x, _alpha, _beta: tanh(x)),
    "ThresholdedRelu": Form(lambda x, alpha, _: select(x >= alpha, x, _zero(x)), 1.0),
}
"""The activations of ONNX's recurrent layers."""
