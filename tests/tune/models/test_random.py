"""The baseline's scores say nothing, and belong to candidates."""

import numpy as np

from tests.tune.models.populations import measured, rank_correlation
from tilewright.tune.models.random import RandomScores

POPULATION = measured(4000, seed=1)


def test_scores_are_uniform_and_say_nothing() -> None:
    model = RandomScores(seed=3)
    model.fit(POPULATION.features, POPULATION.throughputs)
    scores = model.score(POPULATION.features)
    assert abs(rank_correlation(scores, POPULATION.throughputs)) < 0.06
    counts, _ = np.histogram(scores, 16, (0.0, 1.0))
    assert counts.sum() == 4000
    assert counts.min() > 190
    assert counts.max() < 310


def test_neighbours_have_unrelated_scores() -> None:
    """Features are often small integers, whose bits are nearly all zero."""
    digits = np.stack(np.meshgrid(np.arange(8.0), np.arange(8.0), np.arange(8.0)), axis=-1).reshape(-1, 3)
    scores = RandomScores().score(digits)
    assert len(np.unique(scores)) == 512
    for column in digits.T:
        assert abs(rank_correlation(scores, column)) < 0.15


def test_a_candidate_keeps_its_score() -> None:
    model = RandomScores(seed=3)
    scores = model.score(POPULATION.features)
    model.fit(POPULATION.features, POPULATION.throughputs)
    np.testing.assert_array_equal(model.score(POPULATION.features[100:110]), scores[100:110])
    np.testing.assert_array_equal(RandomScores(seed=3).score(POPULATION.features), scores)
    assert not np.array_equal(RandomScores(seed=4).score(POPULATION.features), scores)
    np.testing.assert_array_equal(model.score(np.array([[0.0]])), model.score(np.array([[-0.0]])))


def test_no_candidates_have_no_scores() -> None:
    assert RandomScores().score(POPULATION.features[:0]).shape == (0,)
