from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.schedule import movement
from tests.schedule.movement import assert_same, refused
from tilewright.loops.interpreter import interpret
from tilewright.loops.lower import lower
from tilewright.schedule.schedule import Schedule
from tilewright.symbolic.expr import maximum, unary
from tilewright.symbolic.operations import UnaryOp
from tilewright.tensor import build as te


def total(size: int) -> Schedule:
    x = te.placeholder((size,), name="X")
    k = te.reduce_axis((0, size), name="k")
    return Schedule(lower(te.compute((), lambda: te.sum(x[k], axis=k), name="S"), "total"))


def test_partial_sums(golden: Callable[[str, str], None]) -> None:
    s = total(100)
    before = s.program
    outer, _ = s.split("k", (None, 16))
    assert s.rfactor(outer, 0).name == "S_rf"
    s.parallel(outer)
    assert_same(before, s.program)
    golden("schedule/rfactor", f"{before}\n{s.program}")


def test_argmax(golden: Callable[[str, str], None]) -> None:
    s = movement.argmax(3, 10)
    before = s.program
    _, inner = s.split("k", (None, 4))
    s.rfactor(inner, 1)
    assert_same(before, s.program)
    golden("schedule/rfactor_argmax", str(s.program))


def test_online_softmax() -> None:
    """Maximum and sum of exponentials together: one source is a literal, and both have one dtype."""
    x = te.placeholder((3, 12), name="X")
    k = te.reduce_axis((0, 12), name="k")

    def exp(value: te.ExprLike) -> te.Expr:
        return unary(UnaryOp.EXP, value)

    def combine(a: tuple[te.Expr, ...], b: tuple[te.Expr, ...]) -> tuple[te.Expr, ...]:
        top = maximum(a[0], b[0])
        return top, a[1] * exp(a[0] - top) + b[1] * exp(b[0] - top)

    identity = (te.const(-1e30, x.dtype), te.const(0.0, x.dtype))
    online = te.comm_reducer(combine, lambda *_: identity, name="online")
    s = Schedule(
        lower(te.compute((3,), lambda i: online((x[i, k], te.const(1.0, x.dtype)), axis=k), name="M"), "online")
    )
    values = np.random.default_rng(0).normal(size=(3, 12)).astype(np.float32)
    outer, _ = s.split("k", (None, 5))
    s.rfactor(outer, 1)
    found = interpret(s.program, {"X": values})
    top = values.max(axis=1)
    np.testing.assert_allclose(found["M_0"], top)
    np.testing.assert_allclose(found["M_1"], np.exp(values - top[:, None]).sum(axis=1), rtol=1e-5)


def test_conditional_reduction() -> None:
    x = te.placeholder((9,), name="X")
    k = te.reduce_axis((0, 9), name="k")
    s = Schedule(lower(te.compute((), lambda: te.max(x[k], axis=k, where=k < 7), name="S"), "some"))
    before = s.program
    _, inner = s.split("k", (None, 4))
    s.rfactor(inner, 0)
    assert_same(before, s.program)


def test_partial_results_live_where_they_are_needed() -> None:
    s = movement.matmul(10, 6, 9)
    before = s.program
    i, j, k = s.get_loops(s.get_block("C"))
    io, ii = s.split(i, (None, 4))
    _, ki = s.split(k, (None, 4))
    s.reorder(io, ki, ii, j)
    s.rfactor(ki, 1)
    assert "alloc C_rf: f32[4, 4, 6]" in str(s.program)
    assert_same(before, s.program)


def test_refusals() -> None:
    s = movement.matmul(4, 5, 6)
    with refused(s, "the loop drives no reduction axis of `C`"):
        s.rfactor("i", 0)
    with refused(s, "`C` has 2 dimensions, so axis 3 can't be inserted"):
        s.rfactor("k", 3)
    s.decompose_reduction("C", "k")
    with refused(s, "`C` is no reduction with an init"):
        s.rfactor("k", 0)
    s = movement.matmul(4, 5, 6)
    fused = s.fuse("j", "k")
    with refused(s, f"`{fused}` drives spatial axes of `C` too"):
        s.rfactor(fused, 0)
    s = movement.dense(4, 5, 6)
    s.reverse_compute_at("D", "i")
    with refused(s, "there are 2 blocks inside"):
        s.rfactor("i", 0)


def test_refuses_recurrences() -> None:
    s = movement.prefix_sum(5, 3)
    with refused(s, "drives no reduction axis" if "blocks inside" not in str(s) else "blocks"):
        s.rfactor("t", 0)


@pytest.mark.parametrize("size", [1, 2, 7, 16])
@pytest.mark.parametrize("outside", [False, True])
def test_sizes(size: int, outside: bool) -> None:
    s = total(size)
    before = s.program
    outer, inner = s.split("k", (None, 4))
    s.rfactor(outer if outside else inner, 0)
    assert_same(before, s.program)


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_random_matrix_products(data: st.DataObject) -> None:
    s = movement.matmul(*[data.draw(st.integers(1, 7)) for _ in range(3)])
    before = s.program
    parts = s.split("k", (None, data.draw(st.integers(1, 4))))
    if data.draw(st.booleans()):
        s.split("i", (None, data.draw(st.integers(1, 3))))
    s.reorder(*data.draw(st.permutations(s.get_loops(s.get_block("C")))))
    s.rfactor(data.draw(st.sampled_from(parts)), data.draw(st.integers(0, 2)))
    assert_same(before, s.program)


def test_nothing_is_combined_where_an_axis_has_no_points() -> None:
    """The fused loop runs over nothing and drives no axis any more; what combines is outside of it."""
    s = movement.matmul(0, 3, 4)
    before = s.program
    outer, inner = s.split("k", (None, 2))
    s.reorder("i", outer, "j", inner)
    s.fuse("i", outer)
    s.rfactor(inner, 0)
    assert_same(before, s.program)
