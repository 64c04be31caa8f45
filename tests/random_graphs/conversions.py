"""Floats that become integers, written in NumPy from their definitions.

What NaN becomes, ONNX does not say: such elements are masked (``numpy.ma``). Infinities saturate.
"""

from collections.abc import Sequence

import numpy as np

from tests.random_graphs.case import Array
from tests.random_graphs.form import Form


def quantize(form: Form, inputs: Sequence[Array | None]) -> Sequence[Array]:
    """QuantizeLinear, to integers; one scale, or one for each entry of an axis."""
    data, scale, point = (*inputs, None)[:3]
    assert data is not None and scale is not None
    zero = np.zeros(scale.shape, np.uint8) if point is None else point
    column = [1] * data.ndim
    if scale.ndim:
        column[int(form.get("axis", 1))] = scale.shape[0]
    steps = np.rint(data / scale.reshape(column))
    return [_saturated(steps + zero.reshape(column), zero.dtype)]


def quantize_dynamically(_: Form, inputs: Sequence[Array | None]) -> Sequence[Array]:
    """DynamicQuantizeLinear: with the scale in 32 bits, as in ONNX's reference evaluator."""
    data = inputs[0]
    assert data is not None
    low, high = np.float32(np.minimum(0, data.min())), np.float32(np.maximum(0, data.max()))
    scale = np.float32(1) if low == high else (high - low) / np.float32(255)
    point = np.rint(np.clip(-low / scale, 0, 255))
    quantized = np.rint(data / scale) + point
    return [_saturated(quantized, np.dtype(np.uint8)), np.asarray(scale), _saturated(point, np.dtype(np.uint8))]


def _saturated(whole: Array, dtype: np.dtype[np.generic]) -> Array:
    """Whole numbers as integers, without those that are NaN."""
    info, unknown = np.iinfo(dtype), np.isnan(whole)
    return np.ma.array(np.clip(np.where(unknown, 0, whole), info.min, info.max).astype(dtype), mask=unknown)
