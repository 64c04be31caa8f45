"""ONNX's pooling."""

from collections.abc import Mapping, Sequence

from tilewright.frontend.rules.rule import Request, RuleFunction
from tilewright.frontend.rules.windows import window_attributes
from tilewright.graph import Value
from tilewright.ops import Attribute
from tilewright.symbolic.expr import const


def _average_pool(request: Request) -> Sequence[Value]:
    include = bool(request.integer("count_include_pad", 0))
    return [request.apply("AveragePool", request.input(0), **_attributes(request), count_include_pad=include)]


def _max_pool(request: Request) -> Sequence[Value]:
    if request.outputs > 1:
        raise request.unsupported("its second output, the indices, is not supported; leave it out")
    return [request.apply("MaxPool", request.input(0), **_attributes(request))]


def _attributes(request: Request) -> dict[str, Attribute]:
    kernel = request.ints("kernel_shape") or ()
    window = window_attributes(request, request.input(0), tuple(map(const, kernel)))
    return {"kernel_shape": kernel, **window, "ceil_mode": bool(request.integer("ceil_mode", 0))}


def _global(reduction: str) -> RuleFunction:
    """Pooling over all spatial dimensions is a reduction."""

    def rule(request: Request) -> Sequence[Value]:
        data = request.input(0)
        if len(data.shape) < 2:
            raise request.invalid(f"{data!r} must have the shape [batch, channels, ...]")
        axes = tuple(range(2, len(data.shape)))
        return [request.apply(reduction, data, axes=axes, keepdims=True, noop_with_empty_axes=True)]

    return rule


RULES: Mapping[str, RuleFunction] = {
    "AveragePool": _average_pool,
    "GlobalAveragePool": _global("ReduceMean"),
    "GlobalMaxPool": _global("ReduceMax"),
    "MaxPool": _max_pool,
}
