"""ONNX's variadic operators. Many inputs become several nodes, to bound the size of kernels."""

from collections.abc import Mapping, Sequence

import numpy as np

from tilewright.frontend.onnx.read.rules.aligning import joined
from tilewright.frontend.onnx.read.rules.rule import Request, Rule, RuleFunction
from tilewright.graph import Value
from tilewright.ops.build import accumulator

MOST_OPERANDS = 64
"""Maximum inputs of one node."""


def _from_left(name: str) -> RuleFunction:
    """``op(op(first ones), next ones)``: the order of a single node, which combines its inputs from left to right."""
    single = Rule(name)

    def rule(request: Request) -> Sequence[Value]:
        return [_folded(name, request, _inputs(request))] if _is_long(request) else single(request)

    return rule


def _folded(name: str, request: Request, values: Sequence[Value]) -> Value:
    result = request.apply(name, *values[:MOST_OPERANDS])
    for start in range(MOST_OPERANDS, len(values), MOST_OPERANDS - 1):
        result = request.apply(name, result, *values[start : start + MOST_OPERANDS - 1])
    return result


def _mean(request: Request) -> Sequence[Value]:
    """For many inputs, the sum divided by their number; 16-bit floats in f32, like the operator."""
    if not _is_long(request):
        return Rule("Mean")(request)
    values: Sequence[Value] = _inputs(request)
    dtype = values[0].dtype
    wide = accumulator(dtype)
    terms = values if wide == dtype else [request.apply("Cast", value, to=wide) for value in values]
    mean = request.apply("Div", _folded("Sum", request, terms), request.constant(np.array(len(values), wide.numpy)))
    return [mean if wide == dtype else request.apply("Cast", mean, to=dtype)]


def _concat(request: Request) -> Sequence[Value]:
    """For many inputs, a tree of joins: each element is copied once per level."""
    if not _is_long(request):
        axis = request.integer("axis", 0)
        return [request.apply("Concat", *joined(request.importer, _inputs(request), axis, request.place), axis=axis)]
    axis = request.integer("axis", 0)
    values = joined(request.importer, _inputs(request), axis, request.place)
    while len(values) > 1:
        values = _joined(request, axis, values)
    return values


def _joined(request: Request, axis: int, values: list[Value]) -> list[Value]:
    """One level of the tree."""
    groups = [values[at : at + MOST_OPERANDS] for at in range(0, len(values), MOST_OPERANDS)]
    return [request.apply("Concat", *group, axis=axis) if len(group) > 1 else group[0] for group in groups]


def _is_long(request: Request) -> bool:
    return len(request.inputs) > MOST_OPERANDS


def _inputs(request: Request) -> list[Value]:
    return [request.input(position) for position in range(len(request.inputs))]


RULES: Mapping[str, RuleFunction] = {
    **{name: _from_left(name) for name in ("Max", "Min", "Sum")},
    "Concat": _concat,
    "Mean": _mean,
}
