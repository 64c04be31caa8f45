"""Operators, terms and rules evaluated on many samples at once, over a domain of scalars (``tensor.domains``).

A term and values of its variables enter; its value on every sample leaves. Whether a rule that has symbols holds is
asked of its instances: the same rule at numbers of leading dimensions, and at sizes.

    field = Evaluator(Modular(seed=0))
    left, right = field.term(source, bindings), field.term(target, bindings)

    places, evaluator                     samples as a batch dimension of an operator; operators and terms
    ranks, instances                      a rule at ranks; at sizes, on random values
"""
