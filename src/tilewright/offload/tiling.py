"""How a product is cut into tiles: what fits the memories, and which tiling takes the fewest cycles by an estimate.

The image of results is cut into tiles of rows, columns and blocks of filters. The products of a tile are summed in
stages over blocks of channels. With two *virtual threads*, stages use the halves of inp and wgt in turn, and tiles two
areas of accumulators, so that load works ahead of compute, and compute ahead of store.
"""

import functools
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

from tilewright.backend.vta.config import Config, Scratchpad
from tilewright.backend.vta.cycles import Timing
from tilewright.offload.units import Axis


@dataclass(frozen=True, slots=True)
class Work:
    """What a tiling depends on: a product in blocks, the constant tiles of a block of filters, and its ALU cycles."""

    rows: Axis
    columns: Axis
    channels: int
    filters: int
    tables: int
    alu: int

    @property
    def taps(self) -> int:
        """Tiles of weights of a block of filters and one of channels."""
        return self.rows.taps * self.columns.taps

    @property
    def products(self) -> int:
        """Micro-ops of GEMM."""
        return self.rows.outputs * self.columns.outputs * self.channels * self.filters * self.taps


@dataclass(frozen=True, slots=True)
class Tiling:
    """The size of a tile (rows and columns of the result, blocks of filters), and the blocks of channels of a stage."""

    rows: int
    columns: int
    filters: int
    channels: int
    threads: int

    @property
    def sums(self) -> int:
        """Accumulators of a tile."""
        return self.rows * self.columns * self.filters


def patch(axis: Axis, outputs: int, is_sparse: bool) -> int:
    """The most positions that ``outputs`` results read. ``is_sparse``: those between are left out."""
    return outputs if is_sparse and axis.taps == 1 else (outputs - 1) * axis.stride + axis.reach + 1


def needed(work: Work, tiling: Tiling) -> dict[Scratchpad, int]:
    """Tiles of each memory. Accumulators: those of each thread, the spare ones, and constants."""
    image = patch(work.rows, tiling.rows, True) * patch(work.columns, tiling.columns, False)
    return {
        Scratchpad.INP: tiling.threads * image * tiling.channels,
        Scratchpad.WGT: tiling.threads * tiling.filters * tiling.channels * work.taps,
        Scratchpad.ACC: (tiling.threads + 1) * tiling.sums + work.tables * tiling.filters,
        Scratchpad.UOP: tiling.filters * tiling.channels * work.taps,
    }


def tilings(work: Work, config: Config, threads: int) -> Iterator[Tiling]:
    """Those that fit; each dimension is cut into equal parts, the last one perhaps smaller."""
    sizes = (work.rows.outputs, work.columns.outputs, work.filters, work.channels)
    for rows, columns, filters, channels in product(*map(_parts, sizes)):
        tiling = Tiling(rows, columns, filters, channels, threads)
        if all(tiles <= config.depth(pad) // threads * threads for pad, tiles in needed(work, tiling).items()):
            yield tiling


def _parts(extent: int) -> tuple[int, ...]:
    return tuple(sorted({-(-extent // count) for count in range(1, extent + 1)}))


def estimate(work: Work, tiling: Tiling, config: Config, timing: Timing) -> float:
    """About how many cycles it takes: loads, arithmetic and stores add up, or overlap with two threads."""
    tiles = (-(-work.rows.outputs // tiling.rows) * -(-work.columns.outputs // tiling.columns)) * -(
        -work.filters // tiling.filters
    )
    stages = tiles * -(-work.channels // tiling.channels)
    wanted = needed(work, tiling)
    moved = (wanted[pad] // tiling.threads * config.tile_bytes(pad) for pad in (Scratchpad.INP, Scratchpad.WGT))
    start = timing.latency + timing.issue
    load = stages * (sum(moved) / timing.bus_bytes + (tiling.channels + 1) * start)
    results = work.rows.outputs * work.columns.outputs * work.filters
    compute = work.products + results * (1 + work.alu) + (stages + tiles) * (timing.gemm_depth + timing.issue)
    store = results * config.tile_bytes(Scratchpad.OUT) / timing.bus_bytes + tiles * tiling.filters * start
    if tiling.threads == 1:
        return load + compute + store
    return max(load + store, compute) + (load + compute) / stages + store / tiles


@functools.lru_cache(maxsize=1024)
def chosen(work: Work, config: Config, timing: Timing) -> Tiling | None:
    """The tiling with the least estimate, with two threads if they fit; None if none fits."""
    for threads in (2, 1):
        best = min(tilings(work, config, threads), key=lambda t: estimate(work, t, config, timing), default=None)
        if best is not None:
            return best
    return None
