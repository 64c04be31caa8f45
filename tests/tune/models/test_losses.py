"""Losses: their derivatives, and which pairs are compared."""

from collections.abc import Callable

import numpy as np
import pytest

from tilewright.tune.models.losses import RankLoss, SquaredLoss, draw_pairs, loss_of
from tilewright.tune.models.model import FloatArray, Objective
from tilewright.tune.models.rows import Rows


def fresh() -> np.random.Generator:
    return np.random.default_rng(1)


def rows(count: int, tasks: int = 1) -> Rows:
    labels = np.round(fresh().uniform(size=count), 1)  # some are equal
    return Rows(np.zeros((count, 1)), labels, np.arange(count) * tasks // count, np.zeros(count))


def derivative(function: Callable[[FloatArray], float], scores: FloatArray) -> FloatArray:
    steps = np.eye(len(scores)) * 1e-6
    return np.array([(function(scores + step) - function(scores - step)) / 2e-6 for step in steps])


def test_pairs_are_of_one_task_and_the_better_one_has_the_larger_label() -> None:
    drawn_from = rows(90, tasks=7)
    pairs = draw_pairs(drawn_from, 10, fresh())
    labels, tasks = drawn_from.labels, drawn_from.tasks
    assert len(pairs.better) > 700
    assert (labels[pairs.better] > labels[pairs.worse]).all()
    assert (tasks[pairs.better] == tasks[pairs.worse]).all()
    assert set(pairs.better) | set(pairs.worse) == set(range(90))


def test_pairs_with_a_fast_candidate_count_for_more() -> None:
    drawn_from = rows(90)
    pairs = draw_pairs(drawn_from, 10, fresh())
    assert pairs.weights.mean() == pytest.approx(1.0)
    order = np.argsort(drawn_from.labels[pairs.better])
    assert (np.diff(pairs.weights[order]) >= 0).all()
    assert pairs.weights[order][-1] > 3 * pairs.weights[order][0]


def test_equal_labels_make_no_pairs() -> None:
    equal = Rows(np.zeros((5, 1)), np.ones(5), np.zeros(5, np.int64), np.zeros(5))
    pairs = draw_pairs(equal, 4, fresh())
    assert len(pairs.better) == len(pairs.weights) == 0
    loss = RankLoss(equal, fresh())
    assert loss.value(np.arange(5.0)) == 0.0
    assert all(not slopes.any() for slopes in loss.slopes(np.arange(5.0)))


def test_the_loss_of_a_ranking_is_that_of_the_paper() -> None:
    two = Rows(np.zeros((2, 1)), np.array([0.3, 0.9]), np.zeros(2, np.int64), np.zeros(2))
    loss = RankLoss(two, fresh())
    assert loss.value(np.array([5.0, 5.0])) == pytest.approx(np.log(2.0))
    assert loss.value(np.array([1.0, 3.0])) == pytest.approx(np.log(1 + np.exp(-2.0)))
    assert loss.value(np.array([3.0, 1.0])) == pytest.approx(np.log(1 + np.exp(2.0)))


def test_slopes_of_a_ranking_are_the_derivatives() -> None:
    """For the pairs that a twin with an equal generator draws."""
    some, scores = rows(12, tasks=2), fresh().normal(size=12)
    loss, twin = (RankLoss(some, np.random.default_rng(3)) for _ in range(2))
    generator = np.random.default_rng(3)
    draw_pairs(some, 64, generator)  # those of ``value``
    pairs = draw_pairs(some, 16, generator)

    def value(scores: FloatArray) -> float:
        wrong = np.logaddexp(0.0, scores[pairs.worse] - scores[pairs.better])
        return float((pairs.weights * wrong).sum() / 16)

    slopes, curvatures = loss.slopes(scores)
    np.testing.assert_allclose(slopes, derivative(value, scores), atol=1e-7)
    along = np.array([derivative(lambda moved, row=row: _slope(value, moved, row), scores)[row] for row in range(12)])
    np.testing.assert_allclose(curvatures, along, atol=1e-2)
    np.testing.assert_array_equal(twin.slopes(scores)[0], slopes)


def _slope(value: Callable[[FloatArray], float], scores: FloatArray, row: int) -> float:
    step = np.where(np.arange(len(scores)) == row, 1e-3, 0.0)
    return (value(scores + step) - value(scores - step)) / 2e-3


def test_slopes_of_a_ranking_stay_finite() -> None:
    for slopes in RankLoss(rows(20), fresh()).slopes(np.linspace(-1e6, 1e6, 20)):
        assert np.isfinite(slopes).all()


def test_slopes_of_a_regression_are_the_derivatives_and_its_offset_is_the_minimum() -> None:
    some, scores = rows(12), fresh().normal(size=12)
    loss = SquaredLoss(some)
    slopes, curvatures = loss.slopes(scores)
    np.testing.assert_allclose(slopes / 12, derivative(loss.value, scores), atol=1e-7)
    np.testing.assert_array_equal(curvatures, np.ones(12))
    best = loss.value(scores + loss.offset(scores))
    assert best < min(loss.value(scores + loss.offset(scores) + step) for step in (-0.01, 0.01))


def test_each_objective_has_its_loss() -> None:
    assert isinstance(loss_of(Objective.RANK, rows(5), fresh()), RankLoss)
    assert isinstance(loss_of(Objective.REGRESSION, rows(5), fresh()), SquaredLoss)
