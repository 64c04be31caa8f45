"""``Union``: several spaces of one program, searched as one.

A candidate is the number of its space, then its digits there; spaces with fewer knobs have zeros at the end. Knobs of
the same name and width are one column of features, whatever space they are in: NaN for candidates that do not have it.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from tilewright.loops.program import Program
from tilewright.schedule.schedule import Schedule
from tilewright.space.space import Digits, Floats, Mask, Space
from tilewright.space.variation import crossed
from tilewright.target.target import Target


@dataclass(frozen=True)
class Union:
    """``members`` are of one program and target; ``labels`` say in records and reports which each is."""

    members: tuple[Space, ...]
    labels: tuple[str, ...]

    @property
    def naive(self) -> Program:
        """The program."""
        return self.members[0].naive

    @property
    def target(self) -> Target:
        """What it is scheduled for."""
        return self.members[0].target

    @property
    def radices(self) -> tuple[int, ...]:
        """How many members there are, then the most values that any of them has in each place."""
        return self._radices

    @cached_property
    def _radices(self) -> tuple[int, ...]:
        width = max(len(member.radices) for member in self.members)
        padded = [member.radices + (1,) * (width - len(member.radices)) for member in self.members]
        return (len(self.members), *map(max, zip(*padded, strict=True)))

    def digits_in(self, member: int, digits: Digits) -> Digits:
        """Candidates of one member, ``(candidates, its knobs)``, as candidates of the union."""
        result = np.zeros((len(digits), len(self.radices)), np.int64)
        result[:, 0] = member
        result[:, 1 : 1 + digits.shape[1]] = digits
        return result

    def own_digits(self, digits: Digits) -> tuple[int, Digits]:
        """The member of one candidate, and its digits there."""
        member = int(digits[0])
        return member, digits[1 : 1 + len(self.members[member].radices)]

    def sample(self, count: int, random: np.random.Generator) -> Digits:
        """Members are equally likely, and all candidates of one are."""
        chosen = random.integers(0, len(self.members), count)
        result = np.zeros((count, len(self.radices)), np.int64)
        for position, member in enumerate(self.members):
            rows = np.flatnonzero(chosen == position)
            result[rows] = self.digits_in(position, member.sample(len(rows), random))
        return result

    def allowed(self, digits: Digits) -> Mask:
        """Which candidates are of their member, have zeros at the end, and make sense there."""
        mask = np.zeros(len(digits), np.bool_)
        for position, member in enumerate(self.members):
            radices = np.array(member.radices, np.int64)
            rows = np.flatnonzero(digits[:, 0] == position)
            own, rest = digits[rows, 1 : 1 + len(radices)], digits[rows, 1 + len(radices) :]
            fits = (own < radices).all(axis=1) & (rest == 0).all(axis=1)
            mask[rows[fits]] = member.allowed(own[fits])
        return mask

    def schedule(self, digits: Digits) -> Schedule:
        """The schedule of one candidate. Raises ``ScheduleError`` if it is invalid."""
        member, own = self.own_digits(digits)
        return self.members[member].schedule(own)

    def features(self, digits: Digits) -> Floats:
        """(candidates, members + columns): which member it is, and what its knobs are set to; NaN for others."""
        result = np.full((len(digits), len(self.members) + self._width), np.nan)
        result[:, : len(self.members)] = digits[:, :1] == np.arange(len(self.members))
        for position, member in enumerate(self.members):
            rows = np.flatnonzero(digits[:, 0] == position)
            own = member.features(digits[rows, 1 : 1 + len(member.radices)])
            result[np.ix_(rows, len(self.members) + self._columns[position])] = own
        return result

    @cached_property
    def _starts(self) -> dict[tuple[str, int], int]:
        """The first column of each knob, by its name and width."""
        starts: dict[tuple[str, int], int] = {}
        end = 0
        for member in self.members:
            for knob in zip((knob.name for knob in member.knobs), member.widths, strict=True):
                if knob not in starts:
                    starts[knob] = end
                    end += knob[1]
        return starts

    @property
    def _width(self) -> int:
        return sum(width for _, width in self._starts)

    @cached_property
    def _columns(self) -> tuple[Digits, ...]:
        """Of each member, where its features are."""
        return tuple(
            np.concatenate(
                [
                    np.zeros(0, np.int64),
                    *(
                        self._starts[knob.name, width] + np.arange(width)
                        for knob, width in zip(member.knobs, member.widths, strict=True)
                    ),
                ]
            )
            for member in self.members
        )

    def analytic(self) -> Digits | None:
        """What the first member that knows one thinks best."""
        for position, member in enumerate(self.members):
            first = member.analytic()
            if first is not None:
                return self.digits_in(position, first[None])[0]
        return None

    def completed(self, digits: Digits, decided: int) -> Digits:
        """A population, in which all knobs from ``decided`` on are as their members complete them.

        ``decided`` is at least 1: the member is the first decision.
        """
        result = digits.copy()
        result[:, decided:] = 0
        for position, member in enumerate(self.members):
            rows = np.flatnonzero(digits[:, 0] == position)
            own = slice(1, 1 + len(member.radices))
            result[rows, own] = member.completed(digits[rows, own], decided - 1)
        return result

    def estimates(self, digits: Digits) -> Floats | None:
        """Those of the one member, if there is only one: others are not comparable."""
        return self.members[0].estimates(digits[:, 1:]) if len(self.members) == 1 else None

    def vary(self, digits: Digits, random: np.random.Generator) -> Digits:
        """One candidate with one decision changed; its member stays."""
        member, own = self.own_digits(digits)
        return self.digits_in(member, self.members[member].vary(own, random)[None])[0]

    def cross(self, first: Digits, second: Digits, random: np.random.Generator) -> Digits:
        """A child of the member of ``first``, in which blocks are decided as in ``second`` where that has the knobs."""
        member, own = self.own_digits(first)
        other, others = self.own_digits(second)
        known = dict(zip(self.members[other].knobs, others.tolist(), strict=True))
        return self.digits_in(member, crossed(self.members[member].knobs, own, known, random)[None])[0]

    def decisions(self, digits: Digits) -> tuple[tuple[str, str], ...]:
        """Which member one candidate is of, and its decisions there."""
        member, own = self.own_digits(digits)
        return (("space", self.labels[member]), *self.members[member].decisions(own))
