"""Cost-based backtracking over graphs, as in Jia et al., "TASO" (SOSP 2019), section 5.

Graphs wait in the order of their costs. The cheapest is taken, and all that one application of a rule makes of it waits
as well, if it is new and costs less than ``alpha`` times the best so far: what costs a little more may open the way to
what costs less. Networks repeat themselves, so a rule is also applied wherever it pays, as one move.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import islice

from tilewright.base.names import Names
from tilewright.graph import Graph, Node
from tilewright.passes.rules import Index, Rule, index_of
from tilewright.passes.rules.apply import spliced
from tilewright.passes.rules.build import Replacement, replacement
from tilewright.passes.rules.match import matches_at
from tilewright.passes.rules.unify import first_source
from tilewright.superopt.costs import CostProvider
from tilewright.superopt.fingerprint import fingerprint
from tilewright.superopt.result import Applied

WORTH = 1e-6
"""The part of a graph's cost by which an application must lower it to be worth anything: sums of floats are rounded."""


@dataclass(frozen=True, slots=True)
class Limits:
    """How far a search goes.

    ``alpha``: how much more than the best a graph may cost that is looked at; ``pops``: how many graphs are taken;
    ``matches``: of each rule in one graph, those that are tried one by one; ``nodes``: by how many a graph may grow.
    """

    alpha: float = 1.05
    pops: int = 40
    matches: int = 6
    nodes: int = 200


@dataclass(frozen=True, slots=True)
class State:
    """A graph, what its nodes cost, and how it came about."""

    graph: Graph
    cost: float
    steps: tuple[Applied, ...] = ()


@dataclass(frozen=True, slots=True)
class Backtracking:
    """A search with some rules. ``is_time_left``: whether another graph may be taken; it ends a search early."""

    rules: Sequence[Rule]
    costs: CostProvider
    limits: Limits = field(default_factory=Limits)
    is_time_left: Callable[[], bool] = lambda: True

    def best(self, graph: Graph) -> State:
        """What costs least of all that was found; ``graph`` itself, if nothing costs less."""
        best = start = State(graph, self.cost(graph))
        waiting = [(start.cost, 0, start)]
        seen, most = {fingerprint(graph)}, len(graph.nodes) + self.limits.nodes
        for _ in range(self.limits.pops):
            if not waiting or not self.is_time_left():
                break
            _, _, state = heappop(waiting)
            if state.cost > self.limits.alpha * best.cost:
                break
            for found in self._neighbours(state):
                key = fingerprint(found.graph)
                if key in seen or len(found.graph.nodes) > most or found.cost > self.limits.alpha * best.cost:
                    continue
                seen.add(key)
                heappush(waiting, (found.cost, len(seen), found))
                best = found if found.cost < best.cost * (1 - WORTH) else best
        return best

    def cost(self, graph: Graph) -> float:
        """What the nodes of ``graph`` cost together."""
        weights = index_of(graph).weights
        return self._sum(graph.nodes, weights)

    def _sum(self, nodes: Sequence[Node], weights: frozenset[str]) -> float:
        return sum(self.costs.of_node(node, weights) for node in nodes if node.outputs[0].name not in weights)

    def _neighbours(self, state: State) -> Iterator[State]:
        index, names = index_of(state.graph), state.graph.names()
        for rule in self.rules:
            found = list(islice(self._applications(rule, index, names), self.limits.matches))
            for made in found:
                yield self._after(state, made)
            if len(found) > 1:
                yield self._everywhere(state, rule)

    def _applications(self, rule: Rule, index: Index, names: Names) -> Iterator[Replacement]:
        for node in index.by_operator.get(first_source(rule).op.name, ()):
            for match in matches_at(rule, node, index):
                made = replacement(match, names, index.leaving)
                if made is not None:
                    yield made

    def _everywhere(self, state: State, rule: Rule) -> State:
        """``rule`` applied as long as that lowers the cost."""
        while True:
            index = index_of(state.graph)
            found = self._applications(rule, index, state.graph.names())
            paying = next((made for made in found if self._gain(made, index) > WORTH * state.cost), None)
            if paying is None:
                return state
            state = self._after(state, paying)

    def _gain(self, made: Replacement, index: Index) -> float:
        """By how much what ``made`` replaces costs more than it."""
        weights = set(index.weights)
        for node in made.nodes:
            if all(value is None or value.name in weights or value in made.constants for value in node.inputs):
                weights.update(value.name for value in node.outputs)
        known = frozenset(weights)
        return self._sum(made.match.nodes, index.weights) - self._sum(made.nodes, known)

    def _after(self, state: State, made: Replacement) -> State:
        graph = spliced(state.graph, [made])
        cost = self.cost(graph)
        replaced = tuple(value.name for value in made.match.replaced)
        names = tuple(value.name for node in made.nodes for value in node.outputs)
        step = Applied(made.match.rule, replaced, names, state.cost, cost)
        return State(graph, cost, (*state.steps, step))
