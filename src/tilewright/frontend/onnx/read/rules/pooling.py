"""ONNX's pooling."""

from collections.abc import Mapping, Sequence

from tilewright.frontend.onnx.read.rules.rule import Request, RuleFunction
from tilewright.frontend.onnx.read.rules.windows import sliding, window_attributes
from tilewright.graph import Value
from tilewright.ops import Attribute
from tilewright.ops.shapes import static
from tilewright.symbolic.expr import const


def _average_pool(request: Request) -> Sequence[Value]:
    include = bool(request.integer("count_include_pad", 0))
    return [request.apply("AveragePool", request.input(0), **_attributes(request), count_include_pad=include)]


def _max_pool(request: Request) -> Sequence[Value]:
    data, attributes = request.input(0), _attributes(request)
    if request.outputs == 1:
        return [request.apply("MaxPool", data, **attributes)]
    column_major = bool(request.integer("storage_order", 0))
    return request.apply_many("MaxPoolWithIndices", [data], 2, **attributes, column_major=column_major)


def _lp_pool(request: Request) -> Sequence[Value]:
    return [request.apply("LpPool", request.input(0), **_attributes(request), p=request.integer("p", 2))]


def _attributes(request: Request) -> dict[str, Attribute]:
    kernel = request.ints("kernel_shape") or ()
    window = window_attributes(request, request.input(0), tuple(map(const, kernel)))
    return {"kernel_shape": kernel, **window, "ceil_mode": bool(request.integer("ceil_mode", 0))}


def _global(reduction: str) -> RuleFunction:
    """Pooling over all spatial dimensions is a reduction; without any, the identity."""

    def rule(request: Request) -> Sequence[Value]:
        data, axes = _spatial(request)
        return [request.apply(reduction, data, axes=axes, keepdims=True, noop_with_empty_axes=True)]

    return rule


def _global_lp_pool(request: Request) -> Sequence[Value]:
    data, axes = _spatial(request)
    return [request.apply("ReduceLp", data, axes=axes, p=request.integer("p", 2))]


def _spatial(request: Request) -> tuple[Value, tuple[int, ...]]:
    data = request.input(0)
    if len(data.shape) < 2:
        raise request.invalid(f"{data!r} must have the shape [batch, channels, ...]")
    return data, tuple(range(2, len(data.shape)))


def _max_unpool(request: Request) -> Sequence[Value]:
    data, kernel = request.input(0), request.ints("kernel_shape") or ()
    own = sliding(request, data, tuple(map(const, kernel)))
    pads = request.ints("pads") or (0,) * (2 * len(kernel))
    extents = static(own.spatial)
    if extents is None:
        raise request.run_time_only(f"the extents of {data!r} are")
    ends = zip(pads[: len(kernel)], pads[len(kernel) :], strict=True)
    moves = zip(extents, own.strides, kernel, ends, strict=True)
    spatial = tuple((extent - 1) * stride + k - before - after for extent, stride, k, (before, after) in moves)
    output = request.integers(2)
    if min((*spatial, *(output or ()))) < 0:
        raise request.invalid(f"its output would have the extents {list(output or spatial)}; none may be negative")
    if output is not None and any(whole < part for whole, part in zip(output[2:], spatial, strict=False)):
        raise request.invalid(f"output_shape is {list(output)}; it must be at least {list(spatial)} in space")
    return [request.apply("MaxUnpool", data, request.input(1), spatial=spatial, output=output)]


RULES: Mapping[str, RuleFunction] = {
    "AveragePool": _average_pool,
    "GlobalAveragePool": _global("ReduceMean"),
    "GlobalLpPool": _global_lp_pool,
    "GlobalMaxPool": _global("ReduceMax"),
    "LpPool": _lp_pool,
    "MaxPool": _max_pool,
    "MaxUnpool": _max_unpool,
}
