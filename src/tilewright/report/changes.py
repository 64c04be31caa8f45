"""The differences of two graphs: changed nodes in connected parts, with equal parts counted once."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tilewright.graph import Graph, Node

_Key = tuple[object, ...]


@dataclass(frozen=True, slots=True)
class Change:
    """Nodes of one graph that replace nodes of another, and the number of such places."""

    replaced: tuple[Node, ...]
    made: tuple[Node, ...]
    places: int


def changes(before: Graph, after: Graph) -> list[Change]:
    """The changes in the order of the graphs.

    Nodes are in one part if one reads a result of another, or if both compute the same value.
    """
    replaced, made = changed(before, after)
    parts: dict[str, Change] = {}
    for change in _parts(replaced, made):
        alike = repr([[_kind(node) for node in side] for side in (change.replaced, change.made)])
        first = parts.setdefault(alike, change)
        if first is not change:
            parts[alike] = Change(first.replaced, first.made, first.places + 1)
    return list(parts.values())


def changed(before: Graph, after: Graph) -> tuple[list[Node], list[Node]]:
    """The nodes that only ``before`` has, and those that only ``after`` has."""
    kept = {_key(node) for node in before.nodes} & {_key(node) for node in after.nodes}
    replaced = [node for node in before.nodes if _key(node) not in kept]
    return replaced, [node for node in after.nodes if _key(node) not in kept]


def _key(node: Node) -> _Key:
    inputs = tuple(None if value is None else value.name for value in node.inputs)
    return node.op.name, inputs, tuple(value.name for value in node.outputs), repr(node.attributes)


def _kind(node: Node) -> _Key:
    """A key that is equal for repeated parts of a network."""
    inputs = [None if value is None else value.shape for value in node.inputs]
    return node.op.name, repr(inputs), repr(node.attributes)


def _parts(replaced: Sequence[Node], made: Sequence[Node]) -> list[Change]:
    parents: dict[str, str] = {}

    def root(name: str) -> str:
        while parents.setdefault(name, name) != name:
            name = parents[name]
        return name

    changed = {value.name for node in (*replaced, *made) for value in node.outputs}
    for node in (*replaced, *made):
        first = node.outputs[0].name
        inner = [value.name for value in node.inputs if value is not None and value.name in changed]
        for name in (*(value.name for value in node.outputs), *inner):
            parents[root(name)] = root(first)
    roots = list(dict.fromkeys(root(node.outputs[0].name) for node in (*replaced, *made)))
    sides: Mapping[str, tuple[list[Node], list[Node]]] = {name: ([], []) for name in roots}
    for side, nodes in enumerate((replaced, made)):
        for node in nodes:
            sides[root(node.outputs[0].name)][side].append(node)
    return [Change(tuple(old), tuple(new), 1) for old, new in sides.values()]
