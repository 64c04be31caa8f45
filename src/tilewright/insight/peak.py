"""Measures the peak of this machine: the roofs that kernels are compared with.

A roof is the best of several measurements, on as many threads as the model uses. It is measured when needed and not
stored, as clock frequency and other load change.
"""

from dataclasses import dataclass
from enum import StrEnum

from tilewright.insight.probes import fma_probe, read_probe
from tilewright.target.target import Target

_TRIES = 20
_MOST_BYTES = 1 << 28
_LEAST_BYTES = 1 << 26


def beyond_caches(target: Target) -> int:
    """A size in bytes beyond all but the largest caches."""
    return min(max(4 * target.l3_bytes, _LEAST_BYTES), _MOST_BYTES)


class Roof(StrEnum):
    """The limit of a kernel: arithmetic, or the memory or cache that its arguments fit in."""

    COMPUTE = "compute"
    L1 = "L1"
    L2 = "L2"
    L3 = "L3"
    MEMORY = "memory"


@dataclass(frozen=True, slots=True)
class Bandwidth:
    """Gigabytes per second at which all threads together read a working set, and its memory or cache."""

    roof: Roof
    working_set: int
    gbytes_per_second: float


@dataclass(frozen=True, slots=True)
class Peak:
    """The roofs for ``threads`` threads: float32 GFLOP/s, and bandwidths by growing working set (the last: memory)."""

    threads: int
    gflops: float
    bandwidths: tuple[Bandwidth, ...]

    def bandwidth(self, size: int) -> Bandwidth:
        """The bandwidth for ``size`` bytes: that of the smallest working set at least as large, else of memory."""
        return next((found for found in self.bandwidths if found.working_set >= size), self.bandwidths[-1])

    def best_of(self, other: "Peak") -> "Peak":
        """The higher roofs of two measurements of one machine, as disturbances only lower them."""
        pairs = zip(self.bandwidths, other.bandwidths, strict=True)
        bandwidths = (max(pair, key=lambda found: found.gbytes_per_second) for pair in pairs)
        return Peak(self.threads, max(self.gflops, other.gflops), tuple(bandwidths))


def measure_peak(target: Target, threads: int) -> Peak:
    """The roofs of this machine, which is ``target``; takes about half a second."""
    probe = fma_probe(target, threads)
    gflops = max(probe() for _ in range(_TRIES))
    halves = {
        Roof.L1: threads * target.l1_bytes // 2,
        Roof.L2: threads * target.l2_bytes // 2,
        Roof.L3: target.l3_bytes // 2,
    }
    caches = sorted((size, roof) for roof, size in halves.items() if size)
    sizes = (*caches, (beyond_caches(target), Roof.MEMORY))
    return Peak(threads, gflops, tuple(_bandwidth(target, roof, size, threads) for size, roof in sizes))


def _bandwidth(target: Target, roof: Roof, size: int, threads: int) -> Bandwidth:
    probe = read_probe(target, size, threads)
    return Bandwidth(roof, size, max(probe() for _ in range(_TRIES)))
