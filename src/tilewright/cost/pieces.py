"""What it costs that data lie in pieces: where no processor foresees the next one, or pieces share sets of a cache.

Estimates are arrays with an element per choice, as in ``cost.model``.
"""

from math import gcd
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from tilewright.kernels.panel_rows import Pack
from tilewright.kernels.panels_ahead import LINE_BYTES
from tilewright.kernels.tile_facts import TileFacts
from tilewright.kernels.tiling import Order
from tilewright.space.population import BoolArray, Population
from tilewright.target.target import Target

Cycles: TypeAlias = NDArray[np.floating]


def are_evicted(pieces: int, distance: int, piece_bytes: NDArray[np.int64], target: Target) -> BoolArray:
    """Whether so many pieces, ``distance`` bytes from one another, do not stay in the first cache until they are read
    again. Lines at multiples of ``Machine.way_bytes`` share a set, which has as many as the cache has ways."""
    apart = gcd(distance, target.machine.way_bytes)
    room = target.l1_bytes / np.maximum(apart, piece_bytes)
    return np.greater(pieces, target.machine.cache_part * room)


def stored_apart(facts: TileFacts, population: Population, target: Target) -> Cycles:
    """Stall cycles for rows of results beyond the second cache that are stored piece by piece, strip after strip: each
    begins where no processor foresees it."""
    column_tiles = -(-facts.vector // population.column("lanes"))
    stored = facts.groups * facts.places * facts.rows * facts.vector * facts.panels * facts.itemsize
    in_pieces = (column_tiles > 1) & (population.column("order") != Order.ROWS_COLUMNS.value)
    is_far = stored > target.l2_bytes
    return np.where(in_pieces & is_far, target.machine.near_piece * facts.rows * facts.panels * column_tiles, 0.0)


def many_rows(facts: TileFacts, population: Population, target: Target) -> Cycles:
    """Stall cycles for data from memory that a window slides over, if a tile reads more rows of it side by side than
    the processor foresees: then none of their lines is asked for in time."""
    machine = target.machine
    if facts.window_bytes <= min(target.l3_bytes, machine.third_share):
        return np.zeros(len(population))
    side_by_side = (population.column("rows") - 1) * facts.overlap.stride + facts.overlap.taps
    unforeseen = np.clip((side_by_side - machine.foreseen_rows) / (2 * machine.foreseen_rows), 0.0, 1.0)
    return machine.far_piece * unforeseen * facts.window_bytes / LINE_BYTES / (facts.groups * facts.places)


def terms_in_pieces(facts: TileFacts, population: Population, target: Target) -> Cycles:
    """Stall cycles of sums of rows beyond the second cache, of which each tile reads a piece: nothing slides, so that
    each piece begins where no processor foresees it."""
    if facts.overlap.taps > 1 or facts.window_bytes <= target.l2_bytes:
        return np.zeros(len(population))
    is_far = facts.window_bytes > min(target.l3_bytes, target.machine.third_share)
    column_tiles = -(-facts.vector // population.column("lanes"))
    one = target.machine.far_piece if is_far else target.machine.near_piece
    return one * column_tiles * facts.rows * facts.reduction


def pieces_apart(facts: TileFacts, population: Population, panels: NDArray[np.int64], target: Target) -> Cycles:
    """Stall cycles for a strip that is a piece of each row, for so many panels, and for the pieces of the result: each
    begins where no processor foresees it. If the strip is asked for while the one before is multiplied, half of it.

    Pieces that share sets of the first cache are loaded anew by each tile of rows, unless the strip is copied.
    """
    machine = target.machine
    row_tiles = -(-facts.rows // population.column("rows"))
    pieces, piece_bytes = panels * facts.reduction, population.column("lanes") * facts.itemsize
    times = np.where(population.column("order") == Order.ROWS_COLUMNS.value, row_tiles, 1)
    are_lost = are_evicted(facts.reduction, facts.row_length * facts.itemsize, piece_bytes, target)
    lost = np.where(are_lost, machine.near_piece * pieces * (row_tiles - 1), 0.0)
    copying, are_copied = _COPY * -(-piece_bytes * 8 // target.vector_bits), population.column("pack") == _STRIPS
    again = np.where(are_copied, copying * times * pieces, lost)
    if facts.streamed <= target.l2_bytes:
        return machine.second_cache * pieces + again
    is_far = facts.streamed > min(target.l3_bytes, machine.third_share)
    one = (machine.far_piece if is_far else machine.near_piece) * np.where(population.column("prefetch") == 2, 1, 2)
    is_near = facts.streamed <= facts.groups * target.l2_bytes  # that of a group stays there for all tiles of rows
    later = (machine.second_cache if is_near else one) * (times - 1) * pieces
    return one * (pieces + panels * facts.rows) + later + np.where(are_copied | (times == 1), again, 0.0)


_COPY = 1.5
"""Cycles to load a vector and to store it elsewhere in the first cache."""
_STRIPS = Pack.STRIPS.value


def lines_read(facts: TileFacts) -> float:
    """The bytes of lines that come with each byte of a row: elements of neighbouring rows that lie apart in a line have
    others between them, if a single tap reads them."""
    is_apart = facts.overlap.taps == 1 and facts.itemsize < facts.row_bytes < LINE_BYTES
    return facts.row_bytes / facts.itemsize if is_apart else 1.0
