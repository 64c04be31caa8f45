"""Patterns of graphs, and the search for them.

::

    pattern = Any(name)                       any value; one name stands for one value
            | Number(name, near)              a constant of one element: ``near``, if that is given, as its dtype has it
            | Apply(op, operands, name, attributes)    what one application of an operator makes

Operators that commute match with their operands in any order. A match binds names to values, numbers and nodes.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import permutations

import numpy as np

from tilewright.base.exact import Exact
from tilewright.graph import Array, Graph, Node, Value
from tilewright.ops import Trait

_ROUNDINGS = 2
"""How many units (relative: the dtype's epsilon) a rounded number may be off: ``1 / sqrt(2)`` is not ``sqrt(0.5)``."""


@dataclass(frozen=True, slots=True)
class Any:
    """Any value."""

    name: str


@dataclass(frozen=True, slots=True)
class Number:
    """A constant of one element."""

    name: str = ""
    near: float | None = None


@dataclass(frozen=True, slots=True)
class Apply:
    """The first result of an operator with these ``attributes``, and any others.

    The node is bound to ``name``, if there is one. One name stands for one node.
    """

    op: str
    operands: tuple["Pattern", ...]
    name: str = ""
    attributes: frozenset[tuple[str, int]] = frozenset()


Pattern = Any | Number | Apply


@dataclass(frozen=True, slots=True)
class Match:
    """What the names of a pattern stand for."""

    values: Mapping[str, Value] = field(default_factory=dict[str, Value])
    numbers: Mapping[str, float] = field(default_factory=dict[str, float])
    nodes: Mapping[str, Node] = field(default_factory=dict[str, Node])


class Matcher:
    """Finds patterns in one graph."""

    def __init__(self, graph: Graph) -> None:
        self._producers = graph.producers()
        self._constants = graph.constants

    def matches(self, pattern: Pattern, value: Value, so_far: Match | None = None) -> Iterator[Match]:
        """All ways in which ``value`` is what ``pattern`` says, given what is bound ``so_far``."""
        match = so_far or Match()
        match pattern:
            case Any(name):
                known = match.values.get(name)
                if known is None or known == value:
                    yield replace(match, values={**match.values, name: value})
            case Number(name, near):
                array = self._constants.get(value)
                if array is not None and array.size == 1 and (near is None or _stands_for(array, near)):
                    number = float(array.reshape(-1)[0])
                    yield replace(match, numbers={**match.numbers, name: number}) if name else match
            case Apply():
                yield from self._applications(pattern, value, match)

    def _applications(self, pattern: Apply, value: Value, match: Match) -> Iterator[Match]:
        node = self._producers.get(value)
        if node is None or node.op.name != pattern.op or node.outputs[0] != value:
            return
        inputs = [v for v in node.inputs if v is not None]
        if len(inputs) != len(pattern.operands) or len(inputs) != len(node.inputs):
            return
        if pattern.name and match.nodes.get(pattern.name, node) != node:
            return
        if pattern.attributes and not pattern.attributes.issubset(node.attributes):
            return
        bound = replace(match, nodes={**match.nodes, pattern.name: node}) if pattern.name else match
        orders = permutations(inputs) if node.op.has(Trait.COMMUTATIVE) else [tuple(inputs)]
        for order in orders:
            yield from self._all(pattern.operands, order, bound)

    def _all(self, patterns: Sequence[Pattern], values: Sequence[Value], match: Match) -> Iterator[Match]:
        if not patterns:
            yield match
            return
        for first in self.matches(patterns[0], values[0], match):
            yield from self._all(patterns[1:], values[1:], first)


def _stands_for(array: Array, number: float) -> bool:
    """Whether the element of ``array`` is how its dtype has ``number``.

    What has few digits (0.5, 3) must be that; what no float has (the root of 2) was rounded, perhaps more than once.
    """
    found = float(array.reshape(-1)[0])
    if not np.issubdtype(array.dtype, np.floating) or float(np.float32(number)) == number:
        return Exact(found) == Exact(number)
    return abs(found - number) <= _ROUNDINGS * float(np.finfo(array.dtype.name).eps) * abs(number)
