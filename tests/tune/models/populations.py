"""Made-up populations whose throughput is a known function of the features, and how well scores order them."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from tilewright.tune.models.model import FloatArray, Measured

FEATURES = 20
Throughput = Callable[[FloatArray], FloatArray]


def tiled(features: FloatArray) -> FloatArray:
    """Like a tiled kernel: penalties multiply, two features interact, and what is too large fails. 8 features count."""
    tile = features[:, 0] + features[:, 1]
    reuse = 1.0 / (1.0 + np.exp(-2.0 * (features[:, 1] - 3.0)))
    spills = np.minimum(1.0, 2.0 ** (7.0 - tile))
    cache = 1.0 / (1.0 + 2.0 ** (features[:, 2] + features[:, 3] - 9.0))
    order = np.where(features[:, 4] > 6.0, 0.4, np.where(features[:, 4] > 3.0, 1.0, 0.8))
    small = 1.0 - 0.05 * np.abs(features[:, 5] - 4.0) + 0.02 * features[:, 6] * (features[:, 7] > 5.0)
    return np.where(tile > 15.0, 0.0, 1e9 * reuse * spills * cache * order * small)


def measured(rows: int, seed: int, throughput: Throughput = tiled) -> Measured:
    """Candidates at random, each measured with 3 % of noise."""
    generator = np.random.default_rng(seed)
    features = generator.uniform(0.0, 9.0, (rows, FEATURES))
    return Measured(features, throughput(features) * np.exp(generator.normal(0.0, 0.03, rows)))


def rank_correlation(scores: FloatArray, throughputs: FloatArray) -> float:
    """Spearman's; 1 if both have the same order. Equal scores are in no order at all: 0 for a constant."""
    if np.ptp(scores) == 0.0:
        return 0.0
    ranks = [np.argsort(np.argsort(values, kind="stable")) for values in (scores, throughputs)]
    return float(np.corrcoef(*ranks)[0, 1])


def quality_of_best(scores: FloatArray, throughputs: FloatArray, chosen: int = 64) -> float:
    """The mean throughput of those that the scores would choose next, beside that of the best ones; at most 1."""
    return float(throughputs[np.argsort(-scores)[:chosen]].mean() / np.sort(throughputs)[-chosen:].mean())


@dataclass(frozen=True, slots=True)
class Planted:
    """A model that knows its scores, and that no fit can change."""

    scores: Throughput

    def fit(self, features: FloatArray, throughputs: FloatArray) -> None:
        raise AssertionError("a global model must stay as it is")

    def score(self, features: FloatArray) -> FloatArray:
        return self.scores(features)
