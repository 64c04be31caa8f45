"""Times a candidate repeatedly, next to a baseline kernel that detects changes of the machine's speed."""

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from statistics import median

from tilewright.base.arrays import Array
from tilewright.loops.lower import lower
from tilewright.measure.build import image_of
from tilewright.measure.job import Timing
from tilewright.measure.workload import draw
from tilewright.runtime.executable import Executable
from tilewright.runtime.memory import aligned_array
from tilewright.symbolic.expr import Var
from tilewright.target.target import Target
from tilewright.tensor import build as te
from tilewright.tensor.ir import Reduction

MAX_DRIFT = 0.05
"""If the baseline changes by more than this fraction, the candidate is timed again."""
ATTEMPTS = 3
_BASELINE = Timing(repeats=5, least_seconds=0.0002)
_BASELINE_SIZE = 48


@dataclass(frozen=True, slots=True)
class Times:
    """Microseconds of a run for each repeat; those of the baseline; and the baseline's drift, as a fraction."""

    times_us: tuple[float, ...]
    baseline_us: float
    drift: float


class Timed:
    """A kernel with its arguments: successive runs use the sets of ``inputs`` in turn.

    Inputs should be aligned, as results are.
    """

    def __init__(self, kernel: Executable, *inputs: Mapping[str, Array]) -> None:
        self._kernel = kernel
        self._inputs = inputs
        self._next = 0
        specs = kernel.manifest.outputs
        self._outputs = {spec.name: aligned_array(spec.static_shape or (), spec.dtype.numpy) for spec in specs}

    def sample(self, timing: Timing, budget: float, hopeless_us: float = math.inf) -> tuple[float, ...]:
        """Microseconds of one run, ``timing.repeats`` times; fewer, but one, if ``budget`` seconds are over.

        Only one, too, if two warm ones take more than ``hopeless_us``.
        """
        end = time.perf_counter() + budget
        first = self._mean_us(1)  # also warms the caches
        begin = time.perf_counter()
        if begin > end:
            return (first,)
        warm = self._mean_us(1)
        if warm > hopeless_us:  # the first run tells nothing: it also maps memory; this one may have been interrupted
            begin = time.perf_counter()
            warm = self._mean_us(1)
        if warm > hopeless_us:
            return (warm,)
        runs = max(1, math.ceil(timing.least_seconds / (time.perf_counter() - begin)))
        # If one run is a repeat, this was already the first.
        samples = [warm if runs == 1 else self._mean_us(runs)]
        while len(samples) < timing.repeats and time.perf_counter() < end:
            samples.append(self._mean_us(runs))
        return tuple(samples)

    def _mean_us(self, runs: int) -> float:
        total = self._seconds(runs) if len(self._inputs) == 1 else sum(self._seconds(1) for _ in range(runs))
        return max(total * 1e6 / runs, 1e-3)  # the clock ticks in nanoseconds

    def _seconds(self, runs: int) -> float:
        """The time of runs with the same inputs."""
        inputs = self._inputs[self._next]
        self._next = (self._next + 1) % len(self._inputs)
        _, seconds = self._kernel.timed_run(inputs, self._outputs, runs=runs)
        return sum(seconds)


class Clock:
    """Times candidates next to a baseline: a fixed small matrix product."""

    def __init__(self, target: Target) -> None:
        a, b = (te.placeholder((_BASELINE_SIZE, _BASELINE_SIZE), name=name) for name in "AB")
        k = te.reduce_axis((0, _BASELINE_SIZE), "k")

        def element(i: Var, j: Var) -> Reduction:
            return te.sum(a[i, k] * b[k, j], axis=k)

        program = lower(te.compute(a.shape, element, name="C"), "baseline")
        self._baseline = Timed(image_of(program, target).executable(1), draw(program, 0))

    def time(self, candidate: Timed, timing: Timing, budget: float, hopeless_us: float = math.inf) -> Times:
        """The candidate's times, in ``budget`` seconds or little more; see ``Timed.sample``."""
        return steadiest(lambda left: self._attempt(candidate, timing, left, hopeless_us), budget, hopeless_us)

    def _attempt(self, candidate: Timed, timing: Timing, budget: float, hopeless_us: float) -> Times:
        before = median(self._baseline.sample(_BASELINE, budget))
        times = candidate.sample(timing, budget, hopeless_us)
        after = median(self._baseline.sample(_BASELINE, budget))
        return Times(times, (before + after) / 2, abs(after - before) / min(before, after))


def steadiest(attempt: Callable[[float], Times], budget: float, hopeless_us: float = math.inf) -> Times:
    """The first attempt within ``MAX_DRIFT``, or of several the one with the least drift.

    ``attempt`` takes the seconds that are left of ``budget``; no other one is begun when they are over, or if all times
    are above ``hopeless_us``.
    """
    end = time.perf_counter() + budget
    found = attempt(budget)
    for _ in range(1, ATTEMPTS):
        left = end - time.perf_counter()
        if found.drift <= MAX_DRIFT or left <= 0 or min(found.times_us) > hopeless_us:
            break
        found = min(found, attempt(left), key=lambda times: times.drift)
    return found
