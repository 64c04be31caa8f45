"""Fusion: which nodes share a kernel.

A group is an anchor and the injective nodes that follow it up to a post-dominator, so that exactly one value leaves it
(Chen et al., "TVM", 2018, section 3). Injective nodes that only one elementwise group uses join it. Views have no
kernel of their own: each group that reads through one gets a copy of it. Nothing is ever computed twice.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from tilewright.base.names import identifier
from tilewright.graph import Graph, Node, Value
from tilewright.graph.ir import apply
from tilewright.ops import FusionKind, Trait
from tilewright.passes.dominators import post_dominators
from tilewright.symbolic.expr import ONE, ZERO
from tilewright.tensor.ir import Compute, Operation, Placeholder, reads_of, topological_order

MAX_NODES = 64
"""Nodes of a group that are not views. Models have a dozen; what is longer would take long to schedule, for no gain."""
MAX_OPERANDS = 256
"""Inputs of these nodes together, for the same reason."""
MAX_VIEWS = 32
"""Views of views: the next one is computed, so that what reads through it has no copies of all before."""


@dataclass(frozen=True, slots=True)
class Group:
    """The nodes of one kernel, in topological order; ``inputs`` enter it, ``outputs`` leave it."""

    nodes: tuple[Node, ...]
    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]

    @property
    def name(self) -> str:
        """The operators, as an identifier."""
        kinds = [node.op.name for node in self.nodes if node.op.kind is not FusionKind.VIEW]
        return identifier("_".join(kinds or [node.op.name for node in self.nodes])).lower()

    def __str__(self) -> str:
        inside = "\n".join(f"  {node}" for node in self.nodes)
        entering, leaving = (", ".join(v.name for v in values) for values in (self.inputs, self.outputs))
        return f"group {self.name}({entering}):\n{inside}\n  return {leaving}"


def fuse(graph: Graph, stored_plain: Collection[Value] = ()) -> tuple[Group, ...]:
    """All groups, in an order in which they can run. Every value that leaves the graph must be made by a node.

    ``stored_plain``: copies that the kernel of a sum over channels can make as it stores its result.
    """
    return _Fusion(graph, stored_plain).groups()


class _Fusion:
    """Facts about one graph. A node is known by its first output."""

    def __init__(self, graph: Graph, stored_plain: Collection[Value]) -> None:
        self._graph = graph
        self._stored_plain = stored_plain
        self._position = {node.outputs[0]: position for position, node in enumerate(graph.nodes)}
        self._dominators = post_dominators(graph)
        self._consumers = graph.consumers()
        self._producers = graph.producers()
        self._leaving_graph = frozenset(graph.outputs)
        self._views = _views(graph)
        self._taken: set[Value] = set()

    def groups(self) -> tuple[Group, ...]:
        """See ``fuse``. What enters a group was made before its last node, so the last nodes' order is an order."""
        kernels = self._grown() + [[self._views[v]] for v in self._graph.outputs if v in self._views]
        return tuple(self._closed(nodes) for nodes in sorted(kernels, key=lambda nodes: self._at(nodes[-1])))

    def _at(self, node: Node) -> int:
        return self._position[node.outputs[0]]

    def _grown(self) -> list[list[Node]]:
        """Groups around all that is not injective, then around the injective nodes that are left."""
        computing = [node for node in self._graph.nodes if node.outputs[0] not in self._views]
        anchors = sorted(computing, key=lambda node: node.op.kind is FusionKind.INJECTIVE)
        grown: list[list[Node]] = []
        for anchor in anchors:
            if anchor.outputs[0] not in self._taken:
                nodes = self._followed(anchor)
                self._taken.update(node.outputs[0] for node in nodes)
                grown.append(self._preceded(nodes) if anchor.op.kind is FusionKind.INJECTIVE else self._sorted(nodes))
        return grown

    def _sorted(self, nodes: Iterable[Node]) -> list[Node]:
        return sorted(nodes, key=self._at)

    def _followed(self, anchor: Node) -> list[Node]:
        """The anchor, and all on the ways to its post-dominators as far as these are free and elementwise."""
        nodes = [anchor]
        if len(anchor.outputs) != 1 or anchor.op.kind is FusionKind.OPAQUE:
            return nodes
        end = anchor
        while (target := self._dominators.get(end.outputs[0])) is not None:
            between = self._between(end.outputs[0], target)
            fits = _fit([*nodes, *between])
            if not fits or not all(self._may_follow(node, anchor) for node in between):
                break
            nodes.extend(between)
            end = target
        return nodes

    def _preceded(self, nodes: Sequence[Node]) -> list[Node]:
        """With the injective nodes whose results are used, as elements at the same place, by ``nodes`` only."""
        members = {node.outputs[0]: node for node in nodes}
        end = nodes[-1].outputs[0]
        stack = self._producers_for(nodes)
        while stack:
            node = stack.pop()
            value = node.outputs[0]
            inside = all(reader.outputs[0] in members for reader in self._consumers.get(value, ()))
            joins = inside and value not in members and value not in self._leaving_graph and self._may_join(node, end)
            if joins and _fit([*members.values(), node]):
                members[value] = node
                stack += self._producers_for([node])
        self._taken.update(members)
        return self._sorted(members.values())

    def _producers_for(self, nodes: Iterable[Node]) -> list[Node]:
        return [self._producers[v] for node in nodes for v in node.inputs if v is not None and v in self._producers]

    def _may_follow(self, node: Node, anchor: Node) -> bool:
        """Whether ``node`` may be computed on the part of ``anchor``'s result that has just been made."""
        if node.outputs[0] in self._stored_plain:
            return anchor.op.has(Trait.SUMS_CHANNELS) and node.outputs[0] not in self._taken
        joins = self._may_join(node, anchor.outputs[0])
        return joins and (anchor.op.kind is FusionKind.INJECTIVE or _reads_in_place(node))

    def _may_join(self, node: Node, value: Value) -> bool:
        """Whether ``node`` is free, and makes elements one by one at the places of ``value``."""
        (result, *others) = node.outputs
        free = result not in self._taken and not others
        return free and node.op.kind is FusionKind.INJECTIVE and result.shape == value.shape

    def _between(self, start: Value, end: Node) -> list[Node]:
        """All nodes on the ways from ``start`` to ``end``, the latter included; some of them, if they are too many."""
        found: dict[Value, Node] = {}
        stack = [start]
        while stack and len(found) <= MAX_NODES:
            for node in self._consumers.get(stack.pop(), ()):
                if node.outputs[0] not in found:
                    found[node.outputs[0]] = node
                    if node is not end:
                        stack.extend(node.outputs)
        return self._sorted(found.values())

    def _closed(self, nodes: Sequence[Node]) -> Group:
        """With the views that ``nodes`` read through; what enters and what leaves."""
        order = self._sorted({node.outputs[0]: node for node in (*nodes, *self._views_before(nodes))}.values())
        made = {value for node in order for value in node.outputs}
        entering = dict.fromkeys(v for node in order for v in node.inputs if v is not None and v not in made)
        return Group(tuple(order), tuple(entering), self._leaving(nodes))

    def _views_before(self, nodes: Sequence[Node]) -> list[Node]:
        found: dict[Value, Node] = {}
        stack = list(nodes)
        while stack:
            for value in stack.pop().inputs:
                if value is not None and value in self._views and value not in found:
                    found[value] = self._views[value]
                    stack.append(self._views[value])
        return list(found.values())

    def _leaving(self, nodes: Sequence[Node]) -> tuple[Value, ...]:
        """What is read outside of ``nodes`` (by a view, too), or leaves the graph."""
        members = {node.outputs[0] for node in nodes}

        def leaves(value: Value) -> bool:
            read_outside = any(reader.outputs[0] not in members for reader in self._consumers.get(value, ()))
            return read_outside or value in self._leaving_graph

        return tuple(value for node in nodes for value in node.outputs if leaves(value))


