"""The ways in which a node can be computed, what each is estimated to cost, and how its data and result are stored."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import chain
from math import prod

from tilewright.base.names import Names
from tilewright.base.numerics import Math
from tilewright.graph import Array, Graph, Node, Value
from tilewright.graph.ir import apply
from tilewright.passes.blocks import (
    Reads,
    can_be_blocked,
    filled,
    is_channelwise,
    is_depthwise,
    points,
    reads,
    reads_of_transform,
    width_of,
)
from tilewright.passes.phases import Interleaved, interleaved
from tilewright.passes.winograd import Rewriting, advantage, problem_of, product_cycles
from tilewright.symbolic.expr import Const
from tilewright.target.target import Target
from tilewright.tensor.ir import Compute, topological_order

OF_CONVOLUTIONS = frozenset(
    {"Conv", "PhaseConv", "WinogradInput", "WinogradProducts", "WinogradOutput", "PhasesToSpace"}
)
"""The operators that compute a convolution, in one alternative or another."""


@dataclass(frozen=True, slots=True)
class Alternative:
    """A way to compute a node.

    ``cycles``: on one core; ``more_bytes``: by which weights grow; ``tile``: outputs of a tile of Winograd's minimal
    filtering along each dimension, None for plain sums; ``phases``: the convolution, and what interleaves its channels,
    that compute a transposed one; ``measured_us``: what it took, if ``cycles`` are not just estimated.
    """

    cycles: float
    is_blocked: bool
    reads: Reads
    more_bytes: int = 0
    tile: int | None = None
    phases: Interleaved | None = None
    has_blocked_phases: bool = False
    measured_us: float | None = None

    @property
    def name(self) -> str:
        """Which one it is of those that a node has."""
        how = "direct" if self.tile is None else f"F({self.tile}x{self.tile})"
        phases = "" if self.phases is None else " of interleaved phases"
        return f"{how}{phases}, {'in blocks' if self.is_blocked else 'plain'}"

    def __str__(self) -> str:
        measured = "" if self.measured_us is None else f" (measured: {self.measured_us:.1f} us)"
        return f"{self.name}, {self.cycles:.3g} cycles{measured}"


@dataclass(frozen=True, slots=True)
class Ways:
    """What is needed to know the alternatives of nodes."""

    constants: Mapping[Value, Array]
    names: Names
    target: Target
    math: Math

    def of(self, node: Node, may_be_blocked: Collection[Value]) -> tuple[Alternative, ...]:
        """The alternatives of ``node``, given which of the values that it reads might be stored in blocks."""
        (result, *others) = node.outputs
        if others or len(result.shape) < 3:
            return (_plain(node, 0.0, self.target),)
        if node.op.name == "Conv":
            return tuple(chain(_sums(node, self.target), self._minimal_filtering(node)))
        if node.op.name == "PhaseConv":
            own = _phase_sums(node, self.target) if isinstance(result.shape[1], Const) else ()
            return tuple(chain(own, self._interleaved(node))) or (_plain(node, 0.0, self.target),)
        if self._follows(node, may_be_blocked):
            return tuple(_elementwise(node, self.target))
        return (_plain(node, 0.0, self.target),)

    def _follows(self, node: Node, may_be_blocked: Collection[Value]) -> bool:
        """Whether ``node`` can work on the blocks that others make."""
        if not can_be_blocked(node.outputs[0], self.target):
            return False
        widths = {width_of(v, self.target) for v in node.inputs if v is not None and v in may_be_blocked}
        return widths == {width_of(node.outputs[0], self.target)} and is_channelwise(node, self.target)

    def _minimal_filtering(self, node: Node) -> Iterator[Alternative]:
        """Winograd's, by tiles of each size that there is; not for strict numerics."""
        problem = None if self.math is Math.STRICT else problem_of(node, self.constants)
        data = node.inputs[0]
        if problem is not None and data is not None:
            blocked, how = can_be_blocked(node.outputs[0], self.target), reads_of_transform(data, self.target)
            for tile in problem.tiles:
                cycles = problem.cycles(tile, self.target) * _filled(node.outputs[0], self.target)
                yield Alternative(advantage(tile, self.math) * cycles, blocked, how, problem.more_bytes(tile), tile)

    def _interleaved(self, node: Node) -> Iterator[Alternative]:
        """All phases as channels of one convolution, in each way in which that can be computed."""
        phases = interleaved(node, self.constants, self.names)
        if phases is None:
            return
        inner = Ways(phases.parameters, self.names, self.target, self.math)
        result = node.outputs[0]
        whole = int(str(result.shape[1])) % width_of(result, self.target) == 0
        more = self.target.machine.transform_cycles * points(result.shape) / width_of(result, self.target)
        for way in inner.of(phases.convolution, ()):
            blocked = way.is_blocked and whole
            cycles = way.cycles + more
            yield Alternative(cycles, blocked, way.reads, way.more_bytes, way.tile, phases, way.is_blocked)


