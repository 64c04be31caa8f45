"""Sorts nodes topologically: ONNX requires that order, but some exporters violate it.

A node comes after the producers of its inputs, including those of bodies in it (branches, loops); otherwise nodes keep
the order of the file. Nodes on a cycle stay unsorted, and ``cycle_through`` finds the cycle for the error.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence

import onnx


def subgraphs(node: onnx.NodeProto) -> Iterator[onnx.GraphProto]:
    """The bodies that a node has as attributes."""
    for attribute in node.attribute:
        if attribute.type == onnx.AttributeProto.GRAPH:
            yield attribute.g
        elif attribute.type == onnx.AttributeProto.GRAPHS:
            yield from attribute.graphs


def reads_of(node: onnx.NodeProto) -> set[str]:
    """The outer names that a node needs: its inputs, and those that bodies in it read and do not define."""
    found = set(node.input)
    waiting = [(graph, frozenset[str]()) for graph in subgraphs(node)]
    while waiting:
        graph, around = waiting.pop()
        own = around | _made_in(graph)
        found.update(info.name for info in graph.output if info.name not in own)
        for inner in graph.node:
            found.update(name for name in inner.input if name not in own)
            waiting.extend((body, own) for body in subgraphs(inner))
    found.discard("")
    return found


def _made_in(graph: onnx.GraphProto) -> frozenset[str]:
    made = {name for node in graph.node for name in node.output}
    made.update(info.name for info in graph.input)
    made.update(tensor.name for tensor in graph.initializer)
    made.update(tensor.values.name for tensor in graph.sparse_initializer)
    return frozenset(made)


def makers_of(nodes: Sequence[onnx.NodeProto]) -> dict[str, int]:
    """The position of the first node that defines each name."""
    makers: dict[str, int] = {}
    for position, node in enumerate(nodes):
        for name in node.output:
            makers.setdefault(name, position)
    return makers


def topological_order(nodes: Sequence[onnx.NodeProto]) -> Sequence[int]:
    """Positions of ``nodes``, each after the producers of its inputs; a ``range`` if they are in order already.

    Takes linear time in the number of names.
    """
    makers = makers_of(nodes)
    needed = [_needed(node, makers) for node in nodes]
    if all(maker < position for position, made_by in enumerate(needed) for maker in made_by):
        return range(len(nodes))
    order: list[int] = []
    begun = bytearray(len(nodes))
    for first in range(len(nodes)):
        path = [(first, iter(needed[first]))] if not begun[first] else []
        begun[first] = True
        while path:
            position, rest = path[-1]
            following = next((maker for maker in rest if not begun[maker]), None)
            if following is None:
                order.append(position)
                path.pop()
            else:
                begun[following] = True
                path.append((following, iter(needed[following])))
    return order if order != [*range(len(nodes))] else range(len(nodes))


def sort_nodes(graph: onnx.GraphProto) -> None:
    """Put the nodes of ``graph`` in topological order; those of bodies in them stay."""
    order = topological_order(graph.node)
    if not isinstance(order, range):
        nodes = [graph.node[position] for position in order]
        copies = [onnx.NodeProto.FromString(node.SerializeToString()) for node in nodes]
        del graph.node[:]
        graph.node.extend(copies)


def _needed(node: onnx.NodeProto, makers: Mapping[str, int]) -> list[int]:
    """The producers of the inputs of ``node``, in the order of the file."""
    return sorted({makers[name] for name in reads_of(node) if name in makers})


def cycle_through(start: int, nodes: Sequence[onnx.NodeProto]) -> list[int]:
    """Positions of nodes on a path from ``start`` to ``start``, each of which reads the one before; empty if none."""
    makers = makers_of(nodes)
    came_from: dict[int, int] = {}
    waiting = [start]
    while waiting:
        reader = waiting.pop()
        for maker in _needed(nodes[reader], makers):
            if maker not in came_from:
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
