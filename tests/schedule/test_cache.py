from collections.abc import Callable

import pytest

from tests.schedule import movement
from tests.schedule.movement import assert_same, refused
from tilewright.loops.memory import GLOBAL, LOCAL


def test_caches_of_a_matrix_product(golden: Callable[[str, str], None]) -> None:
    s = movement.matmul(4, 6, 5)
    before = s.program
    assert s.cache_read("C", "A", LOCAL).name == "A_local"
    assert s.cache_write("C", "C", LOCAL).name == "C_copy"
    assert_same(before, s.program)
    golden("schedule/cache", f"{before}\n{s.program}")


def test_cache_of_an_intermediate_stands_between_its_blocks() -> None:
    s = movement.dense(4, 5, 3)
    before = s.program
    s.cache_read("D", "C", GLOBAL)
    s.cache_write("C", "C", LOCAL)
    assert_same(before, s.program)


def test_cache_write_takes_a_hoisted_init_along() -> None:
    s = movement.matmul(4, 6, 5)
    before = s.program
    s.decompose_reduction("C", "k")
    s.cache_write("C", "C", LOCAL)
    assert_same(before, s.program)
    assert "writes C_local[vi, vj]" in str(s.program)


def test_cache_write_of_a_tuple_reduction() -> None:
    s = movement.argmax(3, 4)
    before = s.program
    s.cache_write("M", "M_0", LOCAL)
    s.cache_write("M", "M_1", LOCAL)
    assert_same(before, s.program)


def test_rank_zero_and_empty() -> None:
    for rows, columns in ((0, 3), (1, 1)):
        s = movement.softmax_parts(rows, columns)
        before = s.program
        s.cache_read("Y", "M", LOCAL)
        s.cache_write("M", "M", LOCAL)
        assert_same(before, s.program)


def test_set_scope() -> None:
    s = movement.dense(4, 5, 3)
    before = s.program
    s.set_scope("C", LOCAL)
    assert "alloc C: f32[4, 5] in local" in str(s.program)
    assert_same(before, s.program)


@pytest.mark.parametrize("name", ["A", "E"])
def test_set_scope_refuses_parameters(name: str) -> None:
    s = movement.dense(4, 5, 3)
    with refused(s, f"`{name}` is a parameter", "use cache_read or cache_write"):
        s.set_scope(name, LOCAL)


def test_refusals() -> None:
    s = movement.dense(4, 5, 3)
    with refused(s, "`D` does not read `A`"):
        s.cache_read("D", "A", LOCAL)
    with refused(s, "`D` does not write `C`"):
        s.cache_write("D", "C", LOCAL)
    with refused(s, "`C` writes `C` too, so it can't read a copy of it"):
        s.cache_read("C", "C", LOCAL)
    with refused(s, "there is no buffer `Z`; the buffers are: A, B, bias, E, C, D"):
        s.cache_read("C", "Z", LOCAL)


def test_refuses_copies_inside_of_a_nest() -> None:
    s = movement.dense(4, 5, 3)
    s.reverse_compute_at("D", "i")
    with refused(s, "`C` lives inside of a loop, partly undefined; cache it before it is moved there"):
        s.cache_read("D", "C", LOCAL)
    with refused(s, "`C` lives inside of a loop"):
        s.cache_write("C", "C", LOCAL)
    s.reverse_compute_at("E", "i")


def test_refuses_padded_layouts() -> None:
    s = movement.dense(4, 5, 3)
    s.transform_layout("C", "C", "i, j -> j // 2, i, j % 2")
    with refused(s, "parts of `C` may be undefined; cache it before its layout is transformed"):
        s.cache_read("D", "C", LOCAL)
