"""ONNX's reductions."""

from collections.abc import Mapping

from tilewright.frontend.onnx.read.rules.rule import Rule, RuleFunction

_REDUCTIONS = """
    ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum ReduceSumSquare
"""
_ATTRIBUTES = {name: name for name in ("axes", "keepdims", "noop_with_empty_axes")}

RULES: Mapping[str, RuleFunction] = {name: Rule(name, _ATTRIBUTES, {1: "axes"}) for name in _REDUCTIONS.split()}
