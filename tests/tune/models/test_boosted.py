"""Boosted trees order candidates that they have not seen, and stand whatever was measured."""

import numpy as np
import pytest

from tests.tune.models.populations import measured, quality_of_best, rank_correlation, tiled
from tilewright.base.errors import BadInput
from tilewright.tune.models.boosted import BoostedTrees
from tilewright.tune.models.model import FloatArray, Measured, Objective

OTHERS = measured(4000, seed=99)
LEAST_CORRELATION = {Objective.RANK: 0.9, Objective.REGRESSION: 0.75}


def fitted(objective: Objective, population: Measured, seed: int = 0) -> BoostedTrees:
    model = BoostedTrees(objective, seed)
    model.fit(population.features, population.throughputs)
    return model


@pytest.mark.parametrize("objective", Objective)
def test_orders_candidates_that_it_has_not_seen(objective: Objective) -> None:
    model = fitted(objective, measured(2000, seed=1))
    scores = model.score(OTHERS.features)
    assert rank_correlation(scores, OTHERS.throughputs) > LEAST_CORRELATION[objective]
    assert quality_of_best(scores, OTHERS.throughputs) > 0.85


@pytest.mark.parametrize("objective", Objective)
def test_a_first_batch_is_worth_something(objective: Objective) -> None:
    qualities = [
        quality_of_best(fitted(objective, measured(64, seed)).score(OTHERS.features), OTHERS.throughputs)
        for seed in range(5)
    ]
    by_chance = OTHERS.throughputs.mean() / np.sort(OTHERS.throughputs)[-64:].mean()
    assert np.median(qualities) > 2.5 * by_chance


def test_scores_of_a_regression_are_parts_of_the_best_throughput() -> None:
    population = measured(2000, seed=1)
    scores = fitted(Objective.REGRESSION, population).score(OTHERS.features)
    labels = OTHERS.throughputs / population.throughputs.max()
    assert np.sqrt(np.mean((scores - labels) ** 2)) < 0.6 * labels.std()


@pytest.mark.parametrize("objective", Objective)
@pytest.mark.parametrize(
    "throughputs",
    [
        pytest.param(np.zeros(100), id="failures only"),
        pytest.param(np.full(100, 3e9), id="equal"),
        pytest.param(np.array([5e9]), id="one"),
        pytest.param(np.zeros(0), id="none"),
        pytest.param(np.full(30, np.nan), id="unknown"),
    ],
)
def test_nothing_to_learn_is_no_fault(objective: Objective, throughputs: FloatArray) -> None:
    features = measured(len(throughputs), seed=1).features
    model = fitted(objective, Measured(features, throughputs))
    np.testing.assert_array_equal(model.score(OTHERS.features), np.zeros(4000))


@pytest.mark.parametrize("objective", Objective)
@pytest.mark.parametrize("rows", [2, 3, 10, 21])
def test_few_rows_are_learned(objective: Objective, rows: int) -> None:
    population = measured(rows, seed=2)
    scores = fitted(objective, population).score(population.features)
    assert np.isfinite(scores).all()
    assert scores[population.throughputs.argmax()] > scores[population.throughputs.argmin()]


@pytest.mark.parametrize("objective", Objective)
def test_a_lonely_success_among_failures_is_seen(objective: Objective) -> None:
    population = measured(100, seed=1)
    success = np.where(np.arange(100) == 17, 1e9, 0.0)
    scores = fitted(objective, Measured(population.features, success)).score(population.features)
    assert np.isfinite(scores).all()
    assert scores.argmax() == 17


def test_features_may_be_missing_or_constant() -> None:
    population = measured(200, seed=1)
    features = population.features.copy()
    features[:, 10] = 1.0
    features[::3, 11] = np.nan
    model = fitted(Objective.RANK, Measured(features, population.throughputs))
    assert np.isfinite(model.score(features)).all()


@pytest.mark.parametrize("objective", Objective)
def test_the_unit_of_throughput_does_not_matter(objective: Objective) -> None:
    population = measured(300, seed=1)
    # A power of two, for which division is exact.
    other_unit = Measured(population.features, population.throughputs / 2.0**30)
    np.testing.assert_array_equal(
        fitted(objective, population).score(OTHERS.features), fitted(objective, other_unit).score(OTHERS.features)
    )


