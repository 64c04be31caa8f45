"""Evaluates operators, terms and rules on many samples at once, over a domain of scalars (``tensor.domains``).

In: a term, and values of its variables. Out: its value on every sample. A rule with symbols is tested by its instances:
the rule with numbers for its sizes and its leading dimensions.

    field = Evaluator(Modular(seed=0))
    left, right = field.term(source, bindings), field.term(target, bindings)

    places, evaluator                     samples as a batch dimension of operators; evaluation of operators and terms
        ranks, instances                      versions of a rule for ranks; instances at sizes, with random values
        typed                                 rules about integers, bit by bit in the types of graphs
"""
