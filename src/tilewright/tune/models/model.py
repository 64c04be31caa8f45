"""The protocol of cost models; objectives, labels and measured populations, which all of them share."""

from dataclasses import dataclass
from enum import Enum, auto
from typing import Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

FloatArray: TypeAlias = NDArray[np.float64]


class Objective(Enum):
    """The prediction target of a model."""

    RANK = auto()
    """Ranking: which of two candidates of one task is faster (Chen et al. 2018, section 3.2); scores have no unit."""
    REGRESSION = auto()
    """The throughput relative to the best measured one, which is also the scale of scores."""


class CostModel(Protocol):
    """Learns from measured candidates to score others. Equal seeds and data give equal scores.

    Both methods raise ``BadInput`` if arrays don't fit each other.
    """

    def fit(self, features: FloatArray, throughputs: FloatArray) -> None:
        """Forget all, and learn from one task's measurements.

        ``features`` is (candidates, features); ``throughputs``: (candidates,), measured flops/s or anything
        proportional; 0 for failures.
        """
        ...

    def score(self, features: FloatArray) -> FloatArray:
        """(candidates,) from (candidates, features): larger is better, always finite.

        Before the first fit, and after one on indistinguishable candidates: zeros, unless the model has prior
        knowledge.
        """
        ...


class ResidualModel(CostModel, Protocol):
    """A model that can learn the residuals of another one."""

    def fit(self, features: FloatArray, throughputs: FloatArray, margins: FloatArray | None = None) -> None:
        """As ``CostModel.fit``; future scores are added to ``margins`` (candidates,), the other model's scores."""
        ...


@dataclass(frozen=True, slots=True)
class Measured:
    """Measurements of one task: (candidates, features), and throughputs (candidates,) as in ``CostModel.fit``."""

    features: FloatArray
    throughputs: FloatArray


def relative(throughputs: FloatArray) -> FloatArray:
    """Labels in [0, 1]: fractions of the best throughput; 0 for failures, also those given as NaN or infinity."""
    measured = np.where(np.isfinite(throughputs) & (throughputs > 0), throughputs, 0.0)
    best = measured.max(initial=0.0)
    return measured / best if best > 0 else measured
