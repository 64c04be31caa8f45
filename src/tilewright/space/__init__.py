"""Spaces of schedules: what is left open, what it may be, and what a candidate makes of a program.

In: a loop program, and a function that schedules it and asks where it does not know. Out: a ``Space``, whose candidates
are arrays of digits to whoever searches, and schedules with their traces to whoever runs them.

    def rows(s: Schedule, config: Config) -> None:
        y, *_ = s.get_loops("C")
        s.parallel(s.split(y, config.split("rows", extent(s, y), parts=2))[0])

    space = Space.of(rows, program)
    print(space.schedule(space.digits({"rows": (8, 16)})))

``knobs``, ``orders``: what a knob may be     ``config``: how it is asked for     ``space``: all candidates
``tables``: knobs as numbers                  ``population``: many choices of knobs that are numbers

The compiler's own spaces are made in ``kernels``. A new kind of knob is a function in ``knobs`` and a method of
``Config``.
"""
