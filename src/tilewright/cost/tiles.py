"""The analytic choice of register tiles, from the facts of the target.

The model counts cycles of the reduction's inner loop, as in Low et al., "Analytical Modeling Is Enough for
High-Performance BLIS" (2016): multiply-adds and loads compete for their ports, accumulators must hide the latency of a
multiply-add, and what does not divide runs as a smaller tile.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from tilewright.base.target import Target
from tilewright.kernels.contraction import Tile

FMA_LATENCY = 4
"""Cycles from a multiply-add to one that needs its result, on all targets here."""

LOAD_COST = 0.05
"""Cycles that a load costs even where its port is free: of two tiles that could both reach the peak, the one with fewer
loads per multiply-add comes closer."""

STREAM_BYTES_PER_CYCLE = 12
"""What comes from memory, asked for ahead."""

STREAM_PASSES = 4
"""Up to so many tiles that use a panel one after the other, it pays to ask for panels ahead."""

STREAM_ROWS = 8
"""Rows of a tile whose panels are streamed: the rows of a matrix, often powers of two apart, share few sets of the L1
cache with the stream."""


@dataclass(frozen=True, slots=True)
class Problem:
    """Extents of the axes that are tiled, bytes of an element; 1 where there is no such axis."""

    vector: int
    rows: int
    panels: int
    itemsize: int
    bytes: int = 0
    """Of all panels together, if they are read once for all rows; else 0."""

    def is_streamed(self, target: Target) -> bool:
        """Whether panels come from beyond a core's own caches, for too few rows to hide that."""
        return self.bytes > target.l2_bytes and self.rows <= STREAM_PASSES * STREAM_ROWS


def choose_tile(problem: Problem, target: Target) -> Tile:
    """The tile with the fewest cycles per point; of equals, the one with the largest number of rows."""
    return min(_tiles(problem, target), key=lambda tile: (_cycles(problem, tile, target), -tile.rows))


def _tiles(problem: Problem, target: Target) -> Iterator[Tile]:
    """All tiles whose accumulators, panel loads and a broadcast fit in the registers.

    Rows of the tile are powers of two of registers: LLVM widens a vector of three registers to four, and then spills.
    """
    lanes = target.vector_bits // (8 * problem.itemsize)
    for vectors in (1, 2, 4):
        if vectors > 1 and problem.vector <= (vectors - 1) * lanes:
            break
        for panels in (1, 2, 3, 4):
            if panels > problem.panels:
                break
            columns = vectors * panels
            most = (target.vector_registers - columns - 1) // columns
            if problem.is_streamed(target):
                most = min(most, STREAM_ROWS)
            for rows in range(1, min(most, max(problem.rows, 1)) + 1):
                yield Tile(vectors * lanes, rows, panels)


def _cycles(problem: Problem, tile: Tile, target: Target) -> float:
    """Cycles of one step of the reduction over the whole output."""
    unit = target.vector_bits // (8 * problem.itemsize)
    total = 0.0
    for vectors, vector_count in _pieces(problem.vector, tile.lanes, unit):
        for panels, panel_count in _pieces(problem.panels, tile.panels):
            columns = vectors * panels
            passes = [(_step(rows, columns, target), count) for rows, count in _pieces(problem.rows, tile.rows)]
            if problem.is_streamed(target):  # the first pass waits for the panel, which is then in cache
                total += vector_count * panel_count * max(0.0, _streaming(columns, target) - passes[0][0])
            total += vector_count * panel_count * sum(cycles * count for cycles, count in passes)
    return total


def _streaming(columns: int, target: Target) -> float:
    """Cycles until as many vectors of panels have come from memory."""
    return columns * target.vector_bits / 8 / STREAM_BYTES_PER_CYCLE


def _step(rows: int, columns: int, target: Target) -> float:
    """Cycles of one step of one tile of ``rows`` by ``columns`` vectors."""
    arithmetic = rows * columns / target.fma_per_cycle
    loads = (rows + columns) / target.loads_per_cycle
    return max(arithmetic, loads, FMA_LATENCY) + LOAD_COST * (rows + columns)


def _pieces(extent: int, tile: int, unit: int = 1) -> Iterator[tuple[int, int]]:
    """``(size, count)`` of the full tiles and of the rest, in units."""
    full, rest = divmod(extent, tile)
    if full:
        yield tile // unit, full
    if rest:
        yield -(-rest // unit), 1
