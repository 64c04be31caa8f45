"""Where a graph is what the sources of a rule say.

::

    index = index_of(graph)
    for match in matches(rule, index):
        print(match.nodes)

Operators that commute match in either order. An inner value that others read, too, would be computed twice, so it is
no match; only views, which cost nothing, may have other readers. Rules are about rings: only what moves elements is
matched on anything but floats.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import permutations

import numpy as np

from tilewright.base.exact import Exact
from tilewright.base.names import Names
from tilewright.graph import Array, Node, Value
from tilewright.ops import FusionKind
from tilewright.passes.rules.binding import Binding
from tilewright.passes.rules.build import Match, replacement
from tilewright.passes.rules.index import Index
from tilewright.passes.rules.terms import Apply, Number, Rule, Term, Variable, subterms

_COMMUTATIVE = frozenset({"Add", "Max", "Min", "Mul"})
_MOVES = frozenset({"Concat", "Expand", "Slice", "Tile"})
"""Operators that compute nothing, besides the views."""
_ROUNDINGS = 2
"""How many units (relative: the dtype's epsilon) a rounded number may be off: ``1 / sqrt(2)`` is not ``sqrt(0.5)``."""


def matches(rule: Rule, index: Index) -> Iterator[Match]:
    """All matches of ``rule`` whose targets are well-typed, in the order of the graph."""
    for node in index.by_operator.get(_first(rule).op.name, ()):
        for match in matches_at(rule, node, index):
            if replacement(match, Names(()), index.leaving) is not None:
                yield match


def matches_at(rule: Rule, node: Node, index: Index) -> Iterator[Match]:
    """Those whose first source ``node`` makes; whether targets are well-typed there is left open."""
    first = _first(rule)
    if first.output >= len(node.outputs):
        return
    for binding in _matched(first, node.outputs[first.output], Binding(), index):
        for complete in _others(rule.sources, 1, binding, index):
            solved = complete.solved(rule, index.bounds)
            match = None if solved is None else _checked(rule, solved, index)
            if match is not None:
                yield match


def _first(rule: Rule) -> Apply:
    first = rule.sources[0]
    assert isinstance(first, Apply), "what is a variable or a number matches anything"
    return first


# Terms


def _others(sources: Sequence[Term], count: int, binding: Binding, index: Index) -> Iterator[Binding]:
    """All bindings of the sources after the first ``count``, which share values with those."""
    if count == len(sources):
        yield binding
        return
    source = sources[count]
    known = binding.values.get(source)
    taken = {binding.values[term].name for term in sources[:count]}
    for value in _within_reach(source, binding, index) if known is None else [known]:
        if value.name not in taken:
            for found in _matched(source, value, binding, index):
                yield from _others(sources, count + 1, found, index)


def _within_reach(source: Term, binding: Binding, index: Index) -> Iterable[Value]:
    """What ``source`` may be: what is made of values that are bound, if it has any."""
    assert isinstance(source, Apply), "a source is what an operator makes"
    for operand in source.operands:
        if operand in binding.values:
            below: Iterable[Value] = [binding.values[operand]]
        elif isinstance(operand, Apply) and any(term in binding.values for term in subterms([operand])):
            below = _within_reach(operand, binding, index)
        else:
            continue
        nodes = (node for value in below for node in index.readers.get(value.name, ()) if node.op is source.op)
        return [node.outputs[source.output] for node in nodes if source.output < len(node.outputs)]
    nodes = (node for node in index.by_operator.get(source.op.name, ()))
    return [node.outputs[source.output] for node in nodes if source.output < len(node.outputs)]


def _matched(term: Term, value: Value, binding: Binding, index: Index) -> Iterator[Binding]:
    """All ways in which ``value`` is ``term``."""
    known = binding.values.get(term)
    if known is not None:
        if known.name == value.name:
            yield binding
        return
    match term:
        case Variable():
            shaped = (
                None if term.is_weight and value.name not in index.weights else binding.with_shape(term, value.shape)
            )
            if shaped is not None:
                yield shaped.with_value(term, value)
        case Number(number):
            array = index.arrays.get(value.name)
            if array is not None and _stands_for(array, number):
                yield binding
        case Apply():
            yield from _applications(term, value, binding, index)


def _applications(term: Apply, value: Value, binding: Binding, index: Index) -> Iterator[Binding]:
    node = index.producers.get(value.name)
    if node is None or node.op is not term.op or node.outputs[term.output].name != value.name:
        return
    inputs = _operands(node)
    if inputs is None or len(inputs) != len(term.operands):
        return
    orders = [inputs]
    if term.op.name in _COMMUTATIVE:
        orders = [list(order) for order in dict.fromkeys(permutations(inputs))]
    for order in orders:
        if all(map(_may_be, term.operands, order, [index] * len(order))):
            for found in _all(term.operands, order, binding, index):
                bound = found.with_attributes(term, node)
                if bound is not None:
                    yield bound.with_value(term, value)


def _operands(node: Node) -> list[Value] | None:
    """Its inputs without those that are left out at the end; None if one in between is."""
    inputs = list(node.inputs)
    while inputs and inputs[-1] is None:
        inputs.pop()
    present = [value for value in inputs if value is not None]
    return present if len(present) == len(inputs) else None


def _may_be(term: Term, value: Value, index: Index) -> bool:
    """False if ``value`` is made by another operator than ``term``: seen at once, before anything is bound."""
    if not isinstance(term, Apply):
        return True
    node = index.producers.get(value.name)
    return node is not None and node.op is term.op


def _all(terms: Sequence[Term], values: Sequence[Value], binding: Binding, index: Index) -> Iterator[Binding]:
    if not terms:
        yield binding
        return
    for first in _matched(terms[0], values[0], binding, index):
        yield from _all(terms[1:], values[1:], first, index)


def _stands_for(array: Array, number: float) -> bool:
    """Whether all elements of ``array`` are how its dtype has ``number``.

    What has few digits (0.5, 3) must be that; what no float has (the root of 2) was rounded, perhaps more than once.
    """
    if not array.size or not _is(array, float(array.reshape(-1)[0]), number):
        return False
    return array.size == 1 or bool((array == array.reshape(-1)[0]).all())


def _is(array: Array, found: float, number: float) -> bool:
    if not np.issubdtype(array.dtype, np.floating) or float(np.float32(number)) == number:
        return Exact(found) == Exact(number)
    return abs(found - number) <= _ROUNDINGS * float(np.finfo(array.dtype.name).eps) * abs(number)


# What must hold of a whole match


def _checked(rule: Rule, binding: Binding, index: Index) -> Match | None:
    applied = [term for term in subterms(rule.sources) if isinstance(term, Apply)]
    made = {index.positions[binding.values[term].name] for term in applied}
    match = Match(rule, binding, tuple(index.graph.nodes[position] for position in sorted(made)))
    if not all(value.dtype.is_float for value in match.replaced) and any(map(_computes, applied)):
        return None
    return match if _is_closed(match, index) and _is_acyclic(match, index) else None


def _computes(term: Apply) -> bool:
    return term.op.kind is not FusionKind.VIEW and term.op.name not in _MOVES


def _is_closed(match: Match, index: Index) -> bool:
    """Whether nothing that costs anything is computed for others, too, on the way to the sources."""
    inside = {node.outputs[0].name for node in match.nodes}
    replaced = {value.name for value in match.replaced}
    staying: set[str] = set()
    for node in reversed(match.nodes):
        if _stays(node, inside - staying, replaced, index):
            if node.op.kind is not FusionKind.VIEW:
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
        waiting += [value.name for value in index.producers[name].inputs if value is not None]
    return True
