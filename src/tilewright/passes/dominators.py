"""Post-dominators of a graph's values."""

from collections.abc import Mapping, Sequence

from tilewright.graph import Graph, Node, Value


def post_dominators(graph: Graph) -> Mapping[Value, Node]:
    """For each value the first node that every way from it to an output of the graph goes through, if there is one.

    One pass in reverse topological order; two ways meet at the lowest common ancestor in the tree built so far
    (Cooper, Harvey and Kennedy, "A Simple, Fast Dominance Algorithm", 2001, for graphs without cycles).
    """
    tree = _Tree(graph)
    for node in reversed(graph.nodes):
        for value in node.outputs:
            tree.add(value)
    return tree.dominators


class _Tree:
    """What is known so far, from the outputs backwards; the root, where the graph is left, is None."""

    def __init__(self, graph: Graph) -> None:
        self.dominators: dict[Value, Node] = {}
        self._position = {node.outputs[0]: position for position, node in enumerate(graph.nodes)}
        self._consumers = graph.consumers()
        self._leaving = frozenset(graph.outputs)

    def add(self, value: Value) -> None:
        readers = self._consumers.get(value)
        meeting = self._meet_all(readers) if readers and value not in self._leaving else None
        if meeting is not None:
            self.dominators[value] = meeting

    def _next(self, node: Node) -> Node | None:
        """The first node after ``node`` that all ways from its outputs go through; unused outputs go nowhere."""
        used = [v for v in node.outputs if v in self._consumers or v in self._leaving]
        return self._meet_all([self.dominators.get(v) for v in used]) if used else None

    def _meet_all(self, nodes: Sequence[Node | None]) -> Node | None:
        result = nodes[0]
        for node in nodes[1:]:
            result = self._meet(result, node)
        return result

    def _meet(self, a: Node | None, b: Node | None) -> Node | None:
        while a is not b:
            if a is None or b is None:
                return None
            if self._position[a.outputs[0]] < self._position[b.outputs[0]]:
                a = self._next(a)
            else:
                b = self._next(b)
        return a
