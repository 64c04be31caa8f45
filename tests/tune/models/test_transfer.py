"""A planted global model helps while little is known, is corrected where it is wrong, and is forgotten in the end."""

import numpy as np
import pytest

from tests.tune.models.populations import Planted, measured, quality_of_best, rank_correlation, tiled
from tilewright.tune.models.boosted import BoostedTrees
from tilewright.tune.models.model import FloatArray, Measured, Objective
from tilewright.tune.models.transfer import Transfer, global_weight

OTHERS = measured(4000, seed=99)


def odd(features: FloatArray) -> FloatArray:
    """The task at hand: as ``tiled``, but for one thing that no other task taught."""
    return tiled(features) * np.where(features[:, 9] > 4.0, 1.0, 0.03)


def log_of(features: FloatArray) -> FloatArray:
    """What a good ranking of ``tiled`` looks like: near its logarithm, some units wide."""
    return np.log2(np.maximum(tiled(features), 1e5) / 1e9)


def correlation(general: Planted, population: Measured, objective: Objective = Objective.RANK, seed: int = 0) -> float:
    model = Transfer(general, BoostedTrees(objective, seed))
    model.fit(population.features, population.throughputs)
    return rank_correlation(model.score(OTHERS.features), odd(OTHERS.features))


def local_correlation(population: Measured, seed: int = 0) -> float:
    model = BoostedTrees(seed=seed)
    model.fit(population.features, population.throughputs)
    return rank_correlation(model.score(OTHERS.features), odd(OTHERS.features))


def test_the_weight_halves_with_each_64_measurements_until_it_is_dropped() -> None:
    assert global_weight(0) == 1.0
    assert global_weight(64) == 0.5
    assert global_weight(256) == 0.0625
    assert global_weight(276) == pytest.approx(0.0503, abs=1e-4)
    assert global_weight(277) == 0.0
    assert global_weight(1000) == 0.0


def test_before_the_first_fit_it_is_the_global_model() -> None:
    model = Transfer(Planted(log_of), BoostedTrees())
    np.testing.assert_array_equal(model.score(OTHERS.features), log_of(OTHERS.features))


def test_failures_only_leave_the_order_of_the_global_model() -> None:
    model = Transfer(Planted(log_of), BoostedTrees())
    model.fit(OTHERS.features[:64], np.zeros(64))
    np.testing.assert_array_equal(model.score(OTHERS.features), 0.5 * log_of(OTHERS.features))


def test_with_few_rows_it_reaches_what_neither_model_reaches_alone() -> None:
    """On average of five small samples; the global model alone does not know what is odd here."""
    samples = [measured(64, seed, odd) for seed in range(5)]
    together = np.mean([correlation(Planted(log_of), sample, seed=seed) for seed, sample in enumerate(samples)])
    local = np.mean([local_correlation(sample, seed) for seed, sample in enumerate(samples)])
    general = rank_correlation(log_of(OTHERS.features), odd(OTHERS.features))
    assert together > local + 0.1
    assert together > general + 0.02


def test_a_learned_global_model_saves_measurements() -> None:
    """The history is of another task, and the model of it a fitted one."""
    general = BoostedTrees()
    general.fit_history([measured(1000, seed=21), measured(1000, seed=22)])
    qualities: list[list[float]] = []
    for seed in range(3):
        sample = measured(64, seed, odd)
        models = Transfer(general, BoostedTrees()), BoostedTrees()
        for model in models:
            model.fit(sample.features, sample.throughputs)
        qualities.append([quality_of_best(model.score(OTHERS.features), odd(OTHERS.features)) for model in models])
    together, local = np.mean(qualities, axis=0)
    assert together > local + 0.2


def test_a_wrong_global_model_is_corrected_and_then_forgotten() -> None:
    wrong = Planted(lambda features: -log_of(features))
    assert rank_correlation(wrong.score(OTHERS.features), odd(OTHERS.features)) < -0.8
    soon, later = (correlation(wrong, measured(rows, 1, odd)) for rows in (128, 256))
    assert later > soon > 0.3
    enough = measured(300, 1, odd)
    assert correlation(wrong, enough) == local_correlation(enough)


@pytest.mark.parametrize("objective", Objective)
def test_margins_are_those_of_the_rows_that_they_stand_beside(objective: Objective) -> None:
    """The global model is right, so the local one must not disturb it; margins in another order would make it."""
    features = measured(32, 4).features
    best = tiled(features).max()

    def labels(candidates: FloatArray) -> FloatArray:
        return tiled(candidates) / best / global_weight(32)

    model = Transfer(Planted(log_of if objective is Objective.RANK else labels), BoostedTrees(objective))
    model.fit(features, tiled(features))
    assert rank_correlation(model.score(OTHERS.features), tiled(OTHERS.features)) > 0.95
