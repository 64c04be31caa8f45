"""ONNX's reductions."""

from collections.abc import Mapping

from tilewright.frontend.onnx.read.rules.rule import Rule, same

_REDUCTIONS = """
    ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum ReduceSumSquare
"""
_ATTRIBUTES = same("axes", "keepdims", "noop_with_empty_axes")

RULES: Mapping[str, Rule] = {name: Rule(name, _ATTRIBUTES, {1: "axes"}) for name in _REDUCTIONS.split()}
