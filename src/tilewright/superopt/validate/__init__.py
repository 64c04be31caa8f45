"""Translation validation: checks that an optimized graph is equivalent to its input, independently of the optimizer.

In: two graphs. Out: the results of all comparisons, or ``NotEquivalent``. An operator's constraints on extents are an
entry of ``extent_relations``; another method of comparison is a ``Method`` of ``verdicts``.

    validate(before, after, run=lambda graph, feeds: evaluate_graph(graph, feeds))

    congruence                            equality of values with equal definitions
        regions                               parts of two graphs between values that are equal in both
        extent_relations, smaller_sizes       constraints of operators on extents; small extents that satisfy them
        verdicts                              comparison of both sides of a region, with a bound of the error
        sweep, validation                     comparison from inputs to outputs; runs of both graphs
        bits                                  comparison of compiled graphs bit by bit
"""
