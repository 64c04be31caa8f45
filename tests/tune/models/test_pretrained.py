"""The weights of the package fit the features, are refused if they do not, and help where nothing is measured."""

import json
import lzma

import numpy as np
import pytest

from tests.tune.models.first_candidates import TARGET, load, product
from tests.tune.models.test_statements import made_up
from tests.tune.search.spaces import Numbers
from tilewright.base.errors import BadInput
from tilewright.base.search import Model
from tilewright.sketch import sketch_spaces
from tilewright.space.space import Digits, Floats
from tilewright.target.target import Target
from tilewright.tune.features.statements import NAMES, program_matrix
from tilewright.tune.models.pretrained import features_hash, packed, pretrained, unpacked
from tilewright.tune.models.statements import MeasuredPrograms, StatementModel, StatementTrees
from tilewright.tune.search.evolution import Breeding, EvolutionSearcher
from tilewright.tune.strategy import rater_of, shared


def learned(programs: int = 300, most: int = 3) -> StatementModel:
    model = StatementModel()
    model.fit([made_up(programs, 1, most)])
    return model


def pairwise(model: StatementModel, others: MeasuredPrograms) -> float:
    scores, truth = model.score(others.statements), others.throughputs
    first, second = np.triu_indices(len(scores), 1)
    return float(np.mean((scores[first] > scores[second]) == (truth[first] > truth[second])))


def test_weights_are_read_back_exactly() -> None:
    trees, rows = learned().learned, made_up(50, 2, 3).statements.rows
    again = unpacked(packed(trees))
    np.testing.assert_array_equal(again.score(rows), trees.score(rows))
    with pytest.raises(BadInput, match="without trees"):
        packed(StatementTrees(0.5, None))


def test_weights_of_other_features_are_refused() -> None:
    header, _, text = lzma.decompress(packed(learned().learned)).decode().partition("\n")
    for change in ({"features": features_hash(("op.other", *NAMES[1:]))}, {"format": 7}):
        stale = lzma.compress(f"{json.dumps({**json.loads(header), **change})}\n{text}".encode())
        with pytest.raises(BadInput, match=r"make them anew: python -m benchmarks\.cost_model train"):
            unpacked(stale)
    for damaged in (b"", b"no weights", lzma.compress(b"{}\n"), lzma.compress(b"[]")):
        with pytest.raises(BadInput, match="damaged"):
            unpacked(damaged)


def test_what_was_learned_before_counts_until_enough_is_measured() -> None:
    prior, others = learned(programs=600).learned, made_up(200, 5, 3)
    alone, helped = StatementModel(), StatementModel(prior=prior)
    np.testing.assert_array_equal(alone.score(others.statements), np.zeros(200))
    assert pairwise(helped, others) > 0.8  # nothing is measured yet
    for model in (alone, helped):
        model.fit([made_up(16, 6, 3)])
    assert pairwise(helped, others) > pairwise(alone, others) + 0.05
    many = [made_up(400, 7, 3)]
    for model in (alone, helped):
        model.fit(many)
    np.testing.assert_array_equal(helped.score(others.statements), alone.score(others.statements))
    helped.fit([])
    assert pairwise(helped, others) > 0.8  # a fit forgets what was measured only


def test_a_wrong_prior_is_corrected() -> None:
    """It says the opposite of what is measured."""
    measured, others = made_up(120, 1, 1), made_up(100, 9, 1)
    slow = MeasuredPrograms(measured.statements, 20.0 - measured.throughputs)
    model = StatementModel(prior=learned(most=1).learned)
    model.fit([slow])
    assert pairwise(model, MeasuredPrograms(others.statements, 20.0 - others.throughputs)) > 0.7


def test_the_first_candidates_of_a_search_are_better_than_random_ones() -> None:
    """Of a program that no network has: the search begins with what the weights say, and times are looked up."""
    programs, microseconds = load()
    scores = StatementModel(prior=pretrained()).score(program_matrix(programs, Target.parse(TARGET)))

    def score(digits: Digits) -> Floats:
        return scores[digits[:, 0]]

    breeding = Breeding(population=256, generations=0, random=0.0)
    searcher = EvolutionSearcher(Numbers((len(programs),)), score, 0, breeding)
    first = microseconds[searcher.propose(16)[:, 0]]
    others = np.setdiff1d(microseconds, first)  # no two took exactly as long
    assert np.mean(np.log(first)) < np.mean(np.log(others)) - np.log(1.5)


@pytest.mark.parametrize("is_known", [False, True])
def test_a_search_begins_at_random_only_where_nothing_is_known(is_known: bool) -> None:
    def score(digits: Digits) -> Floats:
        return digits[:, 0] * float(is_known)

    searcher = EvolutionSearcher(Numbers((1000,)), score, 0, Breeding(population=200, generations=0, random=0.0))
    assert (searcher.propose(10)[:, 0].min() > 900) == is_known


def test_tuning_with_the_model_over_statements_begins_with_the_weights() -> None:
    naive, target = product(), Target.parse(TARGET)
    (_, space), *_ = sketch_spaces(naive, target)
    digits = space.sample(6, np.random.default_rng(0))
    known = StatementModel(prior=pretrained()).score(
        program_matrix([space.schedule(one).program for one in digits], target)
    )
    for model in (Model.STATEMENTS, shared(Model.STATEMENTS, 0)):
        np.testing.assert_array_equal(rater_of(model, space, 0, with_estimates=False).score(digits), known)


def test_the_weights_of_the_package_are_small_and_fit() -> None:
    assert pretrained().trees is not None
    assert len(packed(pretrained())) < 1_500_000
