"""A cost model in one file, as ``docs/extending.md`` shows it: a linear fit of the throughput's logarithm."""

import numpy as np

from tilewright.space.space import Floats, Space
from tilewright.tune.models.rater import OfKnobs, Rater


class LinearModel:
    """Least squares with a little ridge; failures count as a hundredth of the slowest."""

    def __init__(self) -> None:
        self._weights: Floats | None = None

    def fit(self, features: Floats, throughputs: Floats) -> None:
        """``features`` is (candidates, features); ``throughputs`` (candidates,) is 0 for failures."""
        right = throughputs[throughputs > 0]
        if not len(right):
            return
        labels = np.log(np.maximum(throughputs, right.min() / 100))
        columns = _with_ones(features)
        ridge = 1e-3 * np.eye(columns.shape[1])
        self._weights = np.linalg.solve(columns.T @ columns + ridge, columns.T @ labels)

    def score(self, features: Floats) -> Floats:
        """(candidates,): larger is better."""
        return np.zeros(len(features)) if self._weights is None else _with_ones(features) @ self._weights


def _with_ones(features: Floats) -> Floats:
    return np.concatenate([features, np.ones((len(features), 1))], axis=1)


class StraightLines:
    """Makes one for each kernel, which sees what its knobs are set to and what the analytic model thinks."""

    def rater(self, space: Space, seed: int) -> Rater:
        """A rater that sees something else has ``fit`` and ``score`` of digits."""
        return OfKnobs(space, LinearModel())


STRAIGHT_LINES = StraightLines()
