"""Spaces of schedules: what the classes of kernels leave open, as numbers.

A kernel is a sequence of *nests*, each of which is scheduled by itself. A nest has *knobs*; a *choice* gives each of
them one of its values, and a *candidate* is a choice for each nest. A *population* is many choices of one nest as
arrays of numbers, which a model rates all at once.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from tilewright.base.errors import ScheduleError
from tilewright.schedule.schedule import Schedule

IntArray: TypeAlias = NDArray[np.int64]
BoolArray: TypeAlias = NDArray[np.bool_]
Choice: TypeAlias = tuple[int, ...]
"""A value for each knob of a nest, in their order."""


@dataclass(frozen=True, slots=True)
class Knob:
    """A number that is open, and what it may be."""

    name: str
    values: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Population:
    """Choices of one nest: ``numbers`` has a row for each of them and a column for each knob."""

    names: tuple[str, ...]
    numbers: IntArray

    def __len__(self) -> int:
        return len(self.numbers)

    def __getitem__(self, position: int) -> Choice:
        return tuple(int(number) for number in self.numbers[position])

    def column(self, name: str) -> IntArray:
        """The values of one knob."""
        return self.numbers[:, self.names.index(name)]

    def repeated(self, times: int) -> "Population":
        """All choices so many times."""
        return Population(self.names, np.tile(self.numbers, (times, 1)))

    def where(self, mask: BoolArray) -> "Population":
        """The choices for which ``mask`` is true."""
        return Population(self.names, self.numbers[mask])


def all_of(knobs: Sequence[Knob]) -> Population:
    """Every value of each knob with every one of the others."""
    grids = np.meshgrid(*(np.array(knob.values, np.int64) for knob in knobs), indexing="ij")
    return Population(tuple(knob.name for knob in knobs), np.stack([grid.ravel() for grid in grids], axis=1))


@dataclass(frozen=True, slots=True)
class Nest(ABC):
    """A part of a kernel that is scheduled by itself. ``name``: that of the block it is about."""

    name: str
    knobs: tuple[Knob, ...]

    @abstractmethod
    def schedule(self, s: Schedule, values: Mapping[str, int]) -> None:
        """Apply primitives to ``s``; ``values`` by the knobs' names."""

    def allowed(self, population: Population) -> BoolArray:
        """Which of these choices make sense together; all, unless a class says otherwise."""
        return np.ones(len(population), np.bool_)

    def population(self) -> Population:
        """All allowed choices."""
        everything = all_of(self.knobs)
        return everything.where(self.allowed(everything))

    def check(self, choice: Choice) -> None:
        """Raises ``ScheduleError`` for a choice that is not in the space."""
        names = tuple(knob.name for knob in self.knobs)
        if len(choice) != len(names):
            raise ScheduleError(f"{self.name}: {choice} has not one number for each of {', '.join(names)}")
        for knob, number in zip(self.knobs, choice, strict=True):
            if number not in knob.values:
                raise ScheduleError(f"{self.name}: {knob.name}={number} is none of {knob.values}")
        if not self.allowed(Population(names, np.array([choice], np.int64)))[0]:
            given = ", ".join(f"{name}={number}" for name, number in zip(names, choice, strict=True))
            raise ScheduleError(f"{self.name}: {given} do not go together: they need more registers than there are")


@dataclass(frozen=True, slots=True)
class Candidate:
    """A choice for each nest of a kernel."""

    choices: tuple[Choice, ...]


@dataclass(frozen=True, slots=True)
class Space:
    """All schedules of a kernel, once its blocks are inlined as far as they shall be."""

    nests: tuple[Nest, ...]

    def size(self) -> int:
        """The number of candidates."""
        return prod(len(nest.population()) for nest in self.nests)

    def apply(self, s: Schedule, candidate: Candidate) -> None:
        """Schedule ``s``, which is as it was when the space was made of it.

        Raises ``ScheduleError`` for a candidate of another space, before anything is changed.
        """
        if len(candidate.choices) != len(self.nests):
            raise ScheduleError(f"{len(candidate.choices)} choices are not one for each of {_listed(self.nests)}")
        for nest, choice in zip(self.nests, candidate.choices, strict=True):
            nest.check(choice)
        for nest, choice in zip(self.nests, candidate.choices, strict=True):
            nest.schedule(s, dict(zip((knob.name for knob in nest.knobs), choice, strict=True)))

    def describe(self, candidate: Candidate) -> dict[str, int]:
        """The numbers by ``nest.knob``."""
        pairs = zip(self.nests, candidate.choices, strict=True)
        return {f"{n.name}.{k.name}": number for n, c in pairs for k, number in zip(n.knobs, c, strict=True)}


def _listed(nests: Sequence[Nest]) -> str:
    return f"the {len(nests)} nests {', '.join(nest.name for nest in nests)}"
