"""Searches for equivalent graphs of lower cost by applying rules: backtracking over graphs, or equality saturation.

In: a graph, rules and a provider of costs. Out: equivalent graphs, with the applied rules. Another strategy is a
module beside ``backtracking`` and ``saturation``, and a case in ``optimization``.

    found = Search.at(Superopt.FAST).optimize(graph, costs)

    result, fingerprint                   results of a search; hashes of graphs that ignore names
        backtracking, partition               backtracking search; large graphs in pieces
        acyclic, egraph                       removal of cycles; e-graphs
        saturation                            equality saturation
        choices, integer_program, extraction  extraction of the cheapest graph: greedy, or by integer programming
        layers                                the form that is searched
        optimization                          the entry point, which ranks whole graphs
        accounts, left_out                    the result for each given rule; rules that a numerics policy forbids
"""
