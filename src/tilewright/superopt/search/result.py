"""Results of a search: an equivalent graph, and the rules that lead to it."""

from dataclasses import dataclass
from enum import Enum

from tilewright.graph import Graph
from tilewright.passes.rules import Floats, Rule
from tilewright.passes.rules.build import Replacement


@dataclass(frozen=True, slots=True)
class Applied:
    """An application of a rule. ``replaced``, ``made``: names of the values before and after it.

    ``cost_before``, ``cost_after``: the sum over the nodes of the whole graph. With saturation, which has no
    intermediate graphs, a step is a rule with all values that it made, and nothing is replaced.
    """

    rule: Rule
    replaced: tuple[str, ...]
    made: tuple[str, ...]
    cost_before: float
    cost_after: float


def applied_by(made: Replacement, before: float, after: float) -> Applied:
    """The step that applied ``made``; ``before``, ``after``: costs of the graph."""
    replaced = tuple(value.name for value in made.match.replaced)
    names = tuple(value.name for node in made.nodes for value in node.outputs)
    return Applied(made.match.rule, replaced, names, before, after)


@dataclass(frozen=True, slots=True)
class State:
    """A graph, the cost of its nodes, and the steps that led to it."""

    graph: Graph
    cost: float
    steps: tuple[Applied, ...] = ()


@dataclass(frozen=True, slots=True)
class Optimized:
    """A graph and its optimized form; costs are those of whole graphs, or 0 if they were not compared.

    ``cost_of_nodes``: the sum over the nodes of ``after``.
    """

    before: Graph
    after: Graph
    steps: tuple[Applied, ...]
    cost_before: float
    cost_after: float
    cost_of_nodes: float = 0.0

    @staticmethod
    def unchanged(graph: Graph) -> "Optimized":
        """The result without a change."""
        return Optimized(graph, graph, (), 0.0, 0.0)


class Cause(Enum):
    """Why a rule that matches was left out."""

    FLOATS = "floats"
    """``math=`` does not permit what it does to floats."""
    BITS = "bits"
    """It is exact, but the code that is compiled of what it makes has other bits, which ``math="strict"`` forbids: sums
    are added in another order, or another product and sum are contracted."""


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A rule that ``math=`` left out, what it does to floats, and in how many places of the graph it matches."""

    rule: str
    floats: Floats
    matches: int
    cause: Cause

    def to_json(self) -> dict[str, object]:
        """All fields, as values that JSON has."""
        return {"rule": self.rule, "floats": self.floats.value, "matches": self.matches, "cause": self.cause.value}

    def __str__(self) -> str:
        why = self.floats.value if self.cause is Cause.FLOATS else "other bits"
        return f"{self.rule} ({self.matches} {'place' if self.matches == 1 else 'places'}, {why})"
