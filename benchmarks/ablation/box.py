"""A part of a template's space that is small enough to measure all of it: some of the values of each knob."""

from dataclasses import dataclass
from math import log, prod

import numpy as np

from tilewright.schedule.schedule import Schedule
from tilewright.tune.space import Digits, Mask
from tilewright.tune.template import TemplateSpace


@dataclass(frozen=True, slots=True)
class Box:
    """`kept`: for each knob of `space` the digits that it may have (`Space`)."""

    space: TemplateSpace
    kept: tuple[tuple[int, ...], ...]

    @staticmethod
    def of(space: TemplateSpace, most: int, seed: int = 0) -> "Box":
        """At most `most` candidates. Each knob keeps the same power of its number of values, which are drawn."""
        random = np.random.default_rng(seed)
        counts = _counts(space.radices, most)
        drawn = [random.permutation(radix)[:count] for radix, count in zip(space.radices, counts, strict=True)]
        return Box(space, tuple(tuple(sorted(digits.tolist())) for digits in drawn))

    @property
    def radices(self) -> tuple[int, ...]:
        """How many values each knob has."""
        return tuple(len(digits) for digits in self.kept)

    def allowed(self, digits: Digits) -> Mask:
        """All of them, as far as is known before scheduling."""
        return np.ones(len(digits), np.bool_)

    def schedule(self, digits: Digits) -> Schedule:
        """The schedule of one candidate. Raises `ScheduleError` if it is invalid."""
        whole = [kept[int(digit)] for kept, digit in zip(self.kept, digits, strict=True)]
        return self.space.schedule(np.array(whole))


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
