"""Machine parameters of the cost model and of schedules: latencies, bandwidths and overheads.

Cycles are those of one core. A figure without a source is a fit: the value with which the model ranks candidates most
like measured times on Zen 4 and Zen 5 (``python -m benchmarks.choices``, ``streams``, ``contractions``). A processor
without a line in ``_MACHINES`` or in the table of cores gets the same figures, and one unknown to LLVM those of the
newest of its family (``base/host.py``). ``tilewright doctor --measure`` measures ``MEASURED`` on this machine;
``measured.py`` stores the results.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from types import MappingProxyType

from tilewright.target.cores import CORES, Core

MOST_CHUNKS = 64
"""Maximum number of chunks of a parallel region: results must not depend on how many threads share them."""
ENOUGH_CHUNKS = 16
"""Number of iterations that suffice to share among threads; more add index arithmetic to each chunk."""
GUESSED_EXTENT = 128
"""Estimate of an unbounded extent known only at run time."""


@dataclass(frozen=True, slots=True)
class Machine:
    """The parameters of one machine."""

    fma_latency: float = 4.0
    """Cycles of latency of a multiply-add (uops.info: 4 from Skylake, Zen 3 on.)"""
    operation_cycles: float = 2.0
    """Cycles per vector of operations other than multiply-adds: an average, where functions are not told apart."""
    plain_cycles: float = 1.3
    """The same where functions are told apart, and traffic is added (``python -m benchmarks.superopt costs``)."""
    function_cycles: float = 14.0
    """Cycles per vector of a function: ten to twenty instructions of a polynomial (``benchmarks.superopt costs``)."""
    scattered_cycles: float = 6.0
    """Cycles per vector whose lanes are read apart, beside their traffic (``benchmarks.superopt costs``)."""
    product_slack: float = 1.1
    """Relative time of a contraction beside what the model counts for its tiles: most run at 0.9 of that rate."""
    load_cycles: float = 0.05
    """Cost of a load even if its port is free: of two tiles that could both reach the peak, the one with fewer loads
    per multiply-add is closer to it."""
    pair_gain: float = 2.0
    """Products of bfloat16 in a cycle, by dot products, relative to float32 (``benchmarks.dot_products``)."""
    issue: float = 0.0
    """Instructions per cycle that a tile may take, if loads and broadcasts are instructions of their own: of a core
    that two threads share, half of what it starts. 0: more than any tile takes."""
    counting: float = 4.0
    """Instructions for each step of a reduction's loop that is not written out: index, addresses, jump."""
    unrolled_steps: int = 0
    """Maximum number of steps of a contraction's reduction that are written out, a power of two; 0: none are."""

    tile_start: float = 10.0
    """Cycles to begin and end the loop over a reduction."""
    unrolled_start: float = 4.0
    """The same for a reduction without a loop."""
    tile_store: float = 1.0
    """Cycles to clear and to store a register of a tile."""
    slice_store: float = 12.0
    """Cycles for a register of sums that a slice of a reduction adds to others in memory. (Zen 3, measured.)"""
    window_round: float = 6.0
    """Cycles per iteration of a loop over a window that are not hidden: few operations there are independent of each
    other."""
    selecting: float = 2.5
    """Relative slowdown of a tile that selects, at each step, whether it is inside of an image."""
    written_out: float = 0.025
    """Relative slowdown of a tile over a window per register: instruction fetch."""
    unrolled_taps: int = 32
    """Maximum number of taps of a window that may be unrolled: all its code must be fetched."""
    padded_reads: float = 16.0
    """Reads of each element by a window from which on padding the data first takes less time than masks."""
    crossed_panels: int = 2
    """Maximum number of panels of a tile whose lanes are stored apart: caches and TLBs do not keep up with short writes
    to many rows."""
    scattered: float = 1.5
    """Relative slowdown of such tiles with more panels."""

    matrix_row: float = 1.0
    """Cycles of a product of two tiles per row of it: 16 rows take 16 (Intel's optimization manual)."""
    matrix_least: float = 9.5
    """The least cycles of such a product, of few rows. (Sapphire Rapids, measured.)"""
    matrix_load: float = 8.0
    """Cycles to load a tile from the first cache: 16 rows, two at a time."""
    matrix_far_load: float = 35.0
    """The same from the second cache. (Granite Rapids, measured.)"""
    matrix_split: float = 1.8
    """Cycles that a row of a tile takes more if it lies in two lines. (Granite Rapids, measured.)"""
    matrix_part: float = 1.2
    """Relative time to get weights from beyond the second cache, of which a tile reads a part of each row: nothing
    foresees that. (Granite Rapids, measured.)"""
    matrix_store: float = 15.0
    """Cycles to store a tile. (Sapphire Rapids, measured.)"""
    matrix_start: float = 220.0
    """Cycles to configure and to release the matrix unit. (Sapphire Rapids, measured.)"""
    tile_stream_bytes: float = 4.5
    """Bytes per cycle of weights from beyond the second cache that tiles wait for. (Sapphire Rapids, measured.)"""
    matrix_gain: float = 3.0
    """How many times as fast sums over blocks of channels are by a matrix unit as by vectors."""
    half_gain: float = 1.7
    """The same for blocks that fill half of a tile's rows."""
    byte_gain: float = 6.0
    """The same for bytes in blocks that fill whole rows, relative to dot products of bytes: 8 at the peak of both."""

    places_gain: float = 1.5
    """The same for filters that are read once for all places, relative to filters read for each row of places."""

    way_bytes: int = 4096
    """First cache: lines at multiples of this distance share a set. (The vendors' optimization guides: 32 KiB are 8
    ways, 48 KiB are 12.)"""
    conflict_cycles: float = 1.0
    """Cost of a load if the lines of a tile's rows evict one another from the first cache."""
    cache_part: float = 0.9
    """The fraction of a cache that data may fill if it is read repeatedly from its start: data a little larger than the
    cache is evicted before each reuse, and other data need room, too."""
    l2_registers: float = 20.0
    """Bandwidth of the second cache in vector registers per cycle, for prefetched streams."""
    l3_registers: float = 0.8
    """Bandwidth of the third cache, in the same unit."""
    memory_registers: float = 0.25
    """Bandwidth of memory, in the same unit."""

    mapped_bytes: int = 1 << 50
    """Bytes that the TLB maps, where reads of pieces of more come at the rate of memory, though a cache holds them."""
    page_bytes: int = 4096
    """Bytes of a page: hardware prefetchers stop at its end."""
    pages_at_hand: int = 48
    """Number of pages that the TLB holds, less those of weights and results."""
    look_ahead: int = 0
    """Multiply-adds in the reorder window: with more of them for a page, the processor issues loads of the next page
    too late, and memory and arithmetic do not overlap. 0 if unknown: a useless prefetch costs less than a stall."""
    stream_ahead: int = 16384
    """Prefetch distance of a stream in bytes: at 20 bytes per cycle, more than the latency of memory."""
    panels_ahead: int = 0
    """1: tiles of rows ask for the next panel of a packed matrix together, each for a part of it
    (``kernels/panels_ahead.py``); 2: also for the next one of several matrices, and for the next filters in blocks."""
    asking: float = 0.1
    """Cycles to prefetch a vector."""
    second_cache: float = 0.5
    """Cycles to load a vector from the second cache into the first."""
    second_bytes: float = 32.0
    """Bytes per cycle of weights that tiles load from the second cache while they multiply: not fitted, but on Emerald
    Rapids."""
    stream_bytes: float = 9.0
    """Bytes per cycle of sequential reads from memory."""
    apart_bytes: float = 6.0
    """The same for panels wider than the tile, whose rows are not read sequentially."""
    near_piece: float = 5.0
    """Cycles until a piece of a row comes from the third cache, if the pieces of a strip are apart, and asked for."""
    far_piece: float = 40.0
    """The same from memory. (Granite Rapids, measured.)"""
    foreseen_rows: float = 4.0
    """Rows that are read side by side from memory without stalls; of three times as many, each line is waited for.
    (Zen 3, measured.)"""
    near_bytes: float = 24.0
    """Bytes per cycle of a kernel whose data fit in a core's own cache."""
    far_bytes: float = 10.0
    """The same for data that do not fit, and for weights evicted since the last run."""
    third_bytes: float = 10.0
    """Bytes per cycle of weights that stay in the third cache (``python -m benchmarks.superopt costs``)."""
    memory_bytes: float = 10.0
    """The same of weights that do not, and of values of networks with so many (``benchmarks.superopt costs``)."""
    spill_bytes: float = 3.0
    """The same of values that a kernel writes and the next one reads, if the third cache has no room for them.
    (Zen 4, measured.)"""
    step_bytes: float = 10.0
    """The same of weights that each step of a recurrence reads again, and does not ask for ahead."""
    third_share: int = 1 << 50
    """Bytes of the third cache that one program may count on, where many cores share it."""
    cold_start: float = 5000.0
    """Cycles to start a stream of such weights: TLB misses, and no prefetch yet."""

    call_cycles: float = 150.0
    """Cycles to call a kernel that does next to nothing (``benchmarks.superopt costs``)."""
    kernel_start: float = 600.0
    """Cycles to call a kernel, and to begin and end its loops."""
    shared_kernel_start: float = 1000.0
    """The same for a kernel with workers."""
    region_cycles: float = 2000.0
    """Cycles to start a parallel region on workers and to wait for its end."""
    parallel_work: int = 32768
    """Scalar operations below which a parallel region costs more than it saves."""
    step_factor: float = 2.0
    """How many times as many a step of a recurrence needs: the next step waits for the join."""

    row_sum: float = 6.0
    """Cycles to add up the lanes of a register, beside others. (Sapphire Rapids, measured.)"""
    crossed_cycles: float = 7.0
    """Cycles per vector of a matrix that is copied across its rows. (Sapphire Rapids, measured.)"""
    copy_cycles: float = 4.0
    """Cycles per vector that is copied to another layout, or read across blocks."""
    transform_cycles: float = 6.0
    """Cycles per vector of a transform whose tile is in registers, or whose phases are interleaved."""
    block_waste: float = 2.0
    """Maximum relative growth of a value from rounding channels up to whole blocks."""
    merged_places: int = 256
    """Maximum size of a blocked plane whose dimensions are merged: in larger ones, a row makes enough tiles, and is
    nearer in cache."""
    fuller_tiles: float = 1.2
    """How many times as full tiles of a matrix unit are for which dimensions of larger planes are merged, too."""
    sum_by_rows: float = 1.6
    """Relative slowdown of sums over channels in plain layout with full rows, compared with full blocks."""
    tap_by_rows: float = 1.1
    """The same for a single tap at each position: rows are read as they lie."""
    sum_by_strides: float = 0.3
    """The same for each step of the stride along rows beyond the first: lanes are permuted, or gathered."""
    groups_by_rows: float = 1.2
    """The same for convolutions in groups: the filters of a group are fewer."""
    shared_blocks: float = 3.5
    """Relative slowdown of blocks that several groups share: each lane reads a channel of its own group. Rows of plain
    data are about as slow for such groups."""
    shared_by_dots: float = 1.4
    """The same, beside dot products of blocks that one group fills. Measured on a Zen 4."""
    gathered_channels: float = 15.0
    """Relative slowdown of blocks of filters in which lanes read channels that lie apart."""
    window_by_rows: float = 2.8
    """The same for a window of each channel (pooling)."""
    window_by_strides: float = 1.2
    """Relative slowdown of large windows of depthwise convolutions in plain layout, for each step of the stride along
    rows beyond the first: each tap is gathered."""
    element_by_rows: float = 1.2
    """The same for elementwise operations. They cost little in their producer's layout, so this is the cost of another
    layout; empty lanes of blocks hardly matter."""


