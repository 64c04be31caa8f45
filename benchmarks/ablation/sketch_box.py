"""A part of the sketches of a program that is small enough to measure: some values of each knob, all together.

All sketches take part. A knob keeps as many values as fit, in proportion to its bits, and keeps the same ones in every
sketch that has it: so children of two sketches are in the box, too. Within the box, what a search does is what it does
in the whole space: it changes a decision, crosses blocks, or decides one knob after the other.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import log, prod
from zlib import crc32

import numpy as np

from tilewright.loops.program import Program
from tilewright.schedule.schedule import Schedule
from tilewright.sketch import sketch_spaces
from tilewright.space.knobs import Knob, Value
from tilewright.space.space import Digits, Space
from tilewright.space.union import Union
from tilewright.target.target import Target
from tilewright.tune.search.ledger import consecutive

Kept = dict[Knob[Value], tuple[int, ...]]
"""Of each knob, the places of the values that stay, in ascending order."""


@dataclass(frozen=True)
class SketchBox:
    """`whole`: all sketches with all values. `union`: the same with the values that stay; it can't be scheduled."""

    whole: Union
    union: Union
    kept: Kept

    @staticmethod
    def of(naive: Program, target: Target, most: int, seed: int = 0) -> "SketchBox":
        """`most` candidates at most, all sketches together; at least one of each."""
        found = sketch_spaces(naive, target)
        members, labels = tuple(space for _, space in found), tuple(str(sketch) for sketch, _ in found)
        kept = _kept(members, most, seed)
        smaller = (replace(member, knobs=tuple(_smaller(knob, kept) for knob in member.knobs)) for member in members)
        return SketchBox(Union(members, labels), Union(tuple(smaller), labels), kept)

    def everything(self) -> Digits:
        """All candidates of the box."""
        each = [self.union.digits_in(place, _all(member)) for place, member in enumerate(self.union.members)]
        return np.concatenate(each)

    def schedule(self, digits: Digits) -> Schedule:
        """The schedule of one candidate of the box. Raises `ScheduleError` if it is invalid."""
        place, own = self.union.own_digits(digits)
        member = self.whole.members[place]
        chosen = [self.kept[knob][digit] for knob, digit in zip(member.knobs, own.tolist(), strict=True)]
        return member.schedule(np.array(chosen, np.int64))


def _all(space: Space) -> Digits:
    return consecutive(0, prod(space.radices), space.radices)


def _smaller(knob: Knob[Value], kept: Kept) -> Knob[Value]:
    return Knob(knob.name, tuple(knob.values[place] for place in kept[knob]))


def _kept(members: Sequence[Space], most: int, seed: int) -> Kept:
    """Values are drawn by the knob's name: the same in all sketches, and whatever else there is."""
    counts = _counts(members, most)
    kept: Kept = {}
    for knob, count in counts.items():
        drawn = np.random.default_rng((seed, crc32(knob.name.encode()))).permutation(len(knob.values))[:count]
        kept[knob] = tuple(sorted(drawn.tolist()))
    return kept


def _counts(members: Sequence[Space], most: int) -> dict[Knob[Value], int]:
    """How many values each knob keeps: one more for the knob that then has the smallest part of its bits, as long as it
    fits."""
    counts = {knob: 1 for member in members for knob in member.knobs}

    def size() -> int:
        return sum(prod(counts[knob] for knob in member.knobs) for member in members)

    growing = {knob for knob in counts if len(knob.values) > 1}
    order = {knob: place for place, knob in enumerate(counts)}
    while growing:
        knob = min(growing, key=lambda knob: (log(counts[knob] + 1) / log(len(knob.values) + 1), order[knob]))
        counts[knob] += 1
        if size() > most:
            counts[knob] -= 1
            growing.discard(knob)
        elif counts[knob] == len(knob.values):
            growing.discard(knob)
    return counts
