"""What a learned cost model sees of a candidate: features, for whole populations at once (Chen et al., NeurIPS 2018).

Enters: a scheduled loop program, mostly a sketch whose split factors are symbols, and an array with the factors of each
candidate. Leaves: an array (candidates, features) of float64. ``nest.py`` reads the program once, ``quantities.py``
turns what it says into array functions; of these numbers, ``itervar.py`` and ``curve.py`` make features. A new kind of
feature is a file beside these, a function of ``Extractor`` and ``Factors``. What can't be read raises ``Unsupported``:
no candidate gets features that are made up. ::

    s = Schedule(lower(C))
    s.split("i", (None, Var("f")))
    extractor = Extractor.of(s.program)
    itervar_features(extractor, np.array([[1], [2], [4]]))     # of three candidates
    curve_features(Extractor.of(other_program), NO_FACTORS)    # of a program that leaves nothing open

Candidates that differ in more than numbers (in the order of loops, say) are of different sketches: one ``Extractor``
for each.
"""

from tilewright.tune.features.contexts import loop_contexts
from tilewright.tune.features.curve import curve_buffers, curve_features
from tilewright.tune.features.itervar import itervar_columns, itervar_features
from tilewright.tune.features.nest import Structure, describe
from tilewright.tune.features.quantities import NO_FACTORS, Extractor, Factors, Quantities

__all__ = [
    "NO_FACTORS",
    "Extractor",
    "Factors",
    "Quantities",
    "Structure",
    "curve_buffers",
    "curve_features",
    "describe",
    "itervar_columns",
    "itervar_features",
    "loop_contexts",
]
