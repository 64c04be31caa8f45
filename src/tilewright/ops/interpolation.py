"""Interpolation tables: source indices and weights of each element of a resized axis (ONNX, operator Resize).

Interpolation is separable, so each axis has its own table. Tables are computed at import; at run time, only short sums
of products remain.
"""

from dataclasses import dataclass
from enum import Enum

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.floating]
Ints = NDArray[np.int64]


class Mode(Enum):
    """Interpolation modes between elements."""

    NEAREST = "nearest"
    LINEAR = "linear"
    CUBIC = "cubic"


class Coordinates(Enum):
    """Coordinate transformations from the resized axis to the original one; ONNX's names."""

    HALF_PIXEL = "half_pixel"
    HALF_PIXEL_SYMMETRIC = "half_pixel_symmetric"
    PYTORCH_HALF_PIXEL = "pytorch_half_pixel"
    ALIGN_CORNERS = "align_corners"
    ASYMMETRIC = "asymmetric"
    TF_HALF_PIXEL_FOR_NN = "tf_half_pixel_for_nn"
    TF_CROP_AND_RESIZE = "tf_crop_and_resize"


class Rounding(Enum):
    """Rounding to the nearest element; ONNX's names."""

    PREFER_FLOOR = "round_prefer_floor"
    PREFER_CEIL = "round_prefer_ceil"
    FLOOR = "floor"
    CEIL = "ceil"
    SIMPLE = "simple"
    """Before opset 11 ONNX left it open; as in ONNX Runtime: up if the axis shrinks, else down."""


@dataclass(frozen=True, slots=True)
class Filter:
    """Everything about a resize that is the same for all axes."""

    mode: Mode
    coordinates: Coordinates
    rounding: Rounding = Rounding.PREFER_FLOOR
    cubic_a: float = -0.75
    antialias: bool = False
    exclude_outside: bool = False


@dataclass(frozen=True, slots=True)
class Line:
    """One axis: ``before`` elements become ``after``; ``scale`` is that of the model, not always their quotient.

    ``crop``: the first and the last position, as fractions of the original axis (crop and resize only).
    """

    before: int
    after: int
    scale: float
    crop: tuple[float, float] = (0.0, 1.0)


@dataclass(frozen=True, slots=True)
class Table:
    """For each element of the resized axis: its source indices ``[after, taps]``, and their weights.

    ``outside``: positions beyond the original axis, which crop and resize fills with a constant.
    """

    indices: Ints
    weights: Floats
    outside: NDArray[np.bool_]


def table(line: Line, chosen: Filter) -> Table:
    """The table of one axis, which must not be empty."""
    # ONNX Runtime computes in f32, which decides between two equally near elements.
    precision = np.float32 if chosen.mode is Mode.NEAREST else np.float64
    places = _places(line, chosen.coordinates, precision)
    outside = np.zeros(line.after, np.bool_)
    if chosen.coordinates is Coordinates.TF_CROP_AND_RESIZE:
        outside = (places < 0) | (places > line.before - 1)
    if chosen.mode is Mode.NEAREST:
        indices = _nearest(places, chosen.rounding, line.scale)[:, None]
        weights: Floats = np.ones(indices.shape)
    else:
        indices, weights = _weighted(places, line, chosen)
    return Table(np.clip(indices, 0, line.before - 1), weights, outside)


def _places(line: Line, coordinates: Coordinates, precision: type[np.floating]) -> Floats:
    """The position in the original axis of each element of the resized one."""
    x = np.arange(line.after).astype(precision)
    scale, half = precision(line.scale), precision(0.5)
    match coordinates:
        case Coordinates.HALF_PIXEL:
            return (x + half) / scale - half
        case Coordinates.PYTORCH_HALF_PIXEL:
            return (x + half) / scale - half if line.after > 1 else x
        case Coordinates.HALF_PIXEL_SYMMETRIC:
            adjustment = precision(line.after) / (scale * precision(line.before))
            return precision(line.before) / 2 * (1 - adjustment) + (x + half) / scale - half
        case Coordinates.ALIGN_CORNERS:
            return x * precision(line.before - 1) / precision(line.after - 1) if line.after > 1 else x
        case Coordinates.ASYMMETRIC:
            return x / scale
        case Coordinates.TF_HALF_PIXEL_FOR_NN:
            return (x + half) / scale
        case Coordinates.TF_CROP_AND_RESIZE:
            first, last = (precision(end * (line.before - 1)) for end in line.crop)
            return first + x * (last - first) / precision(line.after - 1) if line.after > 1 else (first + last) / 2 + x


def _nearest(places: Floats, rounding: Rounding, scale: float) -> Ints:
    match rounding:
        case Rounding.PREFER_FLOOR:
            chosen = np.ceil(places - places.dtype.type(0.5))
        case Rounding.PREFER_CEIL:
            chosen = np.floor(places + places.dtype.type(0.5))
        case Rounding.FLOOR:
            chosen = np.floor(places)
        case Rounding.CEIL:
            chosen = np.ceil(places)
        case Rounding.SIMPLE:
            chosen = np.ceil(places) if scale < 1 else np.trunc(places)
    return chosen.astype(np.int64)


def _weighted(places: Floats, line: Line, chosen: Filter) -> tuple[Ints, Floats]:
    """The taps around each position. With antialiasing the filter is as wide as one element of the shrunken axis."""
    radius = 1 if chosen.mode is Mode.LINEAR else 2
    stretch = min(line.scale, 1.0) if chosen.antialias and line.after else 1.0
    first = int(np.floor(-radius / stretch)) + 1
    left = np.ceil(places) - 1  # so that a position on an element has that element on its right
    offsets = np.arange(first, 2 - first)
    indices = left.astype(np.int64)[:, None] + offsets[None, :]
    distances = np.abs((indices - places[:, None]) * stretch)
    weights = _linear(distances) if chosen.mode is Mode.LINEAR else _cubic(distances, chosen.cubic_a)
    if chosen.exclude_outside:
        weights = np.where((indices >= 0) & (indices < line.before), weights, 0.0)
    if chosen.exclude_outside or chosen.antialias:
        weights = weights / weights.sum(axis=1, keepdims=True)
    return indices, weights


def _linear(distances: Floats) -> Floats:
    return np.clip(1 - distances, 0, 1)


def _cubic(d: Floats, a: float) -> Floats:
    """Keys, "Cubic convolution interpolation for digital image processing", 1981, equation 4."""
    near = ((a + 2) * d - (a + 3)) * d * d + 1
    far = ((a * d - 5 * a) * d + 8 * a) * d - 4 * a
    return np.where(d <= 1, near, np.where(d < 2, far, 0.0))
