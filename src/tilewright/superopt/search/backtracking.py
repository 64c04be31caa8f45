"""Cost-based backtracking over graphs, as in Jia et al., "TASO" (SOSP 2019), section 5.

A priority queue has graphs by cost. The cheapest is removed, and all graphs that result from one application of a rule
are added, if they are new and cost less than ``alpha`` times the best so far: a small increase may be needed to reach
a lower cost. As networks repeat their parts, applying a rule wherever it pays is also one move.
"""

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import islice

from tilewright.base.errors import InternalError
from tilewright.base.names import Names
from tilewright.graph import Graph, Node
from tilewright.passes.rules import Index, Rule, index_of
from tilewright.passes.rules.apply import spliced
from tilewright.passes.rules.build import Replacement, replacement
from tilewright.passes.rules.match import matches_at
from tilewright.passes.rules.unify import places
from tilewright.superopt.costs.memory import peak_memory
from tilewright.superopt.costs.provider import WORTH, CostProvider, cost_by_nodes
from tilewright.superopt.search.fingerprint import fingerprint
from tilewright.superopt.search.result import State, applied_by


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of a search.

    ``alpha``: maximum cost of a graph, relative to the best; ``pops``: number of graphs removed from the queue;
    ``matches``: maximum single applications of each rule to a graph; ``nodes``: maximum growth of a graph, without the
    nodes that compute weights.
    """

    alpha: float = 1.05
    pops: int = 40
    matches: int = 6
    nodes: int = 200


@dataclass(frozen=True, slots=True)
class Backtracking:
    """A search with some rules.

    ``is_time_left``: returns false to end the search early. ``memory``: maximum bytes of a graph (``peak_memory``) that
    needs more than the given one; None for no limit.
    """

    rules: Sequence[Rule]
    costs: CostProvider
    limits: Limits = field(default_factory=Limits)
    is_time_left: Callable[[], bool] = lambda: True
    memory: int | None = None

    def best(self, graph: Graph) -> State:
        """The cheapest graph found; ``graph`` itself, if none costs less."""
        best = start = State(graph, self.cost(graph))
        waiting = [(start.cost, 0, start)]
        seen, most = {fingerprint(graph)}, len(graph.nodes) + self.limits.nodes
        memory = None if self.memory is None else max(self.memory, peak_memory(graph))
        for _ in range(self.limits.pops):
            if not waiting or not self.is_time_left():
                break
            _, _, state = heappop(waiting)
            if state.cost > self.limits.alpha * best.cost:
                break
            for found in self._neighbours(state):
                key = fingerprint(found.graph)
                if key in seen or _is_larger(found.graph, most) or found.cost > self.limits.alpha * best.cost:
                    continue
                seen.add(key)
                if memory is not None and peak_memory(found.graph) > memory:
                    continue
                heappush(waiting, (found.cost, len(seen), found))
                best = found if found.cost < best.cost * (1 - WORTH) else best
        return best

    def gains(self, graph: Graph, rule: Rule) -> list[float]:
        """For each match of ``rule`` in ``graph``, the reduction of the nodes' cost by applying it."""
        index, found = index_of(graph), dict[frozenset[str], float]()
        for made in self._applications(rule, index, graph.names()):
            place = frozenset(node.outputs[0].name for node in made.match.nodes)
            found[place] = max(self._gain(made, index), found.get(place, -math.inf))
        return list(found.values())

    def cost(self, graph: Graph) -> float:
        """The total cost of the nodes of ``graph``."""
        return cost_by_nodes(graph, self.costs)

    def _sum(self, nodes: Iterable[Node], weights: Collection[str]) -> float:
        return sum(self.costs.of_node(node, weights) for node in nodes if node.outputs[0].name not in weights)

    def _neighbours(self, state: State) -> Iterator[State]:
        """What one application of a rule makes, or one rule wherever it pays, or all rules after one another."""
        index, names = index_of(state.graph), state.graph.names()
        together, at = state, index
        for rule in self.rules:
            if not self.is_time_left():
                return
            found = list(islice(self._applications(rule, index, names), self.limits.matches))
            for made in found:
                yield self._after(state, index, [made])
            alone = self._everywhere(state, index, rule) if found else (state, index)
            if len(found) > 1:
                yield alone[0]
            together, at = alone if together is state else self._everywhere(together, at, rule)
        if together is not state:
            yield together

    def _applications(self, rule: Rule, index: Index, names: Names) -> Iterator[Replacement]:
        for node in places(rule, index):
            for match in matches_at(rule, node, index):
                made = replacement(match, names, index.leaving)
                if made is not None:
                    yield made

    def _everywhere(self, state: State, index: Index, rule: Rule) -> tuple[State, Index]:
        """The state, and its index, after applying ``rule`` while that lowers the cost, to all such matches at once if
        possible."""
        while self.is_time_left():
            paying = self._paying(state, rule, index)
            if not paying:
                break
            try:
                state = self._after(state, index, paying)
            except InternalError:
                state = self._after(state, index, paying[:1])
            index = index_of(state.graph)
        return state, index

    def _paying(self, state: State, rule: Rule, index: Index) -> list[Replacement]:
        """Applications that lower the cost, without common nodes."""
        found: list[Replacement] = []
        taken: set[str] = set()
        for made in self._applications(rule, index, state.graph.names()):
            inside = {node.outputs[0].name for node in made.match.nodes}
            if taken.isdisjoint(inside) and self._gain(made, index) > WORTH * state.cost:
                found.append(made)
                taken |= inside
        return found

    def _gain(self, made: Replacement, index: Index) -> float:
        """The reduction of the nodes' cost by ``made``."""
        return self._sum(made.match.nodes, index.weights) - self._sum(made.nodes, _weights_with(made, index))

    def _after(self, state: State, index: Index, replacements: Sequence[Replacement]) -> State:
        """The state after ``replacements``. Raises ``InternalError`` if they form a cycle together."""
        graph = spliced(state.graph, replacements)
        left = {node.outputs[0].name: node for node in graph.nodes}
        cost, steps = state.cost, list(state.steps)
        for made in replacements:
            before = cost
            stays = {node.outputs[0].name for node in made.match.nodes if left.get(node.outputs[0].name) is node}
            cost -= self._sum((n for n in made.match.nodes if n.outputs[0].name not in stays), index.weights)
            cost += self._sum((n for n in made.nodes if n.outputs[0].name in left), _weights_with(made, index))
            steps.append(applied_by(made, before, cost))
        return State(graph, cost, tuple(steps))


def _is_larger(graph: Graph, most: int) -> bool:
    """Whether more than ``most`` nodes compute something that is no weight."""
    if len(graph.nodes) <= most:
        return False
    weights = index_of(graph).weights
    return sum(node.outputs[0].name not in weights for node in graph.nodes) > most


def _weights_with(made: Replacement, index: Index) -> Collection[str]:
    """The weights, including those that ``made`` computes from weights."""
    own = {value.name for value in made.constants}
    for node in made.nodes:
        if all(value is None or value.name in index.weights or value.name in own for value in node.inputs):
            own.update(value.name for value in node.outputs)
    return own | index.weights if own else index.weights
