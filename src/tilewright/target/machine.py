"""How a machine behaves: the figures that the cost model and the schedules decide by, beyond widths and sizes.

Cycles are those of one core. Where no source is named, the figure is a fit: the one with which the model's order of
candidates agrees best with measured times on Zen 4 and Zen 5 (``python -m benchmarks.choices``, ``streams``,
``contractions``). A processor that has no line in ``_MACHINES`` is taken to behave like these, and one that LLVM has no
name of as the newest of its family (``base/host.py``). ``tilewright doctor --measure`` measures ``MEASURED`` on the
machine at hand; ``measured.py`` keeps what it finds.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from types import MappingProxyType

MOST_CHUNKS = 64
"""Pieces of a parallel region, at most: results must not depend on how many threads share them."""
ENOUGH_CHUNKS = 16
"""Iterations that are enough to share among threads. Finding one's place among more of them costs time in each."""
GUESSED_EXTENT = 128
"""What is taken for an extent that is known at run time only and has no bound."""


@dataclass(frozen=True, slots=True)
class Machine:
    """The figures of one machine."""

    fma_latency: float = 4.0
    """Cycles from a multiply-add to one that needs its result (uops.info: 4 from Skylake, Zen 3 on.)"""
    operation_cycles: float = 2.0
    """Of a vector of operations that are no multiply-adds: most are quick, some are functions."""
    load_cycles: float = 0.05
    """That a load costs even where its port is free: of two tiles that could both reach the peak, the one with fewer
    loads per multiply-add comes closer."""

    tile_start: float = 10.0
    """Cycles to begin and end the loop over a reduction."""
    unrolled_start: float = 4.0
    """The same where there is no loop."""
    tile_store: float = 1.0
    """Cycles to clear and to store a register of a tile."""
    window_round: float = 6.0
    """Cycles of a round of the loop over a window that are not hidden: few operations wait for each other there."""
    selecting: float = 2.5
    """By how much a tile takes longer that selects, at each step, whether it is inside of an image."""
    written_out: float = 0.025
    """The part by which a tile over a window takes longer for each of its registers: code has to be fetched."""
    crossed_panels: int = 2
    """The most panels of a tile whose lanes are stored apart: caches and the translation of addresses do not keep up
    with many rows that are written a little at a time."""
    scattered: float = 1.5
    """By how much tiles of more panels take longer then."""

    way_bytes: int = 4096
    """Of the first cache: lines so far apart, or twice or more times so far, are of one set. (The vendors' optimization
    guides: 32 KiB are 8 ways, 48 KiB are 12.)"""
    conflict_cycles: float = 1.0
    """That a load costs where the lines of a tile's rows push one another out of the first cache."""
    cache_part: float = 0.9
    """The part of a cache that something may fill which is read again and again from its start: of what is a little
    larger than the cache, all is gone when it is needed again, and other things pass, too."""
    l2_registers: float = 20.0
    """Vector registers per cycle that come from the second cache, in what streams lose that are prefetched."""
    l3_registers: float = 0.8
    """The same of the third."""
    memory_registers: float = 0.25
    """The same of memory."""

    page_bytes: int = 4096
    """Where a page ends, hardware no longer knows what comes next."""
    pages_at_hand: int = 48
    """Number of pages whose addresses are translated without delay, less those of weights and results."""
    look_ahead: int = 0
    """Multiply-adds that the processor sees ahead: if it has more of them for a page, it sees the next page too late,
    and memory and arithmetic take turns. Where it is not known, none: to ask in vain costs less than to wait."""
    stream_ahead: int = 16384
    """Bytes that a stream is asked for ahead: at 20 bytes a cycle, more than the latency of memory."""
    asking: float = 0.1
    """Cycles to ask for a vector ahead."""
    second_cache: float = 0.5
    """Cycles until a vector that was asked into the second cache is in the first."""
    stream_bytes: float = 9.0
    """Per cycle, of what comes from memory as it lies there."""
    apart_bytes: float = 6.0
    """The same of panels wider than the tile: rows of them are not read as they lie."""
    near_bytes: float = 24.0
    """Per cycle, what a kernel reads and writes if all of it fits in a core's own cache."""
    far_bytes: float = 10.0
    """The same if it does not; and of weights that other weights have displaced since the last run."""
    cold_start: float = 5000.0
    """Cycles until a stream of such weights runs: pages are new to the processor, and nothing was asked for ahead."""

    kernel_start: float = 600.0
    """Cycles to call a kernel, and to begin and end its loops."""
    shared_kernel_start: float = 1000.0
    """The same of one that has workers."""
    region_cycles: float = 2000.0
    """Cycles to hand a parallel region to workers and to wait for them."""
    parallel_work: int = 32768
    """Scalar operations below which a parallel region costs more than it saves."""

    copy_cycles: float = 4.0
    """Of each vector that is copied to another layout, or read across blocks."""
    transform_cycles: float = 6.0
    """Of each vector of a transform whose tile is in registers, or whose phases are interleaved."""
    sum_by_rows: float = 2.0
    """By how much sums over channels take longer by rows of plain data than in full blocks."""
    window_by_rows: float = 2.8
    """The same for a window of each channel, of a pool."""
    element_by_rows: float = 1.2
    """The same for what works element by element. It costs little where it follows what made its data, so this is what
    it costs not to follow; that some lanes of blocks are empty hardly matters then."""


# What is known to be otherwise, by LLVM's name of the processor.
_MACHINES: Mapping[str, Mapping[str, float]] = MappingProxyType(
    {
        "haswell": {"fma_latency": 5.0},  # uops.info
        "broadwell": {"fma_latency": 5.0},  # uops.info
        "znver1": {"fma_latency": 5.0},  # uops.info
        "znver2": {"fma_latency": 5.0},  # uops.info
        "znver4": {"look_ahead": 384},  # python -m benchmarks.streams
    }
)


FIGURES: Mapping[str, float] = MappingProxyType(asdict(Machine()))
"""By their names."""
MEASURED = ("fma_latency", "near_bytes", "far_bytes", "stream_bytes", "region_cycles")
"""Those that are also what one experiment shows: on the machines of the fit, it gives the figure of the fit."""
_FOLLOWING = MappingProxyType({"apart_bytes": "stream_bytes", "parallel_work": "region_cycles"})
"""What keeps its ratio to what is measured: streams to streams, and what a region must save to what it costs."""
_MOST = 1 << 50


def machine_of(cpu: str) -> Machine:
    """The machine with the processor of this name, as LLVM calls it."""
    return replace(Machine(), **_MACHINES.get(cpu, {}))


def with_measured(machine: Machine, figures: Mapping[str, float]) -> Machine:
    """``machine`` with measured figures, and with what follows from them."""
    ratios = {name: figures.get(of, 0.0) / getattr(machine, of) for name, of in _FOLLOWING.items()}
    following = {name: rounded(name, r * getattr(machine, name)) for name, r in ratios.items() if r not in (0, 1)}
    return replace(machine, **{**following, **figures})


def rounded(name: str, value: float) -> float:
    """A figure with two digits: no measurement has more, and the text of a target is read by people."""
    short = float(f"{value:.2g}")
    return max(1, round(short)) if isinstance(FIGURES[name], int) else short


def figure(name: str, text: str) -> float:
    """The value of the figure ``name`` that ``text`` says. Raises ``ValueError`` if it says none."""
    value = int(text) if isinstance(FIGURES[name], int) else float(text)
    if not (0 < value <= _MOST or value == FIGURES[name]):
        raise ValueError(f"{name} must be above 0")
    return value
