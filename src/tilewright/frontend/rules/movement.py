"""ONNX's operators that move elements."""

from collections.abc import Mapping, Sequence

import numpy as np

from tilewright.base.errors import InvalidModel
from tilewright.frontend.rules.rule import Request, Rule, RuleFunction
from tilewright.graph import Value
from tilewright.ops.shapes import normalize_axis, static
from tilewright.symbolic.expr import Const


def _gather(request: Request) -> Sequence[Value]:
    """A constant index out of range is a fault of the model (at run time, the nearest slice is taken)."""
    data, indices = request.input(0), request.input(1)
    axis = request.integer("axis", 0)
    known = request.importer.known(indices)
    if known is not None and known.size and -len(data.shape) <= axis < len(data.shape):
        extent = data.shape[normalize_axis(axis, len(data.shape))]
        for index in (int(known.min()), int(known.max())):
            if isinstance(extent, Const) and not -extent.value <= index < extent.value:
                raise InvalidModel(f"{request.place}: index {index} of dimension {axis} is out of range for {data!r}")
    return [request.apply("Gather", data, indices, axis=axis)]


def _shape(request: Request) -> Sequence[Value]:
    data = request.input(0)
    extents = static(data.shape)
    if extents is None:
        raise request.unsupported(f"the shape of {data!r} is known at run time only; give it by shapes=")
    end = request.attributes.get("end")
    chosen = extents[request.integer("start", 0) : end if isinstance(end, int) else None]
    return [request.constant(np.array(chosen, np.int64))]


_SLICE = {"starts": "starts", "ends": "ends", "axes": "axes"}
"""What opset 10 made inputs."""

RULES: Mapping[str, RuleFunction] = {
    "Concat": Rule("Concat", {"axis": "axis"}),
    "Expand": Rule("Expand", {}, {1: "shape"}),
    "Flatten": Rule("Flatten", {"axis": "axis"}),
    "Gather": _gather,
    "Reshape": Rule("Reshape", {"allowzero": "allow_zero"}, {1: "shape"}),
    "Shape": _shape,
    "Slice": Rule("Slice", _SLICE, {1: "starts", 2: "ends", 3: "axes", 4: "steps"}),
    "Squeeze": Rule("Squeeze", {"axes": "axes"}, {1: "axes"}),
    "Transpose": Rule("Transpose", {"perm": "perm"}),
    "Unsqueeze": Rule("Unsqueeze", {"axes": "axes"}, {1: "axes"}),
}
