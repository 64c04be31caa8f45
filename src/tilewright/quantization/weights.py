"""Weights as int8, symmetric, with a scale for each channel of the result.

The range of a channel is that of its weights, or a smaller one with a smaller squared error (Nagel et al., "A white
paper on neural network quantization", 2021, section 3.1).
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

LEVELS = 127
"""The largest integer of a weight: -128 is not used, so that a weight and its negative have the same magnitude."""
LEAST_SCALE = 2.0**-60
"""The smallest scale: products of two are normal numbers in float32."""
_RATIOS = tuple(np.linspace(1.0, 0.7, 13).tolist())
"""Parts of a channel's range that are compared."""

Floats = NDArray[np.float32]
Exact = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class Weight:
    """``codes * scale``; the scale is one number, or one for each position along ``axis``."""

    codes: NDArray[np.int8]
    scale: Floats
    axis: int | None

    def wide(self) -> Floats:
        """The weight in float32, as DequantizeLinear computes it."""
        scale = self.scale
        if self.axis is not None:
            scale = scale.reshape([-1 if axis == self.axis else 1 for axis in range(self.codes.ndim)])
        return self.codes.astype(np.float32) * scale


def quantized_weight(weight: Floats, axis: int | None, least: Exact, *, search: bool, powers: bool) -> Weight:
    """``weight`` as int8, with scales of at least ``least`` (one number for each channel).

    ``search``: look for the range with the smallest squared error; ``powers``: scales are powers of two.
    """
    rows = (
        weight.reshape(1, -1) if axis is None else np.moveaxis(weight, axis, 0).reshape(weight.shape[axis], -1)
    ).astype(np.float64)
    full = np.maximum(np.abs(rows).max(axis=1, initial=0.0) / LEVELS, np.maximum(least, LEAST_SCALE))
    scale = _fitting(rows, full, least, powers=powers) if search else power_of_two(full) if powers else full
    rounded = scale.astype(np.float32)
    codes = _codes(rows, rounded.astype(np.float64)).astype(np.int8)
    if axis is None:
        return Weight(codes.reshape(weight.shape), rounded.reshape(()), None)
    there = (weight.shape[axis], *weight.shape[:axis], *weight.shape[axis + 1 :])
    return Weight(np.ascontiguousarray(np.moveaxis(codes.reshape(there), 0, axis)), rounded, axis)


def _fitting(rows: Exact, full: Exact, least: Exact, *, powers: bool) -> Exact:
    """The scales with the smallest squared error of each row; where several are equal, the largest."""
    best, lowest = full, np.full(len(full), np.inf)
    for ratio in (1.0, 0.5) if powers else _RATIOS:
        scale = np.maximum((power_of_two(full) if powers else full) * ratio, np.maximum(least, LEAST_SCALE))
        scale = power_of_two(scale) if powers else scale
        error = np.square(rows - _codes(rows, scale) * scale[:, None]).sum(axis=1)
        better = error < lowest
        best, lowest = np.where(better, scale, best), np.where(better, error, lowest)
    return best


def _codes(rows: Exact, scale: Exact) -> Exact:
    return np.clip(np.rint(rows / scale[:, None]), -LEVELS, LEVELS)


def power_of_two(scale: Exact) -> Exact:
    """The powers of two that are as large, or the next larger ones."""
    return np.exp2(np.ceil(np.log2(scale)))
