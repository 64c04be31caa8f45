"""ONNX's reductions and normalizations."""

from collections.abc import Mapping, Sequence

from tilewright.frontend.rules.rule import Request, Rule, RuleFunction
from tilewright.graph import Value

_REDUCTIONS = ("ReduceL2", "ReduceMax", "ReduceMean", "ReduceMin", "ReduceProd", "ReduceSum", "ReduceSumSquare")
_ATTRIBUTES = {name: name for name in ("axes", "keepdims", "noop_with_empty_axes")}

_ALONG_ONE_AXIS = 13
"""The opset from which on a softmax runs along one axis; before, over all axes from that one on."""


def _softmax(request: Request) -> Sequence[Value]:
    data = request.input(0)
    if request.opset >= _ALONG_ONE_AXIS:
        return [request.apply(request.op_type, data, axis=request.integer("axis", -1))]
    matrix = request.apply("Flatten", data, axis=request.integer("axis", 1))
    result = request.apply(request.op_type, matrix, axis=-1)
    return [request.apply("Reshape", result, shape=data.shape, allow_zero=True)]


RULES: Mapping[str, RuleFunction] = {
    **{name: Rule(name, _ATTRIBUTES, {1: "axes"}) for name in _REDUCTIONS},
    "LayerNormalization": Rule(
        "LayerNormalization", {"axis": "axis", "epsilon": "epsilon"}, ignored=frozenset({"stash_type"})
    ),
    "Softmax": _softmax,
}
