"""What is searched: a finite set of candidates, each a digit for each knob of a mixed-radix number.

A *population* is an array of digits, a row for each candidate and a column for each knob; searchers and models work on
whole populations at once. Candidate ``index`` has the digits of ``index`` with the first knob least significant.
"""

from typing import Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tilewright.loops.program import Program
from tilewright.schedule.schedule import Schedule
from tilewright.target.target import Target

Digits: TypeAlias = NDArray[np.int64]
"""(candidates, knobs), or (knobs,) of one."""
Mask: TypeAlias = NDArray[np.bool_]
Floats: TypeAlias = NDArray[np.float64]


class Space(Protocol):
    """A set of candidates. Some may turn out to be invalid only when they are scheduled."""

    @property
    def radices(self) -> tuple[int, ...]:
        """How many values each knob has."""
        ...

    def allowed(self, digits: Digits) -> Mask:
        """Which candidates of a population make sense, as far as that is known without scheduling them."""
        ...


class Tunable(Space, Protocol):
    """The schedules of one program."""

    @property
    def naive(self) -> Program:
        """The program."""
        ...

    @property
    def target(self) -> Target:
        """What it is scheduled for."""
        ...

    def schedule(self, digits: Digits) -> Schedule:
        """That of one candidate, ``(knobs,)``. Raises ``ScheduleError`` if it is invalid."""
        ...

    def features(self, digits: Digits) -> Floats:
        """What a learned model sees of candidates: (candidates, features)."""
        ...

    def analytic(self) -> Digits | None:
        """The candidate that is thought best before anything is measured; None if nothing is known."""
        ...

    def estimates(self, digits: Digits) -> Floats | None:
        """(candidates,): what each is thought to take, in any unit; None if nothing is known."""
        ...


def size(space: Space) -> int:
    """The number of candidates, those that are not allowed included."""
    result = 1
    for radix in space.radices:
        result *= radix
    return result


def digits_of(index: int, radices: tuple[int, ...]) -> tuple[int, ...]:
    """The digits of ``index``, that of the first knob least significant. Raises ``IndexError`` beyond the last one."""
    digits: list[int] = []
    rest = index
    for radix in radices:
        rest, digit = divmod(rest, radix)
        digits.append(digit)
    if rest or index < 0:
        raise IndexError(f"{index} is no index of a space with radices {radices}")
    return tuple(digits)


def index_of(digits: tuple[int, ...], radices: tuple[int, ...]) -> int:
    """The index that has these digits."""
    index = 0
    for digit, radix in zip(reversed(digits), reversed(radices), strict=True):
        index = index * radix + digit
    return index
