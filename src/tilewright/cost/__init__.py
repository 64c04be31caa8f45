"""The analytic cost model, which chooses a kernel's schedule from its structure and the target's parameters.

In: a ``Schedule`` of a naive program, a ``Target``. Out: the same ``Schedule``, with primitives applied.

    print(schedule(Schedule(lower(C)), Target.host()).trace)

``analytic`` recognizes the classes of a kernel's nests, which gives its space; ``model`` rates populations of choices.
A new class gets its nest in ``kernels`` and its estimate here.
"""
