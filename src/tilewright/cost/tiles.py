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


@dataclass(frozen=True, slots=True)
class Problem:
    """Extents of the axes that are tiled, bytes of an element; 1 where there is no such axis."""

    vector: int
    rows: int
    panels: int
    itemsize: int


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
            for rows in range(1, min(most, max(problem.rows, 1)) + 1):
                yield Tile(vectors * lanes, rows, panels)


def _cycles(problem: Problem, tile: Tile, target: Target) -> float:
    """Cycles of one step of the reduction over the whole output."""
    lanes = target.vector_bits // (8 * problem.itemsize)
    steps = 0.0
    for vectors, vector_count in _pieces(problem.vector, tile.lanes, lanes):
        for panels, panel_count in _pieces(problem.panels, tile.panels):
            for rows, row_count in _pieces(problem.rows, tile.rows):
                count = vector_count * panel_count * row_count
                steps += count * _step(rows, vectors * panels, target)
    return steps


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
