"""ONNX's convolutions and their relatives."""

from collections.abc import Mapping, Sequence

from tilewright.frontend.rules.rule import Request, RuleFunction
from tilewright.frontend.rules.windows import window_attributes
from tilewright.graph import Value
from tilewright.ops.shapes import Shape, static


def _conv(request: Request) -> Sequence[Value]:
    data, weight, bias = request.input(0), request.input(1), request.optional(2)
    attributes = window_attributes(request, data, kernel_of(request, weight))
    return [request.apply("Conv", data, weight, bias, **attributes, group=request.integer("group", 1))]


def kernel_of(request: Request, weight: Value) -> Shape:
    """The window of a convolution: the spatial extents of its weight, with which ``kernel_shape`` must agree."""
    given, own = request.ints("kernel_shape"), weight.shape[2:]
    if given is not None and static(own) not in (None, given):
        raise request.invalid(f"attribute kernel_shape is {list(given)}, but the weight is {weight!r}; leave it out")
    return own


RULES: Mapping[str, RuleFunction] = {
    "Conv": _conv,
}
