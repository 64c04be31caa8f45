"""Cuts a graph into native parts, and what runs between them: calls of Python functions, sizes that are read off data,
branches and loops (``ops.hosted``, ``graph.control``).

A part may depend on all run-time extents that are known before it. Each must be an extent of one of its inputs: where
no input has it, the part gets its witness, an array of shape ``[extent, 0]``. So do the bodies of branches and loops.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from tilewright.base.dtypes import boolean, i64
from tilewright.base.names import Names
from tilewright.graph import Graph, Node, Value
from tilewright.graph.control import Control, free_extents, made_by
from tilewright.ops.hosted import WITNESS, HostOperator
from tilewright.ops.operator import require
from tilewright.symbolic.expr import ZERO, Extent, Var, const
from tilewright.tensor.elements import Limit

Step: TypeAlias = Graph | Node
"""A native part, or what runs between parts."""


def is_cut(graph: Graph) -> bool:
    """Whether some nodes run between native parts."""
    return any(isinstance(node.op, HostOperator) for node in graph.nodes)


def parts(graph: Graph) -> tuple[Step, ...]:
    """``graph`` in the order in which it runs: as few native parts as that allows.

    The inputs of a part are those of ``graph``, results of what ran before, and witnesses; its outputs are what is
    needed later.
    """
    live = replace(graph, nodes=_live(graph))
    return tuple(_Cut(live, _Levels.of(live), graph.names()).steps())


@dataclass(frozen=True, slots=True)
class Place:
    """Where a part or a body is in a model: at each level, the number of its step, and of the body in that."""

    path: tuple[tuple[int, int], ...] = ()

    def inside(self, step: int, body: int) -> "Place":
        """The place of a part, or of a body, of what is at this place."""
        return Place((*self.path, (step, body)))

    def of(self, graph: Graph) -> Graph:
        """What is at this place in ``graph``."""
        for number, body in self.path:
            graph = bodies_of(parts(graph)[number])[body]
        return graph


def bodies_of(step: Step) -> tuple[Graph, ...]:
    """The graphs that are compiled for a step: the part itself, or the bodies in a node."""
    if isinstance(step, Graph):
        return (step,)
    return step.op.bodies if isinstance(step.op, Control) else ()


def _live(graph: Graph) -> tuple[Node, ...]:
    """The nodes whose results, or the extents that they make known, the outputs and conditions of ``graph`` need."""
    values = set(graph.outputs)
    extents = {v for value in graph.outputs for extent in value.shape for v in extent.variables}
    extents.update(v for limit in graph.limits for v in limit.value.variables)
    found: list[Node] = []
    for node in reversed(graph.nodes):
        if values.isdisjoint(node.outputs) and extents.isdisjoint(made_by(node)):
            continue
        found.append(node)
        values.update(value for value in node.inputs if value is not None)
        extents.update(_needed(node))
        extents.update(v for value in node.inputs if value is not None for e in value.shape for v in e.variables)
    return tuple(reversed(found))


@dataclass(frozen=True, slots=True)
class _Levels:
    """Of each node, how many nodes between parts come before it, one after another; and when extents are known."""

    nodes: Mapping[Node, int]
    extents: Mapping[Var, int]

    @staticmethod
    def of(graph: Graph) -> "_Levels":
        """Nodes are in topological order."""
        ready: dict[Value, int] = {}
        known: dict[Var, int] = {}
        levels: dict[Node, int] = {}
        for node in graph.nodes:
            before = [ready.get(value, 0) for value in node.inputs if value is not None]
            made = made_by(node)
            levels[node] = level = max([*before, *(known.get(v, 0) for v in _needed(node) if v not in made)], default=0)
            after = level + isinstance(node.op, HostOperator)
            ready.update(dict.fromkeys(node.outputs, after))
            known.update(dict.fromkeys(made, after))
        levels.update(_of_constants(graph, levels))
        return _Levels(levels, known)

    def of_limit(self, limit: Limit) -> int:
        """The first level at which ``limit`` can be checked."""
        return max((self.extents.get(v, 0) for v in limit.value.variables), default=0)


def _of_constants(graph: Graph, levels: Mapping[Node, int]) -> Mapping[Node, int]:
    """Nodes that depend on constants only, on the level of their first readers: these see what they read, such as a
    quantized weight."""
    known, found = set(graph.constants), list[Node]()
    for node in graph.nodes:
        is_constant = known.issuperset(value for value in node.inputs if value is not None)
        if is_constant and not isinstance(node.op, HostOperator) and not _needed(node):
            known.update(node.outputs)
            found.append(node)
    moved, consumers = dict[Node, int](), graph.consumers()
    for node in reversed(found):
        readers = [reader for value in node.outputs for reader in consumers.get(value, ())]
        first = min((moved.get(reader, levels[reader]) for reader in readers), default=0)
        moved[node] = 0 if not readers or not set(graph.outputs).isdisjoint(node.outputs) else first
    return moved


def _needed(node: Node) -> frozenset[Var]:
    """The extents in a node's attributes, in the shapes of its results, and around its bodies."""
    shapes = frozenset(v for value in node.outputs for extent in value.shape for v in extent.variables)
    return shapes.union(node.dims, free_extents(node) if isinstance(node.op, Control) else ())


