"""Applies a match: replaces the sources of a rule in a graph by its targets.

Nodes of the graph keep their order if possible; a target's node replaces the last node of its match, and earlier
readers are moved behind it.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from tilewright.base.errors import InternalError
from tilewright.graph import Graph, Node, Value
from tilewright.passes.normalize import eliminate_dead_code
from tilewright.passes.rules.build import Match, Replacement, replacement


def applied(graph: Graph, match: Match) -> Graph:
    """``graph`` with the targets of ``match``, which ``matches`` found in it, without unused nodes."""
    leaving = frozenset(value.name for value in graph.outputs)
    made = replacement(match, graph.names(), leaving)
    if made is None:
        raise InternalError(f"the targets of {match.rule.name} do not fit; it was found in another graph")
    return spliced(graph, [made])


def spliced(graph: Graph, replacements: Sequence[Replacement]) -> Graph:
    """``graph`` with ``replacements``, whose matches share no node."""
    at: dict[str, Replacement] = {one.match.nodes[-1].outputs[0].name: one for one in replacements}
    gone = {value.name for one in replacements for value in one.match.replaced}
    renamed = {name: value for one in replacements for name, value in one.renamed.items()}
    constants = {value: array for one in replacements for value, array in one.constants.items()}
    nodes: list[Node] = []
    for node in graph.nodes:
        if gone.isdisjoint(value.name for value in node.outputs):  # else its other outputs are unused, too
            nodes.append(node)
        if node.outputs[0].name in at:
            nodes += at[node.outputs[0].name].nodes
    ordered = tuple(in_order([_reading(node, renamed) for node in nodes]))
    return eliminate_dead_code(replace(graph, nodes=ordered, constants={**graph.constants, **constants}))


def _reading(node: Node, renamed: Mapping[str, Value]) -> Node:
    if not any(value.name in renamed for value in node.inputs if value is not None):
        return node
    return replace(node, inputs=tuple(value and _renamed(value, renamed) for value in node.inputs))


def _renamed(value: Value, renamed: Mapping[str, Value]) -> Value:
    while value.name in renamed:
        value = renamed[value.name]
    return value


def in_order(nodes: Sequence[Node]) -> Iterator[Node]:
    """``nodes`` in order, with those that read later ones moved. Raises ``InternalError`` for a cycle."""
    producers = {value.name: node for node in nodes for value in node.outputs}
    done: set[str] = set()
    for node in nodes:
        yield from _with_producers(node, producers, done)


def _with_producers(node: Node, producers: Mapping[str, Node], done: set[str]) -> Iterable[Node]:
    """``node`` after its inputs, as far as these are not ``done``."""
    ordered: list[Node] = []
    path: list[Node] = [node]
    waiting: set[str] = set()
    while path:
        last = path[-1]
        key = last.outputs[0].name
        missing = [
            producers[value.name]
            for value in last.inputs
            if value is not None and value.name in producers and producers[value.name].outputs[0].name not in done
        ]
        if key in done or not missing:
            path.pop()
            waiting.discard(key)
            if key not in done:
                done.add(key)
                ordered.append(last)
        elif key in waiting:
            raise InternalError(f"`{last}` would read what follows from it")
        else:
            waiting.add(key)
            path += missing
    return ordered
