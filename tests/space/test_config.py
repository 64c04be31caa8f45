"""Templates: one function finds the knobs and makes the schedules."""

from math import prod

import numpy as np
import pytest

from tests.loops.workloads import matmul
from tests.schedule.movement import assert_same
from tilewright.base.errors import BadInput, ScheduleError
from tilewright.loops.ir import LoopKind
from tilewright.loops.lower import lower
from tilewright.schedule.replay import replay
from tilewright.schedule.schedule import Schedule
from tilewright.schedule.tree import LoopRef
from tilewright.space.config import Config, extent
from tilewright.space.knobs import Policy
from tilewright.space.orders import Candidates
from tilewright.space.space import Digits, Space, size
from tilewright.symbolic.expr import Extent


def tiled(s: Schedule, config: Config) -> None:
    """The matmul of the literature, with two knobs."""
    y, x, k = s.get_loops("C")
    yo, yi = s.split(y, config.split("tile_y", extent(s, y), parts=2))
    xo, xi = s.split(x, config.split("tile_x", extent(s, x), parts=2))
    s.reorder(yo, xo, k, yi, xi)


def every_knob(s: Schedule, config: Config) -> None:
    """Splits with tails, orders that are refused and such that are not, kinds, a number."""
    y, x, k = s.get_loops("C")
    yo, ym, yi = s.split(y, config.split("y", extent(s, y), parts=3, policy=Policy.POWER2))
    xo, xi = s.split(x, config.split("x", extent(s, x), parts=2, policy=Policy.CANDIDATE, candidates=[(3,), (4,)]))
    s.reorder(
        *config.reorder(
            "order", (yo, xo, ym, k, yi, xi), Candidates(((yo, xo, ym, k, yi, xi), (xo, yo, k, yi, ym, xi)))
        )
    )
    config.annotate("kinds", s, (k, yi, xi))
    if config.choice("parallel", (0, 1)):
        s.parallel(yo)


def row(*digits: int) -> Digits:
    return np.array(digits, np.int64)


def test_size_of_the_matmul() -> None:
    space = Space.of(tiled, lower(matmul(128, 128, 128)))
    assert space.radices == (8, 8)
    assert size(space) == 64
    assert space.allowed(np.zeros((5, 2), np.int64)).tolist() == [True] * 5


def test_digits_are_decisions() -> None:
    space = Space.of(tiled, lower(matmul(12, 8, 4)))
    assert space.describe(row(2, 3)) == {"tile_y": (4, 3), "tile_x": (1, 8)}
    s = space.schedule(row(2, 3))
    assert [str(loop) for loop in s.get_loops("C")] == ["i_0", "j_0", "k", "i_1", "j_1"]
    assert [extent(s, loop) for loop in s.get_loops("C")] == [4, 1, 4, 3, 8]


def test_candidates_keep_the_meaning_or_are_refused() -> None:
    program = lower(matmul(5, 7, 3))
    space = Space.of(every_knob, program)
    random = np.random.default_rng(1)
    refusals = 0
    for _ in range(40):
        digits = random.integers(0, space.radices)
        try:
            s = space.schedule(digits)
        except ScheduleError as error:
            refusals += 1
            assert "vectorize" in str(error)
            kinds = space.describe(digits)["kinds"]
            assert isinstance(kinds, tuple)
            assert kinds[0] is LoopKind.VECTORIZED  # a reduction that is stored at once can't be
            continue
        assert_same(program, s.program)
        assert replay(s.trace, program).program == s.program
        assert str(space.schedule(digits).program) == str(s.program)
    assert 0 < refusals < 20


def test_all_decisions_reach_the_program() -> None:
    space = Space.of(every_knob, lower(matmul(8, 12, 4)))
    kinds = (LoopKind.SERIAL, LoopKind.UNROLLED, LoopKind.VECTORIZED)
    position = next(i for i, value in enumerate(space.knobs[3].values) if value == kinds)
    text = str(space.schedule(row(4, 1, 1, position, 1)).program)
    heads = [line.strip() for line in text.splitlines() if line.strip().startswith("for")]
    assert heads == [
        "for j_0 in range(3):",
        "for i_0 in parallel(4):",
        "for k in range(4):",
        "for i_2 in unrolled(1):",
        "for i_1 in range(2):",
        "for j_1 in vectorized(4):",
    ]


def test_every_index_is_another_decision() -> None:
    space = Space.of(every_knob, lower(matmul(8, 12, 4)))
    some = np.stack(np.unravel_index(np.arange(0, size(space), 7), space.radices), axis=-1)
    described = {str(space.describe(digits)) for digits in some}
    assert len(described) == len(some)
    assert size(space) == prod(len(knob.values) for knob in space.knobs)


def test_a_candidate_of_another_space_is_refused() -> None:
    space = Space.of(tiled, lower(matmul(12, 8, 4)))
    for digits in [row(0), row(0, 0, 0), row(6, 0), row(0, -1)]:
        with pytest.raises(ScheduleError, match="no candidate of a space with radices"):
            space.schedule(digits)


def test_a_knob_has_one_definition() -> None:
    def twice(s: Schedule, config: Config) -> None:
        config.choice("a", (1, 2))
        config.choice("a", (1, 2))

    with pytest.raises(BadInput, match="knob 'a' twice"):
        Space.of(twice, lower(matmul(4, 4, 4)))


def test_knobs_do_not_depend_on_decisions() -> None:
    def more(s: Schedule, config: Config) -> None:
        if config.choice("a", (0, 1)):
            config.choice("b", (1, 2))

    def other(s: Schedule, config: Config) -> None:
        config.choice("b", (1, 2 + config.choice("a", (0, 1))))

    def fewer(s: Schedule, config: Config) -> None:
        if not config.choice("a", (0, 1)):
            config.choice("b", (1, 2))

    for template, digits in [(more, row(1)), (other, row(1, 0)), (fewer, row(1, 0))]:
        space = Space.of(template, lower(matmul(4, 4, 4)))
        space.schedule(np.zeros_like(digits))
        with pytest.raises(BadInput, match="knob 'b'"):
            space.schedule(digits)


def test_kinds_of_a_device_are_bound() -> None:
    def bound(s: Schedule, config: Config) -> None:
        config.annotate("kinds", s, s.get_loops("C")[:1], (LoopKind.SERIAL, LoopKind.BLOCK_X))

    scheduled = Space.of(bound, lower(matmul(4, 4, 4))).schedule(row(1))
    assert "blockIdx.x" in str(scheduled.program)


def test_extent_is_a_number() -> None:
    s = Schedule(lower(matmul(4, Extent("n"), 4)))
    assert extent(s, LoopRef("i")) == 4
    with pytest.raises(ScheduleError, match="known at run time only"):
        extent(s, LoopRef("j"))
    with pytest.raises(ScheduleError, match="there is no loop"):
        extent(s, LoopRef("zz"))
