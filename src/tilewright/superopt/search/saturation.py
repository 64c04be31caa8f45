"""Applies rules to an e-graph, round by round, until it is saturated or the budget is used up.

Equality saturation (Tate et al., POPL 2009) for tensor graphs, after Yang et al. ("Equality Saturation for Tensor
Graph Superoptimization", MLSys 2021). Each round finds all matches, removes those that would create cycles, and
applies the rest.

Rules with several sources merge nodes that only share operands: of ``n`` products of one matrix, any subset in any
order. To bound them, they run in the first rounds only, and merge neighbours (no source of another match lies between
them); a merged node then represents the range of its sources. There are less than ``n^2`` ranges; each is created once.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise, zip_longest

from tilewright.base.exact import Exact
from tilewright.base.names import Names
from tilewright.graph import Graph, Value
from tilewright.passes.rules.binding import Binding
from tilewright.passes.rules.build import Match, Replacement, replacement
from tilewright.passes.rules.terms import Rule
from tilewright.passes.rules.unify import bindings_at, first_source, places
from tilewright.superopt.costs.provider import WORTH, CostProvider, cost_by_nodes
from tilewright.superopt.search.egraph import EGraph, View
from tilewright.superopt.search.extraction import Extracted, extract, extract_greedily


@dataclass(frozen=True, slots=True)
class Budget:
    """Limits of saturation: counts, not times, so that the e-graph is the same on every machine."""

    rounds: int = 6
    nodes: int = 5_000
    merging_rounds: int = 3
    """The number of first rounds in which rules with several sources are applied."""


DEFAULT_BUDGET = Budget()


@dataclass(frozen=True, slots=True)
class Round:
    """Statistics of a round: new matches that were ``applied``, that were ``cyclic``, and that were ``left`` as the
    budget was used up. ``nodes``, ``classes``: their number after the round.
    """

    applied: int
    cyclic: int
    left: int
    nodes: int
    classes: int


@dataclass(frozen=True, slots=True)
class Saturated:
    """The e-graph of a graph after saturation, and its rounds."""

    egraph: EGraph
    rounds: tuple[Round, ...]


def saturate(graph: Graph, rules: Sequence[Rule], budget: Budget = DEFAULT_BUDGET) -> Saturated:
    """The e-graph of ``graph`` after as many rounds of ``rules`` as ``budget`` allows."""
    growth = _Growth(EGraph(graph), budget)
    rounds: list[Round] = []
    for number in range(budget.rounds):
        merges = number < budget.merging_rounds
        rounds.append(growth.round([rule for rule in rules if merges or len(rule.sources) == 1]))
        if rounds[-1].left or not rounds[-1].applied:
            break
    return Saturated(growth.egraph, tuple(rounds))


_Range = tuple[int, int]
"""Ages of the oldest and the newest source of a merge."""


@dataclass(slots=True)
class _Growth:
    """An e-graph, with the applied matches."""

    egraph: EGraph
    budget: Budget
    done: set[tuple[object, ...]] = field(default_factory=set[tuple[object, ...]])
    ranges: dict[str, _Range] = field(default_factory=dict[str, _Range])
    """The ranges of merged values."""
    merged: set[tuple[str, int, int]] = field(default_factory=set[tuple[str, int, int]])
    """The merged ranges, with their rules."""

    def round(self, rules: Sequence[Rule]) -> Round:
        """Find all matches, then apply them, as far as the budget allows."""
        view = self.egraph.view()
        possible = [self._possible(rule, view) for rule in rules]
        matches = list(_in_turn([several for several, _ in possible]))
        applied = left = 0
        for position, made in enumerate(map(_made, matches)):
            if made is not None and len(self.egraph.nodes) + len(made.nodes) > self.budget.nodes:
                left = len(matches) - position
                break
            if made is not None:
                self._include(made)
                applied += 1
        self.egraph.rebuild()
        cyclic = sum(several for _, several in possible)
        return Round(applied, cyclic, left, len(self.egraph.nodes), len(self.egraph.classes))

    def _possible(self, rule: Rule, view: View) -> tuple[list[Match], int]:
        """New matches, and the number of those removed because they would create a cycle."""
        found = list(self._new_matches(rule, view))
        if len(rule.sources) == 1:
            return found, 0
        possible = [match for match in found if not _is_cyclic(match, view)]
        return self._neighbours(possible), len(found) - len(possible)

    def _new_matches(self, rule: Rule, view: View) -> Iterator[Match]:
        first = first_source(rule)
        for node in places(rule, view.lookup):
            if first.output >= len(node.outputs) or node.outputs[first.output].name in view.lookup.weights:
                continue  # values known at compile time cost nothing
            for binding in bindings_at(rule, node, view.lookup):
                key = _key(rule, binding)
                if key not in self.done:
                    self.done.add(key)
                    yield Match(rule, binding, (node,))

    def _neighbours(self, matches: Sequence[Match]) -> list[Match]:
        """The matches of one rule that merge neighbours, each range once."""
        ranged = [(sorted(map(self._range, match.replaced)), match) for match in matches]
        ranged = [(ranges, match) for ranges, match in ranged if all(a[1] < b[0] for a, b in pairwise(ranges))]
        nearest: dict[_Range, list[int]] = {}
        for (first, *others), _ in ranged:
            starts = [start for start, _ in others]
            nearest[first] = min(starts, nearest.get(first, starts))
        return [match for ranges, match in ranged if self._is_next(match.rule, ranges, nearest[ranges[0]])]

    def _is_next(self, rule: Rule, ranges: Sequence[_Range], nearest: Sequence[int]) -> bool:
        key = (rule.name, ranges[0][0], ranges[-1][1])
        if key in self.merged or [start for start, _ in ranges[1:]] != nearest:
            return False
        self.merged.add(key)
        return True

    def _range(self, value: Value) -> _Range:
        age = self.egraph.age(value.name)
        return self.ranges.get(value.name, (age, age))

    def _include(self, made: Replacement) -> None:
        new = self.egraph.include(made)
        if len(made.match.rule.sources) > 1:
            ranges = sorted(map(self._range, made.match.replaced))
            self.ranges |= {value.name: (ranges[0][0], ranges[-1][1]) for value in new}


def _made(match: Match) -> Replacement | None:
    """The targets of a match, if they are well-typed. Names are unique within the match only."""
    return replacement(match, Names(value.name for value in match.binding.values.values()), frozenset())


def _key(rule: Rule, binding: Binding) -> tuple[object, ...]:
    """A key that is equal for matches with equal targets."""
    values = tuple(binding.values[term].name for term in (*rule.variables, *rule.sources) if term in binding.values)
    rests = frozenset((name, Exact(attributes)) for name, attributes in binding.rests.items())
    return rule.name, values, frozenset(binding.symbols.items()), rests


def _is_cyclic(match: Match, view: View) -> bool:
    """Whether a target would depend on the source of another target."""
    read = [match.binding.values[variable].name for variable in match.rule.variables]
    return any(view.is_made_of(name, source.name) for name in read for source in match.replaced)


def _in_turn(several: Sequence[Sequence[Match]]) -> Iterator[Match]:
    """Matches of all rules, in turns, so that all rules share the budget."""
    for one in zip_longest(*several):
        yield from (match for match in one if match is not None)


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of the search. ``seconds``: time for an optimal extraction; 0 for a greedy one."""

    budget: Budget = DEFAULT_BUDGET
    seconds: float = 20.0


DEFAULT_LIMITS = Limits()


def optimize_by_saturation(
    graph: Graph, rules: Sequence[Rule], costs: CostProvider, limits: Limits = DEFAULT_LIMITS
) -> Extracted:
    """The cheapest graph found with ``rules`` within ``limits``; ``graph`` itself if none costs less.

    Needs the extra ``superopt``, except for ``seconds=0``. Raises ``BadInput`` if highspy is not installed.
    """
    egraph = saturate(graph, rules, limits.budget).egraph
    found = extract(egraph, costs, limits.seconds) if limits.seconds > 0 else extract_greedily(egraph, costs)
    cost = cost_by_nodes(graph, costs)
    return found if found.cost < cost * (1 - WORTH) else Extracted(graph, cost, {}, found.is_proven)
