"""TreeGRU orders candidates that it has not seen, and sees loops: their order, their nesting, and which are there."""

from collections.abc import Sequence

import numpy as np
import pytest

from tests.tune.models.populations import measured, quality_of_best, rank_correlation
from tilewright.base.errors import BadInput
from tilewright.tune.models.looptree import LoopTree, Sizes
from tilewright.tune.models.model import FloatArray, Measured, Objective
from tilewright.tune.models.treegru import TreeGRU

torch = pytest.importorskip("torch")

CHAIN = LoopTree.chain(5, per_loop=4)
SMALL = Sizes(embedding=24, hidden=24, slots=3)
OTHERS = measured(2000, seed=99)


def fitted(
    population: Measured, objective: Objective = Objective.RANK, seed: int = 0, tree: LoopTree = CHAIN
) -> TreeGRU:
    model = TreeGRU(tree, objective, seed, SMALL)
    model.fit(population.features, population.throughputs)
    return model


@pytest.mark.parametrize(
    ("objective", "least"), [(Objective.RANK, 0.9), pytest.param(Objective.REGRESSION, 0.5, marks=pytest.mark.slow)]
)
def test_orders_candidates_that_it_has_not_seen(objective: Objective, least: float) -> None:
    model = TreeGRU(CHAIN, objective)
    population = measured(768, seed=1)
    model.fit(population.features, population.throughputs)
    scores = model.score(OTHERS.features)
    assert rank_correlation(scores, OTHERS.throughputs) > least
    assert quality_of_best(scores, OTHERS.throughputs) > 0.7


@pytest.mark.parametrize("objective", Objective)
@pytest.mark.parametrize(
    "throughputs",
    [
        pytest.param(np.zeros(100), id="failures only"),
        pytest.param(np.full(100, 3e9), id="equal"),
        pytest.param(np.array([5e9]), id="one"),
        pytest.param(np.zeros(0), id="none"),
    ],
)
def test_nothing_to_learn_is_no_fault(objective: Objective, throughputs: FloatArray) -> None:
    model = fitted(measured(100, seed=1), objective)
    model.fit(measured(len(throughputs), seed=1).features, throughputs)
    np.testing.assert_array_equal(model.score(OTHERS.features), np.zeros(2000))


@pytest.mark.parametrize("objective", Objective)
def test_few_rows_are_learned(objective: Objective) -> None:
    population = measured(10, seed=2)
    scores = fitted(population, objective).score(population.features)
    assert scores[population.throughputs.argmax()] > scores[population.throughputs.argmin()]


@pytest.mark.parametrize("objective", Objective)
def test_equal_seeds_give_equal_scores_and_others_do_not(objective: Objective) -> None:
    population = measured(100, seed=1)
    first, again, other = (fitted(population, objective, seed).score(OTHERS.features) for seed in (5, 5, 6))
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)


def test_what_the_process_has_set_neither_matters_nor_changes() -> None:
    population, threads = measured(100, seed=1), torch.get_num_threads()
    scores: list[FloatArray] = []
    try:
        for setting in (2, 3):
            torch.set_num_threads(setting)
            torch.manual_seed(setting)
            state = torch.get_rng_state()
            scores.append(fitted(population).score(OTHERS.features))
            assert torch.equal(torch.get_rng_state(), state)
            assert torch.get_num_threads() == setting
    finally:
        torch.set_num_threads(threads)
    np.testing.assert_array_equal(scores[0], scores[1])


def test_candidates_are_scored_one_by_one() -> None:
    model = fitted(measured(100, seed=1))
    many = np.tile(OTHERS.features, (3, 1))
    np.testing.assert_allclose(model.score(many), np.tile(model.score(OTHERS.features), 3), atol=1e-5)
    assert model.score(many[:0]).shape == (0,)


def test_the_order_of_loops_matters() -> None:
    """Exchanging two loops changes no sum over loops; the larger one inside is faster."""
    tree = LoopTree.chain(2, per_loop=1)

    def population(seed: int) -> Measured:
        features = np.random.default_rng(seed).uniform(0.0, 8.0, (300, 2))
        return Measured(features, np.exp2(features[:, 1] - features[:, 0]))

    others = population(2)
    scores = fitted(population(1), tree=tree).score(others.features)
    assert rank_correlation(scores, others.throughputs) > 0.9


def nested(parents: Sequence[int | None]) -> FloatArray:
    """Scores of three loops in a tree, by a network that was fitted to that."""
    model = fitted(Measured(np.arange(36.0).reshape(12, 3) % 7, np.arange(12.0)), tree=LoopTree(tuple(parents), 1))
    return model.score(np.arange(9.0).reshape(3, 3))


def test_nesting_matters() -> None:
    chain, siblings, roots = nested([None, 0, 1]), nested([None, 0, 0]), nested([None, None, None])
    assert not np.allclose(chain, siblings)
    assert not np.allclose(siblings, roots)


def test_siblings_may_be_exchanged() -> None:
    features = np.random.default_rng(1).uniform(0.0, 8.0, (60, 3))
    model = fitted(Measured(features, features.sum(axis=1)), tree=LoopTree((None, 0, 0), per_loop=1))
    np.testing.assert_allclose(model.score(features), model.score(features[:, [0, 2, 1]]), atol=1e-5)


def test_a_loop_that_is_not_there_counts_for_nothing() -> None:
    """A nest with a hole is ranked as the nest without that loop; a constant may differ, which ranking does not fix."""
    features = np.random.default_rng(1).uniform(0.0, 8.0, (60, 2))
    throughputs = features.sum(axis=1)
    shorter = fitted(Measured(features, throughputs), tree=LoopTree.chain(2, per_loop=1))
    holes = np.insert(features, 1, np.nan, axis=1)
    longer = fitted(Measured(holes, throughputs), tree=LoopTree.chain(3, per_loop=1))
    scores, expected = longer.score(holes), shorter.score(features)
    np.testing.assert_allclose(scores - scores.mean(), expected - expected.mean(), atol=1e-3)


def test_features_that_do_not_fit_the_loops_are_refused() -> None:
    population = measured(30, seed=1)
    model = TreeGRU(CHAIN, sizes=SMALL)
    with pytest.raises(BadInput, match=r"\(candidates, 20\)"):
        model.fit(population.features[:, 1:], population.throughputs)
    with pytest.raises(BadInput, match=r"\(candidates, 20\)"):
        model.score(population.features[:, 1:])


def test_scores_before_the_first_fit_are_zero() -> None:
    np.testing.assert_array_equal(TreeGRU(CHAIN).score(OTHERS.features), np.zeros(2000))
