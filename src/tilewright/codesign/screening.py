"""Estimates of a network's cycles for every depth of the memories, by the tiles that the compiler would choose.

Which sizes of tiles there are, what they take of the memories and about how many cycles they need depends on the blocks
only. So all sizes are listed once for each form of a micro-op, cheapest first; the choice of a configuration is the
first of the list that fits it.
"""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from tilewright.backend.vta.config import Config
from tilewright.backend.vta.convolution import loop_program
from tilewright.backend.vta.cycles import Timing
from tilewright.backend.vta.schedules import estimate, fitting
from tilewright.backend.vta.schedules.tiling import THREADS, needed, shape_of
from tilewright.codesign.networks import Layer
from tilewright.codesign.space import ACC, INP, WGT

_PADS = (INP, WGT, ACC)


@dataclass(frozen=True, slots=True)
class Choices:
    """The sizes of tiles of a layer, cheapest first: tiles of inp, wgt and acc that they take, and estimated cycles."""

    needs: NDArray[np.int64]
    cycles: NDArray[np.float64]
    calls: int

    def best(self, depths: NDArray[np.int64]) -> float:
        """The estimate of what fits; infinite if nothing does."""
        fits = np.all(self.needs <= depths, axis=1)
        first = int(np.argmax(fits))
        return float(self.cycles[first]) if fits[first] else float("inf")


@dataclass(frozen=True, slots=True)
class Screen:
    """The layers of a network for one form of a micro-op."""

    layers: tuple[Choices, ...]
    _known: dict[tuple[int, ...], float] = field(default_factory=dict[tuple[int, ...], float])
    """Estimates by depths: that of the micro-op memory does not matter."""

    @staticmethod
    def of(layers: tuple[Layer, ...], unlimited: Config, timing: Timing) -> "Screen":
        """``unlimited``: the blocks, with memories in which all tiles have room."""
        return Screen(tuple(_choices(layer, unlimited, timing) for layer in layers))

    def estimate(self, config: Config) -> float:
        """About how many cycles the network takes; infinite if a layer does not fit."""
        depths = tuple(config.depth(pad) for pad in _PADS)
        if depths not in self._known:
            room = np.array(depths, np.int64)
            self._known[depths] = sum(layer.calls * layer.best(room) for layer in self.layers)
        return self._known[depths]


def _choices(layer: Layer, unlimited: Config, timing: Timing) -> Choices:
    shape = shape_of(loop_program(layer.blocked(unlimited), unlimited), unlimited)
    rows: list[tuple[float, tuple[int, ...]]] = []
    for threads in THREADS:
        for tiles in fitting(shape, unlimited, threads):
            taken = needed(shape, tiles)
            rows.append((estimate(shape, tiles, unlimited, timing), tuple(threads * taken[pad] for pad in _PADS)))
    rows.sort()
    needs = np.array([taken for _, taken in rows], np.int64)
    return Choices(needs, np.array([cycles for cycles, _ in rows], np.float64), layer.calls)
