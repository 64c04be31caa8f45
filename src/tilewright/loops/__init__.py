"""Loop programs: the IR of loops and buffers, for kernels and for the main program of a network (``ir.py``).

In: tensor expressions (``lower.py``) or text (``parser.py``). Out: programs that print (``printer.py`` exactly,
``reader.py`` for people), verify (``verify.py``) and run (``interpreter.py``, the oracle of schedules and of code).
``visit.py`` has traversals and rewrites, ``access.py`` the regions that statements access, ``dissolve.py`` removes
blocks, ``extern.py`` has te operations written as loops. To add a statement: ``ir.py``, then each ``match`` that the
type checker shows. ::

    program = lower(C)
    print(format_loops(program))
    assert parse_program(str(program)) == program
    C_value = interpret(program, {"A": a, "B": b})["C"]
"""
