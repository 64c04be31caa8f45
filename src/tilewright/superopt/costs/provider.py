"""The interface of cost functions of graphs, for the search.

A cost is a time, in any unit: only costs of the same provider are compared. ``of_node`` is fast and additive, and
guides the search; ``of_graph`` includes fusion and layouts, and makes the final choice.
"""

from collections.abc import Collection
from typing import Protocol

from tilewright.graph import Graph, Node
from tilewright.passes.rules import index_of

WORTH = 1e-6
"""The minimum relative gain of a change to count as one, because sums of floats are rounded."""


class CostProvider(Protocol):
    """A cost function of nodes and graphs on some machine."""

    def of_node(self, node: Node, weights: Collection[str]) -> float:
        """The cost of a single node. ``weights``: the names of its inputs that are known at compile time.

        Not called for nodes that compute weights from weights: they cost nothing.
        """
        ...

    def of_graph(self, graph: Graph) -> float:
        """The cost of a run of the whole graph."""
        ...


def cost_by_nodes(graph: Graph, costs: CostProvider) -> float:
    """The sum of the costs of the nodes of ``graph``; nodes that compute weights from weights cost nothing."""
    weights = index_of(graph).weights
    return sum(costs.of_node(node, weights) for node in graph.nodes if node.outputs[0].name not in weights)
