"""How far results of a network are from those of PyTorch."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

TOLERANCE = 1e-4
"""Relative to the largest magnitude of an output."""

Arrays = Sequence[NDArray[np.generic]]


def matched(ours: Arrays, theirs: Arrays) -> Arrays:
    """What a detection network finds, in the order of `theirs`: beside each box the nearest one of its label.

    Each is taken once. Boxes of nearly equal scores come in any order. As it is, if there are not as many.
    """
    boxes, labels = ours[0].astype(np.float64), ours[1]
    if ours[0].shape != theirs[0].shape:
        return ours
    left, order = np.ones(len(boxes), np.bool_), []
    for box, label in zip(theirs[0], theirs[1], strict=True):
        distance = np.abs(boxes - box).max(axis=1, initial=0.0)
        order.append(int(np.argmin(np.where(left & (labels == label), distance, np.inf))))
        left[order[-1]] = False
    return [result[order] for result in ours] if order else ours


def difference(ours: Arrays, theirs: Arrays) -> float:
    """The largest difference of an output, relative to its largest magnitude; infinite for another shape or dtype."""
    if len(ours) != len(theirs):
        return float("inf")
    worst = 0.0
    for a, b in zip(ours, theirs, strict=True):
        if a.shape != b.shape or a.dtype != b.dtype:
            return float("inf")
        worst = max(worst, _distance(a.astype(np.float64), b.astype(np.float64)))
    return worst


def _distance(x: NDArray[np.float64], y: NDArray[np.float64]) -> float:
    """Infinite if what is not finite differs."""
    finite = np.isfinite(y)
    if not np.array_equal(x[~finite], y[~finite], equal_nan=True) or not np.isfinite(x[finite]).all():
        return float("inf")
    if not finite.any():
        return 0.0
    return float(np.max(np.abs(x[finite] - y[finite])) / max(float(np.max(np.abs(y[finite]))), 1e-30))
