"""Elementwise operators and activations."""

from collections.abc import Mapping

from tilewright.frontend.onnx.write.forms.form import Form, FormFunction, Writing


def _integer_power(writing: Writing) -> None:
    exponent = writing.scalar(writing.integer("exponent"), writing.value(0).dtype)
    writing.result("Pow", [writing.input(0), exponent])


def _swish(writing: Writing) -> None:
    """ONNX has it from opset 24 on."""
    x, alpha = writing.input(0), writing.number("alpha")
    scaled = x if alpha == 1.0 else writing.apply("Mul", [x, writing.scalar(alpha, writing.value(0).dtype)])
    writing.result("Mul", [x, writing.apply("Sigmoid", [scaled])])


def _mod(writing: Writing) -> None:
    """For floats, older opsets only have the remainder with the sign of the dividend."""
    a, b = writing.inputs
    if writing.integer("fmod") or not writing.value(0).dtype.is_float:
        writing.result("Mod", [a, b], fmod=writing.integer("fmod"))
        return
    rest = writing.apply("Mod", [a, b], fmod=1)
    signs = writing.apply("Mul", [writing.apply("Sign", [name]) for name in (rest, b)])
    differs = writing.apply("Less", [signs, writing.scalar(0.0, writing.value(0).dtype)])
    writing.result("Where", [differs, writing.apply("Add", [rest, b]), rest])


FORMS: Mapping[str, FormFunction] = {
    **{name: Form(name) for name in ("Clip", "Max", "Mean", "Min", "Pow", "Sum")},
    "Cast": Form("Cast", {"to": "to"}),
    "Copy": Form("Identity"),
    "IntegerPower": _integer_power,
    "Mod": _mod,
    "Swish": _swish,
}
