"""Knobs of loop orders: the policies of AutoTVM (Chen et al., NeurIPS 2018)."""

from dataclasses import dataclass
from itertools import permutations
from typing import Protocol, TypeAlias

from tilewright.base.errors import BadInput
from tilewright.schedule.tree import LoopRef
from tilewright.space.knobs import Knob, Permutation

Loops: TypeAlias = tuple[LoopRef, ...]


class Orders(Protocol):
    """A set of loop orders. Raises ``BadInput`` if they can't be orders of these loops."""

    def permutations(self, loops: Loops) -> tuple[Permutation, ...]:
        """The orders as positions in ``loops``."""
        ...


@dataclass(frozen=True, slots=True)
class All:
    """Every order."""

    def permutations(self, loops: Loops) -> tuple[Permutation, ...]:
        """``n!`` of ``n`` loops."""
        return tuple(permutations(range(len(loops))))


@dataclass(frozen=True, slots=True)
class Interval:
    """Every order of the loops from position ``begin`` to just before ``end``; the others stay where they are."""

    begin: int
    end: int

    def permutations(self, loops: Loops) -> tuple[Permutation, ...]:
        """``(end - begin)!``."""
        return self.positions(len(loops))

    def positions(self, count: int) -> tuple[Permutation, ...]:
        """The orders of a number of loops."""
        if not 0 <= self.begin <= self.end <= count:
            raise BadInput(f"{self} is no interval of {count} loops")
        before, after = tuple(range(self.begin)), tuple(range(self.end, count))
        return tuple((*before, *inside, *after) for inside in permutations(range(self.begin, self.end)))


@dataclass(frozen=True, slots=True)
class Candidates:
    """Listed orders."""

    orders: tuple[Loops, ...]

    def permutations(self, loops: Loops) -> tuple[Permutation, ...]:
        """Their number; each must have all loops."""
        return tuple(_positions(order, loops) for order in self.orders)


def reorder_knob(name: str, loops: Loops, orders: Orders) -> Knob[Permutation]:
    """One of ``orders`` of ``loops``."""
    return Knob(name, tuple(dict.fromkeys(orders.permutations(loops))))


def _positions(order: Loops, loops: Loops) -> Permutation:
    if len(order) != len(loops) or set(order) != set(loops):
        raise BadInput(f"{_listed(order)} is no order of {_listed(loops)}")
    return tuple(map(loops.index, order))


def _listed(loops: Loops) -> str:
    return ", ".join(map(str, loops)) or "nothing"
