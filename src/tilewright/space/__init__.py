"""Search spaces of schedules: knobs, their values, and the schedule of each candidate.

In: a loop program, and a template: a function that schedules it with open decisions. Out: a ``Space``, whose candidates
are arrays of digits for searchers, and schedules with traces for compilation.

    def rows(s: Schedule, config: Config) -> None:
        y, *_ = s.get_loops("C")
        s.parallel(s.split(y, config.split("rows", extent(s, y), parts=2))[0])

    space = Space.of(rows, program)
    print(space.schedule(space.digits({"rows": (8, 16)})))

``knobs`` and ``orders`` have values of knobs, ``config`` the interface of templates, ``space`` all candidates,
``tables`` numeric features of knobs, ``population`` arrays of choices of numeric knobs.

The compiler's own spaces are in ``kernels``. A new kind of knob is a function in ``knobs`` and a method of ``Config``.
"""
