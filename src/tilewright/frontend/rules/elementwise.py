"""ONNX's elementwise operators."""

from collections.abc import Mapping

from tilewright.frontend.rules.rule import Rule, RuleFunction

_PLAIN = """
    Abs Acos Acosh Add And Asin Asinh Atan Atanh Ceil Clip Cos Cosh Div Equal Erf Exp Floor Greater GreaterOrEqual
    Identity IsNaN Less LessOrEqual Log Max Min Mul Neg Not Or Pow Reciprocal Relu Round Sigmoid Sin Sinh Sqrt
    Sub Sum Tan Tanh Where Xor
"""

RULES: Mapping[str, RuleFunction] = {
    **{name: Rule(name) for name in _PLAIN.split()},
    "Cast": Rule("Cast", {"to": "to"}, ignored=frozenset({"saturate", "round_mode"})),
    "Mod": Rule("Mod", {"fmod": "fmod"}),
}