@pytest.mark.parametrize("objective", Objective)
def test_equal_seeds_give_equal_scores_and_others_do_not(objective: Objective) -> None:
    population = measured(300, seed=1)
    first, again, other = (fitted(objective, population, seed).score(OTHERS.features) for seed in (5, 5, 6))
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)


@pytest.mark.parametrize("objective", Objective)
def test_a_fit_forgets_the_one_before(objective: Objective) -> None:
    population = measured(300, seed=1)
    model = fitted(objective, measured(200, seed=2))
    model.fit(population.features, population.throughputs)
    np.testing.assert_array_equal(model.score(OTHERS.features), fitted(objective, population).score(OTHERS.features))
    model.fit(population.features, np.zeros(300))
    np.testing.assert_array_equal(model.score(OTHERS.features), np.zeros(4000))


def test_tasks_of_a_history_are_not_compared_with_each_other() -> None:
    """Whatever tells two tasks apart must not pass for what makes candidates fast: one task is 1,000 times faster."""
    first, second = measured(500, seed=1), measured(500, seed=2)
    of_first, of_second = first.features.copy(), second.features.copy()
    of_first[:, 19], of_second[:, 19] = 0.0, 9.0
    model = BoostedTrees()
    model.fit_history([Measured(of_first, first.throughputs), Measured(of_second, second.throughputs * 1000.0)])
    scores = model.score(OTHERS.features)
    assert rank_correlation(scores, OTHERS.throughputs) > 0.9
    same_but_task = OTHERS.features.copy()
    same_but_task[:, 19] = 9.0 - same_but_task[:, 19]
    assert np.abs(model.score(same_but_task) - scores).mean() < 0.05 * scores.std()


def test_a_history_of_nothing_teaches_nothing() -> None:
    model = BoostedTrees()
    model.fit_history([])
    np.testing.assert_array_equal(model.score(np.zeros((3, 0))), np.zeros(3))


def test_scores_before_the_first_fit_are_zero_and_no_candidates_have_no_scores() -> None:
    np.testing.assert_array_equal(BoostedTrees().score(OTHERS.features), np.zeros(4000))
    assert fitted(Objective.RANK, measured(100, seed=1)).score(OTHERS.features[:0]).shape == (0,)


def test_margins_stay_with_their_rows() -> None:
    """Margins that are the labels leave nothing over; beside other rows than theirs, they leave much."""
    population = measured(400, seed=1)
    labels = population.throughputs / population.throughputs.max()
    model = BoostedTrees(Objective.REGRESSION)
    model.fit(population.features, population.throughputs, labels)
    assert np.abs(model.score(OTHERS.features)).max() < 1e-9
    model.fit(population.features, population.throughputs, np.random.default_rng(1).permutation(labels))
    assert np.abs(model.score(OTHERS.features)).max() > 0.1


@pytest.mark.parametrize("objective", Objective)
def test_what_margins_leave_over_is_learned(objective: Objective) -> None:
    """The margins know all but the worst penalty."""
    population = measured(1000, seed=1)
    margins = population.throughputs / population.throughputs.max() * np.where(population.features[:, 4] > 6.0, 2.5, 1)
    model = BoostedTrees(objective)
    model.fit(population.features, population.throughputs, margins)
    late, early = OTHERS.features.copy(), OTHERS.features.copy()
    late[:, 4], early[:, 4] = 8.0, 5.0
    kept = tiled(early) > 0.2e9
    assert (model.score(early) > model.score(late))[kept].mean() > 0.95


def test_arrays_that_do_not_fit_are_refused() -> None:
    population = measured(10, seed=1)
    model = fitted(Objective.RANK, population)
    with pytest.raises(BadInput, match=r"throughputs \(candidates,\); they have \(10, 20\) and \(9,\)"):
        model.fit(population.features, population.throughputs[:9])
    with pytest.raises(BadInput, match=r"margins \(candidates,\)"):
        model.fit(population.features, population.throughputs, np.zeros(3))
    with pytest.raises(BadInput, match="equally many features"):
        model.fit_history([population, Measured(population.features[:, :5], population.throughputs)])
    with pytest.raises(BadInput, match=r"\(candidates, 20\) as in the fit, not \(10, 19\)"):
        model.score(population.features[:, 1:])
