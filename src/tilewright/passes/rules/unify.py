"""Unification: binds the names of a rule by matching its terms against values and nodes.

A value may have several nodes: in an e-graph, a class of equal values is one value here, and each of its nodes is tried
(e-matching: de Moura and Bjørner, "Efficient E-Matching for SMT Solvers", CADE 2007). Commutative operators match in
either order. Rules assume real arithmetic: on integers, only what holds for these matches (``kinds``).
"""

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import permutations

import numpy as np

from tilewright.base.exact import Exact
from tilewright.graph import Array, Node, Value
from tilewright.ops import Trait
from tilewright.passes.rules.binding import Binding
from tilewright.passes.rules.index import Lookup
from tilewright.passes.rules.kinds import fits, has_kinds, holds_for_integers, only_moves
from tilewright.passes.rules.terms import Apply, Number, Rule, Term, Variable, subterms

_ROUNDINGS = 2
"""Maximum relative error of a rounded number in epsilons of the dtype: ``1 / sqrt(2)`` is not ``sqrt(0.5)``."""


def first_source(rule: Rule) -> Apply:
    """The start of the search for ``rule``."""
    first = rule.sources[0]
    assert isinstance(first, Apply), "what is a variable or a number matches anything"
    return first


def places(rule: Rule, lookup: Lookup) -> Iterator[Node]:
    """The candidate nodes of the first source of ``rule``, by their operators and those of their operands."""
    first = first_source(rule)
    below = operators_below(first)
    for node in lookup.by_operator.get(first.op.name, ()):
        if below <= lookup.operands[node.outputs[0].name]:
            yield node


@lru_cache(maxsize=4096)
def operators_below(term: Apply) -> frozenset[str]:
    """The operators of its operands."""
    return frozenset(operand.op.name for operand in term.operands if isinstance(operand, Apply))


def bindings_at(rule: Rule, node: Node, lookup: Lookup) -> Iterator[Binding]:
    """All bindings that match the sources, the first one at ``node``, and fulfil ``rule``'s conditions.

    Duplicates are possible if nodes are equal in several ways. It does not check that targets are well-typed.
    """
    first = first_source(rule)
    if first.output >= len(node.outputs):
        return
    for binding in _applied(first, node, Binding(), lookup):
        for complete in _others(rule.sources, 1, binding, lookup):
            solved = complete.solved(rule, lookup.bounds)
            if solved is not None and _is_of_its_numbers(rule, solved):
                yield solved


def _is_of_its_numbers(rule: Rule, binding: Binding) -> bool:
    """Whether ``rule`` is about such numbers: floats, or integers if it holds for these, or moves elements only."""
    if has_kinds(rule) or (only_moves(rule) and not rule.only_integers):
        return True
    dtypes = {binding.values[term].dtype for term in subterms(rule.sources) if term in binding.values}
    if len(dtypes) == 1 and dtypes.pop().is_int:
        return holds_for_integers(rule)
    return not rule.only_integers and all(binding.values[source].dtype.is_float for source in rule.sources)


def _others(sources: Sequence[Term], count: int, binding: Binding, lookup: Lookup) -> Iterator[Binding]:
    """All bindings of the sources after the first ``count``, which share values with those."""
    if count == len(sources):
        yield binding
        return
    source = sources[count]
    known = binding.values.get(source)
    taken = {binding.values[term].name for term in sources[:count]}
    for value in _within_reach(source, binding, lookup) if known is None else [known]:
        if value.name not in taken:
            for found in _matched(source, value, binding, lookup):
                yield from _others(sources, count + 1, found, lookup)


def _within_reach(source: Term, binding: Binding, lookup: Lookup) -> Iterable[Value]:
    """Candidate values of ``source``: consumers of bound values, if it has any."""
    assert isinstance(source, Apply), "a source is what an operator makes"
    for operand in source.operands:
        if operand in binding.values:
            below: Iterable[Value] = [binding.values[operand]]
        elif isinstance(operand, Apply) and any(term in binding.values for term in subterms([operand])):
            below = _within_reach(operand, binding, lookup)
        else:
            continue
        nodes = (node for value in below for node in lookup.readers.get(value.name, ()) if node.op is source.op)
        return _results(source, nodes)
    return _results(source, lookup.by_operator.get(source.op.name, ()))


