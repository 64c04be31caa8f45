from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.profiles import examples
from tests.schedule import movement
from tests.schedule.movement import assert_same, refused
from tilewright.loops.ir import Alloc
from tilewright.loops.lower import lower
from tilewright.loops.memory import LOCAL
from tilewright.loops.visit import walk
from tilewright.schedule.schedule import Schedule
from tilewright.symbolic.expr import Extent
from tilewright.tensor import build as te


def allocated(schedule: Schedule, name: str) -> list[str]:
    """The shape of the allocation ``name``."""
    (found,) = (s.buffer for s in walk(schedule.program.body) if isinstance(s, Alloc) and s.buffer.name == name)
    return [str(extent) for extent in found.shape]


def test_tile_of_a_producer_becomes_a_small_buffer(golden: Callable[[str, str], None]) -> None:
    s = movement.chain(20)
    before = s.program
    outer, _ = s.split("j", (None, 8))
    s.compute_at("T", outer)
    assert_same(before, s.program)
    golden("schedule/compute_at_tile", f"{before}\n{s.program}")


def test_overlapping_windows_get_axes_of_their_own(golden: Callable[[str, str], None]) -> None:
    s = movement.stencil(20)
    before = s.program
    outer, _ = s.split("j", (None, 8))
    s.compute_at("T", outer)
    assert_same(before, s.program)
    assert allocated(s, "T") == ["10"]
    golden("schedule/compute_at_overlapping", f"{before}\n{s.program}")


def test_padded_image_at_a_tile_of_the_convolution(golden: Callable[[str, str], None]) -> None:
    s = movement.convolution(channels=3, filters=4, size=7, kernel=3, stride=2, border=1)
    before = s.program
    y = s.get_loops(s.get_block("C"))[1]
    outer, _ = s.split(y, (None, 3))
    s.compute_at("P", outer)
    assert_same(before, s.program)
    assert allocated(s, "P") == ["3", "7", "9"]
    golden("schedule/compute_at_convolution", str(s.program))


def test_reduction_moves_with_its_init() -> None:
    s = movement.softmax_parts(6, 5)
    before = s.program
    s.compute_at("M", s.get_loops(s.get_block("Y"))[0])
    assert_same(before, s.program)
    assert allocated(s, "M") == ["1"]


def test_moving_again_deeper_keeps_the_outer_tile() -> None:
    s = movement.dense(10, 14, 3)
    before = s.program
    s.compute_inline("D")
    i, j = s.get_loops(s.get_block("E"))
    io, ii = s.split(i, (None, 4))
    jo, ji = s.split(j, (None, 8))
    s.reorder(io, jo, ii, ji)
    s.compute_at("C", io)
    assert allocated(s, "C") == ["4", "14"]
    assert_same(before, s.program)
    s.compute_at("C", jo)
    assert allocated(s, "C") == ["4", "8"]
    assert_same(before, s.program)
    s.compute_at("C", ji)
    assert allocated(s, "C") == ["1", "1"]
    assert_same(before, s.program)
    with refused(s, "`C` is allocated in the loop, where `C` is already"):
        s.compute_at("C", io)


def test_two_consumers_under_one_loop() -> None:
    x = te.placeholder((12,), name="X")
    t = te.compute((12,), lambda i: x[i] + 1.0, name="T")
    u = te.compute((12,), lambda i: t[i] * 2.0, name="U")
    s = Schedule(lower(te.compute((12,), lambda i: u[i] + t[i], name="Y"), "both"))
    before = s.program
    outer, _ = s.split(s.get_loops(s.get_block("Y"))[0], (None, 5))
    s.compute_at("U", outer)
    s.compute_at("T", outer)
    assert allocated(s, "T") == ["5"] and allocated(s, "U") == ["5"]
    assert_same(before, s.program)


def test_nested_splits_that_do_not_divide_make_no_larger_window() -> None:
    s = movement.chain(50)
    before = s.program
    outer, inner = s.split("j", (None, 12))
    s.split(inner, (None, 5))
    s.compute_at("T", outer)
    assert allocated(s, "T") == ["12"]
    assert_same(before, s.program)


def test_run_time_extents() -> None:
    n = te.var("n")
    x = te.placeholder((n, 6), name="X")
    t = te.compute((n, 6), lambda i, j: x[i, j] + 1.0, name="T")
    s = Schedule(lower(te.compute((n, 6), lambda i, j: t[i, j] * 2.0, name="Y"), "rows"))
    before = s.program
    outer, _ = s.split(s.get_loops(s.get_block("Y"))[0], (None, 4))
    s.compute_at("T", outer)
    assert allocated(s, "T") == ["4", "6"]
    for size in (0, 1, 4, 9):
        assert_same(before, s.program, {"n": size})


