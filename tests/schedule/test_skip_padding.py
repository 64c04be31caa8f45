"""Terms that read only padding are left out, alone or by groups: sums stay, and infinite weights show which terms."""

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tests.schedule import movement
from tests.schedule.movement import assert_same, refused
from tilewright import te
from tilewright.loops.interpreter import interpret
from tilewright.loops.ir import Alloc
from tilewright.loops.lower import lower
from tilewright.loops.visit import walk
from tilewright.schedule.schedule import Schedule
from tilewright.symbolic.expr import Expr, Var

GROUPS = [(1, 1, 1), (2, 4, 2)]


def convolution(stride: int = 1) -> Schedule:
    return movement.convolution(channels=2, filters=2, size=4, kernel=5, stride=stride, border=3)


@pytest.mark.parametrize(("groups", "stride"), [((1, 1, 1), 1), ((3, 2, 3), 1), ((1, 4, 2), 2)])
def test_sums_stay_the_same(groups: tuple[int, int, int], stride: int) -> None:
    s = convolution(stride)
    before = s.program
    s.skip_padding("C", (*groups, 1, 1, 1))
    s.split("z", (None, 2))
    s.parallel("f")
    assert_same(before, s.program)


def test_the_padded_buffer_is_cropped_to_what_is_read() -> None:
    s = convolution()
    s.skip_padding("C", (1, 1, 2, 1, 1, 1))
    assert "alloc P: f32[2, 4, 6]" in str(s.program)
    split = convolution()
    split.split("y", (None, 2))
    split.skip_padding("C", (1, 1, 2, 1, 1, 1))
    assert "alloc P: f32[2, 10, 10]" in str(split.program)


@given(st.integers(1, 5), st.integers(0, 9), st.integers(1, 9), st.integers(1, 4))
def test_a_copy_of_every_few_elements_is_cropped_to_what_is_inside(step: int, pad: int, size: int, group: int) -> None:
    """As strides and dilations with a common factor leave it."""
    x, w = te.placeholder((size,), name="X"), te.placeholder((3,), name="W")

    inside = [j for j in range(16) if 0 <= j * step - pad < size]
    assume(inside)

    def element(j: Var) -> Expr:
        place = j * step - pad
        return te.select((place >= 0) & (place < size), x[place], 0.0)

    k = te.reduce_axis((0, 3), name="k")
    copy = te.compute((16,), element, name="P")
    total = te.compute((12,), lambda i: te.sum(copy[i + 2 * k.var] * w[k], axis=k), name="C")
    s = Schedule(lower([total], inputs=[x, w]))
    before = s.program
    firsts = range(0, 12, group)
    assume(not all(any(i + n + 2 * tap in inside for n in range(group)) for i in firsts for tap in range(3)))
    s.skip_padding("C", (group, 1))
    assert_same(before, s.program)
    (made,) = (node.buffer for node in walk(s.program.body) if isinstance(node, Alloc) and node.buffer.name == "P")
    kept = min(16, inside[-1] + group) - max(0, inside[0] - group + 1)
    assert str(made.shape[0]) == str(kept)


@pytest.mark.parametrize("groups", GROUPS)
def test_terms_of_groups_are_left_out(groups: tuple[int, int, int]) -> None:
    """The product of padding with infinity is NaN: it is in the result where a neighbour keeps the term."""
    s = convolution()
    s.skip_padding("C", (*groups, 1, 1, 1))
    feeds = movement.small_integers(s.program, {})
    feeds["X"], feeds["W"] = np.ones_like(feeds["X"]), np.full_like(feeds["W"], np.inf)
    found = np.isnan(interpret(s.program, feeds)["D"]).any(axis=0)
    inside = np.array([[0 <= y + tap - 3 < 4 for tap in range(5)] for y in range(6)])
    wanted = np.zeros((6, 6), np.bool_)
    for y, z in np.ndindex(6, 6):
        rows, columns = (
            inside[i // size * size : i // size * size + size].any(axis=0)
            for i, size in zip((y, z), groups[1:], strict=True)
        )
        wanted[y, z] = (rows & ~inside[y]).any() or (columns & ~inside[z]).any()
    np.testing.assert_array_equal(found, wanted)


def test_refusals() -> None:
    s = convolution()
    with refused(s, "`C` has 6 axes; give a group of at least 1 for each"):
        s.skip_padding("C", (1, 1, 1))
    with refused(s, "`P` is no sum"):
        s.skip_padding("P", (1, 1, 1))
    with refused(s, "no group of terms of `C` is known to read only padding"):
        s.skip_padding("C", (1, 8, 8, 1, 1, 1))
    s = movement.matmul(4, 4, 4)
    with refused(s, "no group of terms of `C` is known to read only padding"):
        s.skip_padding("C", (1, 1, 1))
