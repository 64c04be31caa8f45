"""Candidates that patterns tell about have the features of their schedules; what has no pattern is counted."""

import numpy as np
import pytest

from benchmarks.unseen.programs import PROGRAMS
from tests.sketch.programs import (
    convolution,
    dot_product,
    everything_summed,
    matmul,
    max_pool,
    naive,
    norm,
    smoothed_twice,
    softmax,
    two_products,
    winograd,
)
from tilewright import te
from tilewright.base.dtypes import i8, i32, u8
from tilewright.base.errors import ScheduleError
from tilewright.loops.ir import Block
from tilewright.loops.program import Program
from tilewright.schedule.schedule import Schedule
from tilewright.schedule.tree import BlockRef
from tilewright.sketch import Answer, Draft, sketch_spaces
from tilewright.sketch.pattern import NoPattern, pattern_of
from tilewright.sketch.sizes import Noted
from tilewright.space.config import Config
from tilewright.space.knobs import choice_knob, split_knob
from tilewright.space.space import Digits, Space
from tilewright.symbolic.bounds import Bounds
from tilewright.symbolic.expr import ZERO, Extent, Factor
from tilewright.symbolic.simplify import simplify
from tilewright.target.target import Target
from tilewright.tune.features.individuals import Individuals, Limits
from tilewright.tune.features.statements import NAMES, statement_features
from tilewright.tune.models.rater import Reporting
from tilewright.tune.models.statements import Statements

TARGET = Target.parse("x86_64,znver4,cores=8")


def unseen(name: str, divisor: int) -> Program:
    return te.create_schedule(PROGRAMS[name].outputs(divisor)).program


FAST = {
    "matmul": lambda: naive(matmul(96, 64, 48)),
    "two_products": lambda: naive(two_products(24, 32, 16)),
    "convolution": lambda: naive(convolution(12, 6, 8)),
    "max_pool": lambda: naive(max_pool(13, 3)),
    "softmax": lambda: naive(softmax(12, 48)),
}
SLOW = {
    "everything_summed": lambda: naive(everything_summed(24, 36)),
    "norm": lambda: naive(norm(64)),
    "winograd": lambda: naive(winograd(8, 4, 8)),
    "bytes": lambda: naive(dot_product(16, 32, 64, u8, i8, i32)),
    "smoothed_twice": lambda: naive(smoothed_twice(20, 24)),
    **{name: lambda name=name: unseen(name, 2) for name in PROGRAMS},
}
COVERED = {
    **{"max_pool": 0.6, "norm": 0.6, "everything_summed": 0.9},
    **{"attention_scores": 0.1, "bilinear": 0.05, "distances": 0.05, "gram": 0.3, "lstm_cell": 0.0},
    **{"winograd": 0.0, "bytes": 0.0},
}
"""The least part of random candidates that have a pattern; by default, all. Others pack operands, or have the loops of
partial results in an order that depends on numbers, or write out sums, or use instructions."""


def siblings(space: Space, first: Digits, count: int, random: np.random.Generator) -> Digits:
    """Others of the pattern of a candidate, if it has one and some are found."""
    try:
        pattern = pattern_of(space, first)
    except (NoPattern, ScheduleError):
        return first[None][:0]
    others = space.sample(count, random)
    for knob, allowed in pattern.options.items():
        others[:, knob] = random.choice(np.flatnonzero(allowed), count)
    return others[pattern.matches(others)]


def check(program: Program, spaces: int, count: int, seed: int) -> float:
    """Compare all features; returns the part of random candidates that have a pattern.

    Candidates come one by one, so that a pattern is made without regard to those that are compared later.
    """
    random = np.random.default_rng(seed)
    found = sketch_spaces(program, TARGET)
    places: list[int] = random.permutation(len(found))[:spaces].tolist()
    covered = 0
    for place in places:
        space = found[place][1]
        individuals = Individuals(space)
        sampled = space.sample(count, random)
        for own in sampled:
            compare(space, own, individuals)
        covered += individuals.counts.by_pattern
        for own in siblings(space, sampled[0], 4, random):
            compare(space, own, individuals)
        assert individuals.counts.left_out == 0
    return covered / (count * len(places))


def compare(space: Space, digits: Digits, individuals: Individuals) -> None:
    """Features of a candidate with those of its schedule; it has none without one."""
    try:
        expected = statement_features(space.schedule(digits).program, TARGET)
    except ScheduleError:
        expected = np.empty((0, len(NAMES)))
    got = individuals.of(digits[None]).rows
    np.testing.assert_allclose(got, expected, rtol=0, atol=1e-9, err_msg=str(space.describe(digits)))


