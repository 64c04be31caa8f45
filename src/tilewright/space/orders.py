"""Orders of loops that a template leaves open: the policies of AutoTVM (Chen et al., NeurIPS 2018)."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import permutations
from typing import Protocol, TypeAlias

from tilewright.base.errors import BadInput
from tilewright.schedule.tree import LoopRef
from tilewright.space.knobs import Knob, Permutation

Loops: TypeAlias = tuple[LoopRef, ...]


class Orders(Protocol):
    """Some of the orders that loops may have. Raises ``BadInput`` if they can't be orders of these loops."""

    def permutations(self, loops: Loops) -> tuple[Permutation, ...]:
        """The orders as positions in ``loops``."""
        ...


@dataclass(frozen=True, slots=True)
class Identity:
    """As they are."""

    def permutations(self, loops: Loops) -> tuple[Permutation, ...]:
        """One."""
        return (tuple(range(len(loops))),)


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
        """The orders of so many loops."""
        if not 0 <= self.begin <= self.end <= count:
            raise BadInput(f"{self} is no interval of {count} loops")
        before, after = tuple(range(self.begin)), tuple(range(self.end, count))
        return tuple((*before, *inside, *after) for inside in permutations(range(self.begin, self.end)))


@dataclass(frozen=True, slots=True)
class Candidates:
    """The orders that are listed."""

    orders: tuple[Loops, ...]

    def permutations(self, loops: Loops) -> tuple[Permutation, ...]:
        """One for each listed order, which must have all loops."""
        return tuple(_positions(order, loops) for order in self.orders)


@dataclass(frozen=True, slots=True)
class Interleave:
    """The order of tiled loops: outer ones of all axes, then inner ones, with reductions around the innermost.

    ``spatial`` and ``reduce`` have for each axis the loops that it was split into. The innermost loops of the spatial
    axes are merged with the reductions, all others with each other; the axis with the most loops left goes first, and
    of several the first. ``(yo, yi), (xo, xi)`` and ``(ko, ki)`` become ``yo, xo, ko, yi, xi, ki``.
    """

    spatial: tuple[Loops, ...]
    reduce: tuple[Loops, ...] = ()

    def permutations(self, loops: Loops) -> tuple[Permutation, ...]:
        """One."""
        outer = _merged([axis[:-1] for axis in self.spatial])
        inner = _merged([*(axis[-1:] for axis in self.spatial), *self.reduce])
        return (_positions((*outer, *inner), loops),)


def reorder_knob(name: str, loops: Loops, orders: Orders) -> Knob[Permutation]:
    """One of ``orders`` of ``loops``."""
    return Knob(name, tuple(dict.fromkeys(orders.permutations(loops))))


def _merged(chains: Sequence[Loops]) -> Loops:
    rest = list(chains)
    merged: list[LoopRef] = []
    while any(rest):
        longest = max(range(len(rest)), key=lambda chain: len(rest[chain]))  # the first of equally long ones
        merged.append(rest[longest][0])
        rest[longest] = rest[longest][1:]
    return tuple(merged)


def _positions(order: Loops, loops: Loops) -> Permutation:
    if len(order) != len(loops) or set(order) != set(loops):
        raise BadInput(f"{_listed(order)} is no order of {_listed(loops)}")
    return tuple(map(loops.index, order))


def _listed(loops: Loops) -> str:
    return ", ".join(map(str, loops)) or "nothing"
