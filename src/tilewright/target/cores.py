"""Pipelines and caches of AArch64 cores: what simulated cycles are made of.

Sources, by the letters in the table below. Not all numbers have been compared with the document itself, and none with a
board: L was read in part, R and J not at all.

    G  Arm's software optimization guides of Cortex-A55, A72 (UAN 0016A), A76, Neoverse N1 and V1, as L quotes them, and
       gem5 for the multiply-add of the A72
    L  LLVM's scheduling models: AArch64SchedA53, A55, A57 (which LLVM takes for the A72, too), NeoverseN1, NeoverseV1
    R  Arm's technical reference manuals: sizes and ways of caches
    J  Dougall Johnson, "Apple Microarchitecture Research" (Firestorm)
    N  Tencent's ncnn, docs/developer-guide/arm-a53-a55-dual-issue.md: measured on A53 and A55
    e  estimated: nobody has published it

Latencies and throughputs are those of 32-bit floats in registers of 128 bits.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType

_KIB = 1024


class Pipe(Enum):
    """Kinds of pipelines. A core has some of each."""

    INTEGER = "integer"
    MULTIPLY = "multiply"
    VECTOR = "vector"
    LOAD = "load"
    STORE = "store"
    BRANCH = "branch"


@dataclass(frozen=True, slots=True)
class Cache:
    """``line_cycles``: what a line of 64 bytes costs that is fetched from here ahead of its use, as lines in sequence
    are: what arithmetic does not hide; ``latency``: cycles until data are there."""

    bytes: int
    ways: int
    line_cycles: float
    latency: float


@dataclass(frozen=True, slots=True)
class Core:
    """A core. ``width``: instructions that it dispatches per cycle; ``window``: instructions in flight, 0 if they issue
    in order.

    ``fp_bits``, ``vector_bits``: the width of a vector pipeline for arithmetic of floats, and for all else: an
    instruction on more bits occupies several. ``load_bytes``, ``store_bytes``: per pipeline and cycle.
    """

    width: int
    window: int
    pipes: Mapping[Pipe, int]
    fp_bits: int
    vector_bits: int
    load_bytes: int
    store_bytes: int
    fma_latency: int
    fma_forward: int
    """Cycles from a multiply-add to the next one that adds to its result."""
    fp_latency: int
    """Of additions and multiplications."""
    vector_latency: int
    load_latency: int
    """Of vectors, from the first cache."""
    mispredict: int
    overlap: float
    """Misses of the first cache that wait at the same time, if addresses are not sequential."""
    l1: Cache
    """Of this, only the size and the ways count: its latency is in ``load_latency``."""
    l2: Cache
    memory: Cache
    l3: Cache | None = None
    """Where chips usually have one; of a system or a cluster."""
    broadcast_pipes: int = 0
    """Vector pipelines that a load occupies which copies its element to all lanes."""


def _pipes(integer: int, multiply: int, vector: int, load: int, store: int) -> Mapping[Pipe, int]:
    counts = (integer, multiply, vector, load, store, 1)
    return MappingProxyType(dict(zip(Pipe, counts, strict=True)))


def _cache(kib: int, ways: int, line_cycles: float, latency: float) -> Cache:
    return Cache(kib * _KIB, ways, line_cycles, latency)


_A53 = Core(
    width=2,  # L
    window=0,
    pipes=_pipes(2, 1, 2, 1, 1),  # L
    fp_bits=64,  # L
    vector_bits=64,  # L
    load_bytes=8,  # N: a load of 128 bits takes two cycles, in which no multiply-add issues
    store_bytes=8,  # e
    fma_latency=8,  # e; L has 10
    fma_forward=4,  # N: the accumulator is read in the fourth cycle
    fp_latency=6,  # L
    vector_latency=6,  # L
    load_latency=5,  # L, e
    mispredict=9,  # L
    overlap=1.0,
    l1=_cache(32, 4, 0.0, 0.0),  # R: 8 to 64 KiB
    l2=_cache(512, 16, 4.0, 15.0),  # R: 128 KiB to 2 MiB; e
    memory=_cache(0, 0, 30.0, 150.0),  # e
)
_A55 = Core(
    width=2,  # G, L
    window=0,
    pipes=_pipes(2, 1, 2, 1, 1),  # L
    fp_bits=64,  # G, L: a multiply-add of 128 bits takes both pipelines
    vector_bits=64,  # L
    load_bytes=8,  # G, L: 64 bits per cycle
    store_bytes=16,  # G
    fma_latency=4,  # G, L
    fma_forward=4,  # G, L
    fp_latency=4,  # G, L
    vector_latency=3,  # L: 1 to 4
    load_latency=4,  # L: 4, and one more for 128 bits
    mispredict=8,  # L
    overlap=1.0,
    l1=_cache(32, 4, 0.0, 0.0),  # R: 16 to 64 KiB
    l2=_cache(256, 4, 4.0, 10.0),  # R: 0 to 256 KiB; e
    memory=_cache(0, 0, 24.0, 150.0),  # e
    l3=_cache(1024, 16, 8.0, 30.0),  # R: 0 to 4 MiB of the cluster; e
)
_A72 = Core(
    width=3,  # G
    window=128,  # L
    pipes=_pipes(2, 1, 2, 1, 1),  # G
    fp_bits=64,  # G, L: a multiply-add of 128 bits is two operations
    vector_bits=128,  # G, L
    load_bytes=16,  # G
    store_bytes=8,  # L: a store of 128 bits is two operations
    fma_latency=7,  # G
    fma_forward=3,  # G
    fp_latency=4,  # G
    vector_latency=3,  # G
    load_latency=5,  # G
    mispredict=15,  # G
    overlap=4.0,  # e
    l1=_cache(32, 2, 0.0, 0.0),  # R
    l2=_cache(1024, 16, 2.0, 20.0),  # R: 512 KiB to 4 MiB; e
    memory=_cache(0, 0, 12.0, 200.0),  # e
    broadcast_pipes=1,  # G, L
)
_N1 = Core(
    width=4,  # G: four decoded, up to eight operations dispatched
    window=128,  # L
    pipes=_pipes(3, 1, 2, 2, 2),  # G; multiplications share the third integer pipeline
    fp_bits=128,  # G
    vector_bits=128,  # G
    load_bytes=16,  # G
    store_bytes=16,  # G
    fma_latency=4,  # G
    fma_forward=2,  # G
    fp_latency=3,  # G: 2 of additions, 3 of multiplications
    vector_latency=2,  # G
    load_latency=5,  # G
    mispredict=11,  # G
    overlap=6.0,  # e
    l1=_cache(64, 4, 0.0, 0.0),  # R
    l2=_cache(1024, 8, 1.0, 11.0),  # R: 256 KiB to 1 MiB; e
    memory=_cache(0, 0, 6.0, 150.0),  # e
    l3=_cache(32 * _KIB, 16, 3.0, 60.0),  # of the system, as in Graviton2; e
    broadcast_pipes=1,  # G
)
_A76 = Core(
    width=4,  # G
    window=128,  # L
    pipes=_pipes(3, 1, 2, 2, 2),  # G
    fp_bits=128,  # G
    vector_bits=128,  # G
    load_bytes=16,  # G
    store_bytes=16,  # G
    fma_latency=4,  # G
    fma_forward=2,  # G
    fp_latency=3,  # G
    vector_latency=2,  # G
    load_latency=5,  # G
    mispredict=11,  # G
    overlap=6.0,  # e
    l1=_cache(64, 4, 0.0, 0.0),  # R
    l2=_cache(512, 8, 1.0, 9.0),  # R: 128 to 512 KiB; e
    memory=_cache(0, 0, 8.0, 150.0),  # e
    l3=_cache(2048, 16, 3.0, 30.0),  # R: 0 to 4 MiB of the cluster; e
    broadcast_pipes=1,  # G
)
_V1 = Core(
    width=8,  # G
    window=256,  # e
    pipes=_pipes(4, 2, 4, 3, 2),  # G
    fp_bits=128,  # G
    vector_bits=128,  # G
    load_bytes=16,  # G
    store_bytes=16,  # G
    fma_latency=4,  # G
    fma_forward=2,  # G
    fp_latency=3,  # G: 2 of additions, 3 of multiplications
    vector_latency=2,  # G
    load_latency=6,  # G
    mispredict=11,  # L
    overlap=8.0,  # e
    l1=_cache(64, 4, 0.0, 0.0),  # R
    l2=_cache(1024, 8, 0.5, 10.0),  # R; e
    memory=_cache(0, 0, 4.0, 150.0),  # e
    l3=_cache(32 * _KIB, 16, 2.0, 60.0),  # of the system, as in Graviton3; e
    broadcast_pipes=1,  # G
)
_FIRESTORM = Core(
    width=8,  # J
    window=600,  # J: about
    pipes=_pipes(6, 2, 4, 3, 2),  # J
    fp_bits=128,  # J
    vector_bits=128,  # J
    load_bytes=16,  # J
    store_bytes=16,  # J
    fma_latency=4,  # J
    fma_forward=4,  # J
    fp_latency=3,  # J: 3 of additions, 4 of multiplications
    vector_latency=2,  # J
    load_latency=5,  # J
    mispredict=13,  # e
    overlap=10.0,  # e
    l1=_cache(128, 8, 0.0, 0.0),  # J
    l2=_cache(12 * _KIB, 12, 1.0, 16.0),  # J; e
    memory=_cache(0, 0, 2.0, 300.0),  # e
    l3=_cache(8 * _KIB, 16, 1.5, 100.0),  # J: of the system; e
    broadcast_pipes=1,  # J
)

CORES: Mapping[str, Core] = MappingProxyType(
    {
        "cortex-a53": _A53,
        "cortex-a55": _A55,
        "cortex-a72": _A72,
        "cortex-a76": _A76,
        "neoverse-n1": _N1,
        "neoverse-v1": _V1,
        "apple-m1": _FIRESTORM,
        # e: nothing is published of the later ones; what is measured of them is as of the first one.
        "apple-m2": _FIRESTORM,
        "apple-m3": _FIRESTORM,
    }
)
"""By LLVM's name of the processor. The caches are those of a usual chip; a ``Target`` has its own sizes."""
