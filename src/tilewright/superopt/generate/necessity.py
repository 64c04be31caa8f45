"""Keeps the rules that a search needs: alone, or as a step to what another one makes.

The *uses* of a rule are graphs of its sources, one for each regime of sizes at which it pays. A rule is *needed* if in
one of its uses the search, by the rules kept so far, finds nothing as cheap as its targets. Rules are taken in order of
size, so those that follow from smaller ones go.

A rule that pays nowhere may still be a *step*: undone in the graph of another rule's sources, it gives a graph in which
that rule does not match before the step is taken. It is kept if the search then finds less with it than without.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from tilewright.base.errors import BadProgram, InternalError
from tilewright.graph import Graph
from tilewright.passes.rules import Rule, index_of, matches
from tilewright.passes.rules.apply import applied
from tilewright.passes.rules.terms import Apply
from tilewright.superopt.costs.provider import cost_by_nodes
from tilewright.superopt.evaluate.instances import Instance
from tilewright.superopt.generate.counting import Counted, graph_of
from tilewright.superopt.generate.gains import LEADING, regimes
from tilewright.superopt.generate.rewriting import turned, variables_in
from tilewright.superopt.search.backtracking import Backtracking, Limits

_COSTS = Counted()
_LIMITS = Limits(alpha=1.05, pops=8, matches=2, nodes=40)
_LESS = 0.97
"""The maximum ratio of costs that counts as less."""
_PLACES = 2
"""The places of a graph at which a step is undone."""


@dataclass(frozen=True, slots=True)
class Use:
    """A graph, and the cost that a rule reaches there."""

    graph: Graph
    cost: float


def uses(rule: Rule) -> Iterator[Use]:
    """For each regime the first graph of the sources of ``rule`` that costs more than that of its targets."""
    leading = {variable.leading: (LEADING,) for variable in rule.variables if variable.leading}
    for regime in regimes(rule):
        for sizes in regime:
            try:
                graph, made = (graph_of(rule, Instance(sizes, leading), side) for side in (rule.sources, rule.targets))
            except BadProgram:
                continue
            cost = cost_by_nodes(made, _COSTS)
            if cost < _LESS * cost_by_nodes(graph, _COSTS):
                yield Use(graph, cost)
                break


@dataclass(slots=True)
class Kept:
    """The rules that are needed so far, and their uses. ``given``: rules that are there anyway."""

    given: Sequence[Rule] = ()
    rules: list[Rule] = field(default_factory=list[Rule])
    graphs: list[Graph] = field(default_factory=list[Graph])

    def add_needed(self, rules: Iterable[Rule]) -> None:
        """Add those of ``rules`` that are needed, in this order."""
        for rule in rules:
            found = list(uses(rule))
            if any(self._best(use.graph) > use.cost / _LESS for use in found):
                self.rules.append(rule)
                self.graphs += [use.graph for use in found]

    def add_steps(self, rules: Iterable[Rule]) -> None:
        """Add those of ``rules`` that lead to sources of others."""
        graphs = list(self.graphs)
        for rule in rules:
            undone = (before for graph in graphs for before in _undone(rule, graph))
            if any(self._best(before, rule) < _LESS * self._best(before) for before in undone):
                self.rules.append(rule)

    def _best(self, graph: Graph, *more: Rule) -> float:
        """The cost of what a search finds for ``graph``, with ``more`` rules."""
        return Backtracking([*self.given, *self.rules, *more], _COSTS, _LIMITS).best(graph).cost


def _undone(rule: Rule, graph: Graph) -> Iterator[Graph]:
    """Graphs that ``rule`` turns into ``graph``."""
    back = turned(rule)
    if not all(isinstance(source, Apply) for source in back.sources) or not variables_in(back.targets) <= variables_in(back.sources):
        return
    for _, match in zip(range(_PLACES), matches(back, index_of(graph)), strict=False):
        try:
            yield applied(graph, match)
        except (BadProgram, InternalError):
            continue
