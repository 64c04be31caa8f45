"""An index of a graph for the matcher, built once.

Keys are names of values: they are unique in a graph, and hashed faster than values.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tilewright.graph import Array, Graph, Node
from tilewright.symbolic.bounds import Bounds


@dataclass(frozen=True, slots=True, eq=False)
class Lookup:
    """Values, and the nodes between them, which terms are matched against."""

    producers: Mapping[str, Sequence[Node]]
    """The nodes that compute a value: one in a graph; several in an e-graph (``superopt.search.egraph``)."""
    readers: Mapping[str, Sequence[Node]]
    by_operator: Mapping[str, Sequence[Node]]
    operands: Mapping[str, frozenset[str]]
    """For each value the operators of its nodes' operands."""
    arrays: Mapping[str, Array]
    """The constants."""
    weights: frozenset[str]
    """Constants, and values that depend only on them."""
    bounds: Bounds
    """Facts about run-time extents."""


@dataclass(frozen=True, slots=True, eq=False)
class Index(Lookup):
    """A graph, with an index of values and operators."""

    graph: Graph
    positions: Mapping[str, int]
    """Positions of nodes, by each value that they compute."""
    leaving: frozenset[str]


def index_of(graph: Graph) -> Index:
    """The index of ``graph``."""
    producers: dict[str, tuple[Node, ...]] = {}
    positions: dict[str, int] = {}
    readers: dict[str, list[Node]] = {}
    by_operator: dict[str, list[Node]] = {}
    operands: dict[str, frozenset[str]] = {}
    weights = {value.name for value in graph.constants}
    for position, node in enumerate(graph.nodes):
        by_operator.setdefault(node.op.name, []).append(node)
        inputs = dict.fromkeys(value.name for value in node.inputs if value is not None)
        for name in inputs:
            readers.setdefault(name, []).append(node)
        below = frozenset(producers[name][0].op.name for name in inputs if name in producers)
        for value in node.outputs:
            producers[value.name] = (node,)
            positions[value.name] = position
            operands[value.name] = below
        if weights.issuperset(inputs) and not node.dims:
            weights.update(value.name for value in node.outputs)
    return Index(
        producers,
        readers,
        by_operator,
        operands,
        {value.name: array for value, array in graph.constants.items()},
        frozenset(weights),
        bounds_of(graph),
        graph,
        positions,
        frozenset(value.name for value in graph.outputs),
    )


def bounds_of(graph: Graph) -> Bounds:
    """Facts about the run-time extents of ``graph``."""
    extents = {extent for value in graph.inputs for size in value.shape for extent in size.variables}
    return Bounds(dims={extent: graph.bounds.get(extent) for extent in sorted(extents, key=lambda v: v.unique)})
