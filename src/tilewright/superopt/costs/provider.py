"""What graphs cost: the interface behind which machines and their models stand.

A cost is a time, in any unit: costs of one provider are compared with each other only. ``of_node`` is quick, additive,
and guides the search; ``of_graph`` knows of fusion and layouts, and decides.
"""

from collections.abc import Collection
from typing import Protocol

from tilewright.graph import Graph, Node
from tilewright.passes.rules import index_of

WORTH = 1e-6
"""The part of a graph's cost by which a change must lower it to be worth anything: sums of floats are rounded."""


class CostProvider(Protocol):
    """Says what graphs cost on some machine."""

    def of_node(self, node: Node, weights: Collection[str]) -> float:
        """Of one node by itself. ``weights``: the names of those of its inputs that are known when a model is compiled.

        Nodes that make weights of weights are never asked for: they cost nothing.
        """
        ...

    def of_graph(self, graph: Graph) -> float:
        """Of a run of the whole graph."""
        ...


def cost_by_nodes(graph: Graph, costs: CostProvider) -> float:
    """The sum over the nodes of ``graph``; those that make weights of weights cost nothing."""
    weights = index_of(graph).weights
    return sum(costs.of_node(node, weights) for node in graph.nodes if node.outputs[0].name not in weights)
