"""Applies rules wherever they match until none does: the pass that always runs.

The first rule of a list that matches at a node is applied. A sweep goes over the graph once and applies all matches
that share no node with an earlier one; the graph is rebuilt once for each sweep. Target terms over weights only are
folded at once; if the result is not finite, there is no match.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from tilewright.base.errors import InternalError
from tilewright.base.names import Names
from tilewright.graph import Graph, Node
from tilewright.passes.rules.apply import spliced
from tilewright.passes.rules.build import Match, Replacement, replacement
from tilewright.passes.rules.index import Index, index_of
from tilewright.passes.rules.match import matches_at
from tilewright.passes.rules.terms import Rule
from tilewright.passes.rules.unify import first_source, operators_below

SWEEPS = 100
"""Maximum sweeps: more than any terminating list of rules needs."""
GROWTH = 16
"""Nodes of a graph after all sweeps, at most, for each node before them."""
FEW = 1000
"""Nodes that are always allowed."""


def rewrite(graph: Graph, rules: Sequence[Rule]) -> Graph:
    """``graph`` with ``rules`` applied. Raises ``InternalError`` for rules that do not terminate."""
    for after, _ in sweeps(graph, rules):
        graph = after
    return graph


def sweeps(graph: Graph, rules: Sequence[Rule], *, fold: bool = True) -> Iterator[tuple[Graph, Sequence[Replacement]]]:
    """The graph after each sweep with matches, and its replacements. ``fold``: fold terms over weights; if not, no rule
    is applied to what is computed of weights.

    Raises ``InternalError``, naming the rules, if there are more than ``SWEEPS``, or if the graph grows by more than
    ``GROWTH``: a rule that matches in its own target may double it in each sweep.
    """
    limit = max(GROWTH * len(graph.nodes), FEW)
    by_operator: dict[str, list[Rule]] = {}
    for rule in rules:
        by_operator.setdefault(first_source(rule).op.name, []).append(rule)
    made: list[Replacement] = []
    for _ in range(SWEEPS):
        sweep = _Sweep(index_of(graph), by_operator, graph.names(), fold)
        made = sweep.replacements()
        if not made:
            return
        graph = spliced(graph, made)
        if len(graph.nodes) > limit:
            names = _listed(one.match.rule.name for one in made if len(one.nodes) > len(one.match.nodes))
            grown = f"a graph of {len(graph.nodes)} nodes (at most {limit} are allowed for this model)"
            raise InternalError(f"{names} made {grown}: what they make matches them again")
        yield graph, made
    names = _listed(one.match.rule.name for one in made)
    raise InternalError(f"after {SWEEPS} sweeps, {names} still match: what they make matches them again")


def _listed(names: Iterable[str]) -> str:
    return ", ".join(sorted(set(names)))


@dataclass(slots=True)
class _Sweep:
    """One pass over a graph, and the nodes taken so far."""

    index: Index
    rules: Mapping[str, Sequence[Rule]]
    names: Names
    fold: bool
    taken: set[str] = field(default_factory=set[str])
    has_several: bool = False
    """Whether a match with several sources is among them: two of those could form a cycle."""

    def replacements(self) -> list[Replacement]:
        """The replacements of this sweep."""
        found = (self._at(node) for node in self.index.graph.nodes if self._is_open(node))
        return [one for one in found if one is not None]

    def _is_open(self, node: Node) -> bool:
        """Whether a rule may match at ``node``: what is computed of weights is left alone, if it is not folded."""
        return node.op.name in self.rules and (self.fold or node.outputs[0].name not in self.index.weights)

    def _at(self, node: Node) -> Replacement | None:
        operands = self.index.operands[node.outputs[0].name]
        for rule in self.rules[node.op.name]:
            if not operators_below(first_source(rule)) <= operands:
                continue
            for match in matches_at(rule, node, self.index):
                if self._is_taken(match):
                    return None  # in the next sweep: a later rule must not take precedence
                made = replacement(match, self.names, self.index.leaving, self.index.arrays if self.fold else None)
                if made is not None:
                    self.taken.update(one.outputs[0].name for one in match.nodes)
                    self.has_several |= len(rule.sources) > 1
                    return made
        return None

    def _is_taken(self, match: Match) -> bool:
        several = self.has_several and len(match.rule.sources) > 1
        return several or any(node.outputs[0].name in self.taken for node in match.nodes)
