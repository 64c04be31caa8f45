"""Operators that move elements."""

from collections.abc import Mapping

import numpy as np

from tilewright.base.dtypes import f16, f32
from tilewright.frontend.onnx.write.forms.form import Form, FormFunction, Writing
from tilewright.graph import Node, Value
from tilewright.ops.shapes import normalize_axis, same_extent
from tilewright.symbolic.expr import ONE, Const

_IMAGE_RANK = 3
"""Rank of data from which on repetition is written as resizing."""


def _reshape(writing: Writing) -> None:
    writing.result_reshaped(writing.input(0), writing.value(0).shape)


def _squeeze(writing: Writing) -> None:
    """Without axes ONNX also removes extents that are 1 only at run time."""
    shape, axes = writing.value(0).shape, writing.ints("axes")
    chosen = [p for p, extent in enumerate(shape) if extent == ONE] if axes is None else axes
    writing.result("Squeeze", [writing.input(0), writing.vector(chosen)])


def _declared(writing: Writing) -> None:
    """ONNX's shapes are those of the data."""
    writing.result("Identity", [writing.input(0)])


def _expand(writing: Writing) -> None:
    """Extents equal to the input's are written as 1."""
    before, after = writing.value(0).shape, writing.output.shape
    own = (ONE,) * (len(after) - len(before)) + before
    target = [1 if not isinstance(b, Const) and same_extent(a, b) else b for a, b in zip(own, after, strict=True)]
    writing.result("Expand", [writing.input(0), writing.vector(target)])


def _slice(writing: Writing) -> None:
    starts, ends = writing.extents("starts") or (), writing.extents("ends") or ()
    axes, steps = writing.ints("axes"), writing.ints("steps")
    listed = tuple(range(len(starts))) if axes is None else axes
    bounds = [starts, ends, listed] if steps is None else [starts, ends, listed, steps]
    writing.result("Slice", [writing.input(0), *map(writing.vector, bounds)])


def _pad(writing: Writing) -> None:
    value = writing.optional(1)
    pads = writing.vector((*(writing.extents("before") or ()), *(writing.extents("after") or ())))
    around = "" if value is None else writing.as_scalar(value)
    writing.result("Pad", [writing.input(0), pads, around], mode=writing.text("mode"))


def _repeat(writing: Writing) -> None:
    """For an image, resizing to the nearest neighbour, along several axes at once."""
    source = writing.value(0)
    if source.dtype in (f16, f32) and len(source.shape) >= _IMAGE_RANK:
        source, factors = _resized(writing)
        scales = writing.constant(np.array(factors, np.float32))
        modes = {"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
        writing.result("Resize", [source.name, "", scales], **modes)
        return
    at, times = normalize_axis(writing.integer("axis"), len(source.shape)), writing.integer("times")
    apart = writing.apply("Unsqueeze", [source.name, writing.vector((at + 1,))])
    repeats = [times if p == at + 1 else 1 for p in range(len(source.shape) + 1)]
    whole = writing.apply("Tile", [apart, writing.vector(repeats)])
    writing.result_reshaped(whole, source.shape)


def _resized(writing: Writing) -> tuple[Value, list[int]]:
    """The start of a chain of repetitions, and the repetitions of each axis."""
    factors = [1] * len(writing.output.shape)
    node: Node | None = writing.node
    source = writing.output
    while node is not None and node.op == writing.node.op:
        step = Writing(node, writing.writer)
        source = step.value(0)
        factors[normalize_axis(step.integer("axis"), len(factors))] *= step.integer("times")
        node = writing.writer.producers.get(source)
    return source, factors


FORMS: Mapping[str, FormFunction] = {
    "Concat": Form("Concat", {"axis": "axis"}),
    "Declared": _declared,
    "Expand": _expand,
    "Pad": _pad,
    "Repeat": _repeat,
    "Reshape": _reshape,
    "Slice": _slice,
    "Squeeze": _squeeze,
    "Tile": Form("Tile", {}, ("repeats",)),
}
