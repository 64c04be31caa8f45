"""Prefetching changes no number, is recorded, and is refused for what is in cache."""

import numpy as np
import pytest

from tilewright import te
from tilewright.backend.cpu.image import kernel_text
from tilewright.base.errors import ScheduleError
from tilewright.compilation import build_program
from tilewright.loops.lower import lower
from tilewright.loops.parser import parse_program
from tilewright.schedule.replay import replay
from tilewright.schedule.schedule import Schedule
from tilewright.schedule.trace import Trace
from tilewright.schedule.tree import LoopRef
from tilewright.target.target import Target


def scaled() -> Schedule:
    a = te.placeholder((6, 64), name="A")
    s = Schedule(lower([te.compute((6, 64), lambda i, j: a[i, j] * 2.0, name="B")]))
    s.vectorize(LoopRef("j"))
    return s


def test_lines_ahead_are_asked_for() -> None:
    s = scaled()
    assert "prefetch" not in kernel_text(s.program).text
    s.prefetch("A", 4096)
    text = kernel_text(s.program).text
    assert text.count("call void @llvm.prefetch") == 64 * 4 // 64
    assert "i64 4096" in text
    a = np.arange(384, dtype=np.float32).reshape(6, 64)
    np.testing.assert_array_equal(build_program(s.program, Target.host()).run({"A": a})[0], 2 * a)


def test_a_later_distance_replaces_the_earlier_one() -> None:
    s = scaled()
    s.prefetch("A", 4096)
    s.prefetch("A", 128)
    assert s.program.prefetched("A") == 128
    assert s.program.prefetched("B") == 0
    assert "annotate prefetch.A = 128" in str(s.program)
    assert str(parse_program(str(s.program))) == str(s.program)
    assert "prefetch" in str(s.trace)


def test_what_is_asked_for_comes_to_the_cache_that_is_named() -> None:
    """LLVM calls the first cache 3, and the second 2."""
    s = scaled()
    s.prefetch("A", 4096, 2)
    text = kernel_text(s.program).text
    assert text.count(", i32 0, i32 2, i32 1)") == 64 * 4 // 64
    assert (s.program.prefetched("A"), s.program.prefetch_cache("A")) == (4096, 2)
    assert str(parse_program(str(s.program))) == str(s.program)
    assert str(replay(Trace.from_json(s.trace.to_json()), scaled().program).program).count("_cache.A = 2") == 1
    s.prefetch("A", 4096)
    assert s.program.prefetch_cache("A") == 1
    assert kernel_text(s.program).text.count(", i32 0, i32 3, i32 1)") == 64 * 4 // 64


def test_a_distance_that_grows_along_loops_asks_for_one_line() -> None:
    """The steps are recorded; a loop that code no longer has, as it is unrolled, leaves nothing to ask for."""
    s = scaled()
    s.prefetch("A", 4096, 2, along=[("i", -192)])
    text = kernel_text(s.program).text
    assert text.count("call void @llvm.prefetch") == 1
    assert ", -192" in text
    assert s.program.prefetch_steps("A") == {"i": -192}
    assert str(parse_program(str(s.program))) == str(s.program)
    assert str(replay(Trace.from_json(s.trace.to_json()), scaled().program).program) == str(s.program)
    a = np.arange(384, dtype=np.float32).reshape(6, 64)
    np.testing.assert_array_equal(build_program(s.program, Target.host()).run({"A": a})[0], 2 * a)
    s.split("i", (None, 2))
    assert "call void @llvm.prefetch" not in kernel_text(s.program).text
    s.prefetch("A", 4096)
    assert s.program.prefetch_steps("A") == {}


def test_a_step_of_nothing_asks_once() -> None:
    """Of the iterations of an unrolled loop, the first one asks for the line of all."""
    s = scaled()
    s.unroll("i")
    s.prefetch("A", 4096, 2, along=[("i", 0)])
    assert kernel_text(s.program).text.count("call void @llvm.prefetch") == 1
    s.prefetch("A", 4096, 2, along=[("i", 64)])
    assert kernel_text(s.program).text.count("call void @llvm.prefetch") == 6


def test_steps_are_along_loops_that_there_are() -> None:
    s = scaled()
    with pytest.raises(ScheduleError, match="no loop `k`"):
        s.prefetch("A", 64, along=[("k", 64)])


@pytest.mark.parametrize(
    ("buffer", "distance", "cache", "reason"),
    [
        ("C", 64, 1, "no buffer `C`"),
        ("T", 64, 1, "`T` is no parameter"),
        ("A", 0, 1, "0 bytes ahead is not ahead"),
        ("A", 64, 3, "asked into a cache of level 3"),
    ],
)
def test_what_is_refused(buffer: str, distance: int, cache: int, reason: str) -> None:
    a = te.placeholder((8,), name="A")
    t = te.compute((8,), lambda i: a[i] + 1.0, name="T")
    s = Schedule(lower([te.compute((8,), lambda i: t[i] * 2.0, name="B")]))
    before = str(s.program)
    with pytest.raises(ScheduleError, match=reason):
        s.prefetch(buffer, distance, cache)
    assert str(s.program) == before
