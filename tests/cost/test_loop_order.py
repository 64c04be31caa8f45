"""Which operand of a contraction is read again and again: the loops of the other one go outermost."""

import pytest

from tilewright import te
from tilewright.cost.analytic import open_space, schedule
from tilewright.cost.model import estimate
from tilewright.kernels.tiling import Order
from tilewright.loops.ir import Loop
from tilewright.loops.lower import lower
from tilewright.loops.program import Program
from tilewright.schedule.schedule import Schedule
from tilewright.schedule.tree import walk
from tilewright.target.target import Target


def product(columns: int) -> Program:
    """Rows and columns of data, each with a product of the same weight, of 64 KiB."""
    x, w = te.placeholder((8, columns, 64), name="x"), te.placeholder((64, 256), name="w")
    k = te.reduce_axis((0, 64), name="k")
    y = te.compute((8, columns, 256), lambda r, c, f: te.sum(x[r, c, k.var] * w[k.var, f], axis=k), name="y")
    return lower([y], inputs=[x, w])


@pytest.mark.parametrize(
    ("columns", "l1", "l2", "first"),
    [
        (4, "1M", "2M", "r"),  # all of the weight stays in cache: row by row
        (4, "32K", "32K", "f"),  # it does not, the data do: read it once
        (512, "32K", "32K", "f"),  # neither does, and the data are read for each strip in either order
    ],
)
def test_what_does_not_fit_in_the_cache_is_read_once(columns: int, l1: str, l2: str, first: str) -> None:
    target = Target.parse(f"x86_64,znver4,l1={l1},l2={l2}")
    scheduled = schedule(Schedule(product(columns)), target).program
    loops = [stmt.var.name for stmt in walk(scheduled.body) if isinstance(stmt, Loop)]
    repeated = [name for name in loops if name.startswith(("r", "f"))]
    assert repeated[0].startswith(first), loops


def test_a_matrix_that_is_swept_needs_more_room_than_it_takes() -> None:
    """Read again from its start for each tile of rows, in a cache that it nearly fills, it is gone each time."""

    def swept(l2: str) -> float:
        target = Target.parse(f"x86_64,znver4,l1=32K,l2={l2}")
        (nest,) = open_space(Schedule(product(64)), target).nests
        population = nest.population()
        cycles = estimate(nest, population, target)
        return float(cycles[population.column("order") == Order.ROWS_COLUMNS.value].min())

    assert swept("70K") > swept("80K") == swept("120K")
