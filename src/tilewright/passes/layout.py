"""Layouts of the values of a graph: convolutions work on blocks of channels (NCHWc, Liu et al., "Neo", 2019).

A value that a convolution makes is stored with its channels in blocks as wide as a vector register, and so is
everything that is computed channel by channel from it. Where somebody needs the plain layout (a reshape, the user), a
``Copy`` is inserted. The graph keeps its logical shapes: a layout says only how a value is stored.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from tilewright.base.names import Names
from tilewright.base.target import Target
from tilewright.graph import Graph, Node, Value, make_node
from tilewright.graph.ir import apply
from tilewright.kernels.relayout import blocked, is_row_major, lanes_of
from tilewright.ops.operator import require
from tilewright.schedule.index_map import IndexMap
from tilewright.symbolic.bounds import Bounds
from tilewright.symbolic.expr import ONE, ZERO, Const, Expr
from tilewright.symbolic.simplify import simplify
from tilewright.tensor.ir import Compute, Operation, Placeholder, reads_of, topological_order

_ANCHORS = frozenset({"Conv", "PhaseConv", "WinogradOutput"})
"""Sums of products over channels whose results are stored in blocks."""
_TRANSFORMS = frozenset({"WinogradInput"})
"""What is much faster from blocks: plain data are copied first."""
_READERS = _ANCHORS | _TRANSFORMS | {"PhasesToSpace"}
"""What reads blocks as easily as rows."""
_COPY = require("Copy")
_WASTE = 1.5
"""By how much rounding channels up to whole blocks may enlarge a value."""


@dataclass(frozen=True, slots=True)
class LaidOut:
    """A graph, and how those of its values are stored that are not stored row-major."""

    graph: Graph
    layouts: Mapping[Value, IndexMap]
    copies: Mapping[str, str] = field(default_factory=dict[str, str])
    """Names that were given to values in other layouts, and what the model calls these values."""

    def __str__(self) -> str:
        lines = (f"  {value!r} is stored as {index_map}" for value, index_map in self.layouts.items())
        return "\n".join([str(self.graph), "layouts:", *lines])

    @property
    def leaving_blocks(self) -> frozenset[Value]:
        """What is copied plain out of whole blocks: the kernel that makes the blocks can store it."""
        return frozenset(copy for source, copy in self._copies() if _has_whole_blocks(source, self))

    @property
    def entering_blocks(self) -> frozenset[Value]:
        """What is copied from a plain value into whole blocks."""
        pairs = ((source, copy) for source, copy in self._copies() if source not in self.layouts)
        return frozenset(copy for _, copy in pairs if _has_whole_blocks(copy, self))

    def _copies(self) -> Iterator[tuple[Value | None, Value]]:
        return ((node.inputs[0], node.outputs[0]) for node in self.graph.nodes if node.op == _COPY)


def _has_whole_blocks(value: Value | None, laid_out: LaidOut) -> bool:
    if value is None or value not in laid_out.layouts:
        return False
    channels = value.shape[1]
    return isinstance(channels, Const) and int(channels.value) % lanes_of(laid_out.layouts[value]) == 0


@dataclass(slots=True)
class _Copies:
    """New names, and what the model calls the values that have them."""

    names: Names
    originals: dict[str, str] = field(default_factory=dict[str, str])

    def of(self, value: Value, suffix: str) -> Value:
        """``value`` in another layout."""
        name = self.names.fresh(f"{value.name}.{suffix}")
        self.originals[name] = self.originals.get(value.name, value.name)
        return Value(name, value.dtype, value.shape)


def choose_layouts(graph: Graph, target: Target) -> LaidOut:
    """``graph`` with copies where layouts change, and the layouts. Inputs and outputs stay row-major."""
    copies = _Copies(graph.names())
    graph, lanes = _blocked_values(graph, target, copies)
    graph, called = _with_copies(graph, lanes, copies)
    return LaidOut(graph, {called[v]: blocked(len(v.shape), width) for v, width in lanes.items()}, copies.originals)


def _blocked_values(graph: Graph, target: Target, copies: _Copies) -> tuple[Graph, dict[Value, int]]:
    """The values that are stored in blocks, and the blocks' widths.

    What reads several channels at once (a convolution in groups) has its data copied into blocks if need be.
    """
    lanes: dict[Value, int] = {}
    entered: dict[Value, Node] = {}
    nodes: list[Node] = []
    for node in graph.nodes:
        width = target.vector_bits // (8 * node.outputs[0].dtype.itemsize)
        if _is_blocked(node, lanes, width):
            lanes[node.outputs[0]] = width
        data = _wanted_in_blocks(node, lanes, width)
        if data is not None and data not in entered:
            copy = copies.of(data, "in_blocks")
            entered[data] = make_node(_COPY, [data], [copy.name], {}, node.source)
            lanes[entered[data].outputs[0]] = width
            nodes.append(entered[data])
        nodes.append(node if data is None else replace(node, inputs=(*entered[data].outputs, *node.inputs[1:])))
    return replace(graph, nodes=tuple(nodes)), lanes


def _is_blocked(node: Node, lanes: Mapping[Value, int], width: int) -> bool:
    """Whether the result of ``node`` is stored in blocks."""
    (result, *others) = node.outputs
    if others or len(result.shape) < 3:
        return False
    if node.op.name == "PhaseConv" and isinstance(result.shape[1], Const):
        return True  # by rows, neighbours would have different filters
    if not fills_blocks(result.shape[1], width):
        return False
    if _is_depthwise(node) and node.inputs[0] not in lanes:
        return False
    return node.op.name in _ANCHORS or (any(v in lanes for v in node.inputs) and _is_channelwise(node, lanes, width))


def _is_depthwise(node: Node) -> bool:
    """Whether each channel is convolved with a filter of its own: that goes as well by rows of plain data."""
    weight = node.inputs[1] if node.op.name == "Conv" else None
    return weight is not None and weight.shape[1] == ONE and dict(node.attributes).get("group", 1) != 1


def _wanted_in_blocks(node: Node, lanes: Mapping[Value, int], width: int) -> Value | None:
    """The data of ``node`` if it reads several channels at once, and they are plain and fill blocks."""
    data = node.inputs[0] if node.inputs else None
    is_mixed = node.outputs[0] in lanes and _mixes_groups(node, width)
    if data is None or data in lanes or not (is_mixed or node.op.name in _TRANSFORMS):
        return None
    return data if fills_blocks(data.shape[1], width) else None


def _mixes_groups(node: Node, width: int) -> bool:
    """Whether filters of one block read different channels: several groups share it."""
    groups = dict(node.attributes).get("group", 1)
    filters = node.outputs[0].shape[1]
    if not isinstance(groups, int) or not isinstance(filters, Const):
        return True
    return groups != 1 and int(filters.value) // groups % width != 0


def fills_blocks(channels: Expr, width: int) -> bool:
    """Whether blocks of ``width`` waste little."""
    if not isinstance(channels, Const) or channels.value <= 0:
        return False
    count = int(channels.value)
    return -(-count // width) * width <= _WASTE * count


def _is_channelwise(node: Node, lanes: Mapping[Value, int], width: int) -> bool:
    """Whether each channel of the result is computed from the same channel of the inputs, or from whole blocks on."""
    if any(lanes.get(v, width) != width for v in node.inputs if v is not None):
        return False
    result = apply(node.op, node.inputs, dict(node.attributes))[0]
    return all(_keeps_channels(op, width) for op in topological_order([result]) if not isinstance(op, Placeholder))


def _keeps_channels(op: Operation, width: int) -> bool:
    if not isinstance(op, Compute) or len(op.axes) < 3:
        return False
    channel = op.axes[1].var
    bounds = Bounds({axis.var: axis.extent for axis in (*op.axes, *op.reduce_axis)})
    for source, indices in reads_of(op):
        has_channels = source.ndim == len(op.axes) and source.shape[1] != ONE
        if has_channels and simplify((indices[1] - channel) % width, bounds) != ZERO:
            return False
    return True


def _with_copies(graph: Graph, lanes: Mapping[Value, int], copies: _Copies) -> tuple[Graph, Mapping[Value, Value]]:
    """Plain copies for those who can't read blocks, and what blocked values are called: one that leaves the graph
    gives its name to its copy."""
    outputs = frozenset(graph.outputs)
    copied = {v for node in graph.nodes for v in _read_plain(node, lanes)} | outputs.intersection(lanes)
    blocks = {v: copies.of(v, "blocked") if v in outputs else v for v in lanes}
    plain = {v: v if v in outputs else copies.of(v, "plain") for v in copied}
    nodes: list[Node] = []
    for node in graph.nodes:
        called = {**blocks, **{v: plain[v] for v in _read_plain(node, lanes)}}
        inputs = tuple(v if v is None else called.get(v, v) for v in node.inputs)
        nodes.append(replace(node, inputs=inputs, outputs=tuple(blocks.get(v, v) for v in node.outputs)))
        for value in copied.intersection(node.outputs):
            nodes.append(make_node(_COPY, [blocks[value]], [plain[value].name], {}, node.source))
    return replace(graph, nodes=tuple(nodes)), blocks


def _read_plain(node: Node, lanes: Mapping[Value, int]) -> list[Value]:
    """The blocked values that ``node`` would read in vain: it needs them row-major."""
    if node.op.name in _READERS or any(v in lanes for v in node.outputs):
        return []
    return [v for v in node.inputs if v is not None and v in lanes and not _is_row_major(v, lanes[v])]


def _is_row_major(value: Value, width: int) -> bool:
    return is_row_major(blocked(len(value.shape), width), value.shape)
