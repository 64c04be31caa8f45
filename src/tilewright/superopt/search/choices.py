"""Extraction as a problem of choice: the cheapest set of options that makes all wanted things.

::

    problem = Problem((Option(3.0, (), (0,)), Option(1.0, (0,), (1, 2))), wanted=(2,))
    plan = greedy(problem)       # {0: 0, 2: 1}: thing 0 is made by option 0, thing 2 by option 1

An option that makes several things is paid once. Things are numbers; options are numbered by position.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush

import numpy as np
from numpy.typing import NDArray

Plan = Mapping[int, int]
"""The chosen option for each needed thing."""


@dataclass(frozen=True, slots=True)
class Option:
    """Makes the things ``makes`` from all of ``reads``, at ``cost``; each thing is listed once."""

    cost: float
    reads: tuple[int, ...]
    makes: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Problem:
    """The options, with costs of at least 0, and the wanted things."""

    options: tuple[Option, ...]
    wanted: tuple[int, ...]


def cost_of(problem: Problem, plan: Plan) -> float:
    """The sum of the costs of the chosen options."""
    return sum(problem.options[number].cost for number in set(plan.values()))


def greedy(problem: Problem) -> Plan | None:
    """A plan in which each thing is made at the lowest cost for that thing alone, including all it needs.

    Things needed more than once count once. None if the wanted things can't be made.
    """
    return _Greedy(problem, range(len(problem.options))).plan()


def plan_of(problem: Problem, chosen: Sequence[int]) -> Plan | None:
    """A plan with options of ``chosen`` only; None if there is none."""
    return _Greedy(problem, chosen).plan()


def makeable(problem: Problem, chosen: Sequence[int]) -> frozenset[int]:
    """The things that options of ``chosen`` can make."""
    return frozenset(_Greedy(problem, chosen).makers())


class _Greedy:
    """Knuth, "A Generalization of Dijkstra's Algorithm" (1977): visits things in the order of their costs."""

    def __init__(self, problem: Problem, chosen: Iterable[int]) -> None:
        self._problem = problem
        self._costs = np.array([option.cost for option in problem.options])
        self._ready: list[tuple[float, int, int]] = []
        """Options whose operands can all be made: total cost, number, and the needed options as bits."""
        self._missing = {number: len(problem.options[number].reads) for number in chosen}
        self._readers: dict[int, list[int]] = {}
        for number in self._missing:
            for thing in problem.options[number].reads:
                self._readers.setdefault(thing, []).append(number)
        self._used: dict[int, int] = {}
        """For each thing, the options needed to make it, as bits."""

    def plan(self) -> Plan | None:
        """The plan of the needed things only."""
        makers = self.makers()
        needed: dict[int, int] = {}
        waiting = list(self._problem.wanted)
        while waiting:
            thing = waiting.pop()
            if thing not in makers:
                return None
            if thing not in needed:
                needed[thing] = makers[thing]
                waiting += self._problem.options[makers[thing]].reads
        return needed

    def makers(self) -> Plan:
        """For each thing that can be made, an option."""
        found: dict[int, int] = {}
        for number in [number for number, missing in self._missing.items() if not missing]:
            self._enter(number)
        while self._ready:
            _, number, bits = heappop(self._ready)
            for thing in self._problem.options[number].makes:
                if thing not in found:
                    found[thing] = number
                    self._used[thing] = bits
                    self._made(thing)
        return found

    def _made(self, thing: int) -> None:
        for reader in self._readers.get(thing, ()):
            self._missing[reader] -= 1
            if not self._missing[reader]:
                self._enter(reader)

    def _enter(self, number: int) -> None:
        bits = 1 << number
        for thing in self._problem.options[number].reads:
            bits |= self._used[thing]
        heappush(self._ready, (self._sum(bits), number, bits))

    def _sum(self, bits: int) -> float:
        size = len(self._costs)
        packed: NDArray[np.uint8] = np.frombuffer(bits.to_bytes((size + 7) // 8, "little"), np.uint8)
        return float(np.dot(np.unpackbits(packed, count=size, bitorder="little"), self._costs))
