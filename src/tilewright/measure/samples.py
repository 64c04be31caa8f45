"""Times of runs of a whole model, kernel by kernel, from the clock in its native code."""

import time
from collections.abc import Mapping
from dataclasses import dataclass

from tilewright.runtime.executable import Executable

LEAST_RUNS = 5
MOST_RUNS = 2000
_MOST_TIMES = 400_000
"""Of all kernels in all runs."""


@dataclass(frozen=True, slots=True)
class Samples:
    """Seconds: ``totals`` of each run as seen by its caller, ``parts`` of each call of a kernel in it, in order."""

    totals: tuple[float, ...]
    parts: tuple[tuple[float, ...], ...]
    threads: int


def sampled(executable: Executable, feeds: Mapping[str, object], seconds: float) -> Samples:
    """Run for about ``seconds`` (at least ``LEAST_RUNS`` runs), after one run that does not count.

    Raises ``BadFeed`` if the feeds do not fit.
    """
    most = max(LEAST_RUNS, min(MOST_RUNS, _MOST_TIMES // max(1, len(executable.manifest.calls))))
    results, _ = executable.timed_run(feeds)
    totals: list[float] = []
    parts: list[tuple[float, ...]] = []
    end = time.perf_counter() + seconds
    while len(totals) < LEAST_RUNS or (time.perf_counter() < end and len(totals) < most):
        begin = time.perf_counter()
        _, times = executable.timed_run(feeds)
        totals.append(time.perf_counter() - begin)
        parts.append(tuple(times))
    del results  # kept so long, so that its memory is not used again
    return Samples(tuple(totals), tuple(parts), executable.threads)
