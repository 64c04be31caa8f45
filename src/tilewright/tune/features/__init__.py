"""Features of candidates for learned cost models, for whole populations at once (Chen et al., NeurIPS 2018).

In: a scheduled loop program, usually a sketch whose split factors are symbols, and an array with the factors of each
candidate. Out: an array (candidates, features) of float64. ``nest.py`` analyses the program once, ``quantities.py``
compiles the result to array functions; ``itervar.py`` and ``curve.py`` compute features from these numbers. A new kind
of feature is a new file here, with a function of ``Extractor`` and ``Factors``. Unsupported programs raise
``Unsupported``, rather than give wrong features. ::

    s = Schedule(lower(C))
    s.split("i", (None, Var("f")))
    extractor = Extractor.of(s.program)
    itervar_features(extractor, np.array([[1], [2], [4]]))     # of three candidates
    curve_features(Extractor.of(other_program), NO_FACTORS)    # of a program that leaves nothing open

Candidates that differ in more than numbers (in the order of loops, say) are of different sketches: one ``Extractor``
for each.

``statements.py`` is for any candidates beside each other (Zheng et al., OSDI 2020): 164 numbers for each innermost
statement of one scheduled program. ``sites.py`` reads that, ``touched.py`` and ``operations.py`` count. ::

    statement_features(s.program, target)                      # (statements, 164), called ``NAMES``
"""

from tilewright.tune.features.contexts import loop_contexts
from tilewright.tune.features.curve import curve_buffers, curve_features
from tilewright.tune.features.itervar import itervar_columns, itervar_features
from tilewright.tune.features.nest import Structure, describe
from tilewright.tune.features.operations import Mode
from tilewright.tune.features.quantities import NO_FACTORS, Extractor, Factors, Quantities
from tilewright.tune.features.statements import NAMES, StatementRows, program_matrix, statement_features

__all__ = [
    "NAMES",
    "NO_FACTORS",
    "Extractor",
    "Factors",
    "Mode",
    "Quantities",
    "StatementRows",
    "Structure",
    "curve_buffers",
    "curve_features",
    "describe",
    "itervar_columns",
    "itervar_features",
    "loop_contexts",
    "program_matrix",
    "statement_features",
]
