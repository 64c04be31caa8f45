"""Graphs optimized with rules: searched piece by piece, re-scored as wholes.

The search goes by sums over nodes, which know nothing of fusion and layouts. So what it found with all rules competes
with what it finds without each of the rules that were applied, and the order among them is that of whole graphs' costs.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from tilewright.base.superopt import Superopt
from tilewright.graph import Graph
from tilewright.passes.rules import ALGEBRA, SEARCH, Rule, load_rules
from tilewright.superopt.backtracking import Backtracking, Limits, State
from tilewright.superopt.costs import CostProvider
from tilewright.superopt.fingerprint import fingerprint
from tilewright.superopt.partition import searched
from tilewright.superopt.result import Optimized


@dataclass(frozen=True, slots=True)
class Effort:
    """What a search may spend. ``piece``: the most nodes of a piece; ``seconds``: of the search with all rules, and of
    all of it; ``rivals``: how many of the rules that were applied are left out, one at a time."""

    limits: Limits
    piece: int
    seconds: float
    rivals: int


EFFORTS: Mapping[Superopt, Effort] = MappingProxyType(
    {
        Superopt.FAST: Effort(Limits(pops=6, matches=3), 80, 3.0, 0),
        Superopt.MAX: Effort(Limits(pops=30, matches=6), 120, 40.0, 4),
    }
)


def built_in_rules() -> tuple[Rule, ...]:
    """What a search goes by if it is told nothing else: all rules that come with the compiler."""
    return (*load_rules(ALGEBRA), *load_rules(SEARCH))


def optimize(
    graph: Graph,
    rules: Sequence[Rule],
    costs: CostProvider,
    effort: Effort,
    clock: Callable[[], float] = time.monotonic,
) -> list[Optimized]:
    """Graphs that compute what ``graph`` does and cost no more, the cheapest first; ``graph`` itself is the last.

    Whatever rules make of weights stays as nodes: to fold it is the compiler's.
    """
    end = clock() + effort.seconds

    def found(allowed: Sequence[Rule]) -> State:
        search = Backtracking(allowed, costs, effort.limits, lambda: clock() < end)
        return searched(graph, effort.piece, search.best)

    before = costs.of_graph(graph)
    states = {fingerprint(graph): State(graph, 0.0)}
    best = found(rules)
    states.setdefault(fingerprint(best.graph), best)
    for left_out in _most_applied(best)[: effort.rivals]:
        rival = found([rule for rule in rules if rule is not left_out]) if clock() < end else best
        states.setdefault(fingerprint(rival.graph), rival)
    scored = [Optimized(graph, s.graph, s.steps, before, costs.of_graph(s.graph)) for s in states.values() if s.steps]
    paying = sorted((one for one in scored if one.cost_after < before), key=lambda one: one.cost_after)
    return [*paying, Optimized(graph, graph, (), before, before)]


def _most_applied(state: State) -> list[Rule]:
    """The rules of its steps, the one first that gained most."""
    gains: dict[str, float] = {}
    rules = {step.rule.name: step.rule for step in state.steps}
    for step in state.steps:
        gains[step.rule.name] = gains.get(step.rule.name, 0.0) + step.cost_before - step.cost_after
    return [rules[name] for name in sorted(gains, key=lambda name: -gains[name])]
