"""The range of an activation, from the distribution of its values: one function for each method.

Zero is within every range, and is represented exactly: padding and rectified values are zeros.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tilewright.base.quantization import Method

BINS = 2048
"""Bins of a histogram on each side of zero, as TensorRT has them."""
TAIL = 5e-5
"""The part of the values that the percentile method leaves out on each side."""
_STEP = 16
"""Bins between two thresholds that the entropy method compares: less than a hundredth of the range."""

Counts = NDArray[np.int64]
Range = tuple[float, float]
"""The smallest and the largest value."""


@dataclass(frozen=True, slots=True, eq=False)
class Distribution:
    """The values of an activation: the smallest and the largest, and how many are in each of equal bins.

    ``counts``: of ``2 * BINS`` bins from ``-limit`` to ``limit``, without exact zeros.
    """

    low: float
    high: float
    counts: Counts

    @property
    def limit(self) -> float:
        """The largest absolute value."""
        return max(-self.low, self.high, 0.0)


def minmax(values: Distribution) -> Range:
    """All values."""
    return values.low, values.high


def percentile(values: Distribution) -> Range:
    """Without the ``TAIL`` of the values on each side."""
    total = int(values.counts.sum())
    if not total:
        return minmax(values)
    below = np.cumsum(values.counts)
    first = int(np.searchsorted(below, TAIL * total, side="right"))
    last = int(np.searchsorted(below, (1.0 - TAIL) * total, side="left"))
    width = values.limit / BINS
    return max(values.low, (first - BINS) * width), min(values.high, (last + 1 - BINS) * width)


def entropy(values: Distribution) -> Range:
    """The symmetric range whose quantized distribution of absolute values diverges least from that of all values.

    Of a distribution on one side of zero, all 256 levels are on that side, else half of them. The method of S. Migacz,
    "8-bit inference with TensorRT" (GTC 2017); exact zeros do not count, as each range represents them.
    """
    negative, positive = values.counts[:BINS][::-1], values.counts[BINS:]
    levels = 128 if negative.any() and positive.any() else 256
    counts = (negative + positive).astype(np.float64)
    if not counts.any():
        return minmax(values)
    kept = range(levels, BINS + 1, _STEP)
    best = min(kept, key=lambda count: _divergence(counts, count, levels))
    threshold = best * values.limit / BINS
    return max(values.low, -threshold), min(values.high, threshold)


def _divergence(counts: NDArray[np.float64], kept: int, levels: int) -> float:
    """KL(P || Q): P has the values beyond the first ``kept`` bins in the last of these; Q has ``levels`` levels."""
    inside = counts[:kept]
    clipped = inside.copy()
    clipped[-1] += counts[kept:].sum()
    level = np.arange(kept) * levels // kept
    used = inside > 0
    share = np.bincount(level, inside, levels) / np.maximum(np.bincount(level, used, levels), 1)
    spread = np.where(used, share[level], 0.0)
    if not spread.any():
        return float("inf")
    p, q = clipped / clipped.sum(), spread / spread.sum()
    there = p > 0
    return float(np.sum(p[there] * np.log(p[there] / np.maximum(q[there], _LEAST))))


_LEAST = 1e-12
"""The probability that Q has where P has values and Q none: it makes the divergence large, but finite."""

RANGES: Mapping[Method, Callable[[Distribution], Range]] = {
    Method.MINMAX: minmax,
    Method.PERCENTILE: percentile,
    Method.ENTROPY: entropy,
}
