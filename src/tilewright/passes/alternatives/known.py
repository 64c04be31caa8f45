"""The alternatives that come with the compiler, and those of others."""

from collections.abc import Sequence

from tilewright.base.numerics import Math
from tilewright.base.plugins import installed
from tilewright.graph import Graph
from tilewright.passes.alternatives.api import Alternative, Facts
from tilewright.passes.alternatives.direct import DIRECT
from tilewright.passes.alternatives.minimal_filtering import F2, F3, F4
from tilewright.passes.alternatives.phases import INTERLEAVED_PHASES
from tilewright.target.target import Target

BUILT_IN: tuple[Alternative, ...] = (DIRECT, INTERLEAVED_PHASES, F2, F3, F4)
"""In the order in which equally cheap ones are preferred."""

GROUP = "tilewright.alternatives"
"""Of entry points: a package that is installed names its alternatives there."""


def known(given: Sequence[Alternative] = ()) -> tuple[Alternative, ...]:
    """The alternatives built in, those of packages that are installed, and those ``given``.

    One takes the place of those before it that have its name.
    """
    every = (*BUILT_IN, *installed(GROUP, Alternative).values(), *given)
    return tuple({alternative.name: alternative for alternative in every}.values())


def facts_of(
    graph: Graph, target: Target, math: Math = Math.DEFAULT, alternatives: Sequence[Alternative] = BUILT_IN
) -> Facts:
    """For the nodes of ``graph``."""
    return Facts(graph.constants, graph.names(), target, math, alternatives)
