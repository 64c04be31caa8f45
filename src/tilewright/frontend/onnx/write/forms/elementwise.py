"""Elementwise operators and activations."""

from collections.abc import Mapping

from tilewright.frontend.onnx.write.forms.form import Form, FormFunction, Writing

_PLAIN = """
    Abs Acos Acosh Add And Asin Asinh Atan Atanh BitwiseAnd BitwiseNot BitwiseOr BitwiseXor Ceil Clip Cos Cosh Div Equal
    Erf Exp Floor Greater GreaterOrEqual HardSwish Identity IsNaN Less LessOrEqual Log Max Mean Min Mish Mul Neg Not Or
    PRelu Pow Reciprocal Relu Round Sigmoid Sign Sin Sinh Softplus Softsign Sqrt Sub Sum Tan Tanh Where Xor
"""
_WITH_ALPHA = "Celu Elu LeakyRelu ThresholdedRelu"


def _integer_power(writing: Writing) -> None:
    exponent = writing.scalar(writing.integer("exponent"), writing.value(0).dtype)
    writing.result("Pow", [writing.input(0), exponent])


def _swish(writing: Writing) -> None:
    """ONNX has it from opset 24 on."""
    x, alpha = writing.input(0), writing.number("alpha")
    scaled = x if alpha == 1.0 else writing.apply("Mul", [x, writing.scalar(alpha, writing.value(0).dtype)])
    writing.result("Mul", [x, writing.apply("Sigmoid", [scaled])])


def _mod(writing: Writing) -> None:
    """Of floats, older opsets have only the remainder with the sign of the dividend."""
    a, b = writing.inputs
    if writing.integer("fmod") or not writing.value(0).dtype.is_float:
        writing.result("Mod", [a, b], fmod=writing.integer("fmod"))
        return
    rest = writing.apply("Mod", [a, b], fmod=1)
    signs = writing.apply("Mul", [writing.apply("Sign", [name]) for name in (rest, b)])
    differs = writing.apply("Less", [signs, writing.scalar(0.0, writing.value(0).dtype)])
    writing.result("Where", [differs, writing.apply("Add", [rest, b]), rest])


FORMS: Mapping[str, FormFunction] = {
    **{name: Form(name) for name in _PLAIN.split()},
    **{name: Form(name, {"alpha": "alpha"}) for name in _WITH_ALPHA.split()},
    "BitShift": Form("BitShift", {"direction": "direction"}),
    "Cast": Form("Cast", {"to": "to"}),
    "Copy": Form("Identity"),
    "Gelu": Form("Gelu", {"approximate": "approximate"}),
    "HardSigmoid": Form("HardSigmoid", {"alpha": "alpha", "beta": "beta"}),
    "IntegerPower": _integer_power,
    "IsInf": Form("IsInf", {name: name for name in ("detect_negative", "detect_positive")}),
    "Mod": _mod,
    "Selu": Form("Selu", {"alpha": "alpha", "gamma": "gamma"}),
    "Shrink": Form("Shrink", {"bias": "bias", "lambd": "lambd"}),
    "Swish": _swish,
}
