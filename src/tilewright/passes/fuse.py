"""Operator fusion: groups nodes that share a kernel.

A group is an anchor and its injective successors up to a post-dominator, so that exactly one value leaves it (Chen et
al., "TVM", 2018, section 3). Injective nodes used only by one elementwise group join it. Views have no kernels: each
group that reads through one gets a copy of it. So do elementwise groups that read narrow numbers widened, as bytes that
are dequantized: reading narrow numbers takes less time than computing them takes. No other value is computed twice. A
view at the end of the graph that only regroups the result of a kernel is stored by that kernel.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from tilewright.base.names import identifier
from tilewright.graph import Graph, Node, Value
from tilewright.graph.ir import apply
from tilewright.ops import FusionKind, Trait
from tilewright.ops.shapes import static
from tilewright.passes.dominators import post_dominators
from tilewright.symbolic.expr import ONE, ZERO
from tilewright.tensor.ir import Compute, Operation, Placeholder, reads_of, topological_order

MAX_NODES = 64
"""Maximum nodes of a group other than views. Models have a dozen; longer ones take long to schedule, without gain."""
MAX_OPERANDS = 256
"""Maximum inputs of these nodes, for the same reason."""
MAX_VIEWS = 32
"""Maximum depth of views of views: the next one is computed, so that copies in groups stay few."""


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


def fuse(graph: Graph, stored_plain: Collection[Value] = (), in_blocks: Collection[Value] = ()) -> tuple[Group, ...]:
    """All groups, in an order in which they can run. Every output of the graph must be produced by a node.

    ``stored_plain``: copies that the kernel of a sum over channels can fuse with its store. ``in_blocks``: values that
    are not stored row-major.
    """
    return _Fusion(graph, stored_plain, in_blocks).groups()


class _Fusion:
    """Facts about one graph. A node is identified by its first output."""

    def __init__(self, graph: Graph, stored_plain: Collection[Value], in_blocks: Collection[Value]) -> None:
        self._graph = graph
        self._in_blocks = in_blocks
        self._stored_plain = stored_plain
        self._position = {node.outputs[0]: position for position, node in enumerate(graph.nodes)}
        self._dominators = post_dominators(graph)
        self._consumers = graph.consumers()
        self._producers = graph.producers()
        self._leaving_graph = frozenset(graph.outputs)
        self._views = _views(graph)
        self._widened = _widened(graph, self._consumers)
        self._taken: set[Value] = set()

    def groups(self) -> tuple[Group, ...]:
        """See ``fuse``. Inputs of a group are produced before its last node, so the order of last nodes is valid."""
        grown = self._grown()
        ending = [self._views[v] for v in self._graph.outputs if v in self._views]
        kernels = [*grown, *([view] for view in ending if not self._ends(view, grown))]
        return tuple(self._closed(nodes) for nodes in sorted(kernels, key=lambda nodes: self._at(nodes[-1])))

    def _ends(self, view: Node, grown: Iterable[list[Node]]) -> bool:
        """Add ``view`` to the kernel whose only result it stores in the same order, if nothing else reads either."""
        (source, *others), result = view.inputs, view.outputs[0]
        if others or source is None or not view.op.has(Trait.REGROUPS) or source in self._in_blocks:
            return False
        if static(source.shape) is None or static(result.shape) is None:
            return False
        if source in self._leaving_graph or result in self._consumers or self._consumers[source] != [view]:
            return False
        maker = next((nodes for nodes in grown if self._leaving(nodes) == (source,)), None)
        if maker is not None:
            maker.append(view)
        return maker is not None

    def _at(self, node: Node) -> int:
        return self._position[node.outputs[0]]

    def _grown(self) -> list[list[Node]]:
        """Groups around all non-injective nodes, then around the remaining injective nodes."""
        computing = [node for node in self._graph.nodes if node.outputs[0] not in self._views]
        anchors = sorted(computing, key=lambda node: node.op.kind is FusionKind.INJECTIVE)
        grown: list[list[Node]] = []
        for anchor in anchors:
            if anchor.outputs[0] not in self._taken:
                nodes = self._followed(anchor)
                self._taken.update(node.outputs[0] for node in nodes)
                grown.append(self._preceded(nodes) if anchor.op.kind is FusionKind.INJECTIVE else self._sorted(nodes))
        return [kept for kept in map(self._without_unread, grown) if kept]

    def _without_unread(self, nodes: list[Node]) -> list[Node]:
        """Without values that are widened at the end: their readers do that."""
        read = {value for node in nodes for value in node.inputs}
        kept = read | self._leaving_graph
        return [node for node in nodes if node.outputs[0] not in self._widened or node.outputs[0] in kept]

    def _sorted(self, nodes: Iterable[Node]) -> list[Node]:
        return sorted(nodes, key=self._at)

    def _followed(self, anchor: Node) -> list[Node]:
        """The anchor, and the nodes on the paths to its post-dominators, as far as these are free and elementwise."""
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
        """Extended by injective nodes whose results only ``nodes`` use, as elements at the same position."""
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
        """Whether ``node`` may be computed on a tile of ``anchor``'s result."""
        if node.outputs[0] in self._stored_plain:
            by_channels = anchor.op.has(Trait.SUMS_CHANNELS) or anchor.op.has(Trait.STORES_BLOCKS)
            return by_channels and node.outputs[0] not in self._taken
        joins = self._may_join(node, anchor.outputs[0])
        return joins and (anchor.op.kind is FusionKind.INJECTIVE or _reads_in_place(node))

    def _may_join(self, node: Node, value: Value) -> bool:
        """Whether ``node`` is free, and elementwise at the positions of ``value``."""
        (result, *others) = node.outputs
        free = result not in self._taken and not others
        return free and node.op.kind is FusionKind.INJECTIVE and result.shape == value.shape

    def _between(self, start: Value, end: Node) -> list[Node]:
        """All nodes on the paths from ``start`` to ``end``, inclusive; only some of them, if there are too many."""
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
        """Completed with the views that ``nodes`` read through, and with inputs and outputs."""
        order = self._sorted({node.outputs[0]: node for node in (*nodes, *self._views_before(nodes))}.values())
        made = {value for node in order for value in node.outputs}
        entering = dict.fromkeys(v for node in order for v in node.inputs if v is not None and v not in made)
        return Group(tuple(order), tuple(entering), self._leaving(nodes))

    def _views_before(self, nodes: Sequence[Node]) -> list[Node]:
        found: dict[Value, Node] = {}
        made = {value for node in nodes for value in node.outputs}
        copied = self._views | self._widened
        stack = list(nodes)
        while stack:
            for value in stack.pop().inputs:
                if value is not None and value in copied and value not in made and value not in found:
                    found[value] = copied[value]
                    stack.append(copied[value])
        return list(found.values())

    def _leaving(self, nodes: Sequence[Node]) -> tuple[Value, ...]:
        """The values read outside of ``nodes`` (also by a view), or outputs of the graph."""
        members = {node.outputs[0] for node in nodes}

        def leaves(value: Value) -> bool:
            return value in self._leaving_graph or (
                value not in self._widened and self._is_read_outside(value, members)
            )

        return tuple(value for node in nodes for value in node.outputs if leaves(value))

    def _is_read_outside(self, value: Value, members: Collection[Value]) -> bool:
        """Whether a node is not in a group, by its ``members``, and reads ``value``, perhaps widened."""
        # A function within ``_leaving`` that calls itself would keep the graph until garbage is collected.
        readers = [reader.outputs[0] for reader in self._consumers.get(value, ())]
        return any(r not in members or (r in self._widened and self._is_read_outside(r, members)) for r in readers)


