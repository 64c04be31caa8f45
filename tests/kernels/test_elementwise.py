"""Which axes are joined to fill registers: those that stay contiguous in all that is read and written."""

import pytest

from tilewright import te
from tilewright.kernels.schedules import fitted, schedule_elementwise
from tilewright.loops.ir import Loop, LoopKind
from tilewright.loops.lower import lower
from tilewright.loops.visit import walk
from tilewright.schedule.schedule import Schedule
from tilewright.schedule.tree import BlockRef
from tilewright.symbolic.expr import Expr

LANES = 64
"""Of four registers."""


def vectorized(columns: int, moved: bool = False, broadcast: bool = False) -> int:
    """The extent of the vectorized loop over (8, 12, columns) elements."""
    a = te.placeholder((8, 12, columns), name="a")
    b = te.placeholder((8, 1, columns) if broadcast else (8, 12, columns), name="b")

    def element(c: Expr, y: Expr, x: Expr) -> Expr:
        other = b[c, 0, x] if broadcast else b[c, y, x]
        return te.select(x + 1 < columns, a[c, y, x + 1], 0.0) if moved else a[c, y, x] + other

    s = Schedule(lower([te.compute((8, 12, columns), element, name="r")], name="r", inputs=[a, b]))
    schedule_elementwise(s, BlockRef("r"), LANES, parallel=True)
    (loop,) = (n for n in walk(s.program.body) if isinstance(n, Loop) and n.kind is LoopKind.VECTORIZED)
    return int(str(loop.extent))


@pytest.mark.parametrize(
    ("columns", "expected"),
    [(14, LANES), (16, 16), (3, 36), (2, 24)],
)
def test_contiguous_axes_are_joined_until_they_fill_a_register(columns: int, expected: int) -> None:
    assert vectorized(columns) == expected


@pytest.mark.parametrize("columns", [4, 14, 16])
def test_what_is_moved_or_broadcast_is_not(columns: int) -> None:
    assert vectorized(columns, moved=True) == columns
    assert vectorized(columns, broadcast=True) == columns


def test_unless_registers_would_be_mostly_empty() -> None:
    assert vectorized(3, moved=True) == 36
    assert vectorized(3, broadcast=True) == 36


@pytest.mark.parametrize(("columns", "expected"), [(80, 16), (96, 32), (93, 32), (128, 64), (1000, 64)])
def test_few_lanes_are_idle_at_the_end_of_a_row(columns: int, expected: int) -> None:
    assert fitted(columns, LANES) == expected


def test_vectors_of_a_period_are_written_out() -> None:
    """Each element three times: the lanes of a vector read the same places as those of the third one after it."""
    a = te.placeholder((8, 40), name="a")
    s = Schedule(lower([te.compute((8, 120), lambda y, x: a[y, x // 3], name="r")], name="r", inputs=[a]))
    schedule_elementwise(s, BlockRef("r"), LANES, parallel=False)
    loops = [(n.kind, str(n.extent)) for n in walk(s.program.body) if isinstance(n, Loop)]
    assert loops[-2:] == [(LoopKind.UNROLLED, "3"), (LoopKind.VECTORIZED, "16")]
