"""Floating-point peak of this machine, and kernels beside it. `python -m benchmarks.peak` prints the peaks.

Clocks move, so a kernel's rate means little next to a peak measured at another time: `share_of_peak` runs probe and
kernel in turns.
"""

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

from tilewright.insight.probes import Probe, fma_probe
from tilewright.target.target import Target


@dataclass(frozen=True, slots=True)
class PeakShare:
    """A kernel next to the probe: its best rate (GFLOP/s), the probe's, and the median of the neighbours' ratios."""

    kernel: float
    peak: float
    share: float


def share_of_peak(kernel: Callable[[], object], flops: float, probe: Probe, samples: int = 50) -> PeakShare:
    """Run probe and kernel in turns; `flops` is what one call of the kernel executes."""
    rates: list[tuple[float, float]] = []
    for _ in range(samples):
        peak = probe()
        begin = time.perf_counter()
        kernel()
        rates.append((flops / (time.perf_counter() - begin) / 1e9, peak))
    share = statistics.median(kernel_rate / peak for kernel_rate, peak in rates)
    return PeakShare(max(rate for rate, _ in rates), max(peak for _, peak in rates), share)


def main() -> None:
    """Print the peak of one core and of all."""
    target = Target.host()
    for threads in sorted({1, target.cores}):
        probe = fma_probe(target, threads)
        rates = [probe() for _ in range(200)]
        print(f"{threads} threads: best {max(rates):.0f}, median {statistics.median(rates):.0f} GFLOP/s")


if __name__ == "__main__":
    main()