def test_refusals() -> None:
    s = movement.dense(4, 4, 4)
    loop = s.get_loops(s.get_block("E"))[0]
    with refused(s, "`D` reads what `C` writes, and is not inside"):
        s.compute_at("C", loop)
    with refused(s, "`E` is an output"):
        s.compute_at("E", s.get_loops(s.get_block("D"))[0])
    with refused(s, "has nothing inside but `D` itself"):
        s.compute_at("D", s.get_loops(s.get_block("D"))[0])
    with refused(s, "there is no loop"):
        s.compute_at("D", "nowhere")
    with refused(s, "there is no block"):
        s.compute_at("nothing", loop)
    s.vectorize(s.get_loops(s.get_block("E"))[1])
    with refused(s, "vectorized"):
        s.compute_at("D", s.get_loops(s.get_block("E"))[1])


def test_refuses_blocks_with_a_hoisted_init() -> None:
    s = movement.softmax_parts(6, 5)
    s.decompose_reduction("M", s.get_loops(s.get_block("M"))[1])
    with refused(s, "`M` is written by `M_init` too"):
        s.compute_at("M", s.get_loops(s.get_block("Y"))[0])


def test_refuses_recurrences() -> None:
    s = movement.prefix_sum(4, 3)
    block = next(b for b in ("S_update", "S") if f"block {b}(" in str(s.program))
    with refused(s, "ordered"):
        s.compute_at(block, s.get_loops(s.get_block("Y"))[0])


@pytest.mark.parametrize("size", [1, 2, 13, 16])
def test_every_loop_of_a_matrix_product(size: int) -> None:
    s = movement.matmul(size, 7, 5)
    before = s.program
    copy = s.cache_read("C", "B", LOCAL)
    loops = s.get_loops(s.get_block("C"))
    s.split(loops[1], (None, 3))
    for loop in s.get_loops(s.get_block("C")):
        moved = s.copy()
        moved.compute_at(copy, loop)
        assert_same(before, moved.program)


@examples(25, by_night=200)
@given(st.data())
def test_random_tiles_of_a_convolution(data: st.DataObject) -> None:
    kernel = data.draw(st.integers(1, 3))
    s = movement.convolution(
        channels=data.draw(st.integers(1, 2)),
        filters=data.draw(st.integers(1, 3)),
        size=data.draw(st.integers(kernel, 6)),
        kernel=kernel,
        stride=data.draw(st.integers(1, 3)),
        border=data.draw(st.integers(0, 2)),
    )
    before = s.program
    block = s.get_block("C")
    for loop in s.get_loops(block):
        if data.draw(st.booleans()):
            s.split(loop, (None, data.draw(st.integers(1, 4))))
    first, *inside = s.get_loops(block)[data.draw(st.integers(0, 5)) :]
    s.compute_at("P", first)
    if inside and data.draw(st.booleans()):
        s.compute_at("P", data.draw(st.sampled_from(inside)))
    assert_same(before, s.program)


@pytest.mark.parametrize("last", ["ry_1", "rz"])
def test_moves_on_into_a_loop_with_guarded_iterations(last: str) -> None:
    """The buffer has shrunk to what the consumer needs; iterations in which it needs nothing must not compute more."""
    s = movement.convolution(channels=1, filters=1, size=2, kernel=2, stride=3, border=2)
    before = s.program
    s.split("ry", (None, 4))
    for loop in ("y_1", "ry_1", last):
        s.compute_at("P", loop)
        assert_same(before, s.program)


def test_overlapping_windows_of_symbolic_tiles() -> None:
    s = movement.stencil(20)
    before = s.program
    outer, _ = s.split("j", (None, Extent("f")))
    s.compute_at("T", outer)
    assert allocated(s, "T") == ["f + 2"]
    for f in (1, 8, 20):
        bound = s.copy()
        bound.bind_factors(f=f)
        assert_same(before, bound.program)


def test_producer_of_a_recurrence() -> None:
    s = movement.prefix_sum(5, 3)
    before = s.program
    with refused(s, "`S_init` reads what `Y` writes, and is not inside `t_1`"):
        s.compute_at("Y", "t_1")
    s.compute_inline("Y")
    assert_same(before, s.program)
