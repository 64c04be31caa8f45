"""Groups of similar tasks: of one structure, and with about as many operations.

Tasks of a group are expected to be able to run at similar speeds, in operations per second.
"""

from collections.abc import Sequence
from math import inf, log

from tilewright.cost.work import count
from tilewright.loops.identity import family
from tilewright.loops.program import Program
from tilewright.tune.scheduler.state import TaskState

RATIO = 1.618
"""Tasks of a group differ in operations by at most about this factor: that of the released Ansor."""
LEAVING = 6
"""Rounds after which a task that is still too slow has left its group: the first one, and five more."""


def operations_of(naive: Program) -> int:
    """Operations of a naive program with fixed extents; 0 if that is not known."""
    work = count(naive, {})
    return 0 if work is None else work.operations


def tag_of(naive: Program) -> str | None:
    """The group of a naive program with fixed extents: its structure without numbers, and the logarithm of its
    operations. None if it has no operations: its speed is none."""
    flops = operations_of(naive)
    return f"{family(naive)} {int(log(flops) / log(RATIO))}" if flops else None


def reachable(tasks: Sequence[TaskState], place: int, beta: float) -> float:
    """Seconds that a task is expected to reach, at ``1 / beta`` of the speed of the fastest of its group.

    Infinity if it has no group, or has left it: after ``LEAVING`` rounds it was still slower than that.
    """
    task = tasks[place]
    fastest = max((other.speed for other in tasks if other.tag == task.tag), default=0.0)
    if task.tag is None or not fastest:
        return inf
    seconds = beta * task.flops / fastest
    return inf if task.seconds > seconds and len(task.points) >= LEAVING else seconds
