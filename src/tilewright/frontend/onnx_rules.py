"""Which operator an ONNX node becomes, and how its inputs and attributes are named there."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from tilewright.frontend.onnx_proto import dtype_of
from tilewright.ops import Attribute


@dataclass(frozen=True, slots=True)
class Rule:
    """``constant_inputs``: positions of inputs that become attributes. ``attributes``: ONNX's name to ours."""

    operator: str
    attributes: Mapping[str, str] = field(default_factory=dict[str, str])
    constant_inputs: Mapping[int, str] = field(default_factory=dict[int, str])
    ignored: frozenset[str] = frozenset()
    """Attributes that change nothing here."""

    def convert(self, name: str, value: Attribute, place: str) -> Attribute:
        """The attribute's value as the operator wants it. Raises ``UnsupportedModel`` for an unknown dtype."""
        target = self.attributes[name]
        if target in _BOOLEANS:
            return bool(value)
        return dtype_of(value, place) if target == "to" and isinstance(value, int) else value


_BOOLEANS = frozenset({"allow_zero", "fmod", "keepdims", "noop_with_empty_axes", "transpose_a", "transpose_b"})
_PLAIN = """
    Abs Acos Acosh Add And Asin Asinh Atan Atanh Ceil Clip Cos Cosh Div Equal Erf Exp Floor Greater GreaterOrEqual
    Identity IsNaN Less LessOrEqual Log MatMul Max Min Mul Neg Not Or Pow Reciprocal Relu Round Sigmoid Sin Sinh Sqrt
    Sub Sum Tan Tanh Where Xor
"""
_REDUCTIONS = ("ReduceL2", "ReduceMax", "ReduceMean", "ReduceMin", "ReduceProd", "ReduceSum", "ReduceSumSquare")
_REDUCTION_ATTRIBUTES = {name: name for name in ("axes", "keepdims", "noop_with_empty_axes")}

RULES: Mapping[str, Rule] = {
    **{name: Rule(name) for name in _PLAIN.split()},
    **{name: Rule(name, _REDUCTION_ATTRIBUTES, {1: "axes"}) for name in _REDUCTIONS},
    "Cast": Rule("Cast", {"to": "to"}, ignored=frozenset({"saturate", "round_mode"})),
    "Concat": Rule("Concat", {"axis": "axis"}),
    "Expand": Rule("Expand", {}, {1: "shape"}),
    "Flatten": Rule("Flatten", {"axis": "axis"}),
    "Gather": Rule("Gather", {"axis": "axis"}),
    "Gemm": Rule("Gemm", {"alpha": "alpha", "beta": "beta", "transA": "transpose_a", "transB": "transpose_b"}),
    "LayerNormalization": Rule(
        "LayerNormalization", {"axis": "axis", "epsilon": "epsilon"}, ignored=frozenset({"stash_type"})
    ),
    "Mod": Rule("Mod", {"fmod": "fmod"}),
    "Reshape": Rule("Reshape", {"allowzero": "allow_zero"}, {1: "shape"}),
    "Slice": Rule("Slice", {}, {1: "starts", 2: "ends", 3: "axes", 4: "steps"}),
    "Softmax": Rule("Softmax", {"axis": "axis"}),
    "Squeeze": Rule("Squeeze", {}, {1: "axes"}),
    "Transpose": Rule("Transpose", {"perm": "perm"}),
    "Unsqueeze": Rule("Unsqueeze", {}, {1: "axes"}),
}
