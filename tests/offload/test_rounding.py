"""ALU's steps round as NumPy does: to the nearest, ties to even."""

from collections.abc import Iterator

import numpy as np
import pytest
from numpy.typing import NDArray

from tilewright.backend.vta.config import VTA
from tilewright.backend.vta.functional import apply
from tilewright.offload.rounding import MOST_SHIFT, Place, Rounding, Step, rounded

Numbers = NDArray[np.int32]


def run(steps: Iterator[Step], tiles: dict[Place, Numbers]) -> Numbers:
    """The sums after all steps; the spare tile has anything at first."""
    tiles[Place.SPARE] = np.full_like(tiles[Place.SUMS], 12345)
    for step in steps:
        second = np.int32(step.second) if isinstance(step.second, int) else tiles[step.second]
        tiles[step.dst] = apply(step.operation, tiles[step.dst], np.asarray(second), VTA)
    return tiles[Place.SUMS]


def expected(sums: Numbers, addends: NDArray[np.int64], shifts: NDArray[np.int64], low: int, high: int) -> Numbers:
    exact = np.ldexp((sums + addends).astype(np.float64), -shifts)
    return np.clip(np.rint(exact), low, high).astype(np.int32)


def sums_near(shifts: NDArray[np.int64], seed: int) -> Numbers:
    """All near 0, ties and numbers beside them, and random ones; a row for each."""
    random = np.random.default_rng(seed)
    halves = np.left_shift(1, np.clip(shifts - 1, 0, 21))
    ties = halves * (2 * random.integers(-200, 200, (400, len(shifts))) + 1) + random.integers(
        -1, 2, (400, len(shifts))
    )
    near, far = np.arange(-300, 300)[:, None] + 0 * shifts, random.integers(-(1 << 23), 1 << 23, (400, len(shifts)))
    return np.concatenate([np.clip(ties, -(1 << 23), 1 << 23), near, far]).astype(np.int32)


@pytest.mark.parametrize("uniform", [True, False])
def test_sums_are_rounded_to_even(uniform: bool) -> None:
    for seed, first in enumerate(range(MOST_SHIFT + 1)):
        shifts = np.array([first] * 3 if uniform else [first, MOST_SHIFT - first, -2])
        addends = np.random.default_rng(seed).integers(-5000, 5000, 3)
        rounding = Rounding(addends, shifts, -128, 90)
        assert (rounding.shift is None) is not uniform
        sums = sums_near(shifts, seed) - addends.astype(np.int32)
        tables = dict(zip(rounding.tables, rounding.constants(), strict=True))
        tiles = {Place.SUMS: sums, **{place: np.broadcast_to(row, sums.shape) for place, row in tables.items()}}
        assert np.array_equal(run(rounding.steps(), tiles), expected(sums, addends, shifts, -128, 90)), first


@pytest.mark.parametrize("shift", range(-4, 16))
def test_immediates_round_alike(shift: int) -> None:
    shifts = np.array([shift])
    sums = sums_near(shifts, 1)
    found = run(rounded(shift, 0, 127), {Place.SUMS: sums})
    assert np.array_equal(found, expected(sums, np.zeros(1, np.int64), shifts, 0, 127))