# Two multiply-adds of 512 bits a cycle need all that a core can load. Of a last cache of hundreds of megabytes, two
# cores of a virtual machine keep 44: reads of more come at the rate of memory (python -m benchmarks.superopt costs).
_RAPIDS = {
    "product_slack": 1.2,
    "memory_bytes": 3.7,
    "step_bytes": 3.0,
    "third_share": 44 << 20,
    "panels_ahead": 1,
    "pair_gain": 1.0,
    "second_bytes": 21.0,
}
# Registers of 256 bits: broadcasts are instructions of their own. Fitted to times of tiles of dense convolutions, alone
# on the core and beside another thread on it (docs/appendix/kernels.md). The second TLB has 2,048 entries of 4 KiB
# (AMD's optimization guide), and a virtual machine's misses are long.
_ZEN3 = {
    "issue": 3.5,
    "unrolled_steps": 8,
    "panels_ahead": 2,
    "load_cycles": 0.1,
    "l2_registers": 3.0,
    "mapped_bytes": 8 << 20,
}
# Known differences, by LLVM's name of the processor.
_MACHINES: Mapping[str, Mapping[str, float]] = MappingProxyType(
    {
        "haswell": {"fma_latency": 5.0},  # uops.info
        "broadwell": {"fma_latency": 5.0},  # uops.info
        "znver1": {"fma_latency": 5.0},  # uops.info
        "znver2": {"fma_latency": 5.0},  # uops.info
        "znver3": _ZEN3,
        # python -m benchmarks.streams; the others by the times of networks (docs/appendix/networks.md).
        "znver4": {"look_ahead": 384, "product_slack": 1.02, "third_bytes": 28.0, "step_bytes": 18.0},
        "sapphirerapids": _RAPIDS,
        "emeraldrapids": _RAPIDS,
        "graniterapids": _RAPIDS,
    }
)


