"""ONNX's reductions and normalizations."""

from collections.abc import Mapping

from tilewright.frontend.rules.rule import Rule, RuleFunction

_REDUCTIONS = ("ReduceL2", "ReduceMax", "ReduceMean", "ReduceMin", "ReduceProd", "ReduceSum", "ReduceSumSquare")
_ATTRIBUTES = {name: name for name in ("axes", "keepdims", "noop_with_empty_axes")}

RULES: Mapping[str, RuleFunction] = {
    **{name: Rule(name, _ATTRIBUTES, {1: "axes"}) for name in _REDUCTIONS},
    "LayerNormalization": Rule(
        "LayerNormalization", {"axis": "axis", "epsilon": "epsilon"}, ignored=frozenset({"stash_type"})
    ),
    "Softmax": Rule("Softmax", {"axis": "axis"}),
}
