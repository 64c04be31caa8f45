"""ONNX's normalizations, and the softmax family."""

from collections.abc import Mapping, Sequence

import numpy as np

from tilewright.frontend.onnx.read.protos import dtype_of
from tilewright.frontend.onnx.read.rules.rule import Request, Rule, RuleFunction, same
from tilewright.graph import Value
from tilewright.ops.shapes import element_count
from tilewright.symbolic.expr import Const, Expr

AXES_OPSET = 13
"""The first opset in which softmax normalizes along one axis; before, over all axes from the given one on."""


def _batch_normalization(request: Request) -> Sequence[Value]:
    parameters = [request.input(position) for position in range(5)]
    if not request.integer("spatial", 1):
        raise request.unsupported("spatial=0 is not supported; export with opset 9 or later")
    if request.outputs > 1 or request.integer("training_mode", 0):
        return _trained(request, parameters)
    return [request.apply("BatchNormalization", *parameters, epsilon=request.number("epsilon", 1e-5))]


def _trained(request: Request, parameters: Sequence[Value]) -> Sequence[Value]:
    """Training mode: uses the batch's own statistics, and updates the running ones."""
    if request.opset < 14 or not request.integer("training_mode", 0):
        raise request.unsupported("outputs besides the first need training_mode of opset 14; leave them out")
    data, scale, bias, old_mean, old_variance = parameters
    if len(data.shape) < 2:
        raise request.invalid(f"{data!r} must have the shape [batch, channels, ...]")
    axes = tuple(p for p in range(len(data.shape)) if p != 1)
    mean = request.apply("ReduceMean", data, axes=axes, keepdims=True)
    centered = request.apply("Sub", data, mean)
    variance = request.apply("ReduceMean", request.apply("Mul", centered, centered), axes=axes, keepdims=False)
    mean = request.apply("Squeeze", mean, axes=axes)
    epsilon = request.number("epsilon", 1e-5)
    result = request.apply("BatchNormalization", data, scale, bias, mean, variance, epsilon=epsilon)
    momentum = request.number("momentum", 0.9)
    running = [_moved(request, old_mean, mean, momentum), _moved(request, old_variance, variance, momentum)]
    return [result, *running][: request.outputs]


def _moved(request: Request, old: Value, new: Value, momentum: float) -> Value:
    """``old * momentum + new * (1 - momentum)``."""
    kept, added = (request.constant(np.array(part, old.dtype.numpy)) for part in (momentum, 1 - momentum))
    new = request.apply("Cast", new, to=old.dtype)
    return request.apply("Add", request.apply("Mul", old, kept), request.apply("Mul", new, added))


def _instance_normalization(request: Request) -> Sequence[Value]:
    data = request.input(0)
    if len(data.shape) < 2:
        raise request.invalid(f"{data!r} must have the shape [batch, channels, ...]")
    return [_by_groups(request, data.shape[1])]


def _group_normalization(request: Request) -> Sequence[Value]:
    data, groups = request.input(0), request.integer("num_groups", 1)
    if len(data.shape) < 2 or groups < 1:
        raise request.invalid(f"{data!r} must have the shape [batch, channels, ...], and num_groups be positive")
    return [_by_groups(request, groups)]


def _by_groups(request: Request, groups: int | Expr) -> Value:
    """Normalized over groups of channels: on a view with one row for each group."""
    data, scale, bias = (request.input(position) for position in range(3))
    channels = data.shape[1]
    for role, parameter in (("scale", scale), ("bias", bias)):
        if isinstance(channels, Const) and parameter.shape != (channels,):
            raise request.invalid(f"the {role} {parameter!r} should have the shape [{channels}], one for each channel")
    elements = element_count(data.shape[1:]) // groups
    rows = request.apply("Reshape", data, shape=(data.shape[0], groups, elements), allow_zero=True)
    epsilon = request.number("epsilon", 1e-5)
    result = request.apply("GroupNormalization", rows, scale, bias, epsilon=epsilon)
    return request.apply("Reshape", result, shape=data.shape, allow_zero=True)


def _layer_normalization(request: Request) -> Sequence[Value]:
    """The statistics have their own dtype."""
    operands = [request.input(0), request.input(1), request.optional(2)]
    attributes = {"axis": request.integer("axis", -1), "epsilon": request.number("epsilon", 1e-5)}
    result, *statistics = request.apply_many("LayerNormalization", operands, request.outputs, **attributes)
    stash = dtype_of(request.integer("stash_type", 1), f"{request.place}: stash_type")
    return [result, *(v if v.dtype == stash else request.apply("Cast", v, to=stash) for v in statistics)]


def _along_axis(operator: str) -> RuleFunction:
    """Softmax and its relatives. Old opsets flatten to a matrix, with all dimensions from the axis on as columns."""

    def rule(request: Request) -> Sequence[Value]:
        data = request.input(0)
        if request.opset >= AXES_OPSET:
            return [request.apply(operator, data, axis=request.integer("axis", -1))]
        rows = request.apply("Flatten", data, axis=request.integer("axis", 1))
        result = request.apply(operator, rows, axis=-1)
        return [request.apply("Reshape", result, shape=data.shape, allow_zero=True)]

    return rule


RULES: Mapping[str, RuleFunction] = {
    "BatchNormalization": _batch_normalization,
    "GroupNormalization": _group_normalization,
    "Hardmax": _along_axis("Hardmax"),
    "InstanceNormalization": _instance_normalization,
    "LRN": Rule("LRN", same("size", "alpha", "beta", "bias")),
    "LayerNormalization": _layer_normalization,
    "LogSoftmax": _along_axis("LogSoftmax"),
    "LpNormalization": Rule("LpNormalization", same("axis", "p")),
    "MeanVarianceNormalization": Rule("MeanVarianceNormalization", same("axes")),
    "RMSNormalization": Rule("RMSNormalization", same("axis", "epsilon"), ignored=frozenset({"stash_type"})),
    "Softmax": _along_axis("Softmax"),
}