def _views(graph: Graph) -> dict[Value, Node]:
    """What views make that is computed where it is read, and these views."""
    found: dict[Value, Node] = {}
    depths: dict[Value, int] = {}
    for node in graph.nodes:
        depth = 1 + max((depths.get(v, 0) for v in node.inputs if v is not None), default=0)
        if node.op.kind is FusionKind.VIEW and depth <= MAX_VIEWS:
            found.update((value, node) for value in node.outputs)
            depths.update((value, depth) for value in node.outputs)
    return found


def _fit(nodes: Sequence[Node]) -> bool:
    """Whether ``nodes`` may be one group, as far as their number goes."""
    return len(nodes) <= MAX_NODES and sum(len(node.inputs) for node in nodes) <= MAX_OPERANDS


def _reads_in_place(node: Node) -> bool:
    """Whether each element is computed from those at its own place: a gather or reversal is injective as well."""
    result = apply(node.op, node.inputs, dict(node.attributes))[0]
    return all(_is_in_place(op) for op in topological_order([result]) if not isinstance(op, Placeholder))


def _is_in_place(op: Operation) -> bool:
    if not isinstance(op, Compute):
        return False
    places = tuple(axis.var for axis in op.axes)
    extents = tuple(axis.extent for axis in op.axes)
    return all(
        index in (place, ZERO) if extent == ONE else index == place
        for source, indices in reads_of(op)
        if source.shape == extents
        for index, place, extent in zip(indices, places, extents, strict=True)
    )
