"""Which kernel gets the next round of a search: the task scheduler of Zheng et al., "Ansor" (OSDI 2020), section 6.

In: the state of each task, that is, of each kernel that is tuned (``TaskState``). Out: the position of the task that
gets the next round, or None if no task needs one. Nothing is measured here, and nothing is remembered: equal states
give equal answers. ::

    scheduler = Gradient(SumOfLatencies(), seed=0)
    chosen = scheduler.next([TaskState(calls=(1,)), TaskState(calls=(4,))])

    state        what is known of a task          objectives   what is minimized, over networks
    groups       tasks that should be as fast     gradient, round_robin   schedulers

A new objective or scheduler is a class with the methods of ``Objective`` or ``TaskScheduler``.
"""