FIGURES: Mapping[str, float] = MappingProxyType(asdict(Machine()))
"""Default values of the parameters, by name."""
MEASURED = ("fma_latency", "near_bytes", "far_bytes", "stream_bytes", "region_cycles")
"""Parameters that one experiment measures directly: on the machines of the fit, it gives the fitted value."""
_FOLLOWING = MappingProxyType({"apart_bytes": "stream_bytes", "parallel_work": "region_cycles"})
"""Parameters that keep their ratio to a measured one: streams to streams, and the break-even of a region to its cost.
"""
_MOST = 1 << 50


def machine_of(cpu: str) -> Machine:
    """The parameters of the processor with this LLVM name."""
    known = _of_core(CORES[cpu]) if cpu in CORES else {}
    return replace(Machine(), **{**known, **_MACHINES.get(cpu, {})})


_LINE_REGISTERS = 4
"""Vector registers of 128 bits in a line of a cache."""


def _of_core(core: Core) -> dict[str, float]:
    """The parameters that follow from the tables of a core."""
    behind = core.l3 or core.memory
    return {
        "fma_latency": float(core.fma_forward),
        "load_cycles": 0.05 if core.window else 1.0,  # in order, nothing starts beside a wide load
        "tile_start": float(core.mispredict + core.fma_latency),  # the end of a loop is not foreseen
        "way_bytes": core.l1.bytes // core.l1.ways,
        "l2_registers": _LINE_REGISTERS / core.l2.line_cycles,
        "l3_registers": _LINE_REGISTERS / (core.l2.line_cycles + behind.line_cycles),
        "memory_registers": _LINE_REGISTERS / (core.l2.line_cycles + core.memory.line_cycles),
    }


def with_measured(machine: Machine, figures: Mapping[str, float]) -> Machine:
    """``machine`` with measured parameters, and with those that follow from them."""
    ratios = {name: figures.get(of, 0.0) / getattr(machine, of) for name, of in _FOLLOWING.items()}
    following = {name: rounded(name, r * getattr(machine, name)) for name, r in ratios.items() if r not in (0, 1)}
    return replace(machine, **{**following, **figures})


def rounded(name: str, value: float) -> float:
    """A figure rounded to two digits: measurements are not more precise, and people read the text of a target."""
    short = float(f"{value:.2g}")
    return max(1, round(short)) if isinstance(FIGURES[name], int) else short


def figure(name: str, text: str) -> float:
    """The value of the parameter ``name`` in ``text``. Raises ``ValueError`` if it is malformed."""
    value = int(text) if isinstance(FIGURES[name], int) else float(text)
    if not (0 < value <= _MOST or value == FIGURES[name]):
        raise ValueError(f"{name} must be above 0")
    return value
