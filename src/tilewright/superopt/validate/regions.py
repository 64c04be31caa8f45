"""Regions: the parts of two graphs between values known to be equal in both, which must be compared.

A region computes two values, ``left`` and ``right``, from *leaves*: inputs, constants and values that both graphs have.
If both are equal for all values of the leaves, they are equal in the graphs. The converse is false: leaves may depend
on each other, so that the sides differ only for impossible values of the leaves. Then a larger region is needed (cut
points in equivalence checking of circuits; Kuehlmann and Krohm, DAC 1997).
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from tilewright.base.exact import Exact
from tilewright.ops import Operator
from tilewright.superopt.validate.congruence import Attributes, Congruence, Definition, Type


@dataclass(frozen=True, slots=True)
class Leaf:
    """An arbitrary value of a type; with ``literal``, the constant whose elements all equal it."""

    type: Type
    literal: Exact[float] | None = None


@dataclass(frozen=True, slots=True)
class Step:
    """An operator of a region. Values are numbered: leaves first, then the results of each step."""

    op: Operator
    operands: tuple[int | None, ...]
    attributes: Exact[Attributes]
    types: tuple[Type, ...]
    """The types of the results."""


@dataclass(frozen=True, slots=True)
class Region:
    """Steps in topological order. Regions with the same structure are equal objects."""

    leaves: tuple[Leaf, ...]
    steps: tuple[Step, ...]
    left: int
    right: int


def regions(known: Congruence, left: int, right: int, is_shared: Callable[[int], bool]) -> Iterator[Region]:
    """Regions of increasing size that compute ``left`` and ``right``.

    The leaves of the first one are the nearest shared values (``is_shared``); views of shared values are part of the
    region. Each next one has one more layer, down to inputs and constants.
    """
    opened = {left, right}
    more: set[int] = opened
    while more:
        order, leaves = _cut(known, left, right, is_shared, frozenset(opened))
        yield _numbered(known, order, leaves, left, right)
        more = {leaf for leaf in leaves if leaf in known.definitions}
        opened |= more


def _cut(
    known: Congruence, left: int, right: int, is_shared: Callable[[int], bool], opened: frozenset[int]
) -> tuple[list[Definition], list[int]]:
    """The definitions between both sides and the leaves, operands first; and the shared leaves, not ``opened``."""
    order: list[Definition] = []
    leaves: list[int] = []
    seen: set[int] = set()
    waiting: list[tuple[int, bool]] = [(right, False), (left, False)]
    while waiting:
        value, is_ready = waiting.pop()
        definition = known.definitions.get(value)
        if is_ready and definition is not None:
            order.append(definition)
        elif value not in seen:
            is_end = is_shared(value) and value not in opened
            if definition is None or (is_end and not definition.is_view):
                seen.add(value)
                leaves.append(value)
                continue
            seen.update(definition.results)
            waiting.append((value, True))
            waiting += [(operand, False) for operand in reversed(definition.operands) if operand is not None]
    return order, leaves


def _numbered(known: Congruence, order: list[Definition], leaves: list[int], left: int, right: int) -> Region:
    numbers = {leaf: number for number, leaf in enumerate(leaves)}
    steps: list[Step] = []
    for definition in order:
        operands = tuple(None if operand is None else numbers[operand] for operand in definition.operands)
        for result in definition.results:
            numbers[result] = len(numbers)
        types = tuple(known.types[result] for result in definition.results)
        steps.append(Step(definition.op, operands, Exact(definition.attributes), types))
    made = tuple(
        Leaf(known.types[leaf], Exact(known.literals[leaf]) if leaf in known.literals else None) for leaf in leaves
    )
    return Region(made, tuple(steps), numbers[left], numbers[right])