def _results(source: Apply, nodes: Iterable[Node]) -> Iterable[Value]:
    """The results of ``nodes`` in the position of ``source``, each value once."""
    made = (node.outputs[source.output] for node in nodes if source.output < len(node.outputs))
    return {value.name: value for value in made}.values()


def _matched(term: Term, value: Value, binding: Binding, lookup: Lookup) -> Iterator[Binding]:
    """All bindings for which ``value`` matches ``term``."""
    known = binding.values.get(term)
    if known is not None:
        if known.name == value.name:
            yield binding
        return
    match term:
        case Variable():
            is_such = fits(term, value, lookup.arrays) and (not term.is_weight or value.name in lookup.weights)
            shaped = binding.with_shape(term, value.shape) if is_such else None
            if shaped is not None:
                yield shaped.with_value(term, value)
        case Number(number):
            array = lookup.arrays.get(value.name)
            if array is not None and _stands_for(array, number):
                yield binding
        case Apply():
            yield from _applications(term, value, binding, lookup)


def _applications(term: Apply, value: Value, binding: Binding, lookup: Lookup) -> Iterator[Binding]:
    for node in lookup.producers.get(value.name, ()):
        if node.op is term.op and term.output < len(node.outputs) and node.outputs[term.output].name == value.name:
            yield from _applied(term, node, binding, lookup)


def _applied(term: Apply, node: Node, binding: Binding, lookup: Lookup) -> Iterator[Binding]:
    """All bindings for which ``node`` matches ``term``."""
    inputs = _operands(node)
    if inputs is None or len(inputs) != len(term.operands):
        return
    orders = [inputs]
    if term.op.has(Trait.COMMUTATIVE):
        orders = [list(order) for order in dict.fromkeys(permutations(inputs))]
    for order in orders:
        if all(map(may_be, term.operands, order, [lookup] * len(order))):
            for found in _all(term.operands, order, binding, lookup):
                bound = found.with_attributes(term, node)
                if bound is not None:
                    yield bound.with_value(term, node.outputs[term.output])


def _operands(node: Node) -> list[Value] | None:
    """Its inputs without omitted trailing ones; None if an inner one is omitted."""
    inputs = list(node.inputs)
    while inputs and inputs[-1] is None:
        inputs.pop()
    present = [value for value in inputs if value is not None]
    return present if len(present) == len(inputs) else None


def may_be(term: Term, value: Value, lookup: Lookup) -> bool:
    """False if ``value`` has other operators than ``term``: a cheap test before binding."""
    if not isinstance(term, Apply):
        return True
    return any(node.op is term.op for node in lookup.producers.get(value.name, ()))


def _all(terms: Sequence[Term], values: Sequence[Value], binding: Binding, lookup: Lookup) -> Iterator[Binding]:
    if not terms:
        yield binding
        return
    for first in _matched(terms[0], values[0], binding, lookup):
        yield from _all(terms[1:], values[1:], first, lookup)


def _stands_for(array: Array, number: float) -> bool:
    """Whether all elements of ``array`` are the representation of ``number`` in its dtype.

    Exactly representable numbers (0.5, 3) must be equal; others (the root of 2) may have been rounded more than once.
    """
    if not array.size or not _is(array, float(array.reshape(-1)[0]), number):
        return False
    return array.size == 1 or bool((array == array.reshape(-1)[0]).all())


def _is(array: Array, found: float, number: float) -> bool:
    if not np.issubdtype(array.dtype, np.floating) or float(np.float32(number)) == number:
        return Exact(found) == Exact(number)
    return abs(found - number) <= _ROUNDINGS * float(np.finfo(array.dtype.name).eps) * abs(number)
