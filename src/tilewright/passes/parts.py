"""Cuts a graph into native parts, and calls of Python functions between them."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TypeAlias

from tilewright.graph import Graph, Node, Value
from tilewright.ops.called import CalledOperator

Step: TypeAlias = Graph | Node
"""A native part, or a call."""


def has_calls(graph: Graph) -> bool:
    """Whether Python functions compute some nodes."""
    return any(isinstance(node.op, CalledOperator) for node in graph.nodes)


def parts(graph: Graph) -> tuple[Step, ...]:
    """``graph`` in the order in which it runs: as few native parts as that allows.

    The inputs of a part are those of ``graph`` and results of what ran before; its outputs are what is needed later.
    """
    levels = _levels(graph)
    last = max(levels.values(), default=0)
    return tuple(step for level in range(last + 1) for step in _at(graph, level, levels))


def _levels(graph: Graph) -> dict[Node, int]:
    """Of each node, how many calls after one another come before it. Nodes are in topological order."""
    ready: dict[Value, int] = {}
    levels: dict[Node, int] = {}
    for node in graph.nodes:
        level = max((ready.get(value, 0) for value in node.inputs if value is not None), default=0)
        levels[node] = level
        after = level + isinstance(node.op, CalledOperator)
        ready.update(dict.fromkeys(node.outputs, after))
    return levels


def _at(graph: Graph, level: int, levels: dict[Node, int]) -> Iterator[Step]:
    nodes = [node for node in graph.nodes if levels[node] == level]
    native = [node for node in nodes if not isinstance(node.op, CalledOperator)]
    if native:
        yield _part(graph, level, native)
    yield from (node for node in nodes if isinstance(node.op, CalledOperator))


def _part(graph: Graph, level: int, nodes: Sequence[Node]) -> Graph:
    made = {value for node in nodes for value in node.outputs}
    read = dict.fromkeys(value for node in nodes for value in node.inputs if value is not None)
    own = set(nodes)
    elsewhere = {value for node in graph.nodes if node not in own for value in node.inputs} | set(graph.outputs)
    inputs = tuple(value for value in read if value not in made and value not in graph.constants)
    outputs = tuple(value for node in nodes for value in node.outputs if value in elsewhere)
    constants = {value: array for value, array in graph.constants.items() if value in read}
    name = f"{graph.name}.part{level}"
    return replace(graph, name=name, inputs=inputs, outputs=outputs, nodes=tuple(nodes), constants=constants)
