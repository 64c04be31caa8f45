"""A part of the sketches of a program that is small enough to measure: some values of each knob, all together.

All sketches take part. A knob keeps as many values as fit, in proportion to its bits, and keeps the same ones in every
sketch that has it: so children of two sketches are in the box, too. Within the box, what a search does is what it does
in the whole space: it changes a decision, crosses blocks, or decides one knob after the other.
"""

from collections.abc import Sequence
from dataclasses import dataclass
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
MOST_DOUBLED = 6
"""How often a box is made twice as large, if the space allows few of its candidates."""


@dataclass(frozen=True)
class SketchBox:
    """`whole`: all sketches with all values. `union`: the same with the values that stay; it can't be scheduled."""

    whole: Union
    union: Union
    kept: Kept

    @staticmethod
    def of(naive: Program, target: Target, most: int, seed: int = 0) -> "SketchBox":
        """At most `most` candidates that the space allows, all sketches together."""
        found = sketch_spaces(naive, target)
        whole = Union(tuple(space for _, space in found), tuple(str(sketch) for sketch, _ in found))
        box = SketchBox._with(whole, _kept(whole.members, most, seed))
        for doubled in range(1, MOST_DOUBLED):
            larger = SketchBox._with(whole, _kept(whole.members, most << doubled, seed))
            if len(larger.everything()) > most:
                break
            box = larger
        return box

    @staticmethod
    def _with(whole: Union, kept: Kept) -> "SketchBox":
        smaller = tuple(_smaller(member, kept) for member in whole.members)
        return SketchBox(whole, Union(smaller, whole.labels), kept)

    def everything(self) -> Digits:
        """All candidates of the box that the whole space allows."""
        found: list[Digits] = []
        for place, (member, smaller) in enumerate(zip(self.whole.members, self.union.members, strict=True)):
            everything = _all(smaller)
            allowed = member.allowed(self._chosen(member, everything))
            found.append(self.union.digits_in(place, everything[allowed]))
        return np.concatenate(found)

    def schedule(self, digits: Digits) -> Schedule:
        """The schedule of one candidate of the box. Raises `ScheduleError` if it is invalid."""
        place, own = self.union.own_digits(digits)
        member = self.whole.members[place]
        return member.schedule(self._chosen(member, own[None])[0])

    def _chosen(self, member: Space, digits: Digits) -> Digits:
        """Candidates of a member in the box as candidates of the whole one."""
        columns = [
            np.array(self.kept[knob], np.int64)[column] for knob, column in zip(member.knobs, digits.T, strict=True)
        ]
        return np.stack(columns, axis=1)


def _all(space: Space) -> Digits:
    return consecutive(0, prod(space.radices), space.radices)


def _smaller(member: Space, kept: Kept) -> Space:
    """With the values that stay, and without what is known of candidates by the places of all values."""
    knobs = tuple(Knob(knob.name, tuple(knob.values[place] for place in kept[knob])) for knob in member.knobs)
    return Space(member.naive, member.target, member.opened, member.generator, knobs)


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
