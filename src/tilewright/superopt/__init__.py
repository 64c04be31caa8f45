"""The super-optimizer of graphs: rules of algebra are generated, proved, pruned and searched over.

The system of Jia et al., "TASO: Optimizing Deep Learning Computation with Automatic Generation of Graph Substitutions"
(SOSP 2019), over this compiler's operators. A rule that is false at some shape is told from a true one by evaluation:

    field = Evaluator(Modular(seed=0))
    left, right = field.term(source, bindings), field.term(target, bindings)

In: operators and axioms. Out: rules, as ``passes.rules`` has them.

    domains                 what scalars are: integers modulo a prime, or float64
    field                   operators and terms evaluated on many samples at once
    operators, families     what the generator combines
    extents, well_typed     which extents must be equal
    universe, enumeration   values of millions of expressions, and which are equal
    generalization          from two equal expressions to a rule over symbols
    generation              all of this for a family of operators; `tilewright rules generate`
    instances               a rule at sizes, evaluated: where it is false
    axioms, proofs, stored  a rule from axioms, by equality saturation; `tilewright rules verify`
    second_opinion          the same proofs by Z3
    needs, axiom_checks     which extents a rule needs to be equal; what axioms are held to
    pruning                 rules that say nothing beyond the others; `tilewright rules prune`
    gains, selection        rules by which a search may gain, each with a proof
    costs, result           what graphs cost, and what a search found
    kernel_costs            ... of graphs that are compiled here, by the analytic model
    onnxruntime_costs       ... in ONNX Runtime, measured: onnxruntime_session
    backtracking, partition the search in a graph, and in its pieces
    optimization            both, and whole graphs ranked; `tilewright optimize`
    validation              an optimized graph held against its input
    congruence, sweep       ... where both begin to differ     regions, decide, sizes    ... whether it matters
    egraph, acyclic         graphs in which equal values are one
    saturation              rules applied to them, until nothing is new
    extraction              the cheapest graph in one: choices, integer_program
"""
