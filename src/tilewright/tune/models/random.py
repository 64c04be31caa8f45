"""The baseline: random scores, for searches without a model."""

import numpy as np
from numpy.typing import NDArray

from tilewright.tune.models.model import FloatArray


class RandomScores:
    """A ``CostModel``: a pseudorandom function of the features and the seed, uniform in [0, 1).

    A function, so that a candidate keeps its score during a search.
    """

    def __init__(self, seed: int = 0) -> None:
        self._seed = seed

    def fit(self, features: FloatArray, throughputs: FloatArray) -> None:
        """Does nothing."""

    def score(self, features: FloatArray) -> FloatArray:
        """See ``CostModel``; the same before and after a fit."""
        keys = np.random.default_rng(self._seed).integers(0, 2**64, features.shape[1] + 1, np.uint64)
        bits = np.ascontiguousarray(features + 0.0).view(np.uint64)  # + 0.0: -0.0 is 0.0
        mixed = _mix(_mix(bits ^ keys[:-1]).sum(axis=1, dtype=np.uint64) + keys[-1])
        return (mixed >> np.uint64(11)).astype(np.float64) / 2.0**53


def _mix(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """A bijection of 64-bit numbers in which each bit depends on all (the finalizer of SplitMix64)."""
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))
