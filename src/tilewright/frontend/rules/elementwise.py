"""ONNX's elementwise operators."""

from collections.abc import Mapping, Sequence

import numpy as np

from tilewright.frontend.rules.rule import Request, Rule, RuleFunction
from tilewright.graph import Value

_PLAIN = """
    Abs Acos Acosh Add And Asin Asinh Atan Atanh Ceil Cos Cosh Div Equal Erf Exp Floor Greater GreaterOrEqual
    Identity IsNaN Less LessOrEqual Log Max Min Mul Neg Not Or Pow Reciprocal Relu Round Sigmoid Sin Sinh Sqrt
    Sub Sum Tan Tanh Where Xor
"""


def _clip(request: Request) -> Sequence[Value]:
    """The bounds were attributes before opset 11."""
    data = request.input(0)
    bounds = [request.optional(1), request.optional(2)]
    for position, name in enumerate(("min", "max")):
        if name in request.attributes:
            bounds[position] = request.constant(np.array(request.number(name, 0.0), data.dtype.numpy))
    return [request.apply("Clip", data, *bounds)]


RULES: Mapping[str, RuleFunction] = {
    **{name: Rule(name) for name in _PLAIN.split()},
    "Clip": _clip,
    "Cast": Rule("Cast", {"to": "to"}, ignored=frozenset({"saturate", "round_mode"})),
    "Mod": Rule("Mod", {"fmod": "fmod"}),
}
