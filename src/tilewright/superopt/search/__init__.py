"""Better graphs, found by applying rules: by backtracking, or in an e-graph that keeps all of them at once.

A graph, rules and a provider of costs enter; graphs that compute the same leave, with the rules that led there.
Another strategy is a module beside ``backtracking`` and ``saturation``, and a case in ``optimization``.

    best = Search.at(Superopt.FAST).optimize(graph, costs)[0]

    result, fingerprint                   what a search found; graphs by what they compute
    backtracking, partition               the search in a graph, and in pieces of a large one
    acyclic, egraph                       ways without cycles; graphs in which equal values are one
    saturation                            rules applied to them, until nothing is new
    choices, integer_program, extraction  the cheapest of many ways: greedily, proven; as a graph
    optimization                          all of this, and whole graphs ranked
    accounts                              what became of each rule that somebody gave
"""
