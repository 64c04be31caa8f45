"""How ALU divides sums by powers of two as the CPU does: to the nearest integer, ties to even, saturated.

``SHR`` rounds down, and adding a half first rounds ties up. So ``r = (x + 2^(s-1)) >> s`` is right except for ties,
where it must be even: if ``r`` is odd, 1 is subtracted before the shift, which changes it exactly if it was a tie. Bit
``s`` of ``x + 2^(s-1)`` tells whether ``r`` is odd: shifted to the sign, and back over all bits, it is -1 or 0.

``rounded`` has this as tensor expressions. Where channels have different shifts, these are *tables*: constants with an
element for each channel, and so are the halves, together with what is added to the sums anyway.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from tilewright.backend.vta.compiler import shift
from tilewright.base import dtypes
from tilewright.symbolic.expr import Expr, cast
from tilewright.tensor.build import compute
from tilewright.tensor.functions import clip
from tilewright.tensor.ir import Tensor

MOST_SHIFT = 30
"""The largest one for which a half is a positive number of 32 bits."""
_ALL_BITS = 32
Index: TypeAlias = tuple[Expr, ...]


class Table(Enum):
    """Constants with an element for each channel."""

    ADDENDS = "addends"
    """What is added to a sum, with the half that it is rounded by."""
    LEFTS = "lefts"
    """The shift that brings the lowest bit of a result to the sign; by -32, which leaves no bit, where none rounds."""
    SHIFTS = "shifts"


@dataclass(frozen=True, slots=True)
class RoundingForm:
    """All of a rounding but its tables. ``shift``: of all channels; None: each has its own. A negative one multiplies.

    ``rounds``: whether any channel has ties.
    """

    shift: int | None
    rounds: bool
    low: int
    high: int

    @property
    def tables(self) -> tuple[Table, ...]:
        """The tables that ``rounded`` needs, in order; addends are added before."""
        return (Table.LEFTS, Table.SHIFTS) if self.shift is None else ()


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
    def form(self) -> RoundingForm:
        """All but the numbers of channels."""
        shared = int(self.shifts[0]) if np.all(self.shifts == self.shifts[0]) else None
        return RoundingForm(shared, bool(np.any(self.shifts > 0)), self.low, self.high)

    @property
    def tables(self) -> Mapping[Table, NDArray[np.int32]]:
        """The tables of its form, and addends."""
        halves = np.where(self.shifts > 0, np.int64(1) << np.clip(self.shifts - 1, 0, MOST_SHIFT), 0)
        lefts = np.where(self.shifts > 0, self.shifts - (_ALL_BITS - 1), -_ALL_BITS)
        known = {Table.ADDENDS: self.addends + halves, Table.LEFTS: lefts, Table.SHIFTS: self.shifts}
        return {table: known[table].astype(np.int32) for table in (Table.ADDENDS, *self.form.tables)}


def half(power: int) -> int:
    """What is added to a sum before it is rounded by a shift."""
    return 1 << (power - 1) if power > 0 else 0


def rounded(sums: Tensor, form: RoundingForm, tables: Mapping[Table, Tensor]) -> Tensor:
    """Bytes of ``sums``, to which halves have been added, as tiles; ``tables`` are (blocks of channels, tile)."""

    def divided(at: Index) -> Expr:
        """With 1 subtracted where the quotient would be odd."""
        value = sums[at] if odd is None else sums[at] + odd[at]
        return _shifted(value, form.shift, tables.get(Table.SHIFTS), at)

    def sign(at: Index) -> Expr:
        left = None if form.shift is None else form.shift - (_ALL_BITS - 1)
        return _shifted(sums[at], left, tables.get(Table.LEFTS), at) >> (_ALL_BITS - 1)

    odd = compute(sums.shape, lambda *at: sign(at), name="odd") if form.rounds else None
    clipped = compute(sums.shape, lambda *at: clip(divided(at), form.low, form.high), name="clipped")
    return compute(sums.shape, lambda *at: cast(clipped[at], dtypes.i8), name="result")


def _shifted(value: Expr, count: int | None, table: Tensor | None, at: Index) -> Expr:
    """To the right, or to the left by a negative count."""
    if count is None:
        assert table is not None, "a form without a shift has tables"
        channel, *_, row, element = at
        return shift(value, table[channel, row, element])
    if count == 0:
        return value
    return value >> count if count > 0 else value << -count
