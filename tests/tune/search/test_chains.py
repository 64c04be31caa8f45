"""Annealing: neighbours, the heap of the best, patience, chains that go on."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tests.tune.search.spaces import Numbers, a_tenth, bowl, brute_force, constant, rows, table
from tilewright.space.space import Digits
from tilewright.tune.search.annealing import AnnealingSearcher, Plan
from tilewright.tune.search.chains import Annealing, Best, Chains, neighbours
from tilewright.tune.search.ledger import Ledger
from tilewright.tune.search.searcher import FloatArray


def test_a_neighbour_differs_in_one_knob() -> None:
    radices = np.array([4, 1, 7, 2], np.int64)
    random = np.random.default_rng(0)
    points = random.integers(0, radices, (2000, 4))
    moved = neighbours(points, radices, random)
    assert ((moved != points).sum(axis=1) == 1).all()
    assert ((moved >= 0) & (moved < radices)).all()
    share = (moved != points).mean(axis=0)
    assert share[1] == 0
    assert np.abs(share[[0, 2, 3]] - 1 / 3).max() < 0.05
    reached = {(int(a), int(b)) for a, b in zip(points[:, 2], moved[:, 2], strict=True) if a != b}
    assert len(reached) == 7 * 6


def test_nothing_moves_where_nothing_can() -> None:
    points = np.zeros((3, 2), np.int64)
    assert rows(neighbours(points, np.array([1, 1]), np.random.default_rng(0))) == rows(points)


@given(st.lists(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), max_size=12), max_size=6), st.integers(1, 8))
def test_the_best_are_those_of_a_sort(offers: list[list[tuple[int, int]]], keep: int) -> None:
    """Negative scores are kept, what is taken is not, and nothing is there twice."""
    space = Numbers((5, 5))
    ledger = Ledger(space, seed=0)
    ledger.learn(table([(2, 2), (0, 1)]))
    best = Best(ledger, keep)
    seen: set[tuple[int, int]] = set()
    for offer in offers:
        before = rows(best.digits)
        digits = table(offer).reshape(-1, 2)
        changed = best.offer(digits, score(digits))
        assert changed == (rows(best.digits) != before)
        seen |= set(offer)
    wanted = sorted(-float(score(table([row]))[0]) for row in seen - {(2, 2), (0, 1)})[:keep]
    assert (-best.scores).tolist() == wanted
    assert score(best.digits).tolist() == best.scores.tolist()
    assert len(set(rows(best.digits))) == len(best.digits)


def score(digits: Digits) -> FloatArray:
    """Different for every candidate, mostly negative."""
    return -1.0 * digits[:, 0] - 5.0 * digits[:, 1] + 4


class Counting:
    """A score that notes what it was asked."""

    def __init__(self) -> None:
        self.asked: list[Digits] = []

    def __call__(self, digits: Digits) -> FloatArray:
        self.asked.append(digits)
        return bowl(digits)


def test_chains_stop_when_the_best_do_not_change() -> None:
    chains = Chains(Ledger(Numbers((8, 8)), 0), Annealing(chains=32, steps=400, patience=20))
    counting = Counting()
    best = chains.search(counting, 4, np.random.default_rng(0))
    wanted = sorted(bowl(table(brute_force(Numbers((8, 8))))).tolist(), reverse=True)[:4]
    np.testing.assert_allclose(best.scores, wanted)
    assert 21 <= len(counting.asked) < 100


def test_chains_stop_at_the_last_step() -> None:
    chains = Chains(Ledger(Numbers((50,) * 8), 0), Annealing(chains=16, steps=30, patience=50))
    counting = Counting()
    chains.search(counting, 64, np.random.default_rng(0))
    assert len(counting.asked) == 31
    assert all(len(digits) == 16 for digits in counting.asked)


def test_where_chains_start_is_considered() -> None:
    chains = Chains(Ledger(Numbers((9, 9)), 0), Annealing(chains=16, steps=0))
    counting = Counting()
    best = chains.search(counting, 5, np.random.default_rng(0))
    assert best.scores.tolist() == sorted(bowl(counting.asked[0]).tolist(), reverse=True)[:5]


def test_chains_go_on_where_they_are() -> None:
    """A second search begins on the heights that the first one climbed to; at a low temperature they stay there."""
    chains = Chains(Ledger(Numbers((16,) * 6), 0), Annealing(chains=64, steps=300, patience=300))

    def steep(digits: Digits) -> FloatArray:
        return 50 * bowl(digits)

    first, second = Counting(), Counting()
    chains.search(lambda digits: first(digits) * 0 + steep(digits), 8, np.random.default_rng(0))
    chains.search(lambda digits: second(digits) * 0 + steep(digits), 8, np.random.default_rng(1))
    assert np.median(bowl(first.asked[0])) < 0.1
    assert np.median(bowl(second.asked[0])) > 0.8


def test_only_allowed_candidates_are_scored() -> None:
    space = Numbers((9,) * 4, a_tenth)
    counting = Counting()
    searcher = AnnealingSearcher(space, counting, 0)
    searcher.propose(32)
    assert all(space.allowed(digits).all() for digits in counting.asked)
    assert all(len(digits) for digits in counting.asked)


def test_negative_scores_fill_a_batch() -> None:
    """Scores of a model that ranks may all be negative: the batch is the best all the same."""
    space = Numbers((10, 10))

    def negative(digits: Digits) -> FloatArray:
        return -1.0 - digits.sum(axis=1)

    proposed = AnnealingSearcher(space, negative, 0, Plan(pool=1, random=0.0, diversity=0.0)).propose(10)
    assert sorted(proposed.sum(axis=1)) == [0, 1, 1, 2, 2, 2, 3, 3, 3, 3]


def test_a_model_that_knows_nothing_gives_diverse_batches() -> None:
    """Of 16 random numbers below 16, ten are different; more are in a batch that was chosen for that."""

    def different(diversity: float) -> float:
        plan = Plan(pool=4, diversity=diversity, random=0.0)
        batches = [AnnealingSearcher(Numbers((16,) * 5), constant, seed, plan).propose(16) for seed in range(5)]
        return float(np.mean([len(np.unique(column)) for batch in batches for column in batch.T]))

    assert 9 < different(0.0) < 11.5
    assert different(0.02) > 13
