"""Measures schedules for speed and correctness, in child processes that may crash or hang; stores records.

In: a ``Job``: text of a naive loop program, JSON of a schedule, target, threads. Out: an ``Outcome``: a ``Verdict``
and, if it is OK, times.

    with Records.open(path) as records, records.session({}) as session, Runner() as runner:
        records.add(session, job, runner.measure(job))

    job, verdicts   what is wanted, and what is said of it      messages        how processes say it (requests)
    runner          the user's end                              supervisor      deadlines and kills (worker)
    spawn           how both start processes                    processes       how they end them
    child           where candidates run (limits)               candidate       build, check, time
    workload        inputs and reference (difference)           guard, clock    memory that tells, times that count
    build           code, here or from another process          pool            batches: built by many, measured by one
    turns           several things timed beside each other      roofline        what no schedule can beat
    samples         whole models, kernel by kernel              machine         clock speed, temperature
    simulated       cycles of processors that are not here (simulated_child)
    agent           boards without Python (agent_child, agent_trial)    apart   what both have in common
    records         the database (schema, row)

A new verdict is a member of ``Verdict`` and a migration of the schema; a new check is in ``candidate``.
``docs/measure.md`` has the contract.
"""
