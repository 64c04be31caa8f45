"""Alternatives: algorithms for single operators, one file each; how a graph is computed by those that were chosen.

In: a node, and what is known where it is computed (``Facts``). Out: the ways in which it may be computed, what they
cost, and the nodes that they make.

    for way in candidates(node, facts_of(graph, target)):
        print(way)                                  # F(4x4), in blocks, 1.2e+06 cycles

A new one goes into a file here and into ``known.BUILT_IN``, or into a package of its own (``docs/extending.md``).
"""

from tilewright.passes.alternatives.api import OTHER_TERMS, OWN_TERMS, Alternative, Building, Errors, Facts, Way
from tilewright.passes.alternatives.estimates import candidates
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
    "facts_of",
    "known",
]
