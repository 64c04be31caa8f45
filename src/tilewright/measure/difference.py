"""How far results are from a reference, by the design's two measures."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tilewright.base.arrays import Array


@dataclass(frozen=True, slots=True)
class Difference:
    """How far a value is from its reference; infinite if shapes or non-finite elements differ."""

    euclidean: float
    """|y - r|_2 / |r|_2."""
    largest: float
    """max|y - r| / max|r|."""

    @property
    def worst(self) -> float:
        """The larger measure."""
        return max(self.euclidean, self.largest)


_INCOMPARABLE = Difference(float("inf"), float("inf"))


def difference(ours: Array, reference: Array) -> Difference:
    """Both measures; 0 where both values are 0 everywhere, and of nothing."""
    if ours.shape != reference.shape:
        return _INCOMPARABLE
    x, y = ours.astype(np.float64), reference.astype(np.float64)
    finite = np.isfinite(y)
    if not _same_where_not_finite(x, y, finite):
        return _INCOMPARABLE
    if not finite.all():
        x, y = x[finite], y[finite]
    euclidean = _ratio(float(np.linalg.norm(x - y)), float(np.linalg.norm(y)))
    return Difference(euclidean, _ratio(float(np.abs(x - y).max(initial=0.0)), float(np.abs(y).max(initial=0.0))))


def _same_where_not_finite(x: Array, y: Array, finite: NDArray[np.bool_]) -> bool:
    if finite.all():  # most often, and ten times faster
        return bool(np.isfinite(x).all())
    return np.array_equal(x[~finite], y[~finite], equal_nan=True) and bool(np.isfinite(x[finite]).all())


def _ratio(error: float, scale: float) -> float:
    return error / scale if scale else float("inf") if error else 0.0
