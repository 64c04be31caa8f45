from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.loops.workloads import cumsum, lstm, matmul
from tests.schedule.movement import assert_same, refused
from tilewright.backend.cpu.image import kernel_text
from tilewright.base.errors import ScheduleError, Unsupported
from tilewright.loops.lower import lower
from tilewright.loops.parser import parse_program
from tilewright.loops.reader import format_loops
from tilewright.schedule.schedule import Schedule
from tilewright.schedule.tree import LoopRef
from tilewright.symbolic.expr import TRUE, Extent
from tilewright.tensor import build as te
from tilewright.tensor.ir import Tensor


def line(count: int) -> Tensor:
    a = te.placeholder((count,), name="A")
    return te.compute((count,), lambda i: a[i] + 1.0, name="B")


def loops_of(s: Schedule, block: str) -> list[str]:
    return [loop.name for loop in s.get_loops(block)]


# split ---------------------------------------------------------------------------------------------------------------


def test_split_names() -> None:
    s = Schedule(lower(line(24)))
    assert s.split("i", (None, 6)) == (LoopRef("i_0"), LoopRef("i_1"))
    assert s.split("i_1", (2, None), names=("a", "b")) == (LoopRef("a"), LoopRef("b"))
    assert loops_of(s, "B") == ["i_0", "a", "b"]


def test_exact_split_has_no_predicate() -> None:
    s = Schedule(lower(line(24)))
    s.split("i", (None, 3, 4))
    assert "where" not in str(s.program)
    assert "i_0 * 12 + i_1 * 4 + i_2" in str(s.program)


def test_guarded_split(golden: Callable[[str, str], None]) -> None:
    """36 iterations in tens: one predicate on the block."""
    s = Schedule(lower(line(36)))
    s.split("i", (None, 10))
    golden("schedule/split_guard", str(s.program))


@pytest.mark.parametrize("factors", [(), (None, None), (0, None), (-2, None), (2, 3)])
def test_bad_factors_are_refused(factors: tuple[int | None, ...]) -> None:
    s = Schedule(lower(line(24)))
    with refused(s):
        s.split("i", factors)


def test_names_are_checked() -> None:
    s = Schedule(lower(matmul(4, 4, 4)))
    with refused(s, "it is taken"):
        s.split("i", (None, 2), names=("j", "i_1"))
    with refused(s, "2 new loops, but 1 names"):
        s.split("i", (None, 2), names=("x",))
    with refused(s, "there is no loop `z`"):
        s.split("z", (None, 2))


def test_only_serial_loops_are_split() -> None:
    s = Schedule(lower(line(24)))
    s.parallel("i")
    with refused(s, "make it serial first"):
        s.split("i", (None, 2))
    s.serial("i")
    s.split("i", (None, 2))


def test_run_time_extents() -> None:
    n = Extent("n")
    s = Schedule(lower(matmul(n, 4, 3)))
    naive = s.program
    s.split("i", (None, 4))
    for size in (0, 1, 4, 7):
        assert_same(naive, s.program, {"n": size})


def test_symbolic_factors_are_bound_later() -> None:
    naive = lower(matmul(10, 6, 4))
    s = Schedule(naive)
    outer, inner = s.split("i", (None, Extent("f")))
    s.reorder("j", outer, "k", inner)
    assert "where f * i_0 + i_1 < 10" in " ".join(str(s.program).split())
    for value in (1, 3, 5, 16):
        t = s.copy()
        t.bind_factors(f=value)
        assert ("where" in str(t.program)) == (10 % value != 0)
        assert_same(naive, t.program)
    with refused(s, "no symbol"):
        s.bind_factors(g=2)
    with refused(s, "not positive"):
        s.bind_factors(f=0)


# tile, fuse ----------------------------------------------------------------------------------------------------------


def test_tile() -> None:
    s = Schedule(lower(matmul(10, 6, 4)))
    naive = s.program
    made = s.tile(("i", "j"), (4, 3), names=("yo", "xo", "yi", "xi"))
    assert [loop.name for loop in made] == ["yo", "xo", "yi", "xi"]
    assert loops_of(s, "C") == ["yo", "xo", "yi", "xi", "k"]
    assert_same(naive, s.program)
    with refused(s, "as many factors"):
        s.tile(("yi", "xi"), (2,))


def test_fuse_undoes_split() -> None:
    naive = lower(line(24))
    s = Schedule(naive)
    s.fuse(*s.split("i", (None, 4)), name="i")
    assert s.program == naive


def test_fuse_of_all_axes() -> None:
    s = Schedule(lower(matmul(3, 5, 4)))
    naive = s.program
    assert s.fuse("i", "j", "k").name == "i_j_k_fused"
    assert_same(naive, s.program)


def test_fuse_needs_adjacent_loops() -> None:
    s = Schedule(lower(matmul(3, 5, 4)))
    with refused(s, "`k` is not the only thing directly inside `i`"):
        s.fuse("i", "k")
    with refused(s, "at least one loop"):
        s.fuse()


@given(st.integers(0, 40), st.lists(st.integers(1, 9), min_size=1, max_size=3))
@settings(deadline=None)
def test_split_and_fuse_visit_each_point_once(count: int, factors: list[int]) -> None:
    """The interpreter raises if a point is run twice or not at all."""
    naive = lower(line(count))
    s = Schedule(naive)
    fused = s.fuse(*s.split("i", (None, *factors)))
    assert_same(naive, s.program)
    s.split(fused, (None, 4))
    assert_same(naive, s.program)


# reorder -------------------------------------------------------------------------------------------------------------


def test_reduction_outside_of_spatial_loops(golden: Callable[[str, str], None]) -> None:
    s = Schedule(lower(matmul(4, 6, 5)))
    naive = s.program
    s.reorder("k", "j", "i")
    assert_same(naive, s.program)
    golden("schedule/reorder_reduction", format_loops(s.program))


