"""How fast is a schedule, and is it right? Measured in processes that may crash, hang or lie; kept in a database.

In: a ``Job``: text of a naive loop program, JSON of a schedule, target, threads. Out: an ``Outcome``: a ``Verdict``
and, if it is OK, times.

    job          what is wanted; its hash              verdicts     what is said of it
    records      the database (schema, row; exchange: JSON lines)
"""
