"""Optimizes graphs with rules: searches each piece, then ranks whole graphs.

The search minimizes sums over nodes, which ignore fusion and layouts. So the result with all rules competes with
the results without each of the applied rules, and they are ranked by the costs of whole graphs.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from types import MappingProxyType

from tilewright.base.numerics import Math
from tilewright.base.superopt import Strategy, Superopt
from tilewright.graph import Graph
from tilewright.passes.rules import (
    ALGEBRA,
    GENERATED,
    INTEGERS,
    SEARCH,
    Floats,
    Rule,
    is_permitted,
    load_rules,
    permitted_floats,
    permitted_rule,
    sweeps,
)
from tilewright.superopt.costs.memory import peak_memory
from tilewright.superopt.costs.provider import CostProvider, cost_by_nodes
from tilewright.superopt.search import saturation
from tilewright.superopt.search.backtracking import Backtracking, Limits
from tilewright.superopt.search.fingerprint import fingerprint
from tilewright.superopt.search.layers import forms_of
from tilewright.superopt.search.partition import searched
from tilewright.superopt.search.result import Applied, Optimized, State, applied_by
from tilewright.superopt.search.saturation import Budget, optimize_by_saturation


@dataclass(frozen=True, slots=True)
class Effort:
    """Limits of a search.

    ``piece``: maximum nodes of a piece; ``seconds``: total time; ``rivals``: how many of the applied rules are left
    out, one at a time. ``saturation``: limits of saturation for each piece. ``gain``: the minimum relative saving of
    the nodes' cost for which a whole graph is rated.
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
    """The default rules of a search: all built-in ones."""
    return tuple(rule for file in (ALGEBRA, SEARCH, INTEGERS, GENERATED) for rule in load_rules(file))


@dataclass(frozen=True, slots=True)
class Search:
    """Parameters of a search. ``memory``: see ``Backtracking``; ``clock``: in seconds.

    ``left_out``: rules that the numerics policy does not permit (``under``). ``splits_layers``: whether layers are read
    as products, factors and sums, which may round elsewhere.
    """

    rules: Sequence[Rule]
    effort: Effort
    strategy: Strategy = Strategy.BACKTRACKING
    memory: int | None = None
    clock: Callable[[], float] = time.monotonic
    left_out: tuple[Rule, ...] = ()
    splits_layers: bool = True

    @staticmethod
    def at(level: Superopt, memory: int | None = None) -> "Search":
        """The search of a level, with all built-in rules."""
        return Search(built_in_rules(), EFFORTS[level], memory=memory)

    def under(self, math: Math) -> "Search":
        """The search by those of its rules that ``math`` permits, perhaps for integers only; the others are
        ``left_out``."""
        kept = tuple(found for rule in self.rules if (found := permitted_rule(rule, math)) is not None)
        others = tuple(rule for rule in self.rules if not is_permitted(rule, math))
        splits = Floats.REASSOCIATES in permitted_floats(math)
        return replace(self, rules=kept, left_out=(*self.left_out, *others), splits_layers=splits)

    def optimize(self, graph: Graph, costs: CostProvider) -> list[Optimized]:
        """Equivalent graphs: those that cost less than ``graph``, the cheapest first; then those of which only the
        nodes cost less, the cheapest first; ``graph`` itself is the last.

        Computations on weights stay nodes, which the compiler folds later. Saturation needs the extra ``superopt``;
        raises ``BadInput`` if it is missing.
        """
        run = _Run(self, costs, self.clock() + self.effort.seconds)
        forms = forms_of(graph, self.rules) if self.splits_layers else (graph,)
        given = cost_by_nodes(forms[0], costs)
        searched_from = [(start, run.found(start, self.rules)) for form in forms for start in run.starts(form)]
        states = {fingerprint(best.graph): best for _, best in searched_from}
        for start, best in sorted(searched_from, key=lambda one: one[1].cost):
            for left_out in _most_applied(best)[: self.effort.rivals]:
                if run.is_time_left():
                    rival = run.found(start, [rule for rule in self.rules if rule is not left_out])
                    states.setdefault(fingerprint(rival.graph), rival)
        cheap = (state for state in states.values() if state.steps and state.cost < (1 - self.effort.gain) * given)
        fitting = [state for state in cheap if run.fits(state.graph, graph)]
        if not fitting:
            return [Optimized.unchanged(graph)]
        before = costs.of_graph(graph)
        found = (Optimized(graph, s.graph, s.steps, before, costs.of_graph(s.graph), s.cost) for s in fitting)
        return [*sorted(found, key=_rank), Optimized(graph, graph, (), before, before, given)]


@dataclass(frozen=True, slots=True)
class _Run:
    """A search in progress, with its deadline."""

    search: Search
    costs: CostProvider
    end: float

    def is_time_left(self) -> bool:
        return self.search.clock() < self.end

    def fits(self, graph: Graph, given: Graph) -> bool:
        """Whether ``graph`` satisfies the memory limit, or needs no more than ``given``."""
        memory = self.search.memory
        return memory is None or peak_memory(graph) <= max(memory, peak_memory(given))

    def starts(self, form: Graph) -> Iterator[State]:
        """What a search begins with: ``form``, and, if time is left, it after the rules that always run.

        What they make may cost more, node by node, than what it becomes by others (a normalization as a product and a
        sum).
        """
        yield State(form, cost_by_nodes(form, self.costs))
        always = set(load_rules(ALGEBRA))
        done = list(sweeps(form, [rule for rule in self.search.rules if rule in always], fold=False))
        if done and self.is_time_left():
            graph = done[-1][0]
            steps = (applied_by(one, 0.0, 0.0) for _, made in done for one in made)
            yield State(graph, cost_by_nodes(graph, self.costs), tuple(steps))

    def found(self, start: State, rules: Sequence[Rule]) -> State:
        """The best graph found with ``rules``, piece by piece."""
        search = self.search
        by = Backtracking(rules, self.costs, search.effort.limits, self.is_time_left, search.memory).best
        if search.strategy is Strategy.SATURATION:
            by = partial(self._saturated, rules=rules)
        made = searched(start.graph, search.effort.piece, by)
        return replace(made, steps=(*start.steps, *made.steps))

    def _saturated(self, piece: Graph, rules: Sequence[Rule]) -> State:
        """The result of saturation; ``piece`` itself if no time is left."""
        before = State(piece, cost_by_nodes(piece, self.costs))
        if not self.is_time_left():
            return before
        found = optimize_by_saturation(piece, rules, self.costs, self.search.effort.saturation)
        steps = (Applied(rule, (), tuple(made), before.cost, found.cost) for rule, made in found.made.items())
        return State(found.graph, found.cost, tuple(steps))


def _rank(found: Optimized) -> tuple[bool, float]:
    is_denied = found.cost_after >= found.cost_before
    return is_denied, found.cost_of_nodes if is_denied else found.cost_after


def _most_applied(state: State) -> list[Rule]:
    """The applied rules, by decreasing gain."""
    gains: dict[str, float] = {}
    rules = {step.rule.name: step.rule for step in state.steps}
    for step in state.steps:
        gains[step.rule.name] = gains.get(step.rule.name, 0.0) + step.cost_before - step.cost_after
    return [rules[name] for name in sorted(gains, key=lambda name: -gains[name])]
