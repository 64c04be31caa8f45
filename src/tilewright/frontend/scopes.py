"""Names and places in a model: what a name stands for, where a node is, and why a name stands for nothing."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import onnx

from tilewright.base.errors import InvalidModel, ResourceLimit
from tilewright.base.names import readable
from tilewright.graph import Value

MAX_DEPTH = 64
"""Functions and branches inside each other."""


@dataclass(slots=True)
class Scope:
    """The names of one graph, branch or function body, and the versions of the operators that its nodes use.

    A branch also sees the names around it (``outer``); the body of a function does not.
    """

    nodes: Sequence[onnx.NodeProto]
    opsets: Mapping[str, int]
    place: str = ""
    """Where this body is in the model: a node and a separator. Empty at the top."""
    outer: "Scope | None" = None
    depth: int = 0
    is_own: bool = False
    """The body of one of ONNX's own functions, which does not see those of the model."""
    values: dict[str, Value | None] = field(default_factory=dict[str, Value | None])
    """None: an input of a function that the call leaves out."""

    def inside(self, nodes: Sequence[onnx.NodeProto], place: str, *, is_branch: bool) -> "Scope":
        """The scope of a body in the node at ``place``. Raises ``ResourceLimit`` if too many are in each other."""
        if self.depth == MAX_DEPTH:
            raise ResourceLimit(f"{place}: more than {MAX_DEPTH} functions and branches are inside each other")
        return Scope(nodes, self.opsets, f"{place} / ", self if is_branch else None, self.depth + 1, self.is_own)

    def define(self, name: str, value: Value, place: str) -> None:
        """Let ``name`` stand for ``value``. Raises ``InvalidModel`` if it stands for something already."""
        if name in self.values:
            raise InvalidModel(f"{place} makes `{readable(name)}`, which exists already; rename one of them")
        self.values[name] = value

    def find(self, name: str, place: str) -> Value | None:
        """What ``name`` stands for. Raises ``InvalidModel`` if that is nothing."""
        scope: Scope | None = self
        while scope is not None:
            if name in scope.values:
                return scope.values[name]
            scope = scope.outer
        raise InvalidModel(f"{place} uses `{readable(name)}`, {_why_missing(name, self.nodes)}")

    def placed(self) -> Iterator[tuple[onnx.NodeProto, str]]:
        """The nodes, each with its place."""
        for position, node in enumerate(self.nodes):
            yield node, f"{self.place}{place_of(node, position)}"


def place_of(node: onnx.NodeProto, position: int) -> str:
    """How errors call a node."""
    return f"node {readable(node.name) if node.name else position} ({readable(node.op_type)})"


def subgraphs(node: onnx.NodeProto) -> Iterator[onnx.GraphProto]:
    """The bodies that a node has as attributes."""
    for attribute in node.attribute:
        if attribute.type == onnx.AttributeProto.GRAPH:
            yield attribute.g
        elif attribute.type == onnx.AttributeProto.GRAPHS:
            yield from attribute.graphs


def all_nodes(nodes: Iterable[onnx.NodeProto]) -> Iterator[onnx.NodeProto]:
    """``nodes``, and those of the bodies in them, at any depth."""
    waiting = [iter(nodes)]
    while waiting:
        node = next(waiting[-1], None)
        if node is None:
            waiting.pop()
            continue
        yield node
        waiting.extend(iter(graph.node) for graph in subgraphs(node))


def _why_missing(name: str, nodes: Sequence[onnx.NodeProto]) -> str:
    """What is wrong with the use of ``name`` by one of ``nodes``: nothing makes it, or something does too late."""
    makers = {output: position for position, node in enumerate(nodes) for output in node.output}
    if name not in makers:
        return "which is no input, no constant, and no node's output; correct the name"
    cycle = _cycle_through(makers[name], nodes, makers)
    if cycle:
        return f"which needs it in turn: {' -> '.join(place_of(nodes[p], p) for p in cycle)} is a cycle; break it"
    return f"which {place_of(nodes[makers[name]], makers[name])} makes later; nodes must be in topological order"


def _cycle_through(start: int, nodes: Sequence[onnx.NodeProto], makers: Mapping[str, int]) -> list[int]:
    """Positions of nodes from ``start`` to ``start``, each of which reads the one before; empty if there is no way."""
    came_from: dict[int, int] = {}
    waiting = [start]
    while waiting:
        reader = waiting.pop()
        for name in nodes[reader].input:
            maker = makers.get(name)
            if maker is not None and maker not in came_from:
                came_from[maker] = reader
                if maker == start:
                    return _followed(start, came_from)
                waiting.append(maker)
    return []


def _followed(start: int, steps: Mapping[int, int]) -> list[int]:
    path = [start, steps[start]]
    while path[-1] != start:
        path.append(steps[path[-1]])
    return path
