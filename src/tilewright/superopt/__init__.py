"""The graph super-optimizer: generates, proves and prunes rewrite rules, and searches for faster graphs with them.

The system of Jia et al., "TASO: Optimizing Deep Learning Computation with Automatic Generation of Graph Substitutions"
(SOSP 2019), for this compiler's operators. In: operators and axioms. Out: rules (``passes.rules``) and equivalent
graphs of lower cost.

    evaluate/    evaluation of terms and rules on many samples, modulo a prime or in float64
        generate/    generation of rules by enumeration; pruning      `tilewright rules generate`, `rules prune`
            prove/       verification of rules by evaluation and proof    `tilewright rules verify`
            search/      optimization of graphs with rules                `tilewright optimize`
        costs/       cost functions of graphs, minimized by the search
        validate/    comparison of an optimized graph with its input

``generate`` and ``prove`` import ``evaluate``; ``generate`` imports ``prove``, and ``search`` imports ``costs``. There
are no other imports between these folders. Terms, their shapes and normal forms are those of ``passes.rules``.
"""
