"""How ALU divides sums by powers of two as the CPU does: to the nearest integer, ties to even, saturated.

``SHR`` rounds down, and adding a half first rounds ties up. So ``r = (x + 2^(s-1)) >> s`` is right except for ties,
where it must be even: if ``r`` is odd, 1 is subtracted before the shift, which changes it exactly if it was a tie. Bit
``s`` of ``x + 2^(s-1)`` tells whether ``r`` is odd: shifted to the sign, and back over all bits, it is -1 or 0. That
takes a second tile beside each tile of sums, the *spare*.

``steps`` is the sequence as data: a program records it for its tiles, a test runs it on numbers.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

import numpy as np
from numpy.typing import NDArray

from tilewright.backend.vta.cycles import Timing
from tilewright.backend.vta.instructions import AluOperation

MOST_SHIFT = 30
"""The largest one for which a half is a positive number of 32 bits."""
_ALL_BITS = 32
_MOST_IMMEDIATE = (1 << 15) - 1


class Place(Enum):
    """What an operand of a step is: a tile for each tile of sums, or one for each block of channels."""

    SUMS = "sums"
    SPARE = "spare"
    ADDENDS = "addends"
    LEFTS = "lefts"
    SHIFTS = "shifts"


@dataclass(frozen=True, slots=True)
class Step:
    """``dst = operation(dst, second)``."""

    operation: AluOperation
    dst: Place
    second: Place | int


@dataclass(frozen=True, slots=True, eq=False)
class Rounding:
    """``clip(round((sum + addend) / 2^shift), low, high)``, with an addend and a shift for each channel.

    A negative shift multiplies. Sums and addends together stay below 2^24.
    """

    addends: NDArray[np.int64]
    shifts: NDArray[np.int64]
    low: int
    high: int

    @property
    def shift(self) -> int | None:
        """The shift of all channels, if they have one."""
        return int(self.shifts[0]) if np.all(self.shifts == self.shifts[0]) else None

    @property
    def tables(self) -> tuple[Place, ...]:
        """The constants that are tiles, in the order in which ``constants`` has them."""
        return (Place.ADDENDS,) if self.shift is not None else (Place.ADDENDS, Place.LEFTS, Place.SHIFTS)

    def constants(self) -> NDArray[np.int32]:
        """(tables, channels): what ``steps`` adds and shifts by."""
        halves = np.where(self.shifts > 0, np.int64(1) << np.clip(self.shifts - 1, 0, MOST_SHIFT), 0)
        lefts = np.where(self.shifts > 0, self.shifts - (_ALL_BITS - 1), -_ALL_BITS)
        known = {Place.ADDENDS: self.addends + halves, Place.LEFTS: lefts, Place.SHIFTS: self.shifts}
        return np.stack([known[place] for place in self.tables]).astype(np.int32)

    def steps(self) -> Iterator[Step]:
        """From sums to elements of the result."""
        yield Step(AluOperation.ADD, Place.SUMS, Place.ADDENDS)
        if np.any(self.shifts > 0):
            yield from _ties(Place.LEFTS if self.shift is None else self.shift - (_ALL_BITS - 1))
        yield from _ending(Place.SHIFTS if self.shift is None else self.shift, self.low, self.high)


def rounded(shift: int, low: int, high: int) -> Iterator[Step]:
    """The same without addends, for all channels. A shift that rounds is at most 15: its half is an immediate."""
    if shift > 0:
        assert 1 << (shift - 1) <= _MOST_IMMEDIATE, "see above"
        yield Step(AluOperation.ADD, Place.SUMS, 1 << (shift - 1))
        yield from _ties(shift - (_ALL_BITS - 1))
    yield from _ending(shift, low, high)


def _ties(left: Place | int) -> Iterator[Step]:
    """Subtract 1 where the quotient would be odd; a half has been added."""
    yield Step(AluOperation.SHR, Place.SPARE, -_ALL_BITS)
    yield Step(AluOperation.ADD, Place.SPARE, Place.SUMS)
    yield Step(AluOperation.SHR, Place.SPARE, left)
    yield Step(AluOperation.SHR, Place.SPARE, _ALL_BITS - 1)
    yield Step(AluOperation.ADD, Place.SUMS, Place.SPARE)


def _ending(shift: Place | int, low: int, high: int) -> Iterator[Step]:
    if shift != 0:
        yield Step(AluOperation.SHR, Place.SUMS, shift)
    yield Step(AluOperation.MAX, Place.SUMS, low)
    yield Step(AluOperation.MIN, Place.SUMS, high)


def cycles(steps: Iterator[Step], timing: Timing) -> int:
    """Cycles of some steps for each tile."""
    return sum(timing.alu_interval if isinstance(s.second, int) else timing.alu_pair_interval for s in steps)
