"""Applies chosen layouts to a graph: inserts copies where a node needs a value in another layout.

The graph keeps its logical shapes: a layout only describes storage. Inputs and outputs stay row-major.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from tilewright.base.dtypes import DType
from tilewright.graph import Graph, Node, Value, make_node
from tilewright.kernels.relayout import blocked, lanes_of
from tilewright.ops.operator import require
from tilewright.passes.blocks import Blocks, Reads, width_of
from tilewright.passes.precision import WIDE, Narrow
from tilewright.schedule.index_map import IndexMap
from tilewright.symbolic.expr import Const

_COPY = require("Copy")


@dataclass(frozen=True, slots=True)
class Computed:
    """A graph with ways applied. ``reads``: the layouts of data that its nodes need, by their first results."""

    graph: Graph
    in_blocks: frozenset[Value]
    reads: Mapping[Value, Reads]
    narrow: Mapping[str, frozenset[str]]
    rounded: frozenset[str]
    """See ``Building``."""


@dataclass(frozen=True, slots=True)
class LaidOut:
    """A graph, and the layouts of its values that are not row-major."""

    graph: Graph
    layouts: Mapping[Value, IndexMap]
    copies: Mapping[str, str] = field(default_factory=dict[str, str])
    """Names of values in other layouts or shapes, and the values' names in the model."""
    narrow: Narrow = WIDE

    def __str__(self) -> str:
        lines = [f"  {value!r} is stored as {index_map}" for value, index_map in self.layouts.items()]
        return "\n".join([str(self.graph), *(["layouts:"] if lines else []), *lines])

    def stored(self, value: Value) -> DType:
        """The dtype in which ``value`` is stored."""
        return self.narrow.stored(self._given(value)) or value.dtype

    def weights(self, nodes: Iterable[Node]) -> frozenset[Value]:
        """The right operands of products of ``nodes`` whose operands are rounded."""
        known, inputs = self.narrow.weights, ((node, v) for node in nodes for v in node.inputs if v is not None)
        return frozenset(v for node, v in inputs if self._given(v) in known.get(self._given(node.outputs[0]), ()))

    def _given(self, value: Value) -> str:
        """Its name in the model."""
        return self.copies.get(value.name, value.name)

    @property
    def leaving_blocks(self) -> frozenset[Value]:
        """The blocked values that are only copied to plain: the kernel that computes the blocks can store it."""
        return frozenset(copy for source, copy in self._copies() if source in self.layouts)

    @property
    def entering_blocks(self) -> frozenset[Value]:
        """The plain values that are copied into whole blocks."""
        pairs = ((source, copy) for source, copy in self._copies() if source not in self.layouts)
        return frozenset(copy for _, copy in pairs if _has_whole_blocks(copy, self))

    def _copies(self) -> Iterator[tuple[Value | None, Value]]:
        return ((node.inputs[0], node.outputs[0]) for node in self.graph.nodes if node.op == _COPY)


def _has_whole_blocks(value: Value | None, laid_out: LaidOut) -> bool:
    if value is None or value not in laid_out.layouts:
        return False
    channels = value.shape[1]
    return isinstance(channels, Const) and int(channels.value) % lanes_of(laid_out.layouts[value]) == 0


def lay_out(computed: Computed, copied: Collection[Value], blocks: Blocks) -> LaidOut:
    """The graph with its values in their layouts, and those that are ``copied`` in both layouts."""
    storing = _Storing(computed, copied, blocks)
    nodes = tuple(storing.nodes())
    return LaidOut(replace(computed.graph, nodes=nodes), storing.layouts, storing.originals)


class _Storing:
    """The values of a graph by their names in each layout.

    An output of the graph keeps its name in the plain layout.
    """

    def __init__(self, computed: Computed, copied: Collection[Value], blocks: Blocks) -> None:
        self.originals: dict[str, str] = {}
        graph = computed.graph
        self._names = graph.names()
        self._graph = graph
        self._blocks = blocks
        self._in_blocks = computed.in_blocks
        self._reads = computed.reads
        self._blocked: dict[Value, Value] = {}
        self._plain: dict[Value, Value] = {}
        made = [value for node in graph.nodes for value in node.outputs]
        leaving = frozenset(graph.outputs)
        for value in (*graph.inputs, *made):
            self._name(value, value in copied, value in leaving)

    @property
    def layouts(self) -> dict[Value, IndexMap]:
        """The layouts of the blocked values."""
        return {v: blocked(len(v.shape), width_of(v, self._blocks)) for v in self._blocked.values()}

    def nodes(self) -> Iterator[Node]:
        """The nodes of the graph, and the copies."""
        for value in self._graph.inputs:
            yield from self._copy(value, "")
        for node in self._graph.nodes:
            inputs = tuple(None if value is None else self._read(node, value) for value in node.inputs)
            yield replace(node, inputs=inputs, outputs=tuple(map(self._made, node.outputs)))
            for value in node.outputs:
                yield from self._copy(value, node.source)

    def _name(self, value: Value, is_copied: bool, leaves: bool) -> None:
        if value not in self._in_blocks:
            self._plain[value] = value
            if is_copied:
                self._blocked[value] = self._other(value, "in_blocks")
            return
        self._blocked[value] = self._other(value, "blocked") if leaves else value
        if is_copied:
            self._plain[value] = value if leaves else self._other(value, "plain")

    def _other(self, value: Value, suffix: str) -> Value:
        """``value`` in another layout."""
        name = self._names.fresh(f"{value.name}.{suffix}")
        self.originals[name] = value.name
        return Value(name, value.dtype, value.shape)

    def _made(self, value: Value) -> Value:
        """``value`` as its node produces it."""
        return self._blocked[value] if value in self._in_blocks else value

    def _copy(self, value: Value, source: str) -> Iterator[Node]:
        if value in self._plain and value in self._blocked:
            made = self._made(value)
            other = self._plain[value] if value in self._in_blocks else self._blocked[value]
            yield make_node(_COPY, [made], [other.name], {}, source)

    def _read(self, node: Node, value: Value) -> Value:
        """``value`` in the layout that ``node`` needs, if it exists."""
        made = value if value not in self._blocked else self._made(value)
        match self._reads[node.outputs[0]]:
            case Reads.PLAIN:
                return self._plain.get(value, made)
            case Reads.BLOCKED | Reads.RATHER_BLOCKED:
                return self._blocked.get(value, made)
            case Reads.AS_THEY_ARE:
                return made