def _plain(node: Node, cycles: float, target: Target) -> Alternative:
    return Alternative(cycles, is_blocked=False, reads=reads(node, False, target))


def _sums(node: Node, target: Target) -> Iterator[Alternative]:
    """A convolution, in blocks of filters or by rows."""
    result, weight, data = node.outputs[0], node.inputs[1], node.inputs[0]
    assert weight is not None and data is not None, "a convolution has data and a weight"
    cycles = product_cycles(points(result.shape) * points(weight.shape[1:]), points(weight.shape), target)
    own, machine = is_depthwise(node), target.machine
    if can_be_blocked(result, target) and (not own or can_be_blocked(data, target)):
        yield Alternative(cycles * _filled(result, target), is_blocked=True, reads=reads(node, True, target))
    by_rows = machine.element_by_rows * _filled_rows(result, target) if own else machine.sum_by_rows
    yield _plain(node, cycles * by_rows, target)


def _phase_sums(node: Node, target: Target) -> Iterator[Alternative]:
    """A transposed convolution phase by phase: in blocks, as filters of neighbouring places are others."""
    result, weight = node.outputs[0], node.inputs[1]
    assert weight is not None, "a convolution has a weight"
    strides = prod(int(str(extent)) for extent in weight.shape[1 : len(weight.shape) // 2])
    products = points(result.shape) * points(weight.shape[1:]) // strides
    cycles = product_cycles(products, points(weight.shape), target)
    yield Alternative(cycles * _filled(result, target), is_blocked=True, reads=reads(node, True, target))


def _filled(value: Value, target: Target) -> float:
    channels = value.shape[1]
    return filled(int(channels.value), width_of(value, target)) if isinstance(channels, Const) else 1.0


def _filled_rows(value: Value, target: Target) -> float:
    """By how much rounding rows up to whole registers adds to the work on windows."""
    extent = value.shape[-1]
    count = int(extent.value) if isinstance(extent, Const) else 0
    return filled(count, width_of(value, target)) if count > 0 else 1.0


def _elementwise(node: Node, target: Target) -> Iterator[Alternative]:
    """What works channel by channel, in blocks or plain."""
    result = node.outputs[0]
    vectors = points(result.shape) / width_of(result, target)
    made = topological_order([apply(node.op, node.inputs, dict(node.attributes))[0]])
    is_window = any(isinstance(op, Compute) and op.reduce_axis for op in made)
    in_blocks = _filled(result, target)
    by_rows = target.machine.window_by_rows * _filled_rows(result, target)
    yield Alternative(vectors * (in_blocks if is_window else 1.0), is_blocked=True, reads=reads(node, True, target))
    yield _plain(node, vectors * (by_rows if is_window else target.machine.element_by_rows), target)


def rewrite(graph: Graph, chosen: Mapping[Value, Alternative], names: Names) -> tuple[Graph, frozenset[Value]]:
    """``graph`` with its nodes computed as ``chosen``, and the values that are stored in blocks."""
    rewriting = Rewriting(dict(graph.constants), names)
    nodes: list[Node] = []
    in_blocks = {value for value, way in chosen.items() if way.is_blocked}
    for node in graph.nodes:
        way = chosen.get(node.outputs[0])
        phases = None if way is None else way.phases
        sums = node if phases is None else phases.convolution
        if phases is not None and way is not None:
            rewriting.constants.update(phases.parameters)
            in_blocks.update(sums.outputs if way.has_blocked_phases else ())
        nodes.extend((sums,) if way is None or way.tile is None else rewriting.nodes(sums, way.tile))
        nodes.extend(() if phases is None else (phases.places,))
    return replace(graph, nodes=tuple(nodes), constants=rewriting.constants), frozenset(in_blocks)