@pytest.mark.parametrize("name", FAST)
def test_features_are_those_of_schedules(name: str) -> None:
    assert check(FAST[name](), 1, 5, 0) >= COVERED.get(name, 1.0)


@pytest.mark.slow
@pytest.mark.parametrize("name", [*FAST, *SLOW])
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_features_of_many_schedules(name: str, seed: int) -> None:
    assert check({**FAST, **SLOW}[name](), 4, 12, seed) >= COVERED.get(name, 1.0)


class DoubledTile:
    """Uses a size in arithmetic: what it makes is known for this size only."""

    name = "own.doubled"

    def answer(self, draft: Draft, block: Block) -> Answer:
        return Answer.APPLY_ALONE

    def variants(self, draft: Draft, block: Block) -> int:
        return 1

    def apply(self, draft: Draft, block: Block, variant: int) -> None:
        first, *_ = draft.schedule.get_loops(BlockRef(block.name))
        draft.schedule.split(first, (None, 2 * draft.config.choice("C.own", [1, 2, 4])))
        draft.done.add(block.name)


def test_numbers_that_are_calculated_with_have_a_pattern_each() -> None:
    (_, space), *_ = sketch_spaces(naive(matmul(16, 16, 16)), TARGET, [DoubledTile()])
    digits = np.zeros((3, len(space.radices)), np.int64)
    own = [knob.name for knob in space.knobs].index("C.own")
    digits[:, own] = range(3)
    individuals = Individuals(space)
    rows = individuals.of(digits)
    for candidate, one in enumerate(digits):
        expected = statement_features(space.schedule(one).program, TARGET)
        np.testing.assert_allclose(rows.take(np.array([candidate])).rows, expected, rtol=0, atol=1e-9)
    assert individuals.counts.patterns == 3


def unrolled(s: Schedule, config: Config) -> None:
    loops = s.get_loops("C")
    if config.choice("which", [0, 1, 2, 3]) == 3:
        raise ScheduleError("not this one")
    s.unroll(loops[0])


def test_templates_are_scheduled_and_counted() -> None:
    space = Space.of(unrolled, naive(matmul(4, 4, 4)), TARGET)
    individuals = Individuals(space, Limits(replays=2))
    rows = individuals.of(np.arange(4)[:, None])
    assert np.diff(rows.offsets).tolist() == [1, 1, 0, 0]
    assert (individuals.counts.by_replay, individuals.counts.left_out, individuals.counts.by_pattern) == (2, 2, 0)
    assert str(individuals.counts) == "0 candidates by 0 patterns, 2 scheduled, 2 left out"
    assert np.diff(Individuals(space).of(np.arange(4)[:, None]).offsets).tolist() == [1, 1, 1, 0]


def test_raters_say_how_they_look_at_candidates() -> None:
    (_, space), *_ = sketch_spaces(naive(matmul(16, 16, 16)), TARGET)
    rater = Statements().rater(space, 0)
    assert rater.score(space.sample(30, np.random.default_rng(0))).shape == (30,)
    assert isinstance(rater, Reporting)
    assert rater.looked_at() == "30 candidates by 1 patterns, 0 scheduled, 0 left out"


def test_sizes_of_tiles_are_not_empty() -> None:
    a, b = Factor("a"), Factor("b")
    assert simplify((a * b - 1) // (a * b), Bounds(dims={a: 8, b: 8})) == ZERO
    x, y = Extent("a"), Extent("b")
    assert simplify((x * y - 1) // (x * y), Bounds(dims={x: 8, y: 8})) != ZERO


def test_what_is_noted_of_numbers() -> None:
    knobs = (choice_knob("a", [1, 2, 3, 4]), split_knob("b", 8, 2), choice_knob("c", [5, 6]), choice_knob("d", [7, 8]))
    config = Noted(knobs, (2, 1, 0, 1))
    a, (_, inner), c = config.decide(knobs[0]), config.decide(knobs[1]), config.decide(knobs[2])
    config.decide(knobs[3])
    assert 1 < a < 9
    assert inner == 2
    assert c + 1 == 6
    options = config.notes.options(knobs, np.array([2, 1, 0, 1]))
    assert {knob: mask.tolist() for knob, mask in options.items()} == {
        0: [False, True, True, True],
        1: [False, True, False, False],
        2: [True, False],
    }
