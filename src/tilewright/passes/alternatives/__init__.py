"""Alternative algorithms for single operators, one file each; and rewriting a graph with the chosen ones.

In: a node, and its context (``Facts``). Out: the ways in which it can be computed, their costs, and the nodes that
replace it.

    for way in candidates(node, facts_of(graph, target)):
        print(way)                                  # F(4x4), in blocks, 1.2e+06 cycles

A new one goes into a file here and into ``known.BUILT_IN``, or into a separate package (``docs/extending.md``).
"""

from tilewright.passes.alternatives.api import OTHER_TERMS, OWN_TERMS, Alternative, Building, Errors, Facts, Way
from tilewright.passes.alternatives.estimates import candidates
from tilewright.passes.alternatives.expand import expand
from tilewright.passes.alternatives.known import BUILT_IN, facts_of, known

__all__ = [
    "BUILT_IN",
    "OTHER_TERMS",
    "OWN_TERMS",
    "Alternative",
    "Building",
    "Errors",
    "Facts",
    "Way",
    "candidates",
    "expand",
    "facts_of",
    "known",
]
