"""Chooses alternatives and layouts for a whole graph at once.

Each value is a variable: the way in which its node computes it, blocked or plain, and whether it is also copied to the
other layout. A node costs the estimated time of the way and of the copy; an edge costs reading data in another layout
(infinity if impossible), or saves what two nodes do in common. ``assignment`` minimizes the total, with a price for
memory.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from statistics import median

import numpy as np
from numpy.typing import NDArray

from tilewright.base.numerics import Math, Precision
from tilewright.graph import Array, Graph, Node, Value
from tilewright.graph.remade import without_numbers
from tilewright.passes.alternatives import BUILT_IN, Alternative, Facts, Way, candidates, facts_of
from tilewright.passes.alternatives.api import AS_IT_IS, computed
from tilewright.passes.assignment import assign
from tilewright.passes.blocks import Reads, can_be_blocked, is_plain_in_blocks, points, register_of, width_of
from tilewright.passes.layout import LaidOut, lay_out
from tilewright.symbolic.expr import Const
from tilewright.target.target import Target

ALWAYS, GROWTH = 128 << 20, 1.5
"""Without a limit of memory: the bytes by which weights may always grow, and by how many times those of the model."""
PRICES = 24
"""Steps of the search for the price of memory."""
GIVEN = Way(AS_IT_IS, 0.0)
"""The way of a value that is an input, or a further result of a node."""


@dataclass(frozen=True, slots=True)
class State:
    """How a value is computed, and whether it is then copied to the other layout."""

    way: Way
    is_copied: bool

    @property
    def has_blocks(self) -> bool:
        """Whether the value exists in blocks."""
        return self.way.is_blocked or self.is_copied

    @property
    def is_plain(self) -> bool:
        """Whether the value exists row-major."""
        return not self.way.is_blocked or self.is_copied


@dataclass(frozen=True, slots=True)
class Copy:
    """A copy of a value to or from the blocked layout."""

    value: Value
    from_blocks: bool


@dataclass(frozen=True, slots=True)
class Times:
    """Measured microseconds: of ways, by the first result of the node and their names; of copies."""

    ways: Mapping[Value, Mapping[str, float]]
    copies: Mapping[Copy, float]


@dataclass(frozen=True, slots=True)
class Choices:
    """A state for each value, the total estimated cost, and whether it is optimal."""

    graph: Graph
    states: Mapping[Value, State]
    facts: Facts
    cycles: float
    is_best: bool

    def __str__(self) -> str:
        known = [(value, state) for value, state in self.states.items() if state.way.cycles or state.is_copied]
        lines = [f"{v.name}: {s.way}{', copied to the other layout' * s.is_copied}" for v, s in known]
        return "\n".join([*lines, f"{self.cycles:.3g} cycles{'' if self.is_best else ', perhaps not the fewest'}"])

    @property
    def decisions(self) -> Mapping[str, tuple[str, bool]]:
        """The decision for each value, by name: how it is computed, and whether it is copied."""
        return {value.name: (state.way.name, state.is_copied) for value, state in self.states.items()}

    def ways(self) -> Iterator[tuple[Node, Way]]:
        """The nodes, and the way of each."""
        return ((node, self.states[node.outputs[0]].way) for node in self.graph.nodes)

    @property
    def more_bytes(self) -> int:
        """Growth of weights; filters that several nodes share are counted for each."""
        return sum(state.way.more_bytes for state in self.states.values())

    def without_numbers(self, make: Callable[[], "Choices"]) -> "Choices":
        """The same, without the arrays of large constants, which ``make`` makes again when one is read."""
        graph = without_numbers(self.graph, lambda: make().graph)
        return replace(self, graph=graph, facts=replace(self.facts, constants=graph.constants))

    def apply(self, constants: dict[Value, Array] | None = None) -> LaidOut:
        """The chosen graph, with copies where layouts change.

        ``constants``: those of the graph, of which each is dropped after its last use, unless the result has it.
        """
        ways = {value: state.way for value, state in self.states.items()}
        copied = frozenset(value for value, state in self.states.items() if state.is_copied)
        made = computed(self.graph, ways, self.facts.names, constants)
        return replace(
            lay_out(made, copied, self.facts.blocks), narrow=self.facts.narrow.multiplying(made.narrow, made.rounded)
        )


def usual_growth(graph: Graph) -> int:
    """The bytes by which larger weights may grow where no limit of memory is given.

    Transformed filters of three dimensions have up to eight times as many points: the last layers would save little
    time for a multiple of the model's size.
    """
    weights = sum(value.dtype.itemsize * points(value.shape) for value in graph.constants)
    return max(ALWAYS, int(GROWTH * weights))


def choose(
    graph: Graph,
    target: Target,
    math: Math = Math.DEFAULT,
    spare: int | None = None,
    times: Times | None = None,
    alternatives: Sequence[Alternative] = BUILT_IN,
    precision: Precision = Precision.FP32,
) -> Choices:
    """The assignment with the fewest estimated cycles, over all ``alternatives``; ``times`` replace estimates.

    ``spare``: maximum growth of weights in bytes; None for no limit. A price per byte is raised until it suffices.
    """
    problem = Problem.of(graph, facts_of(graph, target, math, alternatives, precision), times)
    choices = problem.solve(0.0)
    if spare is None or choices.more_bytes <= spare:
        return choices
    high = 1.0
    while problem.solve(high).more_bytes > spare:
        high *= 16.0
    low = 0.0
    for _ in range(PRICES):
        middle = (low + high) / 2
        low, high = (low, middle) if problem.solve(middle).more_bytes <= spare else (middle, high)
    return problem.solve(high)


@dataclass(slots=True)
class Problem:
    """The variables, and the costs of pairs of states."""

    graph: Graph
    facts: Facts
    copies: Mapping[Copy, float] = field(default_factory=dict[Copy, float])
    """Cycles of the measured copies."""
    states: dict[Value, tuple[State, ...]] = field(default_factory=dict[Value, tuple[State, ...]])
    edges: dict[tuple[Value, Value], NDArray[np.float64]] = field(
        default_factory=dict[tuple[Value, Value], NDArray[np.float64]]
    )

    @staticmethod
    def of(graph: Graph, facts: Facts, times: Times | None = None) -> "Problem":
        """That of ``graph``."""
        problem, math = Problem(graph, facts), facts.math
        ways = _ways(graph, facts)
        rate = None if times is None else _rate(ways, times, math)
        if times is not None and rate is not None:
            ways = {v: _measured(found, times.ways.get(v, {}), rate, math) for v, found in ways.items()}
            problem.copies = {copy: rate * microseconds for copy, microseconds in times.copies.items()}
        wanted = _wanted(graph, ways)
        leaving = frozenset(graph.outputs)
        for value in (*graph.inputs, *(v for node in graph.nodes for v in node.outputs)):
            ways_of_value, wants = ways.get(value, (GIVEN,)), wanted.get(value, frozenset())
            problem.states[value] = tuple(problem._states(value, ways_of_value, wants, leaves=value in leaving))
        for node in graph.nodes:
            for value in dict.fromkeys(v for v in node.inputs if v in problem.states):
                problem._read(value, node)
        for siblings in _siblings(graph):
            for one, next_one in pairwise(siblings):
                problem._share(one, next_one)
        return problem

    def kernels_that_copy(self) -> Iterator[Copy]:
        """All possible copies that take a separate kernel."""
        for value, states in self.states.items():
            for state in states:
                if state.is_copied and not self._stores_both(value, state):
                    yield Copy(value, state.way.is_blocked)

    def costs(self, value: Value, price: float) -> NDArray[np.float64]:
        """Costs of each state of ``value`` by itself, with ``price`` cycles per byte."""
        return np.array([s.way.cycles + price * s.way.more_bytes + self._copying(value, s) for s in self.states[value]])

    def solve(self, price: float) -> Choices:
        """The states with the lowest total cost. Only values with several states are given to the solver."""
        open_values = [value for value, states in self.states.items() if len(states) > 1]
        place = {value: position for position, value in enumerate(open_values)}
        nodes = [self.costs(value, price) for value in open_values]
        edges: dict[tuple[int, int], NDArray[np.float64]] = {}
        for (a, b), costs in self.edges.items():
            if a in place and b in place:
                edges[place[a], place[b]] = costs
            elif a in place or b in place:
                nodes[place[a if a in place else b]] += costs.reshape(-1)
        found = assign(nodes, edges)
        states = {value: states[0] for value, states in self.states.items()}
        states |= {v: self.states[v][choice] for v, choice in zip(open_values, found.choices, strict=True)}
        return Choices(self.graph, states, self.facts, found.cost, found.is_best)

    def _states(self, value: Value, ways: tuple[Way, ...], wants: frozenset[Reads], *, leaves: bool) -> Iterator[State]:
        for way in ways:
            if not (leaves and way.is_blocked):
                yield State(way, is_copied=False)
            if way.is_blocked and (leaves or Reads.PLAIN in wants):
                yield State(way, is_copied=True)
            if not way.is_blocked and can_be_blocked(value, self.facts.target) and wants & _BLOCKED:
                yield State(way, is_copied=True)

    def _read(self, value: Value, node: Node) -> None:
        """The costs for ``node`` of reading ``value``."""
        result = node.outputs[0]
        costs = np.array(
            [[self._reading(value, a, b.way.reads) for b in self.states[result]] for a in self.states[value]]
        )
        if costs.any():
            self.edges[value, result] = costs

    def _share(self, one: Value, other: Value) -> None:
        """What the ways of two nodes of the same data save if they begin with the same step. (Of three nodes, the first
        and the last save nothing if the one between them begins with another: an estimate that is too high.)"""
        saved = np.array([[_in_common(a.way, b.way) for b in self.states[other]] for a in self.states[one]])
        if saved.any():
            self.edges[one, other] = self.edges.get((one, other), 0.0) - saved

    def _reading(self, value: Value, state: State, how: Reads) -> float:
        match how:
            case Reads.AS_THEY_ARE:
                return 0.0
            case Reads.PLAIN:
                return 0.0 if state.is_plain or is_plain_in_blocks(value, self.facts.blocks) else np.inf
            case Reads.BLOCKED:
                return 0.0 if state.has_blocks else np.inf
            case Reads.RATHER_BLOCKED:
                return 0.0 if state.has_blocks else self.facts.target.machine.copy_cycles * self._vectors(value)

    def _copying(self, value: Value, state: State) -> float:
        """Of the copy, if there is one."""
        if not state.is_copied:
            return 0.0
        if self._stores_both(value, state):
            return self.facts.target.machine.copy_cycles * self._vectors(value)
        machine = self.facts.target.machine
        estimated = machine.copy_cycles * self._vectors(value) + machine.shared_kernel_start
        return self.copies.get(Copy(value, state.way.is_blocked), estimated)

    def _stores_both(self, value: Value, state: State) -> bool:
        """Whether the kernel that computes ``value`` can store it in both layouts, as it computes whole blocks."""
        channels = value.shape[1]
        whole = isinstance(channels, Const) and int(channels.value) % width_of(value, self.facts.blocks) == 0
        return state.way.is_blocked and whole

    def _vectors(self, value: Value) -> float:
        return points(value.shape) / register_of(value, self.facts.target)


_BLOCKED = frozenset({Reads.BLOCKED, Reads.RATHER_BLOCKED})


def _siblings(graph: Graph) -> Iterable[Sequence[Value]]:
    """The first results of nodes of the same data, in order."""
    found: dict[Value, list[Value]] = {}
    for node in graph.nodes:
        if node.inputs and node.inputs[0] is not None:
            found.setdefault(node.inputs[0], []).append(node.outputs[0])
    return found.values()


def _in_common(one: Way, other: Way) -> float:
    """The cycles of the first step of both ways, if it is the same."""
    a, b = one.first, other.first
    return 0.0 if a is None or b is None or (a.kind, one.reads) != (b.kind, other.reads) else min(a.cycles, b.cycles)


def _wanted(graph: Graph, ways: Mapping[Value, tuple[Way, ...]]) -> dict[Value, frozenset[Reads]]:
    """The possible layouts of each value."""
    wanted: dict[Value, frozenset[Reads]] = {}
    for node in graph.nodes:
        reads = frozenset(way.reads for way in ways[node.outputs[0]])
        for value in node.inputs:
            if value is not None:
                wanted[value] = wanted.get(value, frozenset()) | reads
    return wanted


def _ways(graph: Graph, facts: Facts) -> dict[Value, tuple[Way, ...]]:
    """The ways of each node, by its first result."""
    found: dict[Value, tuple[Way, ...]] = {}
    for node in graph.nodes:
        result = node.outputs[0]
        found[result] = candidates(node, facts)
        if any(way.is_blocked for way in found[result]):
            facts.may_be_blocked.add(result)
    return found


def _rate(every: Mapping[Value, tuple[Way, ...]], times: Times, math: Math) -> float | None:
    """Cycles per microsecond, by the median ratio of estimates and times; None without measurements."""
    rates: list[float] = []
    for value, ways in every.items():
        best = min(ways, key=lambda way: way.cycles)
        known = times.ways.get(value, {}).get(best.name)
        if known is not None:
            rates.append(best.cycles / (known * best.errors.handicap(math, is_measured=False)))
    return median(rates) if rates else None


def _measured(ways: tuple[Way, ...], known: Mapping[str, float], rate: float, math: Math) -> tuple[Way, ...]:
    """Ways with the measured cycles, if the best estimate's way was measured; other estimates are scaled along."""
    best = min(ways, key=lambda way: way.cycles)
    if best.name not in known:
        return ways
    off = known[best.name] * rate * best.errors.handicap(math, is_measured=False) / best.cycles

    def revised(way: Way) -> Way:
        way = replace(way, first=way.first and replace(way.first, cycles=way.first.cycles * off))
        microseconds = known.get(way.name)
        if microseconds is None:
            return replace(way, cycles=way.cycles * off)
        cycles = microseconds * rate * way.errors.handicap(math, is_measured=True)
        return replace(way, cycles=cycles, measured_us=microseconds)

    return tuple(map(revised, ways))
