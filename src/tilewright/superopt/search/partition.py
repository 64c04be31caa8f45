"""Cuts large graphs into pieces that are searched separately, and joins the results.

Cuts are made where few values cross, as in Jia et al., "Optimizing DNN Computation with Relaxed Graph Substitutions"
(SysML 2019), in an order by depth, so that independent nodes are in the same piece. Pieces that differ only in names
and weights (the layers of a network) have the same *form*, and are searched once.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from tilewright.base.names import Names
from tilewright.graph import Array, Graph, Node, Value, verify
from tilewright.passes.normalize import eliminate_dead_code
from tilewright.passes.rules.apply import in_order
from tilewright.superopt.search.fingerprint import described
from tilewright.superopt.search.result import Applied, State

_FEW = 16


def pieces(graph: Graph, most: int) -> list[Graph]:
    """``graph`` in pieces of at most ``most`` nodes, in topological order."""
    ordered = _early(graph)
    found: list[Graph] = []
    start = 0
    for end in _cuts(graph, ordered, most):
        found.append(_piece(graph, ordered[start:end], ordered[end:]))
        start = end
    return found


def _early(graph: Graph) -> list[Node]:
    """The nodes by the length of the longest path to them; equal ones in the order of the graph."""
    levels: dict[Value, int] = {}
    for node in graph.nodes:
        level = max((levels.get(value, 0) for value in node.inputs if value is not None), default=0) + 1
        levels.update(dict.fromkeys(node.outputs, level))
    return sorted(graph.nodes, key=lambda node: levels[node.outputs[0]])


def _cuts(graph: Graph, nodes: Sequence[Node], most: int) -> Iterator[int]:
    """Positions at which pieces end: in the second half of the permitted size, where the fewest values are live."""
    crossing = _crossing(graph, nodes)
    start = 0
    while len(nodes) - start > most:
        window = range(start + max(1, most // 2), start + most + 1)
        start = min(window, key=lambda end: (crossing[end], -end))
        yield start
    yield len(nodes)


def _crossing(graph: Graph, nodes: Sequence[Node]) -> list[int]:
    """The number of live results after the first 0, 1, 2 ... nodes."""
    last = {value: position for position, node in enumerate(nodes) for value in node.inputs if value is not None}
    last.update(dict.fromkeys(graph.outputs, len(nodes)))
    changes = [0] * (len(nodes) + 2)
    for position, node in enumerate(nodes):
        for value in node.outputs:
            changes[position + 1] += 1
            changes[max(position, last.get(value, position)) + 1] -= 1
    return [int(count) for count in np.cumsum(changes)]


def _piece(graph: Graph, inside: Sequence[Node], after: Sequence[Node]) -> Graph:
    made = {value for node in inside for value in node.outputs}
    read = dict.fromkeys(value for node in inside for value in node.inputs if value is not None)
    needed = {value for node in after for value in node.inputs} | set(graph.outputs)
    constants = {value: graph.constants[value] for value in read if value in graph.constants}
    entering = tuple(value for value in read if value not in made and value not in constants)
    leaving = tuple(value for node in inside for value in node.outputs if value in needed)
    return replace(graph, inputs=entering, outputs=leaving, nodes=tuple(inside), constants=constants, limits=())


@dataclass(frozen=True, slots=True)
class Form:
    """A piece with numbered values. Equal forms have equal keys; ``values``: the value of the piece for each number."""

    graph: Graph
    values: Mapping[str, Value]
    sources: Mapping[str, str]
    """The sources of nodes, by their placeholders in ``graph``."""
    key: tuple[object, ...]

    @staticmethod
    def of(piece: Graph) -> "Form":
        """The form of ``piece``."""
        made = [value for node in piece.nodes for value in node.outputs]
        kinds = (("i", piece.inputs), ("c", tuple(piece.constants)), ("v", made))
        new = {v: replace(v, name=f"{kind}{n}") for kind, values in kinds for n, v in enumerate(values)}
        sources = {new[node.outputs[0]].name: node.source for node in piece.nodes}
        nodes = tuple(replace(_renamed(node, new), source=new[node.outputs[0]].name) for node in piece.nodes)
        constants = {new[value]: array for value, array in piece.constants.items()}
        ends = (tuple(new[value] for value in piece.inputs), tuple(new[value] for value in piece.outputs))
        graph = Graph("piece", *ends, nodes, constants, piece.bounds)
        texts = tuple((str(node), *(described(value) for _, value in node.attributes)) for node in nodes)
        known = tuple((repr(value), _literal(array)) for value, array in constants.items())
        key = (tuple(map(repr, graph.inputs)), known, texts, tuple(map(repr, graph.outputs)))
        return Form(graph, {value.name: old for old, value in new.items()}, sources, key)

    def instance(self, found: State, piece: Graph, names: Names) -> State:
        """The result ``found`` for an equal form, translated to ``piece``. ``names``: those of the whole graph."""
        values = dict(self.values)
        state = found.graph
        for value in (*state.constants, *(value for node in state.nodes for value in node.outputs)):
            if value.name not in values:
                values[value.name] = replace(value, name=names.fresh(self._named(value.name)))
        by_form = {value: values[value.name] for value in _all_values(state)}
        nodes = tuple(replace(_renamed(node, by_form), source=self._source(node.source)) for node in state.nodes)
        arrays = {value: piece.constants.get(by_form[value], array) for value, array in state.constants.items()}
        graph = replace(piece, nodes=nodes, constants={by_form[value]: array for value, array in arrays.items()})
        return State(graph, found.cost, tuple(_step(step, values) for step in found.steps))

    def _named(self, name: str) -> str:
        """The name of a value such as ``v3.weight`` in the piece, by the name of ``v3`` there."""
        root, dot, rest = name.partition(".")
        return self.values[root].name + dot + rest if root in self.values else name

    def _source(self, source: str) -> str:
        listed = (self.sources.get(name, name) for name in source.split(", "))
        return ", ".join(dict.fromkeys(name for name in listed if name))


def _step(step: Applied, values: Mapping[str, Value]) -> Applied:
    """``step`` with the names of the piece; values that a later step removed keep their numbers."""

    def called(names: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(values[name].name if name in values else name for name in names)

    return replace(step, replaced=called(step.replaced), made=called(step.made))


def _all_values(graph: Graph) -> Iterator[Value]:
    yield from (*graph.inputs, *graph.constants)
    for node in graph.nodes:
        yield from node.outputs


def _renamed(node: Node, values: Mapping[Value, Value]) -> Node:
    return replace(
        node,
        inputs=tuple(None if value is None else values[value] for value in node.inputs),
        outputs=tuple(values[value] for value in node.outputs),
    )


def _literal(array: Array) -> bytes | None:
    """The property of a constant on which rules may depend: its number, if all elements are equal."""
    few = array.flat[:_FEW]  # decides it for nearly all weights
    if not array.size or bool((few != few[:1]).any()) or not bool((array == few[0]).all()):
        return None
    return few[:1].tobytes()


def searched(graph: Graph, most: int, search: Callable[[Graph], State]) -> State:
    """``graph`` with each piece replaced by the result of ``search``, which is called once for each form."""
    known: dict[tuple[object, ...], State] = {}
    names = graph.names()
    found: list[State] = []
    for piece in pieces(graph, most):
        form = Form.of(piece)
        if form.key not in known:
            known[form.key] = search(form.graph)
        found.append(form.instance(known[form.key], piece, names))
    nodes = _as_before(graph, [node for state in found for node in state.graph.nodes])
    constants = {value: array for state in found for value, array in state.graph.constants.items()}
    whole = eliminate_dead_code(replace(graph, nodes=nodes, constants={**graph.constants, **constants}))
    verify(whole)
    return State(whole, sum(state.cost for state in found), tuple(step for state in found for step in state.steps))


def _as_before(graph: Graph, nodes: Sequence[Node]) -> tuple[Node, ...]:
    """``nodes`` in the order of ``graph``; new ones come before their first reader."""
    positions = {value.name: position for position, node in enumerate(graph.nodes) for value in node.outputs}
    last = len(graph.nodes)
    return tuple(in_order(sorted(nodes, key=lambda node: positions.get(node.outputs[0].name, last))))
