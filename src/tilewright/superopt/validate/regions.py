"""Parts of two graphs between what is known to be equal in both: what has to be compared, and nothing else.

A region computes two values, ``left`` and ``right``, from *leaves*: inputs, constants and values that both graphs have.
If the two are equal for all values of the leaves, they are in the graphs, whatever makes the leaves. The reverse does
not hold: leaves may follow from each other, so that the two differ for values which the leaves never have. Then the
region has to grow (cut points in the comparison of circuits; Kuehlmann and Krohm, DAC 1997).
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from tilewright.base.exact import Exact
from tilewright.ops import Operator
from tilewright.superopt.validate.congruence import Attributes, Congruence, Definition, Type


@dataclass(frozen=True, slots=True)
class Leaf:
    """Any value of a type; the constant that is ``literal`` everywhere, if that is given."""

    type: Type
    literal: Exact[float] | None = None


@dataclass(frozen=True, slots=True)
class Step:
    """One operator of a region. Values are numbered: leaves first, then the results of each step."""

    op: Operator
    operands: tuple[int | None, ...]
    attributes: Exact[Attributes]
    types: tuple[Type, ...]
    """Of the results."""


@dataclass(frozen=True, slots=True)
class Region:
    """Steps in the order in which they can be computed. Regions that are alike are equal, wherever they are."""

    leaves: tuple[Leaf, ...]
    steps: tuple[Step, ...]
    left: int
    right: int


def regions(known: Congruence, left: int, right: int, is_shared: Callable[[int], bool]) -> Iterator[Region]:
    """The regions that make ``left`` and ``right``, ever larger ones.

    The first ends where values ``is_shared``; views of such values belong to it, as they cost nothing and share their
    elements. Each of the next ones has one layer more, down to inputs and constants.
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
    """The definitions between both sides and what is shared and not ``opened``, operands first; and the latter."""
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
