"""What a search found: a graph in the place of another, and the rules that lead there."""

from dataclasses import dataclass

from tilewright.graph import Graph
from tilewright.passes.rules import Rule
from tilewright.passes.rules.build import Replacement


@dataclass(frozen=True, slots=True)
class Applied:
    """One application of a rule. ``replaced``, ``made``: names of the values before and after it.

    ``cost_before``, ``cost_after``: of the graph around it, as the sum of its nodes. In an e-graph there is no graph
    between the first and the last: there, a step is a rule and all that it made, and nothing is replaced.
    """

    rule: Rule
    replaced: tuple[str, ...]
    made: tuple[str, ...]
    cost_before: float
    cost_after: float


def applied_by(made: Replacement, before: float, after: float) -> Applied:
    """The step that put ``made`` into a graph; ``before``, ``after``: see there."""
    replaced = tuple(value.name for value in made.match.replaced)
    names = tuple(value.name for node in made.nodes for value in node.outputs)
    return Applied(made.match.rule, replaced, names, before, after)


@dataclass(frozen=True, slots=True)
class State:
    """A graph, what its nodes cost, and how it came about."""

    graph: Graph
    cost: float
    steps: tuple[Applied, ...] = ()


@dataclass(frozen=True, slots=True)
class Optimized:
    """A graph and what was made of it; the costs are those of whole graphs, or 0 where there was nothing to compare."""

    before: Graph
    after: Graph
    steps: tuple[Applied, ...]
    cost_before: float
    cost_after: float

    @staticmethod
    def unchanged(graph: Graph) -> "Optimized":
        """``graph`` as it is, as nothing else was found."""
        return Optimized(graph, graph, (), 0.0, 0.0)
