"""Finds where the sources of a rule match in a graph.

::

    index = index_of(graph)
    for match in matches(rule, index):
        print(match.nodes)

An inner value with other readers would be computed twice, so it does not match; only values without computation (views,
slices) may have other readers. The target of one source must not depend on another source. A concatenation of two is
also found in a longer one, as neighbours.
"""

from collections.abc import Iterator

from tilewright.base.names import Names
from tilewright.graph import Node, make_node
from tilewright.ops import Trait
from tilewright.ops.operator import require
from tilewright.passes.rules.binding import Binding
from tilewright.passes.rules.build import Match, Part, replacement
from tilewright.passes.rules.index import Index
from tilewright.passes.rules.terms import Apply, Rule, Variable, subterms
from tilewright.passes.rules.unify import bindings_at, first_source, may_be, places

_CONCAT = require("Concat")


def matches(rule: Rule, index: Index) -> Iterator[Match]:
    """All matches of ``rule`` whose targets are well-typed, in the order of the graph."""
    for node in places(rule, index):
        for match in matches_at(rule, node, index):
            if replacement(match, Names(()), index.leaving) is not None:
                yield match


def matches_at(rule: Rule, node: Node, index: Index) -> Iterator[Match]:
    """Matches whose first source ``node`` computes, without a check that targets are well-typed."""
    for one, part in ((node, None), *_parts(rule, node, index)):
        for binding in bindings_at(rule, one, index):
            match = _match(rule, binding, index, part)
            if _is_closed(match, index) and _is_acyclic(match, index):
                yield match


def _parts(rule: Rule, node: Node, index: Index) -> Iterator[tuple[Node, Part]]:
    """The concatenations of as many neighbours as the source of ``rule`` has, of the operands of a longer one."""
    first, inputs = first_source(rule), [value for value in node.inputs if value is not None]
    count = len(first.operands)
    if first.op is not _CONCAT or len(rule.sources) > 1 or not 1 < count < len(inputs):
        return
    for start in range(len(inputs) - count + 1):
        before, those, after = inputs[:start], inputs[start : start + count], inputs[start + count :]
        if all(may_be(term, value, index) for term, value in zip(first.operands, those, strict=True)):
            names = [f"{value.name}.part" for value in node.outputs]
            made = make_node(node.op, those, names, dict(node.attributes), node.source)
            yield made, Part(node, tuple(before), tuple(after))


def _match(rule: Rule, binding: Binding, index: Index, part: Part | None) -> Match:
    applied = (binding.values[term].name for term in subterms(rule.sources) if isinstance(term, Apply))
    known = {} if part is None else {binding.values[rule.sources[0]].name: part.whole.outputs[0].name}
    made = {index.positions[known.get(name, name)] for name in applied}
    return Match(rule, binding, tuple(index.graph.nodes[position] for position in sorted(made)), part)


def _is_closed(match: Match, index: Index) -> bool:
    """Whether no costly inner value has readers outside of the match."""
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
    """Whether ``node`` has readers other than the nodes ``going``."""
    for value in node.outputs:
        readers = index.readers.get(value.name, ())
        if value.name not in replaced and (
            value.name in index.leaving or any(reader.outputs[0].name not in going for reader in readers)
        ):
            return True
    return False


def _is_acyclic(match: Match, index: Index) -> bool:
    """Whether the targets' operands do not depend on the replaced values."""
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
