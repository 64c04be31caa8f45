"""What is accepted where several networks would use the same results: by made-up comparisons."""

from collections.abc import Mapping

from tilewright.measure.turns import Timing
from tilewright.networks.comparison import Comparison
from tilewright.networks.settle import Offers, settle

ALONE, OTHER, SHARED = 0, 1, 2
TOUCHED = [frozenset({0}), frozenset({1}), frozenset({0, 1})]
"""An offer for each of two networks, and one for both."""


def comparison(ratio: float, *, is_found: bool = True) -> Comparison:
    before, after = (Timing(tuple((seconds, seconds) for _ in range(4))) for seconds in (1.0, ratio))
    return Comparison(before, after, is_found)


class Measured:
    """``effects``: of each network, by what factor each offer changes its time."""

    def __init__(self, *effects: Mapping[int, float]) -> None:
        self.asked: list[tuple[int, Offers]] = []
        self._effects = effects

    def __call__(self, network: int, own: Offers) -> Comparison:
        self.asked.append((network, own))
        ratio = 1.0
        for offer in own:
            assert network in TOUCHED[offer]
            ratio *= self._effects[network].get(offer, 1.0)
        return comparison(ratio, is_found=bool(own))


def accepted(measured: Measured) -> tuple[set[int], list[bool]]:
    settled = settle(TOUCHED, 2, measured)
    return set(settled.accepted), [each.is_kept for each in settled.comparisons]


def test_all_is_accepted_where_both_are_faster() -> None:
    measured = Measured({ALONE: 0.9, SHARED: 0.9}, {OTHER: 0.9, SHARED: 0.9})
    assert accepted(measured) == ({ALONE, OTHER, SHARED}, [True, True])
    assert len(measured.asked) == 2


def test_a_network_that_gains_nothing_leaves_what_it_shares_to_the_other() -> None:
    """It is compared again with just that."""
    measured = Measured({ALONE: 0.9, SHARED: 0.9}, {})
    assert accepted(measured) == ({ALONE, SHARED}, [True, False])
    assert measured.asked[2:] == [(1, frozenset({SHARED}))]


def test_what_makes_one_network_slower_is_accepted_in_none() -> None:
    measured = Measured({ALONE: 0.9, SHARED: 0.9}, {OTHER: 1.0, SHARED: 1.1})
    assert accepted(measured) == ({ALONE}, [True, False])
    assert measured.asked[2:] == [(1, frozenset({SHARED})), (0, frozenset({ALONE}))]


def test_a_network_that_is_slower_only_with_its_own_is_compared_without_it() -> None:
    measured = Measured({ALONE: 0.9, SHARED: 0.9}, {OTHER: 1.2})
    assert accepted(measured) == ({ALONE, SHARED}, [True, False])


def test_a_network_that_was_faster_only_with_what_is_refused_is_not_kept() -> None:
    measured = Measured({SHARED: 0.9}, {SHARED: 1.1})
    assert accepted(measured) == (set(), [False, False])


def test_shared_results_go_that_slow_down_without_the_others() -> None:
    """The second network hides behind its own gain that the shared one costs it time, but is not faster with both."""
    measured = Measured({SHARED: 0.8}, {OTHER: 0.9, SHARED: 1 / 0.9})
    assert accepted(measured) == (set(), [False, False])
    assert measured.asked[2:] == [(1, frozenset({SHARED})), (0, frozenset({ALONE}))]


def test_nothing_found_is_nothing_kept() -> None:
    settled = settle([], 2, Measured({}, {}))
    assert settled.accepted == frozenset()
    assert [each.ratio for each in settled.comparisons] == [1.0, 1.0]
