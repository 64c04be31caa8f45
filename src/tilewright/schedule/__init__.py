"""Schedules: small rewrites of loop programs, each of which keeps the meaning and is one step of a trace.

In: a loop program (``loops``), mostly the naive one. Out: a program that does the same faster. ``Schedule`` has a
method for each primitive; ``replay`` applies a trace again. A primitive is a pure function ``(program, ...) ->
(program, what it made)`` in a file of its own, which checks first and refuses by ``raise refuse(reason, place)``; to
add one, write that file, and add a member to ``trace.Primitive`` and a method to ``Schedule``. A user's own is applied
by ``Schedule.apply`` (``user_primitive.py``). ``tree.py`` and ``blocks.py`` find and rewrite, ``dependence.py`` and
``region.py`` say what is legal. ::

    s = Schedule(lower(C))
    yo, xo, yi, xi = s.tile(("y", "x"), (8, 8), names=("yo", "xo", "yi", "xi"))
    s.reorder(yo, xo, "k", yi, xi)
    s.vectorize(xi)
"""

from tilewright.schedule.replay import replay
from tilewright.schedule.schedule import Schedule
from tilewright.schedule.trace import Trace

__all__ = ["Schedule", "Trace", "replay"]
