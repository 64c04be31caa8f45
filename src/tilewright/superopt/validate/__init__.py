"""An optimized graph held against its input, whoever made it and by whatever rules (translation validation).

Two graphs enter; what was compared leaves, or ``NotEquivalent`` is raised. What an operator asks of its operands'
extents is an entry of ``extent_relations``; another way to decide is a ``Method`` of ``verdicts``.

    validate(before, after, run=lambda graph, feeds: evaluate_graph(graph, feeds))

    congruence                            which values are equal because they are computed alike
    regions                               parts of two graphs between values that are equal in both
    extent_relations, smaller_sizes       what operators ask of extents; the small extents that satisfy it
    degrees, verdicts                     whether both sides of a region are equal, and how sure that is
    sweep, validation                     from inputs to outputs; and both graphs run
"""
