from collections.abc import Callable

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.schedule import movement
from tests.schedule.movement import assert_same, refused
from tilewright.loops.lower import lower
from tilewright.schedule.schedule import Schedule
from tilewright.tensor import build as te


def test_matrix_product_without_predicates(golden: Callable[[str, str], None]) -> None:
    s = movement.matmul(5, 7, 3)
    before = s.program
    assert [ref.name for ref in s.pad("C", (4, 4, 4))] == ["A_pad", "B_pad", "C_copy"]
    s.split("i", (None, 4))
    s.split("j", (None, 4))
    s.split("k", (None, 4))
    assert " where " not in str(s.program)
    assert_same(before, s.program)
    golden("schedule/pad", str(s.program))


def test_intermediate_grows_in_place() -> None:
    s = movement.dense(5, 7, 3)
    before = s.program
    assert [ref.name for ref in s.pad("C", (4, 1, 1))] == ["A_pad"]
    assert "alloc C: f32[8, 7]" in str(s.program)
    assert_same(before, s.program)


def test_maximum_is_padded_with_its_identity() -> None:
    s = movement.softmax_parts(3, 5)
    before = s.program
    s.pad("M", (1, 4))
    assert "f32(-inf)" in str(s.program)
    assert_same(before, s.program)


def test_convolution() -> None:
    s = movement.convolution(channels=3, filters=5, size=5, kernel=3, stride=2, border=1)
    before = s.program
    s.pad("C", (4, 2, 4, 2, 1, 1))
    assert_same(before, s.program)


def test_what_divides_stays() -> None:
    s = movement.matmul(4, 8, 2)
    before = s.program
    assert s.pad("C", (4, 4, 2)) == ()
    assert s.program == before


def test_refusals() -> None:
    s = movement.matmul(5, 7, 3)
    with refused(s, "`C` has 3 axes; give a multiple of at least 1 for each"):
        s.pad("C", (4, 4))
    s.split("i", (None, 4))
    with refused(s, "the axis `vi` is driven by", "pad before its loop is split or fused"):
        s.pad("C", (4, 1, 1))
    s = movement.argmax(3, 5)
    with refused(s, "reduces several values together"):
        s.pad("M", (1, 4))
    s = movement.dense(5, 7, 3)
    s.reverse_compute_at("D", "i")
    with refused(s, "other blocks than `C` are inside of its loop"):
        s.pad("C", (4, 1, 1))


def test_refuses_sources_that_padding_does_not_make_neutral() -> None:
    x = te.placeholder((5,), name="X")
    k = te.reduce_axis((0, 5), name="k")
    s = Schedule(lower(te.compute((), lambda: te.sum(x[k] + 1.0, axis=k), name="S"), "total"))
    with refused(s, "padded points of `vk` would not combine f32(0.0), but X[vk] + f32(1.0)"):
        s.pad("S", (4,))


def test_refuses_products_for_sums_that_start_at_minus_zero() -> None:
    """0 * 0 is not neutral there: -0 + 0 is 0."""
    x, y = te.placeholder((5,), name="X"), te.placeholder((5,), name="Y")
    k = te.reduce_axis((0, 5), name="k")
    total = te.comm_reducer(lambda a, b: a + b, lambda dtype: te.const(-0.0, dtype), name="total")
    s = Schedule(lower(te.compute((), lambda: total(x[k] * y[k], axis=k), name="S"), "total"))
    with refused(s, "padded points of `vk` would not combine f32(-0.0), but X[vk] * Y[vk]"):
        s.pad("S", (4,))


@settings(max_examples=30, deadline=None)
@given(*[st.integers(1, 6)] * 6)
def test_random_matrix_products(n: int, m: int, depth: int, a: int, b: int, c: int) -> None:
    s = movement.matmul(n, m, depth)
    before = s.program
    s.pad("C", (a, b, c))
    assert_same(before, s.program)
