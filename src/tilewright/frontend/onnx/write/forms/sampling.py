"""Sampling of grids and signals."""

from collections.abc import Mapping

import numpy as np

from tilewright.base.dtypes import f32
from tilewright.frontend.onnx.write.forms.form import Form, FormFunction, Writing
from tilewright.ops.shapes import normalize_axis, static


def _affine_grid(writing: Writing) -> None:
    theta = writing.value(0)
    size = writing.vector((theta.shape[0], 1, *(writing.ints("spatial") or ())))
    writing.result("AffineGrid", [theta.name, size], align_corners=writing.integer("align_corners"))


def _roi_align(writing: Writing) -> None:
    placing = {0.5: "half_pixel", 0.0: "output_half_pixel"}.get(writing.number("offset"))
    if placing is None:
        raise writing.unsupported(f"ONNX's has the offsets 0.5 and 0, not {writing.number('offset')}")
    height, width = writing.ints("output") or (1, 1)
    writing.result(
        "RoiAlign",
        writing.inputs[:3],
        coordinate_transformation_mode=placing,
        mode="max" if writing.integer("largest") else "avg",
        output_height=height,
        output_width=width,
        sampling_ratio=writing.integer("samples") if len(writing.inputs) == 3 else 0,
        spatial_scale=writing.number("scale"),
    )


def _resample(writing: Writing) -> None:
    """The weighted sum of the elements of all taps."""
    x, indices, weights = (writing.value(position) for position in range(3))
    wide = x.dtype if x.dtype.is_float else f32
    axis = normalize_axis(writing.integer("axis"), len(x.shape))
    taps = writing.apply("Gather", [writing.cast(x.name, x.dtype, wide), indices.name], axis=axis)
    behind = range(2, len(x.shape) - axis + 1)
    factors = writing.cast(writing.unsqueezed(weights, *behind), weights.dtype, wide)
    products = writing.apply("Mul", [taps, factors])
    writing.result("ReduceSum", [products, writing.vector((axis + 1,))], keepdims=0)


def _frames(writing: Writing) -> None:
    """Samples gathered into frames."""
    shape = static(writing.output.shape[1:3])
    assert shape is not None, "the operator refuses run-time extents"
    starts = np.arange(shape[0], dtype=np.int64)[:, None] * writing.integer("step")
    places = writing.constant(starts + np.arange(shape[1], dtype=np.int64))
    writing.result("Gather", [writing.input(0), places], axis=1)


FORMS: Mapping[str, FormFunction] = {
    "AffineGrid": _affine_grid,
    "Frames": _frames,
    "GridSample": Form("GridSample", {name: name for name in ("mode", "padding_mode", "align_corners")}),
    "Resample": _resample,
    "RoiAlign": _roi_align,
}