def test_unlisted_loops_stay() -> None:
    s = Schedule(lower(matmul(4, 6, 5)))
    s.reorder("k", "i")
    assert loops_of(s, "C") == ["k", "j", "i"]


def test_reorder_refusals() -> None:
    s = Schedule(lower(matmul(4, 6, 5)))
    with refused(s, "each once"):
        s.reorder("i", "i")
    a = te.placeholder((4, 4), name="A")
    b = te.compute((4, 4), lambda i, j: a[i, j] + 1.0, name="B")
    t = Schedule(lower(te.compute((4, 4), lambda i, j: b[i, j] * 2.0, name="C")))
    with refused(t, "not in one perfect nest"):
        t.reorder("i", "j_1")


def test_steps_of_a_scan_stay_in_order() -> None:
    s = Schedule(lower(cumsum(6, 4)))
    naive = s.program
    steps, width = loops_of(s, "total")
    outer, inner = s.split(steps, (None, 2))
    with refused(s, "must keep their order"):
        s.reorder(inner, outer)
    s.reorder(width, outer, inner)  # each column reads its own history only
    assert_same(naive, s.program)
    s.parallel(width)
    assert_same(naive, s.program)


def test_a_scan_over_all_elements_stays() -> None:
    s = Schedule(lower(lstm(3, 4)))
    steps = loops_of(s, "back")[0]
    with refused(s, "perfect nest"):
        s.reorder(loops_of(s, "back")[1], steps)


# kinds ---------------------------------------------------------------------------------------------------------------


def test_kinds() -> None:
    s = Schedule(lower(matmul(8, 16, 4)))
    naive = s.program
    j_0, j_1 = s.split("j", (None, 4))
    s.reorder("i", j_0, "k", j_1)
    s.parallel("i")
    s.parallel(j_0)
    s.unroll("k")
    s.vectorize(j_1)
    assert_same(naive, s.program)
    with refused(s, "vectorized already"):
        s.vectorize("i")


def test_dependent_iterations_are_refused() -> None:
    s = Schedule(lower(matmul(8, 16, 4)))
    with refused(s, "reduction axis `vk`", "use rfactor"):
        s.parallel("k")
    with refused(s, "reduction axis `vk`"):
        s.vectorize("k")
    t = Schedule(lower(cumsum(6, 4)))
    steps, width = t.get_loops("total")
    with refused(t, "each step needs the one before"):
        t.parallel(steps)
    t.vectorize(width)


def test_fused_spatial_and_reduction_is_no_parallel_loop() -> None:
    s = Schedule(lower(matmul(8, 16, 4)))
    fused = s.fuse("j", "k")
    with refused(s, "reduction axis"):
        s.parallel(fused)
    outer, _ = s.split(fused, (None, 4))  # each part is one column
    s.parallel(outer)


@pytest.mark.parametrize("factor", [3, 4, 7, 64])
def test_fused_then_split_is_parallel(factor: int) -> None:
    s = Schedule(lower(matmul(5, 6, 2)))
    naive = s.program
    outer, inner = s.split(s.fuse("i", "j"), (None, factor))
    s.parallel(outer)
    s.vectorize(inner)
    assert_same(naive, s.program)


def test_run_time_extents_in_parallel() -> None:
    s = Schedule(lower(matmul(Extent("m"), Extent("n"), 3)))
    naive = s.program
    outer, inner = s.split(s.fuse("i", "j"), (None, 4))
    s.parallel(outer)
    s.vectorize(inner)
    assert_same(naive, s.program, {"m": 3, "n": 5})


def test_annotations() -> None:
    s = Schedule(lower(line(8)))
    naive = s.program
    s.annotate("B", "unroll_limit", 16)
    s.annotate("B", "unroll_limit", 64)
    assert "annotate unroll_limit = 64" in str(s.program)
    with refused(s, "no annotation `x`; it has: unroll_limit"):
        s.unannotate("B", "x")
    s.unannotate("B", "unroll_limit")
    assert s.program == naive
    assert s.program.body.body.predicate == TRUE  # type: ignore[union-attr]


def test_error_text(golden: Callable[[str, str], None]) -> None:
    s = Schedule(lower(matmul(8, 16, 4)))
    texts: list[str] = []
    for move in (lambda: s.parallel("k"), lambda: s.split("j", (0, None)), lambda: s.fuse("i", "k")):
        with pytest.raises(Exception, match="is refused") as error:
            move()
        texts.append(str(error.value))
    golden("schedule/refusals", "\n\n".join(texts) + "\n")


def test_unrolled_code_is_bounded() -> None:
    """64 * 64 * 64 copies would take LLVM minutes."""
    A = te.placeholder((64, 64, 64), name="A")
    s = Schedule(lower([te.compute((64, 64, 64), lambda i, j, k: A[i, j, k] + 1.0, name="B")]))
    s.unroll("k")
    s.unroll("j")
    with pytest.raises(ScheduleError, match=r"262144 statements, more than 16384; split the loop"):
        s.unroll("i")
    outer, inner = s.split("i", (None, 4))
    s.unroll(inner)
    assert [loop.name for loop in s.get_loops("B")] == [outer.name, inner.name, "j", "k"]


def test_unrolled_code_of_a_text_is_bounded() -> None:
    A = te.placeholder((64, 64, 64), name="A")
    text = str(lower([te.compute((64, 64, 64), lambda i, j, k: A[i, j, k] + 1.0, name="B")]))
    with pytest.raises(Unsupported, match="262144 statements"):
        kernel_text(parse_program(text.replace("in range(", "in unrolled(")))
