"""A part of a template's space that is small enough to measure all of it: drawn values of a few groups of knobs.

The knob with the most values (the tile of registers) keeps them all. The others are in two groups, and what the knobs
of a group are is drawn together: of the few values that a knob by itself could keep, any may happen to be good, and a
box of them has so many good candidates that a random search finds one at once.
"""

from dataclasses import dataclass
from itertools import accumulate
from math import isqrt, log, prod

import numpy as np

from tilewright.schedule.schedule import Schedule
from tilewright.space.space import Digits, Mask, Space


@dataclass(frozen=True, slots=True)
class Box:
    """`groups`: the knobs of `space` that one knob of the box stands for. `values`: of each group, (values, knobs)."""

    space: Space
    groups: tuple[tuple[int, ...], ...]
    values: tuple[Digits, ...]

    @staticmethod
    def of(space: Space, most: int, seed: int = 0) -> "Box":
        """At most `most` candidates, the analytic choice among them as the first value of each group."""
        groups = _groups(space.radices)
        draws = isqrt(most // space.radices[groups[0][0]])
        random = np.random.default_rng(seed)
        counts = (space.radices[groups[0][0]], draws, draws)
        drawn = (_drawn(space, knobs, count, random) for knobs, count in zip(groups, counts, strict=True))
        return Box(space, groups, tuple(drawn))

    @property
    def radices(self) -> tuple[int, ...]:
        """How many values each group has."""
        return tuple(len(values) for values in self.values)

    def analytic(self) -> Digits:
        """The analytic choice."""
        return np.zeros(len(self.groups), np.int64)

    def allowed(self, digits: Digits) -> Mask:
        """Those that are allowed in the whole space."""
        return self.space.allowed(self._whole(digits))

    def schedule(self, digits: Digits) -> Schedule:
        """The schedule of one candidate. Raises `ScheduleError` if it is invalid."""
        return self.space.schedule(self._whole(digits[None])[0])

    def _whole(self, digits: Digits) -> Digits:
        whole = np.zeros((len(digits), len(self.space.radices)), np.int64)
        for knobs, values, column in zip(self.groups, self.values, digits.T, strict=True):
            whole[:, knobs] = values[column]
        return whole


def _groups(radices: tuple[int, ...]) -> tuple[tuple[int, ...], ...]:
    """The knob with the most values; the others in two groups of neighbours, about equally large."""
    largest = int(np.argmax(radices))
    others = [knob for knob in range(len(radices)) if knob != largest]
    sizes = list(accumulate(log(radices[knob]) for knob in others))
    middle = int(np.argmin([abs(size - sizes[-1] / 2) for size in sizes])) + 1
    return (largest,), tuple(others[:middle]), tuple(others[middle:])


def _drawn(space: Space, knobs: tuple[int, ...], most: int, random: np.random.Generator) -> Digits:
    """At most `most` different values of a group, the analytic choice first."""
    radices = [space.radices[knob] for knob in knobs]
    own = int(np.ravel_multi_index(tuple(space.analytic()[list(knobs)]), radices))
    places = random.permutation(prod(radices))
    chosen = [own, *places[places != own][: most - 1].tolist()]
    return np.stack(np.unravel_index(chosen, radices), axis=1)