@dataclass(slots=True)
class _Cut:
    """A graph as it is cut."""

    graph: Graph
    levels: _Levels
    names: Names
    witnesses: dict[Extent, Value] = field(default_factory=dict[Extent, Value])

    def steps(self) -> Iterator[Step]:
        last = max(self.levels.nodes.values(), default=0)
        late = [limit for limit in self.graph.limits if limit.value.variables]
        for level in range(last + 1):
            nodes = [node for node in self.graph.nodes if self.levels.nodes[node] == level]
            native = [node for node in nodes if not isinstance(node.op, HostOperator)]
            if native:
                due = [limit for limit in late if self.levels.of_limit(limit) <= level]
                late = [limit for limit in late if limit not in due]
                yield from self._part(level, native, due)
            for node in nodes:
                if isinstance(node.op, HostOperator):
                    yield from self._between(node)
        if late:
            yield from self._checks(late)

    def _checks(self, limits: Sequence[Limit]) -> Iterator[Step]:
        """A part that computes nothing of use, but checks ``limits`` that no other part does."""
        value = Value(self.names.fresh("checked"), i64, (const(len(limits)),))
        values = tuple(limit.value for limit in limits)
        node = Node(require("Elements"), (), (value,), (("values", values), ("shape", (len(limits),)), ("dtype", i64)))
        part = Graph(f"{self.graph.name}.checks", (), (value,), (node,), {}, self.graph.bounds, tuple(limits))
        yield from self._closed_by(part)
        yield self._closed(part)

    def _part(self, level: int, nodes: Sequence[Node], due: Sequence[Limit]) -> Iterator[Step]:
        """A part, and the nodes for its witnesses. ``due``: conditions that it is the first one to check."""
        part = _sub_graph(self.graph, level, nodes)
        part = replace(part, limits=tuple(due))
        wanted = free_extents(part)
        known = tuple(limit for limit in self.graph.limits if limit.value.variables <= wanted)
        part = replace(part, limits=tuple(dict.fromkeys((*due, *known))))
        yield from self._closed_by(part)
        yield self._closed(part)

    def _between(self, node: Node) -> Iterator[Step]:
        """``node``, whose bodies get the witnesses that they need, and the nodes for these."""
        if not isinstance(node.op, Control):
            yield node
            return
        for body in node.op.bodies:
            yield from self._closed_by(body, node.op.own)
        bodies = tuple(self._closed(body, node.op.own) for body in node.op.bodies)
        wanted = (
            value for body, old in zip(bodies, node.op.bodies, strict=True) for value in body.inputs[len(old.inputs) :]
        )
        more = (value for value in dict.fromkeys(wanted) if value not in node.inputs)
        yield replace(node, op=node.op.around(bodies), inputs=(*node.inputs, *more))

    def _missing(self, graph: Graph, own: Iterable[Extent] = ()) -> list[Extent]:
        """The extents that ``graph`` depends on, and that are no extent of one of its inputs."""
        there = {*own, *(extent for value in graph.inputs for extent in value.shape)}
        return sorted((e for e in free_extents(graph) if e not in there), key=lambda extent: extent.unique)

    def _closed(self, graph: Graph, own: Iterable[Extent] = ()) -> Graph:
        """``graph`` with a witness of each missing extent as a further input."""
        return replace(graph, inputs=(*graph.inputs, *(self.witnesses[e] for e in self._missing(graph, own))))

    def _closed_by(self, graph: Graph, own: Iterable[Extent] = ()) -> Iterator[Node]:
        """Nodes that make the witnesses which ``graph`` is the first to need."""
        for extent in self._missing(graph, own):
            if extent in self.witnesses:
                continue
            value, axis = self._place(extent)
            if value.shape == (extent, ZERO):
                self.witnesses[extent] = value
                continue
            name = self.names.fresh(f"size.{extent.name}")
            self.witnesses[extent] = witness = Value(name, boolean, (extent, ZERO))
            yield Node(WITNESS, (value,), (witness,), (("axis", axis),))

    def _place(self, extent: Extent) -> tuple[Value, int]:
        """A value of which ``extent`` is the extent of an axis, and that is there as soon as it is known."""
        made = (value for node in self.graph.nodes if extent in made_by(node) for value in node.outputs)
        found = ((value, value.shape.index(extent)) for value in (*self.graph.inputs, *made) if extent in value.shape)
        return next(found)


def _sub_graph(graph: Graph, level: int, nodes: Sequence[Node]) -> Graph:
    made = {value for node in nodes for value in node.outputs}
    read = dict.fromkeys(value for node in nodes for value in node.inputs if value is not None)
    own = set(nodes)
    elsewhere = {value for node in graph.nodes if node not in own for value in node.inputs} | set(graph.outputs)
    inputs = tuple(value for value in read if value not in made and value not in graph.constants)
    outputs = tuple(value for node in nodes for value in node.outputs if value in elsewhere)
    constants = {value: array for value, array in graph.constants.items() if value in read}
    name = f"{graph.name}.part{level}"
    return replace(graph, name=name, inputs=inputs, outputs=outputs, nodes=tuple(nodes), constants=constants)
