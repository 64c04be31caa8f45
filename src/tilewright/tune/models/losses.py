"""Training losses: pairwise ranking, and squared error.

The loss of a ranking is the sum over pairs of log(1 + exp(-sign(c_i - c_j) (f_i - f_j))) (Chen et al. 2018), with two
changes. Pairs are sampled, as there are too many: some partners for each candidate, resampled each time. And a pair
weighs more if one of its candidates is fast: a search needs the order at the top only.
"""

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from tilewright.tune.models.model import FloatArray, Objective
from tilewright.tune.models.rows import Indices, Rows

_PAIRS = 20_000  # partners per candidate; more take longer without benefit
_MOST_PARTNERS = 16
_FEWEST_PARTNERS = 4
_LEAST_WEIGHT = 0.2  # weight of a pair with the best candidate is larger by 1
_STEEPEST = 50.0  # larger exponents overflow soon, and change no gradient


class Loss(Protocol):
    """A function of the scores of certain rows. Scores are (candidates,), margins included."""

    def value(self, scores: FloatArray) -> float:
        """The mean loss."""
        ...

    def slopes(self, scores: FloatArray) -> tuple[FloatArray, FloatArray]:
        """First and second derivative by each candidate's score, (candidates,) each."""
        ...

    def offset(self, margins: FloatArray) -> float:
        """The best constant to add to all margins."""
        ...


@dataclass(frozen=True, slots=True)
class Pairs:
    """Pairs of candidates of one task of which one is faster, by their rows, (pairs,) each."""

    better: Indices
    worse: Indices
    weights: FloatArray
    """Their mean is 1."""


def draw_pairs(rows: Rows, partners: int, generator: np.random.Generator) -> Pairs:
    """Each row with some partners at random from its own task; pairs of equal labels are left out."""
    first = np.searchsorted(rows.tasks, rows.tasks, side="left")
    beyond = np.searchsorted(rows.tasks, rows.tasks, side="right")
    left = np.repeat(np.arange(len(rows)), partners)
    right = generator.integers(np.repeat(first, partners), np.repeat(beyond, partners))
    difference = rows.labels[left] - rows.labels[right]
    better = np.where(difference > 0, left, right)[difference != 0]
    worse = np.where(difference > 0, right, left)[difference != 0]
    weights = _LEAST_WEIGHT + rows.labels[better]
    return Pairs(better, worse, weights / weights.mean() if len(weights) else weights)


class RankLoss:
    """Pairwise ranking. ``value`` has fixed pairs; ``slopes`` samples new ones each time."""

    def __init__(self, rows: Rows, generator: np.random.Generator) -> None:
        self._rows = rows
        self._generator = generator
        self._partners = min(max(_PAIRS // len(rows), _FEWEST_PARTNERS), _MOST_PARTNERS)
        self._pairs = draw_pairs(rows, 4 * self._partners, generator)

    def value(self, scores: FloatArray) -> float:
        """The weighted mean over pairs; log(2) if all scores are equal."""
        pairs = self._pairs
        if not len(pairs.better):
            return 0.0
        return float(np.mean(pairs.weights * np.logaddexp(0.0, scores[pairs.worse] - scores[pairs.better])))

    def slopes(self, scores: FloatArray) -> tuple[FloatArray, FloatArray]:
        """See ``Loss``."""
        pairs = draw_pairs(self._rows, self._partners, self._generator)
        lead = np.clip(scores[pairs.better] - scores[pairs.worse], -_STEEPEST, _STEEPEST)
        wrong = 1.0 / (1.0 + np.exp(lead))  # probability of the wrong order by the model
        weights = pairs.weights / self._partners
        slope, curvature = weights * wrong, weights * wrong * (1.0 - wrong)
        return (
            self._per_row(pairs.worse, slope) - self._per_row(pairs.better, slope),
            self._per_row(pairs.worse, curvature) + self._per_row(pairs.better, curvature),
        )

    def offset(self, margins: FloatArray) -> float:
        """0: adding a constant changes no order."""
        return 0.0

    def _per_row(self, indices: Indices, values: FloatArray) -> FloatArray:
        return np.bincount(indices, values, len(self._rows)).astype(np.float64)


class SquaredLoss:
    """Half the square of the distance from the label."""

    def __init__(self, rows: Rows) -> None:
        self._labels = rows.labels

    def value(self, scores: FloatArray) -> float:
        """See ``Loss``."""
        return float(np.mean((scores - self._labels) ** 2)) / 2

    def slopes(self, scores: FloatArray) -> tuple[FloatArray, FloatArray]:
        """See ``Loss``."""
        return scores - self._labels, np.ones_like(scores)

    def offset(self, margins: FloatArray) -> float:
        """The mean residual after the margins."""
        return float(np.mean(self._labels - margins))


def loss_of(objective: Objective, rows: Rows, generator: np.random.Generator) -> Loss:
    """The loss of scores for these rows."""
    match objective:
        case Objective.RANK:
            return RankLoss(rows, generator)
        case Objective.REGRESSION:
            return SquaredLoss(rows)
