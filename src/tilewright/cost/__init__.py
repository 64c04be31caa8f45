"""The analytic model: which schedule a kernel gets, from its structure and the facts of the target.

In: a ``Schedule`` of a naive program, a ``Target``. Out: the same ``Schedule``, with primitives applied.

    print(schedule(Schedule(lower(C)), Target.host()).trace)

``tiles`` chooses register tiles by counting cycles; ``analytic`` recognizes the class of a kernel. A new class gets its
space in ``kernels`` and its choice here.
"""
