"""Graphs optimized with rules: searched piece by piece, re-scored as wholes.

The search goes by sums over nodes, which know nothing of fusion and layouts. So what it found with all rules competes
with what it finds without each of the rules that were applied, and the order among them is that of whole graphs' costs.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType

from tilewright.base.superopt import Strategy, Superopt
from tilewright.graph import Graph
from tilewright.passes.rules import ALGEBRA, GENERATED, SEARCH, Rule, load_rules
from tilewright.superopt.costs.memory import peak_memory
from tilewright.superopt.costs.provider import CostProvider, cost_by_nodes
from tilewright.superopt.search import saturation
from tilewright.superopt.search.backtracking import Backtracking, Limits
from tilewright.superopt.search.fingerprint import fingerprint
from tilewright.superopt.search.partition import searched
from tilewright.superopt.search.result import Applied, Optimized, State
from tilewright.superopt.search.saturation import Budget, optimize_by_saturation


@dataclass(frozen=True, slots=True)
class Effort:
    """What a search may spend.

    ``piece``: the most nodes of a piece; ``seconds``: of all of it; ``rivals``: how many of the rules that were applied
    are left out, one at a time. Saturation goes as far as ``saturation`` says in each piece. A graph is worth being
    priced as a whole if its nodes save ``gain`` of what those of the graph that was given cost.
    """

    limits: Limits
    piece: int
    seconds: float
    rivals: int
    saturation: saturation.Limits
    gain: float


EFFORTS: Mapping[Superopt, Effort] = MappingProxyType(
    {
        Superopt.FAST: Effort(Limits(pops=6, matches=3), 400, 4.0, 0, saturation.Limits(Budget(4, 1500), 2.0), 0.01),
        Superopt.MAX: Effort(Limits(pops=30, matches=6), 400, 25.0, 4, saturation.Limits(Budget(), 10.0), 0.0),
    }
)


def built_in_rules() -> tuple[Rule, ...]:
    """What a search goes by if it is told nothing else: all rules that come with the compiler."""
    return (*load_rules(ALGEBRA), *load_rules(SEARCH), *load_rules(GENERATED))


@dataclass(frozen=True, slots=True)
class Search:
    """By what and how it is searched. ``memory``: see ``Backtracking``; ``clock``: seconds."""

    rules: Sequence[Rule]
    effort: Effort
    strategy: Strategy = Strategy.BACKTRACKING
    memory: int | None = None
    clock: Callable[[], float] = time.monotonic

    @staticmethod
    def at(level: Superopt, memory: int | None = None) -> "Search":
        """That of a level, with all rules that come with the compiler."""
        return Search(built_in_rules(), EFFORTS[level], memory=memory)

    def optimize(self, graph: Graph, costs: CostProvider) -> list[Optimized]:
        """Graphs that compute what ``graph`` does and cost no more, the cheapest first; ``graph`` itself is the last.

        Whatever rules make of weights stays as nodes: to fold it is the compiler's. Saturation needs the extra
        ``superopt``; raises ``BadInput`` if it is missing.
        """
        run = _Run(self, costs, self.clock() + self.effort.seconds)
        given = State(graph, cost_by_nodes(graph, costs))
        states = {fingerprint(graph): given}
        best = run.found(graph, self.rules)
        states.setdefault(fingerprint(best.graph), best)
        for left_out in _most_applied(best)[: self.effort.rivals]:
            if run.is_time_left():
                rival = run.found(graph, [rule for rule in self.rules if rule is not left_out])
                states.setdefault(fingerprint(rival.graph), rival)
        cheap = (state for state in states.values() if state.cost < (1 - self.effort.gain) * given.cost)
        fitting = [state for state in cheap if run.fits(state.graph, graph)]
        if not fitting:
            return [Optimized.unchanged(graph)]
        before = costs.of_graph(graph)
        found = [Optimized(graph, one.graph, one.steps, before, costs.of_graph(one.graph)) for one in fitting]
        paying = sorted((one for one in found if one.cost_after < before), key=lambda one: one.cost_after)
        return [*paying, Optimized(graph, graph, (), before, before)]


@dataclass(frozen=True, slots=True)
class _Run:
    """A search that is under way, and when it ends."""

    search: Search
    costs: CostProvider
    end: float

    def is_time_left(self) -> bool:
        return self.search.clock() < self.end

    def fits(self, graph: Graph, given: Graph) -> bool:
        """Whether ``graph`` keeps within the limit of memory, or takes no more than ``given``."""
        memory = self.search.memory
        return memory is None or peak_memory(graph) <= max(memory, peak_memory(given))

    def found(self, graph: Graph, rules: Sequence[Rule]) -> State:
        """The best graph by ``rules``, piece by piece."""
        search = self.search
        by = Backtracking(rules, self.costs, search.effort.limits, self.is_time_left, search.memory).best
        if search.strategy is Strategy.SATURATION:
            by = partial(self._saturated, rules=rules)
        return searched(graph, search.effort.piece, by)

    def _saturated(self, piece: Graph, rules: Sequence[Rule]) -> State:
        """``piece`` itself where no time is left."""
        before = State(piece, cost_by_nodes(piece, self.costs))
        if not self.is_time_left():
            return before
        found = optimize_by_saturation(piece, rules, self.costs, self.search.effort.saturation)
        steps = (Applied(rule, (), tuple(made), before.cost, found.cost) for rule, made in found.made.items())
        return State(found.graph, found.cost, tuple(steps))


def _most_applied(state: State) -> list[Rule]:
    """The rules of its steps, the one first that gained most."""
    gains: dict[str, float] = {}
    rules = {step.rule.name: step.rule for step in state.steps}
    for step in state.steps:
        gains[step.rule.name] = gains.get(step.rule.name, 0.0) + step.cost_before - step.cost_after
    return [rules[name] for name in sorted(gains, key=lambda name: -gains[name])]
