"""The analytic model: estimates the time of whole populations of choices from the target's parameters.

As in Low et al., "Analytical Modeling Is Enough for High-Performance BLIS" (2016), cycles are counted: multiply-adds
and loads compete for their ports, accumulators must hide the latency of a multiply-add, each tile has a start and an
end, and remainders run as smaller tiles. Data that a tile reads again come from the level of cache that still holds
them; part of that time is hidden by arithmetic. All computations are on arrays with an element per choice.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import gcd

import numpy as np
from numpy.typing import NDArray

from tilewright.backend.cpu.prepare.partition import MAX_COPIED, MAX_PIECES
from tilewright.base.dtypes import f32
from tilewright.cost.matrix_unit import attention_cycles, panel_loads, product_cycles, tiles_of_rows
from tilewright.cost.pieces import Cycles, lines_read, many_rows, pieces_apart, stored_apart, terms_in_pieces
from tilewright.kernels.attention_tiles import AttentionTiles
from tilewright.kernels.block_sums import BlockSums
from tilewright.kernels.dot_descriptions import lanes_of
from tilewright.kernels.matrix_tiles import MatrixTiles
from tilewright.kernels.nests import Lanes, Nest, Nests, Registers, Tiles, fits, tile_knobs
from tilewright.kernels.packing import Matrix
from tilewright.kernels.padded_parts import PaddedParts
from tilewright.kernels.panel_rows import Pack
from tilewright.kernels.panels_ahead import LINE_BYTES, PANEL_CACHE
from tilewright.kernels.reduction_slices import BLOCK
from tilewright.kernels.row_products import RowProducts
from tilewright.kernels.tile_facts import TileFacts
from tilewright.kernels.tile_products import tile_unit
from tilewright.kernels.tiling import Order, Unroll
from tilewright.schedule.prefetch import CACHES
from tilewright.space.knobs import Knob
from tilewright.space.population import Choice, Population, all_of
from tilewright.target.machine import GUESSED_EXTENT, MOST_CHUNKS
from tilewright.target.target import Target

COPIED = 2.0
"""Passes over a matrix for a copy: it is read and written."""
LOADED_AND_STORED = 2.0
"""Passes over sums in memory that a slice of a reduction adds to."""


@dataclass(frozen=True, slots=True)
class _Level:
    """A level of memory: its capacity, and its bandwidth in vector registers per cycle that is not hidden."""

    bytes: float
    rate: float


def _levels(target: Target) -> tuple[_Level, ...]:
    """The levels beyond the first, nearest first."""
    machine = target.machine
    return (
        _Level(target.l2_bytes, machine.l2_registers),
        _Level(max(target.l2_bytes, min(target.l3_bytes, machine.mapped_bytes)), machine.l3_registers),
        _Level(float("inf"), machine.memory_registers),
    )


def best(nests: Nests, target: Target) -> tuple[Choice, ...]:
    """The choice with the smallest estimate for each nest; of equal ones, the first."""
    return tuple(_best(nest, target) for nest in nests.nests)


_ROUNDING = 1e-9
"""Relative difference below which estimates count as equal."""


def _best(nest: Nest, target: Target) -> Choice:
    population = nest.population()
    cycles = _rated(nest, population, target)
    return population[int(np.argmax(cycles <= cycles.min() * (1 + _ROUNDING)))]


def _rated(nest: Nest, population: Population, target: Target) -> Cycles:
    """Cycles of each choice, or what they are relative to the best one, added up for several numbers of rows."""
    cycles = estimate(nest, population, target)
    if not isinstance(nest, MatrixTiles) or nest.open_rows is None:
        return cycles
    total = cycles / cycles.min()
    for times in _MORE_ROWS:
        more = estimate(nest.of_rows(times * nest.facts.rows), population, target)
        total = total + more / more.min()
    return total


_MORE_ROWS = (2, 4)
"""Multiples of a guessed number of rows for which a matrix unit's tiles are to be good as well: a unit is so fast that
weights count, which each tile of rows reads again."""


def least_cycles(nest: Nest, target: Target) -> float:
    """The estimate for the best choice of ``nest``."""
    return float(estimate(nest, nest.population(), target).min())


def chosen_cycles(nest: Nest, target: Target, rated: Sequence[tuple[Nest, Target]]) -> list[float]:
    """Estimates for the choice of ``nest`` that is best for ``target``: by other facts and figures."""
    choice = Population(nest.population().names, np.array([_best(nest, target)]))
    return [float(estimate(other, choice, figures)[0]) for other, figures in rated]


def estimate(nest: Nest, population: Population, target: Target) -> Cycles:
    """Cycles of each choice of ``nest``, on all cores that it may use."""
    match nest:
        case PaddedParts(parallel=parallel):
            cycles, parts = parts_cycles(nest, population, target), np.full(len(population), nest.count)
            return _shared(cycles, parts, target) if parallel else cycles
        case Tiles(facts=facts, registers=registers, parallel=parallel):
            cycles = tile_cycles(facts, population, registers, target)
            return _shared(cycles, _tasks(facts, population), target) if parallel else cycles
        case MatrixTiles(facts=facts, parallel=parallel):
            cycles = matrix_cycles(nest, population, target)
            return _shared(cycles, _tiles(facts, population), target) if parallel else cycles
        case AttentionTiles(parallel=parallel):
            cycles, tiles = attention_cycles(nest, population, target)
            return _shared(cycles, tiles, target) if parallel else cycles
        case Lanes(parallel=parallel):
            cycles = -(-nest.points // nest.width) * _lane_cycles(nest.live, population, target)
            return _shared(cycles, np.full(len(population), MOST_CHUNKS), target) if parallel else cycles
        case RowProducts(parallel=parallel):
            cycles, tiles = row_cycles(nest, population, target)
            return _shared(cycles, tiles, target) if parallel else cycles
        case BlockSums(parallel=parallel):
            cycles, tiles = block_cycles(nest, population, target)
            return _shared(cycles, tiles, target) if parallel else cycles
        case _:
            return np.full(len(population), nest.points * unknown_cycles(target))


def parts_cycles(nest: PaddedParts, population: Population, target: Target) -> Cycles:
    """Cycles of the tiles of all parts on one core, less what padding takes less where the data of a part are near.

    Each image reads the panels of all groups again, from a cache while tiles are multiplied, unless these leave out
    terms: no processor foresees which.
    """
    facts, machine, size = nest.facts, target.machine, float(nest.padded_bytes)
    one = replace(facts, places=facts.places // nest.images, places_bytes=nest.padded_bytes // nest.images)
    cycles = tile_cycles(one, population, nest.registers, target)
    weights = facts.groups * facts.vector * facts.panels * facts.reduction * facts.itemsize
    are_far = weights > min(target.l3_bytes, machine.third_share)
    coming = weights / (machine.memory_bytes if are_far else machine.third_bytes)
    is_waiting = are_far or bool(facts.slidings)
    again = np.maximum(0.0, coming - (0.0 if is_waiting else cycles))
    if weights + one.places_bytes <= target.l2_bytes:
        again = np.zeros(len(population))
    total = nest.images * cycles + (nest.images - 1) * again
    whole, part = _Rates(target, nest.registers.lanes * facts.itemsize)(np.array([size, size / nest.count]))
    return total - min(_STORED * size * (whole - part), _MOST_SAVED * total.min())


_STORED = 3.0
"""Passes over padded data: they are fetched to be written, written, and read."""
_MOST_SAVED = 0.5
"""The largest part of an estimate that is taken off: what is left stays above 0."""


def block_cycles(nest: BlockSums, population: Population, target: Target) -> tuple[Cycles, NDArray[np.int64]]:
    """Cycles of scaled sums over blocks on one core, and the number of their tiles.

    A step's instructions wait for each other if there are few accumulators; the panel's vectors are separated once for
    all rows; the sums of a block are converted and scaled.
    """
    machine, facts, instruction = target.machine, nest.facts, nest.instruction
    vectors, rows = population.column("lanes") // lanes_of(instruction), population.column("rows")
    sums = rows * vectors * facts.sums
    step = np.maximum(sums * instruction.multiply_adds, machine.fma_latency) * facts.groups + facts.groups * vectors
    block = facts.steps * step + 2 * sums
    tiles = -(-facts.columns // population.column("lanes")) * -(-facts.rows // rows)
    return tiles * (facts.blocks * block + machine.tile_start), tiles


def row_cycles(nest: RowProducts, population: Population, target: Target) -> tuple[Cycles, NDArray[np.int64]]:
    """Cycles of products of rows on one core, and the number of their tiles."""
    machine, facts, lanes = target.machine, nest.facts, nest.registers.lanes
    steps, row_bytes = -(-facts.reduction // lanes), facts.reduction * f32.itemsize
    rows, columns = population.column("rows"), population.column("columns")
    cycles, tiles = np.zeros(len(population)), np.zeros(len(population), np.int64)
    for row_size, row_count in _pieces(facts.rows, rows):
        for column_size, column_count in _pieces(facts.columns, columns):
            sums, loads, count = row_size * column_size, row_size + column_size, row_count * column_count
            step = np.maximum(sums / target.fma_per_cycle, loads / target.loads_per_cycle)
            step = np.maximum(step, machine.fma_latency) + machine.load_cycles * loads
            cycles += count * (steps * step + machine.tile_start + machine.row_sum * sums)
            tiles += count
    image = facts.rows * row_bytes
    rate = _Rates(target, lanes * f32.itemsize)(image + columns * float(row_bytes))
    return facts.places * (cycles - (-facts.columns // columns) * image * rate), facts.places * tiles


def matrix_cycles(nest: MatrixTiles, population: Population, target: Target) -> Cycles:
    """Cycles of tiles by a matrix unit on one core: products and loads of a step overlap; what consumers do with a row
    of sums follows the product."""
    facts, machine, one = nest.facts, target.machine, np.zeros(len(population))
    are_bytes = nest.pattern.unit.right.itemsize == 1  # only for these was it measured what far loads cost
    for place in range(len(population)):
        choice = dict(zip(population.names, map(int, population[place]), strict=True))
        product = nest.product(choice)
        assert product is not None, "a population has allowed choices"
        loads = panel_loads(nest, product, choice, target) if are_bytes else None
        for times, tile in tiles_of_rows(product, facts.rows):
            one[place] += times * product_cycles(tile, facts.reduction, target, loads, facts.row_bytes)
    lanes, panels = (population.column(name) for name in ("lanes", "panels"))
    count = (facts.vector // lanes) * (facts.panels // panels)
    cycles = facts.groups * facts.places * count * one + _traffic(facts, population, nest.registers, target)
    # The weights come from beyond the second cache: while other rows are multiplied, if they are asked for.
    is_part = are_bytes & (lanes < (nest.pattern.width or facts.vector))
    streamed = float(facts.streamed)
    if facts.streamed_again:  # for each place, unless they stay in the second cache
        streamed = facts.streamed_again * (facts.places if facts.streamed_again > target.l2_bytes else 1.0)
    coming = streamed / machine.tile_stream_bytes * np.where(is_part, machine.matrix_part, 1.0)
    asking = machine.asking * streamed / LINE_BYTES
    asked = np.maximum(cycles, streamed / machine.stream_bytes) + asking
    return np.where(population.column("ahead") == 1, asked, cycles + coming)


def unknown_cycles(target: Target) -> float:
    """Cycles of a point of a nest of unknown class: without lanes, and with all data from and to memory. An upper
    bound, so that known classes are preferred."""
    return target.machine.operation_cycles + 2 * target.vector_bits / 8 / target.machine.far_bytes


def panel_width(matrix: Matrix, target: Target) -> int:
    """The panel width for packing ``matrix``, which is multiplied with the rows of another one.

    Panels for a matrix unit are read from one end to the other: they are as wide as what its registers hold sums of.
    """
    unit = tile_unit(target, matrix.dtype, matrix.dtype)
    if unit is not None and (matrix.rows is None or matrix.rows >= unit.rows):
        return 2 * unit.columns
    columns, rows = (GUESSED_EXTENT if extent is None else extent for extent in (matrix.columns, matrix.rows))
    itemsize = matrix.dtype.itemsize
    registers = Registers(target.vector_registers, target.lanes(matrix.sums.bits))
    size, row_bytes = matrix.size * itemsize, matrix.reduction * itemsize
    facts = TileFacts(columns, rows, 1, 1, 1, matrix.reduction, itemsize, streamed=size, row_bytes=row_bytes)
    facts = replace(facts, next_panel=bool(target.machine.panels_ahead) and rows > 1)
    unroll = Knob("unroll", ((Unroll.INNERMOST if target.machine.unrolled_steps else Unroll.NOTHING).value,))
    every = all_of(
        (
            *tile_knobs(facts, registers),
            unroll,
            Knob("pack", (0,)),
            Knob("prefetch", (0, *CACHES)),
            Knob("slices", (1,)),
        )
    )
    population = every.where(fits(every, registers))
    chosen = int(np.argmin(tile_cycles(facts, population, registers, target)))
    return int(population.column("lanes")[chosen])


def tile_cycles(facts: TileFacts, population: Population, registers: Registers, target: Target) -> Cycles:
    """Cycles of a register tile's nest on one core."""
    slices, cycles = population.column("slices"), np.empty(len(population))
    for count in np.unique(slices):
        own, among = facts, slices == count
        if count > 1:
            own = replace(facts, slices=int(count), reduction=facts.reduction // int(count), next_panel=False)
        cycles[among] = count * _cycles_of_slice(own, population.where(among), registers, target)
    return cycles


def _cycles_of_slice(facts: TileFacts, population: Population, registers: Registers, target: Target) -> Cycles:
    """Cycles of all tiles of a slice of the reduction, or of all of it, on one core."""
    machine = target.machine
    lanes, rows, panels = (population.column(name) for name in ("lanes", "rows", "panels"))
    arithmetic, remaining = np.zeros(len(population)), _remaining(facts, population)
    start = np.where(population.column("unroll") == 1, machine.unrolled_start, machine.tile_start)
    added = machine.slice_store if facts.slices > 1 else 0.0
    for vector_size, vector_count in _pieces(facts.vector, lanes):
        vectors = -(-vector_size // registers.lanes)
        for panel_size, panel_count in _pieces(facts.panels, panels):
            for row_size, row_count in _pieces(facts.rows, rows):
                count = vector_count * panel_count * row_count
                if facts.is_window:
                    one = remaining * _window(facts, population, row_size, vectors, target)
                else:
                    one = remaining * _contraction(facts, population, row_size, vectors * panel_size, target)
                results = row_size * vectors * panel_size
                arithmetic += count * (one + start + (machine.tile_store + added) * results)
            waiting = _waiting(facts, population, vectors * panel_size, target)
            lies_apart = (vector_size < facts.row_length) & (lanes < facts.vector)
            waiting += np.where(lies_apart, pieces_apart(facts, population, panel_size, target), 0.0)
            arithmetic += vector_count * panel_count * waiting
    if facts.crosses:
        arithmetic = np.where(panels > machine.crossed_panels, machine.scattered * arithmetic, arithmetic)
    arithmetic += stored_apart(facts, population, target)
    if facts.is_window:
        arithmetic += many_rows(facts, population, target) + terms_in_pieces(facts, population, target)
    return facts.groups * facts.places * arithmetic + _traffic(facts, population, registers, target)


def _remaining(facts: TileFacts, population: Population) -> Cycles:
    """The share of the terms that are not left out as padding."""
    result = np.ones(len(population))
    for knob, sliding in facts.slidings:
        sizes = population.column(knob) if knob else np.ones(len(population), np.int64)
        if sliding == facts.written_taps:
            sizes = np.where(population.column("unroll") > 0, 1, sizes)
        different, places = np.unique(sizes, return_inverse=True)
        result *= np.array([sliding.share(int(size)) for size in different])[places]
    return np.where(result <= 1 - facts.skipping.least, result, 1.0)


def _waiting(facts: TileFacts, population: Population, columns: NDArray[np.int64], target: Target) -> Cycles:
    """Stall cycles for so many vectors of panels from memory: the first tile of rows waits for them, and each issues
    prefetches."""
    machine = target.machine
    rows, cache = population.column("rows"), population.column("prefetch")
    vectors, vector_bytes = facts.reduction * columns, target.vector_bits // 8
    in_order = population.column("order") == Order.COLUMNS_ROWS.value
    is_shared = (cache == PANEL_CACHE) & in_order & facts.shares_panels(population.column("lanes"), rows)
    # What is written out asks for a line together.
    at_once = np.where(is_shared & (population.column("unroll") > 0), max(1, facts.steps), 1)
    asking = np.where(cache > 0, machine.asking * vectors / at_once * -(-facts.rows // rows), 0.0)
    if facts.streamed <= (target.l1_bytes if facts.next_panel else target.l2_bytes):
        return asking
    first = np.minimum(rows, facts.rows)
    as_it_lies = population.column("lanes") >= facts.panel_width
    bytes_per_cycle = machine.memory_bytes if facts.next_panel else machine.stream_bytes
    coming = vectors * vector_bytes / np.where(as_it_lies, bytes_per_cycle, machine.apart_bytes)
    # Data prefetched, data prefetched before its use, and the rows read meanwhile.
    passing = machine.stream_ahead * (2 + first * facts.itemsize / (np.maximum(columns, 1) * vector_bytes))
    is_there = (cache == 2) | ((cache == 1) & (passing <= target.l1_bytes))
    is_seen = (is_there & as_it_lies) | (first * (machine.page_bytes // vector_bytes) <= machine.look_ahead)
    meanwhile = np.where(is_seen, _contraction(facts, population, first, columns, target), 0.0)
    if facts.next_panel:  # it comes while all rows are multiplied
        all_rows = facts.rows / first * _contraction(facts, population, first, columns, target)
        meanwhile = np.where(is_shared, all_rows, meanwhile)
    return np.maximum(0.0, coming - meanwhile) + asking + np.where(cache == 2, machine.second_cache * vectors, 0.0)


def _pieces(extent: int, tile: NDArray[np.int64]) -> tuple[tuple[NDArray[np.int64], NDArray[np.int64]], ...]:
    """``(size, count)`` of the full tiles and of the remainder."""
    rest = extent % tile
    return (tile, extent // tile), (rest, np.minimum(rest, 1))


def _contraction(
    facts: TileFacts, population: Population, rows: NDArray[np.int64], columns: NDArray[np.int64], target: Target
) -> Cycles:
    """Cycles of the reduction of one tile of ``rows`` by ``columns`` vectors."""
    machine = target.machine
    arithmetic = rows * columns / target.fma_per_cycle
    loads = _broadcasts(facts, population, rows) + columns
    busy = np.maximum(np.maximum(arithmetic, loads / target.loads_per_cycle), machine.fma_latency)
    if machine.issue:
        counting = np.where(population.column("unroll") == Unroll.NOTHING.value, machine.counting, 0.0)
        busy = np.maximum(busy, (rows * columns + loads + counting) / machine.issue)
    return facts.reduction * (busy + machine.load_cycles * loads + _conflicts(facts, rows, target))


def _broadcasts(facts: TileFacts, population: Population, rows: NDArray[np.int64]) -> Cycles:
    """Broadcasts of a step: taps that are written out share what their rows read."""
    taps = facts.written_taps
    if taps is None:
        return rows.astype(np.float64)
    return np.where(population.column("unroll") > 0, np.minimum(rows, taps.positions / taps.taps), rows)


def _conflicts(facts: TileFacts, rows: NDArray[np.int64], target: Target) -> Cycles:
    """Cycles of a step in which lines of the rows are reloaded, as they exceed the ways of a set of the first cache."""
    machine = target.machine
    of_one_set = gcd(facts.row_bytes, machine.way_bytes) / machine.way_bytes if facts.row_bytes else 0.0
    return np.where(rows * of_one_set > target.l1_bytes / machine.way_bytes, machine.conflict_cycles * rows, 0.0)


def _window(
    facts: TileFacts, population: Population, rows: NDArray[np.int64], vectors: NDArray[np.int64], target: Target
) -> Cycles:
    """Cycles of the reduction of one tile over windows, with lanes in both operands."""
    machine = target.machine
    unroll = population.column("unroll")
    unrolled = unroll != Unroll.NOTHING.value
    is_whole = unroll == Unroll.EVERYTHING.value
    others = facts.reduction // facts.overlap.taps
    shared = others * ((rows - 1) * facts.overlap.stride + facts.overlap.taps)
    data = np.where(unrolled, np.minimum(shared, facts.reduction * rows), facts.reduction * rows)
    loads = vectors * (data + (facts.operands - 1) * facts.reduction)
    arithmetic = facts.reduction * rows * vectors / target.fma_per_cycle
    # Stores overlap with the next tile.
    waiting = np.where(is_whole, 0, facts.reduction * machine.fma_latency)
    busy = np.maximum(np.maximum(arithmetic, loads / target.loads_per_cycle), waiting) + machine.load_cycles * loads
    rounds = np.where(is_whole, 0, np.where(unrolled, facts.reduction // max(facts.innermost, 1), facts.reduction))
    steps = np.where(is_whole, facts.reduction, facts.innermost) * rows * vectors
    copied = MAX_PIECES * (steps * (facts.operands + 2) + 3 * rows * vectors)
    slow = np.where(
        facts.selects & (copied > MAX_COPIED), machine.selecting, 1.0 + machine.written_out * rows * vectors
    )
    return busy * np.where(unrolled, slow, 1.0) + machine.window_round * rounds


def _traffic(facts: TileFacts, population: Population, registers: Registers, target: Target) -> Cycles:
    """Cycles, not hidden, in which operands come from beyond the first cache: each loop around tiles reads the data
    that does not depend on it again, from the level that still has it."""
    lanes, rows, panels = (population.column(name) for name in ("lanes", "rows", "panels"))
    order = population.column("order")
    depth = _remaining(facts, population) * facts.reduction * facts.itemsize
    strip = lanes * panels * depth
    line = depth * lines_read(facts) * facts.overlap.stride / facts.overlap.taps
    band, image = rows * line, facts.rows * line
    matrix = facts.vector * facts.panels * depth
    column_tiles = -(-facts.vector // lanes) * -(-facts.panels // panels)
    row_tiles = -(-facts.rows // rows)
    rate = _Rates(target, registers.lanes * facts.itemsize)
    used = (strip + band) / (target.machine.cache_part if facts.slices > 1 else 1.0)
    strips = column_tiles * strip * row_tiles * rate(used)
    columns_rows = strips + matrix * rate(facts.slices * (matrix + image) + 0 * strip)
    columns_rows += column_tiles * image * rate(image + strip)
    swept = row_tiles * matrix * rate((matrix + band) / target.machine.cache_part)
    rows_columns = row_tiles * band * column_tiles * rate(strip + band) + swept
    all_places = np.minimum(facts.places * image, facts.places_bytes or np.inf)
    panel_first = strips + column_tiles * image * rate(all_places + strip)
    again = np.where(order == Order.ROWS_COLUMNS.value, rows_columns, columns_rows)
    again = np.where(order == Order.PANEL_FIRST.value, panel_first, again)
    if facts.slices > 1:
        blocks = -(-column_tiles // BLOCK)
        read = np.where(order == Order.PANEL_FIRST.value, all_places, image)
        sums = facts.itemsize * facts.vector * facts.panels * facts.rows
        in_block = sums / blocks * np.where(order == Order.PANEL_FIRST.value, facts.places, 1)
        again += blocks * image * rate(facts.slices * read + strip)
        again += (LOADED_AND_STORED * sums) * rate(in_block + read + np.minimum(BLOCK, column_tiles) * strip)
    if facts.is_row_major:
        packed = population.column("pack") == Pack.MATRIX.value
        # A strip of a row-major matrix maps to few sets of the first cache: it is read from the second one each time.
        near, far = (rate(np.full(len(population), distance)) for distance in (target.l1_bytes + 1.0, matrix))
        again += np.where(packed, COPIED * matrix * far, row_tiles * matrix * near)
    return facts.groups * facts.places * again


class _Rates:
    """Cycles per byte of data last used so many bytes ago: by the level of cache that still has it."""

    def __init__(self, target: Target, register_bytes: int) -> None:
        self._target = target
        self._register = register_bytes

    def __call__(self, distance: Cycles) -> Cycles:
        result = np.zeros_like(distance)
        nearer = float(self._target.l1_bytes)
        for level in _levels(self._target):
            result = np.where(distance > nearer, 1.0 / (level.rate * self._register), result)
            nearer = level.bytes
        return result


def _tiles(facts: TileFacts, population: Population) -> NDArray[np.int64]:
    lanes, rows, panels = (population.column(name) for name in ("lanes", "rows", "panels"))
    return facts.groups * facts.places * -(-facts.vector // lanes) * -(-facts.rows // rows) * -(-facts.panels // panels)


def _tasks(facts: TileFacts, population: Population) -> NDArray[np.int64]:
    """What cores may share: tiles, but those that read one copied strip stay together, and so do those of a block of
    columns whose reduction is in slices."""
    tiles, together = _tiles(facts, population), -(-facts.rows // population.column("rows"))
    tasks = np.where(population.column("pack") == Pack.STRIPS.value, tiles // together, tiles)
    columns, panel_first = facts.groups, population.column("order") == Order.PANEL_FIRST.value
    for extent, knob in ((facts.vector, "lanes"), (facts.panels, "panels")):
        columns = columns * -(-extent // population.column(knob))
    blocks = -(-columns // BLOCK) * np.where(panel_first, 1, facts.places)
    return np.where(population.column("slices") > 1, blocks, tasks)


def _shared(cycles: Cycles, tasks: NDArray[np.int64], target: Target) -> Cycles:
    """The time of the busiest core, with ``tasks`` of equal size distributed in chunks."""
    chunks = np.minimum(tasks, MOST_CHUNKS)
    share = -(-chunks // target.cores) / chunks
    return cycles * share + target.machine.region_cycles * (target.cores > 1)


def _lane_cycles(live: int, population: Population, target: Target) -> Cycles:
    """Cycles per vector of dependent operations, several chains of which run interleaved."""
    vectors = population.column("vectors")
    waiting = np.maximum(1.0, target.machine.fma_latency / vectors)
    spilled = np.maximum(0, live * vectors - target.vector_registers) / vectors
    return waiting + spilled
