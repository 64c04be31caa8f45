"""ONNX's operators for sorting, counting and accumulation."""

from collections.abc import Mapping, Sequence

from tilewright.frontend.onnx.read.rules.rule import Request, RuleFunction
from tilewright.graph import Value
from tilewright.symbolic.expr import as_expr


def _place_of_extreme(request: Request) -> Sequence[Value]:
    data, axis = request.input(0), request.integer("axis", 0)
    if -len(data.shape) <= axis < len(data.shape):
        request.importer.symbolic.require(data.shape[axis] - 1)  # of no elements none is the largest
    place = request.apply(
        request.op_type,
        data,
        axis=axis,
        select_last_index=bool(request.integer("select_last_index", 0)),
    )
    return [place if request.integer("keepdims", 1) else request.apply("Squeeze", place, axes=(axis,))]


def _top_k(request: Request) -> Sequence[Value]:
    """``k`` is an attribute before opset 10. With free order (``sorted=0``), best first is valid."""
    counts = (request.integer("k", 0),) if request.opset < 10 else request.sizes(1)
    if len(counts) != 1:
        raise request.invalid(f"K must be one number, not {counts}")
    data, axis = request.input(0), request.integer("axis", -1)
    if -len(data.shape) <= axis < len(data.shape):
        request.importer.symbolic.require(as_expr(counts[0]))
        request.importer.symbolic.require(data.shape[axis] - counts[0])
    largest = bool(request.integer("largest", 1))
    options = {"k": counts[0], "axis": axis, "largest": largest}
    return request.apply_many("TopK", [data], request.outputs, **options)


def _accumulation(request: Request) -> Sequence[Value]:
    axes = request.integers(1)
    if axes is None or len(axes) != 1:
        raise request.invalid(f"the axis must be one number, not {axes}")
    flags = {name: bool(request.integer(name, 0)) for name in ("exclusive", "reverse")}
    return [request.apply(request.op_type, request.input(0), axis=axes[0], **flags)]


RULES: Mapping[str, RuleFunction] = {
    "ArgMax": _place_of_extreme,
    "ArgMin": _place_of_extreme,
    "CumProd": _accumulation,
    "CumSum": _accumulation,
    "TopK": _top_k,
}
