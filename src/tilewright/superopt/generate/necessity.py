"""Keeps the rules that a search needs: alone, or as a step to what another one makes.

The *uses* of a rule are graphs of its sources, one for each regime of sizes at which it pays. A rule is *needed* if in
one of its uses the search, by the rules kept so far, finds nothing as cheap as its targets. Rules are taken in order of
size, so those that follow from smaller ones go.

A rule that pays nowhere may still be a *step*, after which another one matches (``steps``). It is kept if the search
finds less with it than without, in a graph from which it leads to the sources of that rule.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from tilewright.base.errors import BadProgram
from tilewright.graph import Graph
from tilewright.passes.rules import Rule
from tilewright.superopt.costs.provider import cost_by_nodes
from tilewright.superopt.evaluate.instances import Instance
from tilewright.superopt.generate.counting import Counted, graph_of
from tilewright.superopt.generate.gains import LEADING, regimes
from tilewright.superopt.generate.steps import leading_to
from tilewright.superopt.search.backtracking import Backtracking, Limits

_COSTS = Counted()
_LIMITS = Limits(alpha=1.05, pops=8, matches=2, nodes=40)
_LESS = 0.97
"""The maximum ratio of costs that counts as less."""


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

    def add_needed(self, rules: Iterable[Rule]) -> None:
        """Add those of ``rules`` that are needed, in this order."""
        for rule in rules:
            found = list(uses(rule))
            if any(self._best(use.graph) > use.cost / _LESS for use in found):
                self.rules.append(rule)

    def add_steps(self, steps: Iterable[Rule]) -> None:
        """Add those of ``steps`` that lead to sources of the rules."""
        rules = list(self.rules)
        for step in steps:
            before = (graph for rule in rules for made in leading_to(rule, step) for graph in _sources(made))
            if any(self._best(graph, step) < _LESS * self._best(graph) for graph in before):
                self.rules.append(step)

    def _best(self, graph: Graph, *more: Rule) -> float:
        """The cost of what a search finds for ``graph``, with ``more`` rules."""
        return Backtracking([*self.given, *self.rules, *more], _COSTS, _LIMITS).best(graph).cost


def _sources(rule: Rule) -> Iterator[Graph]:
    """Graphs of the sources of ``rule``: the first of each regime."""
    for regime in regimes(rule):
        with suppress(BadProgram):
            yield graph_of(rule, Instance(regime[0]), rule.sources)
