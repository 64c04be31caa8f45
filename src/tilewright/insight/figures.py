"""Measures the figures of this machine, which ``tilewright doctor --measure`` stores for ``Target.host``.

Each experiment consists of many short runs of generated code, each beside a run that shows the clock frequency; the
result is their median. Experiments take turns in several rounds, so that a disturbance of a second affects only some
runs. If other programs disturb too many runs, the quartiles are apart, and the figure is not stored. The figures are
those of ``target.machine.MEASURED``.

    found = measure_figures(Target.host(), threads=2)
    kept(found)  # {"fma_latency": 4.0, "near_bytes": 27.0, ...}
"""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from statistics import quantiles
from typing import TypeAlias

from tilewright.insight.peak import beyond_caches
from tilewright.insight.probes import Probe, clock_probe, fma_probe, read_probe
from tilewright.loops.program import Program
from tilewright.measure.build import image_of
from tilewright.measure.clock import Timed
from tilewright.measure.job import Timing
from tilewright.measure.workload import draw
from tilewright.symbolic.expr import Expr, Var
from tilewright.target.machine import ENOUGH_CHUNKS, MEASURED, rounded
from tilewright.target.target import Target
from tilewright.te import Tensor, compute, create_schedule, lower, placeholder

SAMPLES = 25
ROUNDS = 4
MOST_SPREAD = 0.25
"""Maximum distance of the quartiles relative to the median; otherwise the figure is discarded."""
MOST_FACTOR = 8.0
"""Maximum ratio to the built-in figure."""
_REGIONS = 32
_SECONDS = 2e-4
"""Seconds of a run: short enough to be rarely interrupted, long for the system's clock."""
_REST = 1e-3
"""Seconds of sleep before a run: the scheduler rarely interrupts a process that has slept."""
_ONE_RUN = Timing(repeats=1, least_seconds=_SECONDS)
_PATIENCE = 5.0
_WORD = 4

Sample: TypeAlias = Callable[[], float]
"""Makes one short run, and returns its figure."""


@dataclass(frozen=True, slots=True)
class Finding:
    """A measured figure (the median), the relative distance of its quartiles, and the built-in figure.

    ``problem``: why it is not stored.
    """

    name: str
    value: float
    spread: float
    built_in: float
    problem: str | None = None


def measure_figures(target: Target, threads: int, samples: int = SAMPLES) -> tuple[Finding, ...]:
    """Measure all figures of this machine, which is ``target``, in some ten seconds."""
    experiments = dict(_experiments(target, threads))
    found: dict[str, list[float]] = {name: [] for name in experiments}
    for _ in range(ROUNDS):
        for name, sample in experiments.items():
            found[name] += [sample() for _ in range(samples)]
    built_in = {name: float(getattr(target.machine, name)) for name in MEASURED}
    return tuple(
        finding(name, found[name], of) if name in found else _missing(name, of) for name, of in built_in.items()
    )


def finding(name: str, samples: Sequence[float], built_in: float) -> Finding:
    """The finding from ``samples``, at least two."""
    low, middle, high = quantiles(samples, n=4)
    is_latency = name == "fma_latency"  # a number of cycles
    value = float(max(1, round(middle))) if is_latency else rounded(name, middle)
    spread = (high - low) / max(abs(middle), 1e-9)
    problem = None
    if spread > MOST_SPREAD:
        problem = f"it varies by {spread:.0%}: something else runs"
    elif not 1 / MOST_FACTOR <= middle / built_in <= MOST_FACTOR:
        problem = "it is too far from that of any known machine"
    return Finding(name, value, spread, built_in, problem)


def kept(found: Iterable[Finding]) -> dict[str, float]:
    """The reliable figures."""
    return {one.name: one.value for one in found if one.problem is None}


# Experiments ---------------------------------------------------------------------------------------------------------


def _experiments(target: Target, threads: int) -> Iterator[tuple[str, Sample]]:
    clock = clock_probe(target, _SECONDS)
    yield "fma_latency", _latency(target, clock)
    yield "near_bytes", _bytes(target, clock, target.l2_bytes // 2)
    # Half of the last cache: other kernels and other programs have their part of it.
    yield "far_bytes", _bytes(target, clock, max(4 * target.l2_bytes, target.l3_bytes // 2))
    if target.l3_bytes < beyond_caches(target):
        yield "stream_bytes", _per_cycle(read_probe(target, beyond_caches(target)), clock)
    if threads > 1:
        yield "region_cycles", _region(target, clock, threads)


def _missing(name: str, built_in: float) -> Finding:
    reason = "there is one thread" if name == "region_cycles" else "its caches are too large to read past them"
    return Finding(name, built_in, 0.0, built_in, reason)


def _per_cycle(rate: Probe, clock: Probe) -> Sample:
    """Operations per cycle at ``rate``."""
    return lambda: 1.0 / _cycles(lambda: 1e-9 / rate(), clock)()


def _cycles(seconds: Sample, clock: Probe) -> Sample:
    """``seconds`` in cycles; the clock is the faster of the measurements before and after."""

    def sample() -> float:
        time.sleep(_REST)
        before, found = clock(), seconds()
        return found * 1e9 * max(before, clock())

    return sample


def _latency(target: Target, clock: Probe) -> Sample:
    """The latency of a chain of multiply-adds."""
    lanes = target.lanes(8 * _WORD)
    rate = fma_probe(target, chains=1, seconds=_SECONDS)
    return _cycles(lambda: 2e-9 * lanes / rate(), clock)


def _bytes(target: Target, clock: Probe, size: int) -> Sample:
    """Bytes per cycle of a kernel that copies an array; source and result have ``size`` bytes together."""
    vector = 4 * target.lanes(8 * _WORD)
    count = size // (2 * _WORD) // vector * vector
    made = _sum(placeholder((count,), name="A"), "C")
    s = create_schedule(made)
    stage = s[made]
    _, inner = stage.split(stage.op.axis[0], vector)
    stage.vectorize(inner)
    seconds = _run(lower(s), target, 1)
    return _per_cycle(lambda: 2 * _WORD * count / seconds() / 1e9, clock)


def _region(target: Target, clock: Probe, threads: int) -> Sample:
    """Cycles of one more parallel region in a kernel with several."""
    few, many = (_run(_regions(count), target, threads) for count in (1, 1 + _REGIONS))
    return _cycles(lambda: (many() - few()) / _REGIONS, clock)


def _regions(count: int) -> Program:
    """A program with ``count`` parallel loops of minimal work."""
    shape = (ENOUGH_CHUNKS,)
    tensors = [placeholder(shape, name="A")]
    for number in range(count):
        tensors.append(_sum(tensors[-1], f"C{number}"))
    s = create_schedule(tensors[-1])
    for tensor in tensors[1:]:
        s[tensor].parallel(s[tensor].op.axis[0])
    return lower(s)


def _sum(given: Tensor, name: str) -> Tensor:
    def element(i: Var) -> Expr:
        return given[i] + 1.0

    return compute(given.shape, element, name=name)


def _run(program: Program, target: Target, threads: int) -> Callable[[], float]:
    """Seconds of a run of ``program``, warm."""
    timed = Timed(image_of(program, target).executable(threads), draw(program, 0))
    return lambda: timed.sample(_ONE_RUN, _PATIENCE)[0] / 1e6
