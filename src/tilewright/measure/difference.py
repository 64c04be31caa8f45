"""Errors of a value against a reference: relative in the 2-norm, and of the largest element."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tilewright.base.arrays import Array


@dataclass(frozen=True, slots=True)
class Difference:
    """The error of a value against its reference; infinite if shapes or non-finite elements differ."""

    euclidean: float
    """|y - r|_2 / |r|_2."""
    largest: float
    """max|y - r| / max|r|."""

    @property
    def worst(self) -> float:
        """The larger of both."""
        return max(self.euclidean, self.largest)


_INCOMPARABLE = Difference(float("inf"), float("inf"))


def difference(ours: Array, reference: Array) -> Difference:
    """Both errors; 0 where both values are 0 everywhere, or are empty."""
    return Reference.of(reference).difference(ours)


@dataclass(frozen=True, slots=True, eq=False)
class Reference:
    """A reference, with cached norms."""

    values: NDArray[np.float64]
    finite: NDArray[np.bool_]
    is_finite: bool
    """Whether all values are finite, the usual case: without masks, it is ten times faster."""
    norm: float
    """|r|_2 of the finite values."""
    largest: float

    @staticmethod
    def of(reference: Array) -> "Reference":
        """``reference`` is copied, so that it may change afterwards."""
        values = reference.astype(np.float64)
        finite = np.isfinite(values)
        kept = values if finite.all() else values[finite]
        return Reference(values, finite, bool(finite.all()), float(np.linalg.norm(kept)), _largest(kept))

    def difference(self, ours: Array) -> Difference:
        """The error of ``ours``."""
        if ours.shape != self.values.shape:
            return _INCOMPARABLE
        if self.is_finite:
            error = ours.astype(np.float64)
            if not np.isfinite(error).all():
                return _INCOMPARABLE
            error -= self.values
        else:
            x, at = ours.astype(np.float64), self.finite
            if not (np.array_equal(x[~at], self.values[~at], equal_nan=True) and np.isfinite(x[at]).all()):
                return _INCOMPARABLE
            error = x[at] - self.values[at]
        euclidean = float(np.linalg.norm(error))
        return Difference(_ratio(euclidean, self.norm), _ratio(_largest(error), self.largest))


def _largest(values: NDArray[np.float64]) -> float:
    """The largest magnitude; 0 if empty."""
    return max(float(values.max(initial=0.0)), -float(values.min(initial=0.0)))


def _ratio(error: float, scale: float) -> float:
    return error / scale if scale else float("inf") if error else 0.0
