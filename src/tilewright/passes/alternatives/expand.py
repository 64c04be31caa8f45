"""Expands composite nodes: each is replaced by the nodes of the best way to compute it.

This comes before layouts are chosen: the new nodes have ways and layouts of their own, which depend on their
neighbours. They share what they have in common, and what follows from constants is folded.
"""

from tilewright.graph import Graph, Node
from tilewright.ops import Trait
from tilewright.passes.alternatives.api import AS_IT_IS, Facts, Way, computed
from tilewright.passes.alternatives.estimates import candidates
from tilewright.passes.normalize import normalize


def expand(graph: Graph, facts: Facts) -> Graph:
    """``graph`` without nodes of operators that are ``Trait.COMPOSITE``, unless no way applies to one."""
    if not any(node.op.has(Trait.COMPOSITE) for node in graph.nodes):
        return graph
    ways = {node.outputs[0]: _best(node, facts) for node in graph.nodes}
    return normalize(computed(graph, ways, facts.names).graph)


def _best(node: Node, facts: Facts) -> Way:
    if not node.op.has(Trait.COMPOSITE):
        return Way(AS_IT_IS)
    return min(candidates(node, facts), key=lambda way: way.cycles)
