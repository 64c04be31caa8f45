from collections import Counter
from collections.abc import Callable
from math import prod
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.loops.workloads import matmul
from tests.schedule.movement import assert_same, refused
from tilewright.base.errors import BadInput, ScheduleError
from tilewright.loops.lower import lower
from tilewright.loops.memory import GLOBAL, LOCAL
from tilewright.schedule.replay import replay
from tilewright.schedule.sampling import _random_factors  # pyright: ignore[reportPrivateUsage]
from tilewright.schedule.schedule import Schedule
from tilewright.schedule.trace import Primitive, Sampled, Step, Trace
from tilewright.schedule.tree import LoopRef
from tilewright.symbolic.expr import Extent


def sketch(seed: int = 0) -> Schedule:
    """A tiled matmul whose tile sizes are drawn."""
    s = Schedule(lower(matmul(24, 36, 8)), seed=seed)
    i = s.split("i", s.sample_perfect_tile("i", 3))
    j = s.split("j", s.sample_perfect_tile("j", 3, max_innermost=8))
    s.reorder(i[0], j[0], i[1], j[1], "k", i[2], j[2])
    copy = s.cache_write("C", "C", GLOBAL)
    s.annotate("C", "limit", s.sample_categorical((16, 64), (0.9, 0.1)))
    s.parallel(i[0])
    s.vectorize(s.get_loops(copy)[-1])
    return s


def test_text_and_json(golden: Callable[[str, str], None]) -> None:
    s = sketch()
    golden("schedule/trace", f"{s.trace}\n\n{s.trace.to_json()}\n")
    assert Trace.from_json(s.trace.to_json()) == s.trace


def test_text_is_python() -> None:
    """The printed trace of a schedule without random choices does it again."""
    first = Schedule(lower(matmul(24, 36, 8)))
    naive = first.program
    first.tile(("i", "j"), (4, 9), names=("yo", "xo", "yi", "xi"))
    first.reorder("yo", "xo", "k", "yi", "xi")
    first.cache_write("C", "C", LOCAL)
    first.annotate("C", "note", 'a "quoted" text')
    s = Schedule(naive)
    exec(str(first.trace), {"s": s, "LOCAL": LOCAL})
    assert s.program == first.program
    assert s.trace == first.trace


@pytest.mark.parametrize(
    "step",
    [
        Step(Primitive.SPLIT, (LoopRef("i"),)),
        Step(Primitive.PARALLEL, (LoopRef("i"), LoopRef("j"))),
        Step(Primitive.VECTORIZE, (LoopRef("j"),), (("width", 8),)),
        Step(Primitive.SAMPLE_CATEGORICAL, (), (), (Sampled("x", 1),)),
    ],
)
def test_a_step_that_is_no_call_is_refused(step: Step) -> None:
    """Traces are read from files: arguments may be missing, or too many, or called otherwise."""
    with pytest.raises(ScheduleError, match=f"is no call of {step.primitive.value}"):
        replay(Trace((step,)), lower(matmul(8, 8, 8)))


def test_replay_gives_the_same() -> None:
    s = sketch(3)
    naive = lower(matmul(24, 36, 8))
    again = replay(Trace.from_json(s.trace.to_json()), naive)
    assert again.program == s.program
    assert again.trace == s.trace
    assert_same(naive, again.program)


def test_decisions_can_be_changed() -> None:
    s = sketch()
    naive = lower(matmul(24, 36, 8))
    other = replay(s.trace, naive, decisions={0: (2, 3, 4)})
    assert [str(loop) for loop in other.get_loops("C")] == [str(loop) for loop in s.get_loops("C")]
    assert other.trace.steps[0].results == (Sampled("d0", 2), Sampled("d1", 3), Sampled("d2", 4))
    assert_same(naive, other.program)
    with pytest.raises(ScheduleError, match="not 3 factors"):
        replay(s.trace, naive, decisions={0: (2, 3, 5)})


def test_other_programs() -> None:
    """The trace of one size applies to another one, with other decisions."""
    s = sketch()
    naive = lower(matmul(8, 36, 16))
    with pytest.raises(ScheduleError):
        replay(s.trace, naive)
    assert_same(naive, replay(s.trace, naive, decisions={0: (2, 2, 2)}).program)


def test_seeds() -> None:
    assert sketch(5).trace == sketch(5).trace
    assert len({str(sketch(seed).program) for seed in range(10)}) > 3


def test_copies_are_apart() -> None:
    s = sketch()
    before = s.program
    t = s.copy()
    t.serial("i_0")
    assert s.program == before
    assert len(t.trace.steps) == len(s.trace.steps) + 1
    s.split("k", first := s.sample_perfect_tile("k", 2))
    assert t.sample_perfect_tile("k", 2)[0].value == first[0].value


def test_symbols() -> None:
    naive = lower(matmul(24, 36, 8))
    s = Schedule(naive)
    s.split("i", (None, Extent("f")))
    s.bind_factors(f=5)
    assert replay(Trace.from_json(s.trace.to_json()), naive).program == s.program


@pytest.mark.parametrize(
    "text",
    [
        "not JSON",
        "[]",
        '{"version": 99, "steps": []}',
        '{"version": 1, "steps": [{"primitive": "teleport", "arguments": [], "options": {}, "results": []}]}',
        '{"version": 1, "steps": [{"primitive": "fuse", "arguments": [{"loup": "i"}], "options": {}, "results": []}]}',
        '{"version": 1, "steps": [{"primitive": "fuse", "arguments": 3}]}',
    ],
)
def test_bad_traces(text: str) -> None:
    with pytest.raises(BadInput):
        Trace.from_json(text)


def test_bad_choices() -> None:
    s = sketch()
    with refused(s, "none of the candidates"):
        s.sample_categorical((1, 2), decision=3)
    with refused(s, "as many weights"):
        s.sample_categorical((1, 2), (1.0,))
    with refused(s, "at least one must be positive"):
        s.sample_categorical((1, 2), (0.0, 0.0))


@given(st.integers(1, 10_000), st.integers(1, 5), st.integers(0, 1 << 30))
def test_perfect_tiles(extent: int, parts: int, seed: int) -> None:
    factors = _random_factors(extent, parts, Random(seed))
    assert len(factors) == parts
    assert prod(factors) == extent


def test_perfect_tiles_are_uniform() -> None:
    """12 in two factors: 6 ways, each as likely (chi-squared, 5 degrees of freedom: above 30 once in 10**5)."""
    random = Random(0)
    counts = Counter(_random_factors(12, 2, random) for _ in range(6000))
    assert set(counts) == {(1, 12), (2, 6), (3, 4), (4, 3), (6, 2), (12, 1)}
    assert sum((count - 1000) ** 2 / 1000 for count in counts.values()) < 30
