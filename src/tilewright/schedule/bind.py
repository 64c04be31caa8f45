"""``bind``: maps the iterations of a loop to blocks of a grid, threads of a block, or virtual threads.

From then on, every primitive refuses steps that would break the rules of launches (``loops/launch.py``).
"""

import dataclasses

from tilewright.loops.ir import LoopKind
from tilewright.loops.launch import memory_problems, structural_problems
from tilewright.loops.program import Program
from tilewright.schedule.dependence import require_independent
from tilewright.schedule.tree import LoopRef, loop_at, refuse, rewrite

_AXES = {kind.value: kind for kind in LoopKind if kind.is_of_device}


def bind(program: Program, loop: LoopRef, thread: str) -> tuple[Program, None]:
    """Run the iterations of ``loop`` as ``thread``: ``blockIdx.x`` (y, z), ``threadIdx.x`` (y, z) or ``vthread``.

    Refuses if the iterations depend on each other, or if the loop is not at a valid place of a launch.
    """
    place = loop_at(program, loop)
    if thread not in _AXES:
        raise refuse(f"there is no axis {thread!r} to bind to; there are: {', '.join(_AXES)}", loop)
    require_independent(program, place, _AXES[thread])
    return rewrite(program, place, dataclasses.replace(place.stmt, kind=_AXES[thread])), None


def require_launches(program: Program, *, finished: bool = False) -> None:
    """Refuse if ``program`` breaks a rule of launches; if ``finished``, also those on the places of buffers."""
    for problem in structural_problems(program):
        raise refuse(problem.reason, None if problem.place is None else LoopRef(problem.place.var.name))
    for problem in memory_problems(program) if finished else ():
        raise refuse(problem.reason, None if problem.place is None else LoopRef(problem.place.var.name))
