"""Schedules: semantics-preserving rewrites of loop programs, recorded as the steps of a trace.

In: a loop program (``loops``), usually the naive one. Out: a faster, equivalent program. ``Schedule`` has a method for
each primitive; ``replay`` applies a trace again. A primitive is a pure function ``(program, ...) -> (program,
results)`` in its own file, which checks first and refuses by ``raise refuse(reason, place)``; to add one, write that
file, and add a member to ``trace.Primitive`` and a method to ``Schedule``. User-defined primitives are applied by
``Schedule.apply`` (``user_primitive.py``). ``tree.py`` and ``blocks.py`` find and rewrite statements, ``dependence.py``
and ``region.py`` decide legality. ::

    s = Schedule(lower(C))
    yo, xo, yi, xi = s.tile(("y", "x"), (8, 8), names=("yo", "xo", "yi", "xi"))
    s.reorder(yo, xo, "k", yi, xi)
    s.vectorize(xi)
"""

from tilewright.schedule.replay import replay
from tilewright.schedule.schedule import Schedule
from tilewright.schedule.trace import Trace

__all__ = ["Schedule", "Trace", "replay"]
