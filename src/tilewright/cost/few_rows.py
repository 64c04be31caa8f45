"""Products of an open number of rows by a matrix unit: those of few rows are better computed without it.

A tile of fewer rows than a register's takes as long as a full one, and its start as long as many products: a kernel
for such numbers of rows has the schedule that it would have on a processor without the unit.
"""

from dataclasses import dataclass

from tilewright.cost.analytic import open_space
from tilewright.kernels.matrix_tiles import MatrixTiles
from tilewright.loops.program import Program
from tilewright.schedule.schedule import Schedule
from tilewright.symbolic.expr import Expr
from tilewright.target.target import Target


@dataclass(frozen=True, slots=True)
class FewRows:
    """Where a kernel has few rows (a condition on its run-time extents), and the target of a kernel for these."""

    where: Expr
    target: Target


def few_rows(naive: Program, scheduled: Program, target: Target) -> FewRows | None:
    """None unless ``scheduled``, of ``naive``, has a product of an open number of rows by ``target``'s matrix unit, and
    reads constants as they are in ``naive``."""
    is_open = any(intrinsic.description.dims for intrinsic in scheduled.intrinsics)
    if not is_open or any(scheduled.layout(param.name) for param in scheduled.params):
        return None
    nests = open_space(Schedule(naive), target).nests
    nest = next((one for one in nests if isinstance(one, MatrixTiles) and one.open_rows is not None), None)
    if nest is None or nest.open_rows is None:
        return None
    unit = nest.pattern.unit
    return FewRows(nest.open_rows < unit.rows, target.without(unit.feature))