def _views(graph: Graph) -> dict[Value, Node]:
    """The results of views that are inlined where they are read, and these views."""
    found: dict[Value, Node] = {}
    depths: dict[Value, int] = {}
    for node in graph.nodes:
        depth = 1 + max((depths.get(v, 0) for v in node.inputs if v is not None), default=0)
        if node.op.kind is FusionKind.VIEW and depth <= MAX_VIEWS:
            found.update((value, node) for value in node.outputs)
            depths.update((value, depth) for value in node.outputs)
    return found


def _widened(graph: Graph, consumers: Mapping[Value, Sequence[Node]]) -> dict[Value, Node]:
    """Numbers that are widened and then only read element by element, and the nodes that widen them."""
    found: dict[Value, Node] = {}
    for node in reversed(graph.nodes):
        result, source = node.outputs[0], node.inputs[0] if node.inputs else None
        readers = consumers.get(result, ())
        is_wider = source is not None and source.dtype.itemsize < result.dtype.itemsize
        if node.op.has(Trait.WIDENS) and is_wider and all(r.op.kind is FusionKind.INJECTIVE for r in readers):
            found[result] = node
    return found


def _fit(nodes: Sequence[Node]) -> bool:
    """Whether ``nodes`` may be one group, by their number."""
    return len(nodes) <= MAX_NODES and sum(len(node.inputs) for node in nodes) <= MAX_OPERANDS


def _reads_in_place(node: Node) -> bool:
    """Whether each element depends on those at its own position: gathers and reversals are injective as well."""
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
