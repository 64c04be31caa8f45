"""ONNX's elementwise operators."""

from collections.abc import Mapping, Sequence

import numpy as np

from tilewright.frontend.onnx.read.rules.narrow_types import converted, target_of
from tilewright.frontend.onnx.read.rules.rule import Request, Rule, RuleFunction, same
from tilewright.graph import Value
from tilewright.ops.hosted import VIEW

_PLAIN = """
    Abs Acos Acosh Add And Asin Asinh Atan Atanh BitwiseAnd BitwiseNot BitwiseOr BitwiseXor Ceil Cos Cosh Div Equal Erf
    Exp Floor Greater GreaterOrEqual HardSwish Identity IsNaN Less LessOrEqual Log Mish Mul Neg Not Or PRelu Reciprocal
    Relu Round Sigmoid Sign Sin Sinh Softplus Softsign Sqrt Sub Tan Tanh Where Xor
"""
_WITH_ALPHA = "Celu Elu LeakyRelu Swish ThresholdedRelu"

LARGEST_UNROLLED_POWER = 8
"""Constant exponents up to this become products, which are as accurate for floats up to the exponent 3."""


def _clip(request: Request) -> Sequence[Value]:
    """The bounds were attributes before opset 11."""
    data = request.input(0)
    bounds = [request.optional(1), request.optional(2)]
    for position, name in enumerate(("min", "max")):
        if name in request.attributes:
            bounds[position] = request.constant(np.array(request.number(name, 0.0), data.dtype.numpy))
    return [request.apply("Clip", data, *bounds)]


def _power(request: Request) -> Sequence[Value]:
    base, exponent = request.input(0), request.input(1)
    known = request.importer.known(exponent)
    if known is not None and known.size == 1 and len(exponent.shape) <= len(base.shape):
        value = float(known.item())
        largest = 3 if base.dtype.is_float else LARGEST_UNROLLED_POWER
        if value in range(1, largest + 1):
            return [request.apply("IntegerPower", base, exponent=int(value))]
    return [request.apply("Pow", base, exponent)]


def _cast(request: Request) -> Sequence[Value]:
    to = target_of(request, "to")
    if to is None:
        raise request.invalid("attribute to is 0, which is no type")
    return [converted(request, request.input(0), to)]


def _cast_like(request: Request) -> Sequence[Value]:
    like = request.input(1)
    return [converted(request, request.input(0), request.importer.narrow(like) or like.dtype)]


def _bit_cast(request: Request) -> Sequence[Value]:
    """Integers wrap around, which keeps their bits. Between floats and integers, bytes are read anew between parts."""
    data, to = request.input(0), request.dtype("to")
    if to is None or to.itemsize != data.dtype.itemsize:
        raise request.invalid(f"{data!r} can't be {to}: both must have elements of the same size")
    narrow = request.importer.narrow(data)
    if narrow is not None and narrow.bits < 8:
        raise request.unsupported(f"{data!r} holds numbers of {narrow.bits} bits, which have no other type; use a Cast")
    if data.dtype == to or not (data.dtype.is_float or to.is_float):
        return [request.apply("Cast", data, to=to)]
    known = request.importer.known(data)
    if known is not None:
        return [request.constant(known.view(to.numpy))]
    return [request.apply("Identity", request.apply(VIEW, data, to=to))]


def _swiglu(request: Request) -> Sequence[Value]:
    gate, linear = request.input(0), request.input(1)
    if gate.shape != linear.shape:
        raise request.invalid(f"the gate {gate!r} and {linear!r} differ in shape")
    return [request.apply("Mul", request.apply("Swish", gate, alpha=request.number("alpha", 1.0)), linear)]


RULES: Mapping[str, RuleFunction] = {
    **{name: Rule(name) for name in _PLAIN.split()},
    **{name: Rule(name, same("alpha")) for name in _WITH_ALPHA.split()},
    "BitCast": _bit_cast,
    "BitShift": Rule("BitShift", same("direction")),
    "Cast": _cast,
    "CastLike": _cast_like,
    "Clip": _clip,
    "Gelu": Rule("Gelu", same("approximate")),
    "HardSigmoid": Rule("HardSigmoid", same("alpha", "beta")),
    "IsInf": Rule("IsInf", same("detect_negative", "detect_positive")),
    "Mod": Rule("Mod", same("fmod")),
    "Pow": _power,
    "Selu": Rule("Selu", same("alpha", "gamma")),
    "Shrink": Rule("Shrink", same("bias", "lambd")),
    "SwiGLU": _swiglu,
}
