"""Post-dominators of a graph's values."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce

from tilewright.graph import Graph, Node, Value


def post_dominators(graph: Graph) -> Mapping[Value, Node]:
    """For each value the first node on every path from it to an output of the graph, if there is one.

    One pass in reverse topological order; two paths meet at the lowest common ancestor in the tree built so far
    (Cooper, Harvey and Kennedy, "A Simple, Fast Dominance Algorithm", 2001, for graphs without cycles). Jumps to
    ancestors find it in logarithmic time (Myers, "An Applicative Random-Access Stack", 1983).
    """
    tree = _Tree(graph)
    for node in reversed(graph.nodes):
        for value in node.outputs:
            tree.add(value)
        tree.place(node)
    return tree.dominators


@dataclass(frozen=True, slots=True, eq=False)
class _Place:
    """A node in the tree: the next one on all paths, and an ancestor further up."""

    node: Node
    depth: int
    parent: "_Place | None"
    jump: "_Place | None"


class _Tree:
    """The tree so far, from the outputs backwards; its root, the exit of the graph, is None."""

    def __init__(self, graph: Graph) -> None:
        self.dominators: dict[Value, Node] = {}
        self._places: dict[Value, _Place] = {}
        self._consumers = graph.consumers()
        self._leaving = frozenset(graph.outputs)

    def add(self, value: Value) -> None:
        readers = self._consumers.get(value)
        meeting = self._meet_all(readers) if readers and value not in self._leaving else None
        if meeting is not None:
            self.dominators[value] = meeting.node

    def place(self, node: Node) -> None:
        """Record the first node after ``node`` on all paths from its outputs; unused outputs have no paths."""
        used = [v for v in node.outputs if v in self._consumers or v in self._leaving]
        parent = self._meet_all([self.dominators.get(v) for v in used]) if used else None
        jump = None if parent is None else parent.jump
        even = parent is not None and _depth(parent) - _depth(jump) == _depth(jump) - _depth(_jump(jump))
        self._places[node.outputs[0]] = _Place(node, 1 + _depth(parent), parent, _jump(jump) if even else parent)

    def _meet_all(self, nodes: Sequence[Node | None]) -> _Place | None:
        places = [None if node is None else self._places[node.outputs[0]] for node in nodes]
        return reduce(_meet, places)


def _depth(place: _Place | None) -> int:
    return 0 if place is None else place.depth


def _jump(place: _Place | None) -> _Place | None:
    return None if place is None else place.jump


def _meet(a: _Place | None, b: _Place | None) -> _Place | None:
    """The lowest common ancestor; the root is None."""
    if _depth(a) < _depth(b):
        a, b = b, a
    while a is not None and a.depth > _depth(b):
        a = a.jump if _depth(a.jump) >= _depth(b) else a.parent
    while a is not b:
        if a is None or b is None:
            return None
        a, b = (a.jump, b.jump) if a.jump is not b.jump else (a.parent, b.parent)
    return a
