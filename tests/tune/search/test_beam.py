"""Beam search: what is rated after each decision, and what goes on."""

from dataclasses import replace

import numpy as np
import pytest

from tests.sketch import programs
from tests.tune.search.spaces import Numbers, a_tenth, best_after, bowl, brute_force, constant, peaks, rows, table
from tilewright.sketch import sketch_spaces
from tilewright.space.space import Digits
from tilewright.space.union import Union
from tilewright.target.target import Target
from tilewright.tune.search.beam import Beam, BeamSearch, BeamSearcher
from tilewright.tune.search.random import RandomSearcher
from tilewright.tune.search.searcher import FloatArray, Score
from tilewright.tune.spaces import kernel_space

EXACT = Beam(dropout=0.0, random=0.0, passes=1)


def beam(space: Numbers, score: Score, plan: Beam, seed: int = 0) -> BeamSearcher:
    return BeamSearcher(space, score, seed, plan)  # type: ignore[arg-type]


def test_a_beam_that_holds_everything_finds_the_best_of_all() -> None:
    space = Numbers((4, 3, 5), a_tenth)
    wide = replace(EXACT, width=1000, rated=100_000)
    free = Numbers((4, 3, 5))
    wanted = sorted(brute_force(free), key=lambda row: -float(peaks(table([row]))[0]))[:6]
    assert peaks(beam(free, peaks, wide).propose(6)).tolist() == peaks(table(wanted)).tolist()
    assert space.allowed(beam(space, peaks, wide).propose(6)).all()


def test_what_is_rated_has_the_first_decisions_only() -> None:
    """One decision more each time, at most ``rated``, and the best of the time before go on."""
    asked: list[Digits] = []

    def score(digits: Digits) -> FloatArray:
        asked.append(digits)
        return bowl(digits)

    beam(Numbers((9,) * 5), score, replace(EXACT, width=4, rated=24)).propose(8)
    assert [len(digits) for digits in asked] == [9, 24, 24, 24, 24]
    for decided, digits in enumerate(asked, 1):
        assert not digits[:, decided:].any()
        if decided > 1:
            before = asked[decided - 2]
            best = {row[: decided - 1] for row in rows(before[np.argsort(-bowl(before), kind="stable")[:4]])}
            assert {row[: decided - 1] for row in rows(digits)} <= best


def test_what_looks_bad_early_is_pruned() -> None:
    """The only good candidates begin with 1, which looks bad as long as the rest has its first values."""

    def deceptive(digits: Digits) -> FloatArray:
        good = (digits[:, 0] == 1) & (digits[:, 1:] == 3).all(axis=1)
        return np.where(good, 9.0, -1.0 * digits[:, 0])

    narrow = beam(Numbers((4, 4, 4)), deceptive, replace(EXACT, width=1)).propose(4)
    assert (narrow[:, 0] == 0).all()
    wide = beam(Numbers((4, 4, 4)), deceptive, replace(EXACT, width=64)).propose(4)
    assert rows(wide)[0] == (1, 3, 3)


def test_the_optimum_of_a_score_is_found_where_random_is_far_away() -> None:
    """With a perfect model, of three million candidates: at once if knobs do not depend on each other."""
    large = Numbers((12,) * 6)
    whole = Beam(dropout=0.0)
    assert all(best_after(beam(large, bowl, whole, seed), bowl, 50) == 1 for seed in range(3))
    found = [best_after(beam(large, peaks, Beam(), seed), peaks, 200) for seed in range(5)]
    drawn = [best_after(RandomSearcher(large, seed), peaks, 200) for seed in range(5)]
    assert np.median(found) > 1.1 * np.median(drawn)


def test_a_score_that_tells_nothing_apart_gives_other_candidates() -> None:
    proposed = beam(Numbers((9,) * 6), constant, EXACT).propose(32)
    assert all(len(set(column)) > 3 for column in proposed.T.tolist())


def test_incomplete_candidates_of_a_union_are_completed_in_their_member() -> None:
    """The compiler's own space by the analytic choice, sketches by first values."""
    naive, target = programs.naive(programs.matmul(32, 48, 16)), replace(Target.host(), cores=1)
    own = kernel_space(naive, target)
    union = Union((*(space for _, space in sketch_spaces(naive, target)), own), ("a", "b", "c", "template"))
    analytic = own.analytic()
    assert analytic is not None
    assert analytic.any()
    digits = union.sample(200, np.random.default_rng(0))
    for decided in (1, 2, 4, len(union.radices)):
        undecided = np.random.default_rng(1).integers(0, union.radices, digits.shape)
        undecided[:, :decided] = digits[:, :decided]
        completed = union.completed(undecided, decided)
        assert (completed[:, :decided] == digits[:, :decided]).all()
        for row in completed:
            member, found = union.own_digits(row)
            rest = analytic[decided - 1 :] if union.labels[member] == "template" else 0
            assert (found[decided - 1 :] == rest).all()
            assert not row[1 + len(found) :].any()
    first = union.analytic()
    assert first is not None, "it is found in whatever member it is"
    assert union.own_digits(first)[0] == 3
    proposed = BeamSearcher(union, lambda digits: (digits[:, 0] == 1) * 1.0, 0, EXACT).propose(16)
    assert union.allowed(proposed).all()
    assert (proposed[:, 0] == 1).all()


@pytest.mark.parametrize("width", [1, 7])
def test_parameters_reach_the_searcher(width: int) -> None:
    asked: list[int] = []

    def score(digits: Digits) -> FloatArray:
        asked.append(len(digits))
        return bowl(digits)

    search = BeamSearch(replace(EXACT, width=width, rated=1000))
    search.searcher(Numbers((10,) * 3), score, 0).propose(5)  # type: ignore[arg-type]
    assert asked == [10, 10 * width, 10 * width]


def test_what_first_values_do_not_complete_is_completed_at_random() -> None:
    """All candidates have a digit above 0 at the end: without that, every incomplete one would be pruned."""
    asked: list[Digits] = []
    space = Numbers((6, 6, 6, 6), lambda digits: digits[:, 3] > 2)

    def score(digits: Digits) -> FloatArray:
        asked.append(digits)
        return bowl(digits)

    found = beam(space, score, EXACT).propose(8)
    assert all(space.allowed(digits).all() for digits in asked)
    assert [len(digits) >= 5 for digits in asked] == [True] * 4
    assert rows(found)[0] == (5, 5, 5, 5)
