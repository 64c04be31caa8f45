"""Loop programs: how something is computed. One IR for kernels and for the main program of a network (``ir.py``).

In: tensor expressions (``lower.py``) or text (``parser.py``). Out: programs that print (``printer.py`` exactly,
``reader.py`` for people), verify (``verify.py``) and run (``interpreter.py``, the oracle of schedules and of code).
``visit.py`` has the walkers that rewriting passes are made of, ``access.py`` the regions that statements touch,
``dissolve.py`` blocks without blocks, ``extern.py`` te operations written as loops. To add a statement: ``ir.py``,
then each ``match`` that the type checker shows. ::

    program = lower(C)
    print(format_loops(program))
    assert parse_program(str(program)) == program
    C_value = interpret(program, {"A": a, "B": b})["C"]
"""
