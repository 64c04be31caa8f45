"""The activation functions of recurrent layers, by ONNX's names."""

from collections.abc import Callable, Mapping
from typing import TypeAlias

from tilewright.base.errors import BadProgram
from tilewright.ops.activation import ACTIVATIONS, Form
from tilewright.symbolic.expr import Expr, const, maximum, select
from tilewright.tensor.functions import sigmoid, tanh

Activation: TypeAlias = Callable[[Expr], Expr]


def activation(name: str, alpha: float, beta: float) -> Activation:
    """The function called ``name``. Raises ``BadProgram`` if there is none."""
    form = FORMS.get(name)
    if form is None:
        raise BadProgram(f"there is no activation {name}; known: {', '.join(FORMS)}")
    return form.of(alpha, beta)


def _zero(x: Expr) -> Expr:
    return const(0.0, x.dtype)


FORMS: Mapping[str, Form] = {
    "Affine": Form(lambda x, alpha, beta: alpha * x + beta, 1.0, 0.0),
    "Elu": ACTIVATIONS["Elu"],
    "HardSigmoid": ACTIVATIONS["HardSigmoid"],
    "LeakyRelu": ACTIVATIONS["LeakyRelu"],
    "Relu": Form(lambda x, _alpha, _beta: maximum(x, _zero(x))),
    "ScaledTanh": Form(lambda x, alpha, beta: alpha * tanh(beta * x), 1.0, 1.0),
    "Sigmoid": Form(lambda x, _alpha, _beta: sigmoid(x)),
    "Softplus": ACTIVATIONS["Softplus"],
    "Softsign": ACTIVATIONS["Softsign"],
    "Tanh": Form(lambda x, _alpha, _beta: tanh(x)),
    # The operator of that name is 0 at alpha itself.
    "ThresholdedRelu": Form(lambda x, alpha, _: select(x >= alpha, x, _zero(x)), 1.0),
}
"""The activations of ONNX's recurrent layers."""
