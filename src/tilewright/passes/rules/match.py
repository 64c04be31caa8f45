"""Finds where the sources of a rule match in a graph.

::

    index = index_of(graph)
    for match in matches(rule, index):
        print(match.nodes)

An inner value that others read, too, would be computed twice, so it is no match; only what computes nothing
(views, slices) may have other readers. What follows from one source must not be read by the target of another.
"""

from collections.abc import Iterator

from tilewright.base.names import Names
from tilewright.graph import Node
from tilewright.ops import Trait
from tilewright.passes.rules.binding import Binding
from tilewright.passes.rules.build import Match, replacement
from tilewright.passes.rules.index import Index
from tilewright.passes.rules.terms import Apply, Rule, Variable, subterms
from tilewright.passes.rules.unify import bindings_at, places


def matches(rule: Rule, index: Index) -> Iterator[Match]:
    """All matches of ``rule`` whose targets are well-typed, in the order of the graph."""
    for node in places(rule, index):
        for match in matches_at(rule, node, index):
            if replacement(match, Names(()), index.leaving) is not None:
                yield match


def matches_at(rule: Rule, node: Node, index: Index) -> Iterator[Match]:
    """Those whose first source ``node`` makes; whether targets are well-typed there is left open."""
    for binding in bindings_at(rule, node, index):
        match = _match(rule, binding, index)
        if _is_closed(match, index) and _is_acyclic(match, index):
            yield match


def _match(rule: Rule, binding: Binding, index: Index) -> Match:
    applied = (term for term in subterms(rule.sources) if isinstance(term, Apply))
    made = {index.positions[binding.values[term].name] for term in applied}
    return Match(rule, binding, tuple(index.graph.nodes[position] for position in sorted(made)))


def _is_closed(match: Match, index: Index) -> bool:
    """Whether nothing that costs anything is computed for others, too, on the way to the sources."""
    inside = {node.outputs[0].name for node in match.nodes}
    replaced = {value.name for value in match.replaced}
    staying: set[str] = set()
    for node in reversed(match.nodes):
        if _stays(node, inside - staying, replaced, index):
            if not node.op.has(Trait.MOVES):
                return False
            staying.add(node.outputs[0].name)
    return True


def _stays(node: Node, going: set[str], replaced: set[str], index: Index) -> bool:
    """Whether any but the nodes that are ``going`` read ``node``."""
    for value in node.outputs:
        readers = index.readers.get(value.name, ())
        if value.name not in replaced and (
            value.name in index.leaving or any(reader.outputs[0].name not in going for reader in readers)
        ):
            return True
    return False


def _is_acyclic(match: Match, index: Index) -> bool:
    """Whether nothing that the targets read follows from what they replace."""
    if len(match.rule.sources) == 1:
        return True
    replaced = {value.name for value in match.replaced}
    first = min(index.positions[name] for name in replaced)
    waiting = [value.name for term, value in match.binding.values.items() if isinstance(term, Variable)]
    seen: set[str] = set()
    while waiting:
        name = waiting.pop()
        if name in replaced:
            return False
        if name in seen or index.positions.get(name, -1) < first:
            continue
        seen.add(name)
        waiting += [value.name for node in index.producers[name] for value in node.inputs if value is not None]
    return True
