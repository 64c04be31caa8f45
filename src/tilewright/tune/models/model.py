"""The protocol of cost models, and what all of them share: objectives, labels, measured populations."""

from dataclasses import dataclass
from enum import Enum, auto
from typing import Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

FloatArray: TypeAlias = NDArray[np.float64]


class Objective(Enum):
    """What a model learns to predict."""

    RANK = auto()
    """Which of two candidates of one task is faster (Chen et al. 2018, section 3.2); scores have no unit."""
    REGRESSION = auto()
    """The throughput, as a part of the best one that was measured; so are the scores."""


class CostModel(Protocol):
    """Learns from measured candidates which others are likely fast. Equal seeds and data give equal scores.

    Both methods raise ``BadInput`` if arrays don't fit each other.
    """

    def fit(self, features: FloatArray, throughputs: FloatArray) -> None:
        """Forget everything, and learn from one task's measurements.

        ``features`` is (candidates, features); ``throughputs`` (candidates,) is what was measured of each: flops/s or
        anything proportional; 0 for failures.
        """
        ...

    def score(self, features: FloatArray) -> FloatArray:
        """(candidates,) from (candidates, features): larger is better, always finite.

        Before the first fit, and after one that had nothing to tell candidates apart by: zeros, unless the model knows
        something without measurements.
        """
        ...


class ResidualModel(CostModel, Protocol):
    """A model that can learn what another one leaves over."""

    def fit(self, features: FloatArray, throughputs: FloatArray, margins: FloatArray | None = None) -> None:
        """As that of ``CostModel``; the scores to come are added to ``margins`` (candidates,), the other's scores."""
        ...


@dataclass(frozen=True, slots=True)
class Measured:
    """What was measured of one task: (candidates, features), and throughputs (candidates,) as ``CostModel.fit`` has."""

    features: FloatArray
    throughputs: FloatArray


def relative(throughputs: FloatArray) -> FloatArray:
    """Labels in [0, 1]: parts of the best throughput; 0 for failures, also where that is written as NaN or infinity."""
    measured = np.where(np.isfinite(throughputs) & (throughputs > 0), throughputs, 0.0)
    best = measured.max(initial=0.0)
    return measured / best if best > 0 else measured
