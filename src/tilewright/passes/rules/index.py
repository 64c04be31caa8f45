"""What a matcher asks of a graph, found once.

Keys are names of values: they are unique in a graph, and hashed faster than values.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tilewright.graph import Array, Graph, Node
from tilewright.symbolic.bounds import Bounds


@dataclass(frozen=True, slots=True, eq=False)
class Index:
    """A graph, and where its values and operators are."""

    graph: Graph
    producers: Mapping[str, Node]
    positions: Mapping[str, int]
    """Of nodes, by each value that they make."""
    readers: Mapping[str, Sequence[Node]]
    by_operator: Mapping[str, Sequence[Node]]
    arrays: Mapping[str, Array]
    """The constants."""
    weights: frozenset[str]
    """Constants, and what follows from them only."""
    leaving: frozenset[str]
    bounds: Bounds
    """What is known of run-time extents."""


def index_of(graph: Graph) -> Index:
    """The index of ``graph``."""
    producers: dict[str, Node] = {}
    positions: dict[str, int] = {}
    readers: dict[str, list[Node]] = {}
    by_operator: dict[str, list[Node]] = {}
    weights = {value.name for value in graph.constants}
    for position, node in enumerate(graph.nodes):
        by_operator.setdefault(node.op.name, []).append(node)
        inputs = dict.fromkeys(value.name for value in node.inputs if value is not None)
        for name in inputs:
            readers.setdefault(name, []).append(node)
        for value in node.outputs:
            producers[value.name] = node
            positions[value.name] = position
        if weights.issuperset(inputs) and not node.dims:
            weights.update(value.name for value in node.outputs)
    extents = {extent for value in graph.inputs for size in value.shape for extent in size.variables}
    return Index(
        graph,
        producers,
        positions,
        readers,
        by_operator,
        {value.name: array for value, array in graph.constants.items()},
        frozenset(weights),
        frozenset(value.name for value in graph.outputs),
        Bounds(dims={extent: graph.bounds.get(extent) for extent in sorted(extents, key=lambda v: v.name)}),
    )
