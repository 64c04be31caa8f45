"""ONNX's operators that generate tensors from numbers and shapes."""

import math
from collections.abc import Mapping, Sequence

import numpy as np

from tilewright.base.errors import ResourceLimit
from tilewright.frontend.onnx.read.protos import MAX_ELEMENTS
from tilewright.frontend.onnx.read.rules.rule import Request, Rule, RuleFunction, same
from tilewright.frontend.onnx.read.rules.run_time_shapes import counted
from tilewright.graph import Array, Value
from tilewright.symbolic.expr import ZERO, Expr, as_expr, maximum
from tilewright.symbolic.simplify import simplify


def _constant_of_shape(request: Request) -> Sequence[Value]:
    shape = request.sizes(0)
    if any(isinstance(extent, int) and extent < 0 for extent in shape):
        raise request.invalid(f"the shape {list(shape)} has a negative extent")
    value = request.tensor("value")
    if value is not None and value.size != 1:
        raise request.invalid(f"attribute value has {value.size} elements; it must have one")
    element = np.zeros((), np.float32) if value is None else value.reshape(())
    return [request.apply("Expand", request.constant(element), shape=shape)]


def _range(request: Request) -> Sequence[Value]:
    if any(
        request.importer.known(value) is None and request.importer.elements(value) is None for value in _three(request)
    ):
        return [counted(request)]
    if request.input(0).dtype.is_int:
        count = _symbolic_count(request)
        if count is not None:
            return [request.apply("Range", request.input(0), request.input(2), count=count)]
    start, limit, delta = (_scalar(request, position) for position in range(3))
    if not delta or not all(math.isfinite(number) for number in (start, limit, delta)):
        raise request.invalid(f"a range from {start} to {limit} by {delta} has no end")
    is_int = request.input(0).dtype.is_int
    count = -((start - limit) // delta) if is_int else (limit - start) / delta
    if count > MAX_ELEMENTS:
        text = f"a range from {start} to {limit} by {delta} has more than {MAX_ELEMENTS} numbers; use a larger step"
        raise ResourceLimit(f"{request.place}: {text}")
    return [request.apply("Range", request.input(0), request.input(2), count=math.ceil(max(count, 0)))]


def _three(request: Request) -> list[Value]:
    return [request.input(position) for position in range(3)]


def _symbolic_count(request: Request) -> Expr | None:
    """The number of elements if it depends on run-time extents, for a constant step."""
    given = [number for position in range(3) for number in request.extents(position) or ()]
    if len(given) != 3 or all(isinstance(number, int) for number in given):
        return None
    start, limit, step = given
    if not isinstance(step, int) or step == 0:
        raise request.unsupported(f"the step {step} of a range depends on extents known at run time only")
    distance = as_expr(limit) - as_expr(start)
    wanted = distance if step > 0 else ZERO - distance
    return simplify(maximum((wanted + (abs(step) - 1)) // abs(step), ZERO), request.importer.symbolic.bounds)


def _scalar(request: Request, position: int) -> float:
    array: Array | None = request.array(position)
    if array is None or array.size != 1:
        raise request.invalid(f"input {position} is {array}, not one number")
    return array.item()


def _random(request: Request) -> Sequence[Value]:
    raise request.unsupported(f"{request.op_type} gives random numbers; make them outside of the model, as an input")


RULES: Mapping[str, RuleFunction] = {
    "Bernoulli": _random,
    "ConstantOfShape": _constant_of_shape,
    "EyeLike": Rule("EyeLike", same("dtype", "k")),
    "Multinomial": _random,
    "RandomNormal": _random,
    "RandomNormalLike": _random,
    "RandomUniform": _random,
    "RandomUniformLike": _random,
    "Range": _range,
}
