"""Resampling of grids. Scales are powers of two, so that places are exact."""

from collections.abc import Callable, Mapping

import numpy as np

from tests.random_graphs.case import Attribute
from tests.random_graphs.draw import Draw, Proposal, Value

Rule = Callable[[Draw], Proposal | None]

_COORDINATES = ("half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric")
_NEAREST = ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")


def _image(draw: Draw) -> Value:
    dtype = draw.dtype(0, "f")
    shape = (draw.integer(1, 2), draw.pick([1, 3, 5, 16]), draw.integer(1, 6), draw.integer(1, 6))
    known = draw.reused(lambda v: v.dtype == dtype and v.rank == 4 and 0 not in v.shape)
    return known or draw.fresh(shape, dtype)


def _resize(draw: Draw) -> Proposal:
    data = _image(draw)
    mode = draw.pick(["nearest", "linear", "cubic"])
    attributes: dict[str, Attribute] = {"mode": mode}
    if draw.opset >= 11:
        attributes["coordinate_transformation_mode"] = draw.pick(_COORDINATES)
        if mode == "nearest":
            attributes["nearest_mode"] = draw.pick(_NEAREST)
        if mode == "cubic" and draw.chance(0.5):
            attributes["cubic_coeff_a"] = -0.5
        if mode == "cubic" and draw.chance(0.3):
            attributes["exclude_outside"] = 1
    scales = np.array([1, 1, *(draw.pick([0.5, 1, 2, 2, 4]) for _ in range(2))], np.float32)
    if draw.opset < 11:
        return Proposal([data, draw.parameters(scales)], {"mode": draw.pick(["nearest", "linear"])})
    if any(int(extent * scale) < 1 for extent, scale in zip(data.shape, scales, strict=True)):
        scales = np.array([1, 1, 2, 2], np.float32)
    if draw.chance(0.5):
        return Proposal([data, None, draw.parameters(scales)], attributes)
    sizes = [int(extent * scale) for extent, scale in zip(data.shape, scales, strict=True)]
    return Proposal([data, None, None, draw.parameter(*sizes)], attributes)


def _upsample(draw: Draw) -> Proposal:
    data = _image(draw)
    scales = np.array([1, 1, *(draw.pick([1, 2, 3]) for _ in range(2))], np.float32)
    if draw.opset < 9:
        return Proposal([data], {"mode": "nearest", "scales": scales.tolist()})
    return Proposal([data, draw.parameters(scales)], {"mode": draw.pick(["nearest", "linear"])})


def _grid_sample(draw: Draw) -> Proposal | None:
    """Places are kept from the middle between elements and from the border, where rounding would decide."""
    data = _image(draw)
    if data.dtype == np.float16:  # LLVM takes minutes over its code, which the node tests do not have
        return None
    shape = (data.shape[0], draw.integer(1, 5), draw.integer(1, 5), 2)
    grid = draw.fresh(shape, data.dtype, (-0.9, 0.9))
    linear, cubic = ("bilinear", "bicubic") if draw.opset < 20 else ("linear", "cubic")
    attributes: dict[str, Attribute] = {
        "mode": draw.pick([linear, "nearest", cubic]),
        "padding_mode": draw.pick(["zeros", "border", "reflection"]),
        "align_corners": draw.integer(0, 1),
    }
    return Proposal([data, grid], attributes)


def _affine_grid(draw: Draw) -> Proposal:
    batch, channels, height, width = draw.integer(1, 2), draw.integer(1, 3), draw.integer(2, 5), draw.integer(2, 5)
    theta = draw.like((batch, 2, 3), draw.dtype(0, "f"))
    return Proposal([theta, draw.parameter(batch, channels, height, width)], {"align_corners": draw.integer(0, 1)})


RULES: Mapping[str, Rule] = {
    "AffineGrid": _affine_grid,
    "GridSample": _grid_sample,
    "Resize": _resize,
    "Upsample": _upsample,
}
