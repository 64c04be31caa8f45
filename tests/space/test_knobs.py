"""Sizes of spaces are AutoTVM's; values are against brute force."""

from itertools import permutations, product
from math import factorial, prod

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilewright.base.errors import BadInput
from tilewright.loops.ir import LoopKind
from tilewright.schedule.tree import LoopRef
from tilewright.space.knobs import Knob, Policy, Sizes, annotate_knob, choice_knob, split_knob
from tilewright.space.orders import All, Candidates, Interval, Orders, reorder_knob

# splits ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("extent", "parts", "policy", "count"),
    [
        (128, 2, Policy.FACTORS, 8),
        (256, 3, Policy.FACTORS, 45),
        (256, 3, Policy.POWER2, 45),
        (256, 3, Policy.VERBOSE, 45),
        (224, 3, Policy.FACTORS, 63),
        (224, 3, Policy.POWER2, 36),
        (224, 3, Policy.VERBOSE, 84),
        (512, 4, Policy.FACTORS, 220),
        (224, 4, Policy.FACTORS, 224),
        (7, 1, Policy.FACTORS, 1),
        (1, 3, Policy.VERBOSE, 1),
    ],
)
def test_sizes_of_splits(extent: int, parts: int, policy: Policy, count: int) -> None:
    assert len(split_knob("tile", extent, parts, policy).values) == count


def numbers(extent: int, policy: Policy) -> set[int]:
    factors = {n for n in range(1, extent + 1) if extent % n == 0}
    powers = {2**n for n in range(20) if 2**n <= extent}
    return {Policy.FACTORS: factors, Policy.POWER2: powers, Policy.VERBOSE: factors | powers}[policy]


def brute_force(extent: int, parts: int, policy: Policy, no_tail: bool, limit: int) -> set[Sizes]:
    found: set[Sizes] = set()
    for inner in product(numbers(extent, policy), repeat=parts - 1):
        exact = extent % prod(inner) == 0
        fits = exact if no_tail or policy is Policy.FACTORS else prod(inner) <= extent
        if fits and all(number <= limit for number in inner):
            found.add((-(-extent // prod(inner)), *inner))
    return found


@given(
    st.integers(1, 60),
    st.integers(1, 3),
    st.sampled_from([Policy.FACTORS, Policy.POWER2, Policy.VERBOSE]),
    st.booleans(),
    st.integers(1, 60),
)
def test_splits_are_those_of_brute_force(extent: int, parts: int, policy: Policy, no_tail: bool, limit: int) -> None:
    knob = split_knob("tile", extent, parts, policy, no_tail=no_tail, max_factor=limit)
    assert len(set(knob.values)) == len(knob.values)
    assert set(knob.values) == brute_force(extent, parts, policy, no_tail, limit)


def test_the_first_split_has_all_iterations_outside() -> None:
    assert split_knob("tile", 24, 3).values[0] == (24, 1, 1)


def test_filter_sees_the_outermost_size() -> None:
    assert split_knob("tile", 12, 2, filter=lambda sizes: sizes[0] <= 3).values == ((3, 4), (2, 6), (1, 12))


def test_candidates() -> None:
    given_sizes = [(8, 4), (3, 5), (10, 10)]
    knob = split_knob("tile", 64, 3, Policy.CANDIDATE, candidates=given_sizes)
    assert knob.values == ((2, 8, 4), (5, 3, 5), (1, 10, 10))
    exact = split_knob("tile", 64, 3, Policy.CANDIDATE, candidates=given_sizes, no_tail=True)
    assert exact.values == ((2, 8, 4),)


def test_bad_splits_say_why() -> None:
    with pytest.raises(BadInput, match="positive"):
        split_knob("tile", 0, 2)
    with pytest.raises(BadInput, match="positive"):
        split_knob("tile", 8, 0)
    with pytest.raises(BadInput, match="with it only"):
        split_knob("tile", 8, 2, candidates=[(2,)])
    with pytest.raises(BadInput, match="with it only"):
        split_knob("tile", 8, 2, Policy.CANDIDATE)
    for wrong in [(2, 2), (0,)]:
        with pytest.raises(BadInput, match="1 positive sizes"):
            split_knob("tile", 8, 2, Policy.CANDIDATE, candidates=[wrong])
    with pytest.raises(BadInput, match="has no value"):
        split_knob("tile", 8, 2, filter=lambda sizes: False)


# orders ---------------------------------------------------------------------------------------------------------------

A, B, C, D, E, F = map(LoopRef, "abcdef")


def orders_of(orders: Orders, *loops: LoopRef) -> list[str]:
    values = reorder_knob("order", loops, orders).values
    return ["".join(loops[position].name for position in order) for order in values]


def test_orders() -> None:
    assert sorted(orders_of(All(), A, B, C)) == ["".join(order) for order in permutations("abc")]
    assert len(orders_of(All(), A, B, C, D)) == factorial(4)
    assert sorted(orders_of(Interval(1, 3), A, B, C, D)) == ["abcd", "acbd"]
    assert orders_of(Candidates(((B, A), (A, B), (B, A))), A, B) == ["ba", "ab"]


def test_bad_orders_say_why() -> None:
    with pytest.raises(BadInput, match="no interval of 2 loops"):
        orders_of(Interval(1, 3), A, B)
    with pytest.raises(BadInput, match="a, a is no order of a, b"):
        orders_of(Candidates(((A, A),)), A, B)


# the others -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("loops", [0, 1, 2, 3])
def test_at_most_one_loop_is_vectorized(loops: int) -> None:
    kinds = (LoopKind.SERIAL, LoopKind.UNROLLED, LoopKind.VECTORIZED)
    values = annotate_knob("inner", loops, kinds).values
    assert len(values) == len(set(values)) == 2**loops + loops * 2 ** max(loops - 1, 0)
    assert all(chosen.count(LoopKind.VECTORIZED) <= 1 for chosen in values)


def test_choices_are_different() -> None:
    assert choice_knob("unroll", (0, 16, 64, 16)) == Knob("unroll", (0, 16, 64))
    with pytest.raises(BadInput, match="'unroll' has no value"):
        choice_knob("unroll", ())
