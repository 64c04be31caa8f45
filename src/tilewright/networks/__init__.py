"""Whole networks, tuned in one budget of time: compiled, searched, compared in turns, and each kept or withdrawn.

In: networks, each with a way to compile it (``Network``), and what is asked of the search (``Plan``). Out: records in a
database, of which ``compile`` uses those that are accepted here, and what became of each network (``Tuned``). ::

    networks = [Untuned.of(Network("a", compile_a)), Untuned.of(Network("b", compile_b))]
    tuned = tune_networks(networks, Plan(minutes=10), Path("records.db"))

    network      a network, compiled with and without records      plan         what is asked for
    comparison   a network with and without, in turns              search       algorithms, then schedules
    settle       what is accepted                                  tuning       all of it in order
    models       ``tune_models``, for users of Python
"""
