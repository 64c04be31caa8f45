"""Populations: arrays with many choices of several numeric knobs, for models that rate them all at once."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from tilewright.space.knobs import Knob

IntArray: TypeAlias = NDArray[np.int64]
BoolArray: TypeAlias = NDArray[np.bool_]
Choice: TypeAlias = tuple[int, ...]
"""A value for each knob, in their order."""


@dataclass(frozen=True, slots=True)
class Population:
    """``numbers``: a row for each choice and a column for each knob."""

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
        """All choices repeated ``times`` times."""
        return Population(self.names, np.tile(self.numbers, (times, 1)))

    def where(self, mask: BoolArray) -> "Population":
        """The choices for which ``mask`` is true."""
        return Population(self.names, self.numbers[mask])


def all_of(knobs: Sequence[Knob[int]]) -> Population:
    """The Cartesian product of the values of all knobs."""
    grids = np.meshgrid(*(np.array(knob.values, np.int64) for knob in knobs), indexing="ij")
    return Population(tuple(knob.name for knob in knobs), np.stack([grid.ravel() for grid in grids], axis=1))
