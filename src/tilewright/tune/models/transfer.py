"""Transfer learning from other tasks: f(x) = f_global(x) + f_local(x) (Chen et al. 2018, section 4).

The global model was fitted on the history of other tasks, over features with the same meaning in all of them. The local
one learns its residuals; its margins are the global scores *of its own rows*. The global model's weight decreases with
the number of local measurements, down to 0.
"""

import numpy as np

from tilewright.tune.models.model import CostModel, FloatArray, ResidualModel

_HALF_LIFE = 64  # local measurements
_LEAST_WEIGHT = 0.05


def global_weight(measured: int) -> float:
    """The global model's weight with ``measured`` local candidates: 2^(-n/64); 0 once that is below 0.05."""
    weight = 2.0 ** (-measured / _HALF_LIFE)
    return weight if weight >= _LEAST_WEIGHT else 0.0


class Transfer:
    """A ``CostModel`` of two: ``general``, fitted on other tasks and fixed, and ``local``, which learns."""

    def __init__(self, general: CostModel, local: ResidualModel) -> None:
        self._general = general
        self._local = local
        self._weight = global_weight(0)

    def fit(self, features: FloatArray, throughputs: FloatArray) -> None:
        """See ``CostModel``."""
        self._weight = global_weight(len(features))
        self._local.fit(features, throughputs, self._margins(features))

    def score(self, features: FloatArray) -> FloatArray:
        """See ``CostModel``; before the first fit, the global model's scores."""
        return self._margins(features) + self._local.score(features)

    def _margins(self, features: FloatArray) -> FloatArray:
        if not self._weight:
            return np.zeros(len(features))
        return self._weight * self._general.score(features)
