"""A part of a template's space that is small enough to measure all of it: some of the values of each knob."""

from dataclasses import dataclass
from math import log, prod

import numpy as np

from tilewright.schedule.schedule import Schedule
from tilewright.tune.contraction_space import ContractionSpace
from tilewright.tune.space import Digits, Mask


@dataclass(frozen=True, slots=True)
class Box:
    """`kept`: for each knob of `space` the digits that it may have (`Space`)."""

    space: ContractionSpace
    kept: tuple[tuple[int, ...], ...]

    @staticmethod
    def of(space: ContractionSpace, most: int, seed: int = 0) -> "Box":
        """At most `most` candidates, the compiler's choice among them.

        Each knob keeps the same power of its number of values; which ones is drawn.
        """
        random = np.random.default_rng(seed)
        kept: list[tuple[int, ...]] = []
        for radix, count, own in zip(space.radices, _counts(space.radices, most), space.analytic(), strict=True):
            others = [digit for digit in random.permutation(radix).tolist() if digit != own]
            kept.append(tuple(sorted([int(own), *others[: count - 1]])))
        return Box(space, tuple(kept))

    @property
    def radices(self) -> tuple[int, ...]:
        """How many values each knob has."""
        return tuple(len(digits) for digits in self.kept)

    def analytic(self) -> Digits:
        """The compiler's choice."""
        own = self.space.analytic()
        return np.array([kept.index(int(digit)) for kept, digit in zip(self.kept, own, strict=True)], np.int64)

    def allowed(self, digits: Digits) -> Mask:
        """Those that are allowed in the whole space."""
        return self.space.allowed(self._whole(digits))

    def schedule(self, digits: Digits) -> Schedule:
        """The schedule of one candidate. Raises `ScheduleError` if it is invalid."""
        return self.space.schedule(self._whole(digits[None])[0])

    def _whole(self, digits: Digits) -> Digits:
        columns = [np.array(kept)[column] for kept, column in zip(self.kept, digits.T, strict=True)]
        return np.stack(columns, axis=1)


def _counts(radices: tuple[int, ...], most: int) -> list[int]:
    exponent = min(1.0, log(most) / max(1.0, log(prod(radices))))
    shares = [radix**exponent for radix in radices]
    counts = [int(share + 1e-9) for share in shares]
    # What rounding has left over goes to the knobs that it has cost most.
    for knob in sorted(range(len(counts)), key=lambda knob: counts[knob] / shares[knob]):
        more = [count + (other == knob) for other, count in enumerate(counts)]
        if prod(more) <= most and counts[knob] < radices[knob]:
            counts = more
    return counts
