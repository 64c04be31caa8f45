"""The super-optimizer of graphs: rules of algebra are generated, proved, pruned and searched over.

The system of Jia et al., "TASO: Optimizing Deep Learning Computation with Automatic Generation of Graph Substitutions"
(SOSP 2019), over this compiler's operators. Operators and axioms enter; rules, as ``passes.rules`` has them, and better
graphs leave.

    evaluate/    terms and rules on many samples at once: integers modulo a prime, or float64
    generate/    rules that nobody wrote; those that are worth keeping     `tilewright rules generate`, `rules prune`
    prove/       whether rules hold: by evaluation, from axioms            `tilewright rules verify`
    search/      graphs optimized by rules                                 `tilewright optimize`
    costs/       what graphs cost, which is what the search goes by
    validate/    an optimized graph held against its input

``generate`` and ``prove`` stand on ``evaluate``; ``generate`` asks ``prove``, and ``search`` asks ``costs``: nothing
else goes from folder to folder. What terms are, their shapes and their normal form are the rule language's
(``passes.rules``).
"""
