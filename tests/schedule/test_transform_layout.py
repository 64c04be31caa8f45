from collections.abc import Callable

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.schedule import movement
from tests.schedule.movement import assert_same, refused
from tilewright.loops.lower import lower
from tilewright.loops.memory import GLOBAL
from tilewright.schedule.index_map import IndexMap
from tilewright.schedule.schedule import Schedule
from tilewright.tensor import build as te


def test_panels_of_a_matrix(golden: Callable[[str, str], None]) -> None:
    s = movement.matmul(4, 10, 5)
    before = s.program
    copy = s.cache_read("C", "B", GLOBAL)
    loops = s.transform_layout(copy, "B_global", IndexMap.of(lambda k, j: (j // 4, k, j % 4), 2))
    assert s.get_loops(copy) == loops
    assert_same(before, s.program)
    golden("schedule/transform_layout", str(s.program))


def test_packed_image() -> None:
    s = movement.convolution(channels=5, filters=3, size=4, kernel=2, stride=1, border=1)
    before = s.program
    s.transform_layout("P", "P", "c, y, x -> c // 4, y, x, c % 4")
    s.transform_layout("C", "C", "f, y, x -> y, x, f")
    assert "alloc P: f32[2, 6, 6, 4]" in str(s.program)
    assert "alloc C: f32[5, 5, 3]" in str(s.program)
    assert_same(before, s.program)


def test_transposed_square() -> None:
    s = movement.dense(4, 4, 3)
    before = s.program
    s.transform_layout("D", "D", "i, j -> j, i")
    s.transform_layout("D", "C", "i, j -> j, i")
    assert "D[vj_1, vi_1] = C[vj_1, vi_1] + bias[vj_1]" in str(s.program)
    assert_same(before, s.program)


def test_panel_computed_where_it_is_used() -> None:
    s = movement.matmul(4, 10, 5)
    before = s.program
    copy = s.cache_read("C", "B", GLOBAL)
    jo, _ = s.split("j", (None, 4))
    s.reorder(jo, "i")
    s.transform_layout(copy, "B_global", "k, j -> j // 4, k, j % 4")
    s.compute_at(copy, jo)
    assert "alloc B_global: f32[1, 5, 4]" in str(s.program)
    assert_same(before, s.program)


def test_run_time_extents() -> None:
    n = te.var("n")
    x = te.placeholder((n, 6), name="X")
    t = te.compute((n, 6), lambda i, j: x[i, j] + 1.0, name="T")
    s = Schedule(lower(te.compute((n, 6), lambda i, j: t[i, j] * 2.0, name="Y"), "rows"))
    before = s.program
    s.transform_layout("T", "T", "i, j -> i // 4, j, i % 4")
    for size in (0, 3, 8):
        assert_same(before, s.program, {"n": size})


def test_refusals() -> None:
    s = movement.dense(4, 5, 6)
    with refused(s, "`B` is a parameter", "cache_read or cache_write"):
        s.transform_layout("C", "B", "i, j -> j, i")
    with refused(s, "`E` does not use `C`"):
        s.transform_layout("E", "C", "i, j -> j, i")
    with refused(s, "the map has 1 indices, but `C` has 2 dimensions"):
        s.transform_layout("C", "C", "i -> i")
    with refused(s, "does not keep apart all values of j (of extent 5)"):
        s.transform_layout("C", "C", "i, j -> i, j // 2")
    with refused(s, "`i * j` is no sum"):
        s.transform_layout("C", "C", "i, j -> i * j, j")
    with refused(s, "overlap or leave holes"):
        s.transform_layout("C", "C", "i, j -> i * 4 + j")
    with refused(s, "is no index map"):
        s.transform_layout("C", "C", "i, j")


@settings(max_examples=50, deadline=None)
@given(st.data())
def test_random_packings(data: st.DataObject) -> None:
    n, m, depth = (data.draw(st.integers(1, 7)) for _ in range(3))
    s = movement.dense(n, m, depth)
    before = s.program
    inner, outer = data.draw(st.integers(1, 4)), data.draw(st.integers(1, 3))
    packing = data.draw(
        st.sampled_from(
            [
                f"i, j -> j // {inner}, i, j % {inner}",
                f"i, j -> j // {inner}, i // {outer}, i % {outer}, j % {inner}",
                f"i, j -> j // {inner * outer}, i, j // {inner} % {outer}, j % {inner}",
                f"i, j -> i * {m} + j",
                f"i, j -> j // {inner}, i * {inner} + j % {inner}",
                "i, j -> j, i",
            ]
        )
    )
    user, buffer = data.draw(st.sampled_from([("C", "C"), ("D", "C"), ("D", "D"), ("E", "D")]))
    s.transform_layout(user, buffer, packing)
    assert_same(before, s.program)
    if data.draw(st.booleans()):
        s.compute_at("D", data.draw(st.sampled_from(s.get_loops(s.get_block("E")))))
        assert_same(before, s.program)
