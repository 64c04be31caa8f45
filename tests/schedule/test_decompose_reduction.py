from collections.abc import Callable

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.schedule import movement
from tests.schedule.movement import assert_same, refused
from tilewright.base.errors import ScheduleError


def test_init_before_the_reduction_of_a_tile(golden: Callable[[str, str], None]) -> None:
    s = movement.matmul(10, 7, 5)
    before = s.program
    i, j, k = s.get_loops(s.get_block("C"))
    io, ii = s.split(i, (None, 4))
    s.reorder(io, k, ii, j)
    assert s.decompose_reduction("C", k).name == "C_init"
    assert_same(before, s.program)
    golden("schedule/decompose_reduction", str(s.program))


def test_tuple_reduction() -> None:
    s = movement.argmax(3, 4)
    before = s.program
    s.decompose_reduction("M", "k")
    assert_same(before, s.program)


def test_refusals() -> None:
    s = movement.dense(4, 5, 6)
    with refused(s, "`D` has no init"):
        s.decompose_reduction("D", "i_1")
    with refused(s, "the loop is not around `C`"):
        s.decompose_reduction("C", "i_1")
    s.reorder("k", "i", "j")
    with refused(s, "`k`, outside of `i`, drives the reduction"):
        s.decompose_reduction("C", "i")
    s.reorder("i", "j", "k")
    s.reverse_compute_at("D", "j")
    with refused(s, "`C` is allocated inside of the loop"):
        s.decompose_reduction("C", "i")
    s.decompose_reduction("C", "k")
    with refused(s, "`C` has no init (any more)"):
        s.decompose_reduction("C", "k")


def test_refuses_fused_loops() -> None:
    s = movement.matmul(4, 5, 6)
    fused = s.fuse("j", "k")
    with refused(s, f"`{fused}` drives other axes too"):
        s.decompose_reduction("C", fused)


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_random_places(data: st.DataObject) -> None:
    s = movement.matmul(*[data.draw(st.integers(0 if axis < 2 else 1, 6)) for axis in range(3)])
    before = s.program
    for loop in s.get_loops(s.get_block("C")):
        if data.draw(st.booleans()):
            s.split(loop, (None, data.draw(st.integers(1, 4))))
    loops = s.get_loops(s.get_block("C"))
    s.reorder(*data.draw(st.permutations(loops)))
    try:
        s.decompose_reduction("C", data.draw(st.sampled_from(loops)))
    except ScheduleError as error:
        assert "drives the reduction" in str(error)
    assert_same(before, s.program)


def test_nothing_is_initialized_where_an_axis_has_no_points() -> None:
    """The loop over no rows becomes the loop over no points; the init outside of it must not run either."""
    s = movement.matmul(0, 3, 4)
    before = s.program
    s.decompose_reduction("C", s.fuse("i", "j", "k"))
    assert_same(before, s.program)
