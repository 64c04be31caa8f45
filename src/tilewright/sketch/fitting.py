"""Which sizes of tiles make sense together: what a tile sums up fits into the registers, and fills some of them.

Sizes are chosen axis by axis, so most random tiles would spill, or add up in a few chains that wait for themselves. A
sample has none of these (``Space.sensible``).
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tilewright.sketch.structure import CORES
from tilewright.space.knobs import Knob, Value
from tilewright.space.space import Digits, Mask
from tilewright.target.target import Target

LEAST_SUMS = 4
"""Registers of sums, if there are so many: a sum is added to when its last addition is done, some cycles later."""


@dataclass(frozen=True, slots=True)
class _Tiled:
    """A tiled block: where the digits of its spatial axes are, and how many registers wide each of their values is."""

    columns: tuple[int, ...]
    registers: tuple[NDArray[np.int64], ...]
    least: int
    most: int

    def fits(self, digits: Digits) -> Mask:
        """Which candidates sum up in ``least`` to ``most`` registers."""
        used = np.ones(len(digits), np.int64)
        for column, registers in zip(self.columns, self.registers, strict=True):
            used *= registers[digits[:, column]]
        return (used >= self.least) & (used <= self.most)


@dataclass(frozen=True, slots=True)
class Fitting:
    """The tiles of a sketch."""

    tiled: tuple[_Tiled, ...]

    @staticmethod
    def of(knobs: Sequence[Knob[Value]], blocks: Iterable[str], target: Target, lanes: int) -> "Fitting":
        """Of a sketch that tiles ``blocks`` by ``CORES``; the last spatial axis of each becomes lanes."""
        found: list[_Tiled] = []
        for block in blocks:
            sizes = {
                column: [value for value in knob.values if isinstance(value, tuple)]
                for column, knob in enumerate(knobs)
                if knob.name.startswith(f"{block}.")
            }
            spatial = {c: values for c, values in sizes.items() if values and len(values[0]) == CORES.levels.count("S")}
            if spatial:
                found.append(_tiled(spatial, lanes, target.vector_registers))
        return Fitting(tuple(found))

    def sensible(self, digits: Digits) -> Mask:
        """Which candidates' tiles fit into the registers."""
        mask = np.ones(len(digits), np.bool_)
        for tiled in self.tiled:
            mask &= tiled.fits(digits)
        return mask


def _tiled(spatial: Mapping[int, Sequence[tuple[object, ...]]], lanes: int, most: int) -> _Tiled:
    """As many registers as some sizes can fill, at most ``most``; or any, if all sizes fill more."""
    *_, vector = spatial
    registers: list[NDArray[np.int64]] = []
    for column, values in spatial.items():
        innermost = np.array([sizes[-1] for sizes in values], np.int64)
        registers.append(-(-innermost // lanes) if column == vector else innermost)
    reached = {1}
    for each in registers:
        reached = {used * own for used in reached for own in each.tolist() if used * own <= most}
    if not reached:
        return _Tiled((), (), 1, most)
    return _Tiled(tuple(spatial), tuple(registers), min(LEAST_SUMS, max(reached)), most)
