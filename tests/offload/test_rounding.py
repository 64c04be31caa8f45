"""ALU rounds as NumPy does: to the nearest, ties to even."""

import numpy as np
import pytest
from numpy.typing import NDArray

from tilewright import te
from tilewright.backend.vta.config import VTA, Scratchpad
from tilewright.backend.vta.layers import tiles
from tilewright.offload.rounding import MOST_SHIFT, Rounding, Table, rounded

Numbers = NDArray[np.int32]
CHANNELS = 16


def run(sums: Numbers, rounding: Rounding) -> Numbers:
    """The bytes that a program of the accelerator makes of (pixels, channels)."""
    data = tiles((1, len(sums)), Scratchpad.ACC, VTA, "sums")
    tables = {table: tiles((1,), Scratchpad.ACC, VTA, table.value) for table in rounding.tables}
    addends = tables[Table.ADDENDS]
    biased = te.compute(data.shape, lambda c, n, b, o: data[c, n, b, o] + addends[c, b, o], name="biased")
    kernel = te.accelerate(rounded(biased, rounding.form, tables), VTA)
    feeds = {"sums": sums.reshape(1, -1, 1, CHANNELS)}
    feeds |= {table.value: row.reshape(1, 1, CHANNELS) for table, row in rounding.tables.items()}
    return np.asarray(kernel(*(feeds[spec.name] for spec in kernel.inputs))).reshape(sums.shape)


def expected(sums: Numbers, rounding: Rounding) -> Numbers:
    exact = np.ldexp((sums + rounding.addends).astype(np.float64), -rounding.shifts)
    return np.clip(np.rint(exact), rounding.low, rounding.high).astype(np.int32)


def sums_near(shifts: NDArray[np.int64], seed: int) -> Numbers:
    """All near 0, ties and numbers beside them, and random ones; a row for each."""
    random = np.random.default_rng(seed)
    halves = np.left_shift(1, np.clip(shifts - 1, 0, 21))
    ties = halves * (2 * random.integers(-200, 200, (400, len(shifts))) + 1) + random.integers(
        -1, 2, (400, len(shifts))
    )
    near, far = np.arange(-300, 300)[:, None] + 0 * shifts, random.integers(-(1 << 23), 1 << 23, (400, len(shifts)))
    return np.concatenate([np.clip(ties, -(1 << 23), 1 << 23), near, far]).astype(np.int32)


def check(shifts: NDArray[np.int64], seed: int) -> None:
    addends = np.random.default_rng(seed).integers(-5000, 5000, CHANNELS)
    rounding = Rounding(addends, shifts, -128, 90)
    sums = sums_near(shifts, seed) - addends.astype(np.int32)
    assert np.array_equal(run(sums, rounding), expected(sums, rounding)), shifts


@pytest.mark.share(6)
@pytest.mark.parametrize("shift", range(-4, MOST_SHIFT + 1))
def test_sums_are_rounded_to_even(shift: int) -> None:
    """All channels alike."""
    check(np.full(CHANNELS, shift), shift + 4)


def test_channels_have_shifts_of_their_own() -> None:
    """All of them, some to the left."""
    for first in range(0, MOST_SHIFT + 1, CHANNELS):
        check((np.arange(CHANNELS) + first) % (MOST_SHIFT + 1), first)
    check(np.arange(CHANNELS) - 4, 2)
