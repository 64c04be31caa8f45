"""Tunes a whole model: allocates the time to its kernels, and decides which results to keep.

After a round for each kernel, the next is the one with the largest expected gain for the model (the gradient of Zheng
et al., "Ansor", OSDI 2020, section 6, without its similarity of tasks): the recent gain per candidate, and an
optimistic bound of the rest, weighted by the number of calls.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import inf, prod

from tilewright.loops.identity import identity
from tilewright.loops.program import Program
from tilewright.measure.build import shape_of
from tilewright.measure.job import Job
from tilewright.measure.records import Records
from tilewright.measure.row import Record, State
from tilewright.target.target import Target
from tilewright.tune.kernel_tuner import Cold, KernelTuner, Setup
from tilewright.tune.measurer import Measurer
from tilewright.tune.nearest import measured_nearby, nearest_schedule
from tilewright.tune.recorded import named
from tilewright.tune.spaces import candidates_of
from tilewright.tune.strategy import shared

ALPHA = 0.2
"""Weight of the past gain against the possible one."""
WINDOW = 64
"""Number of candidates over which gains are computed."""
CLEARLY = 0.99
"""A candidate counts as better only below this fraction of the analytic choice's time."""


@dataclass(frozen=True, slots=True)
class Computed:
    """A kernel of a model: a naive program, its number of calls in a run, and which of its inputs are weights."""

    naive: Program
    calls: int
    weights: tuple[str, ...] = ()

    @property
    def weight_bytes(self) -> int:
        """Bytes of all calls together, without those of run-time size."""
        known = [] if self.naive.dims else [buffer for buffer in self.naive.inputs if buffer.name in self.weights]
        return self.calls * sum(prod(shape_of(buffer)) * buffer.dtype.itemsize for buffer in known)


@dataclass(slots=True)
class Kernel:
    """A distinct kernel of the model. ``weight``: its number of calls in a run."""

    name: str
    weight: int
    tuner: KernelTuner

    @property
    def promise(self) -> float:
        """Estimated seconds of a run saved per further candidate. Infinite while none was correct."""
        if self.tuner.is_over:
            return 0.0
        found, now = self.tuner.history.throughputs, self.tuner.best_seconds
        if now is None:
            return inf
        earlier = found[: max(1, len(found) - WINDOW)]
        gained = (1 / max(earlier) - now) / min(WINDOW, len(found)) if max(earlier) > 0 else 0.0
        return self.weight * (ALPHA * gained + (1 - ALPHA) * now / len(found))


@dataclass(frozen=True, slots=True)
class Progress:
    """The state after a round, and its kernel."""

    kernel: str
    kernels: tuple[Kernel, ...]
    measured: int


@dataclass(frozen=True, slots=True)
class Gain:
    """The result for one kernel: microseconds of the analytic choice (infinity if it failed in the confirmation), and
    of the fastest candidate."""

    name: str
    weight: int
    before_us: float
    after_us: float
    tried: int
    winner: Job | None
    """The measurement of the fastest candidate, if it is clearly faster than the analytic choice."""


class ModelTuner:
    """Tunes the kernels of one model that have fixed extents and open choices."""

    def __init__(
        self,
        computed: Sequence[Computed],
        target: Target,
        measurer: Measurer,
        setup: Setup,
        records: Records | None = None,
    ) -> None:
        """``records``: a database that may have schedules of similar kernels."""
        self._measurer = measurer
        self._setup = replace(setup, model=shared(setup.model, setup.seed))
        self.kernels = tuple(_kernels(computed, target, measurer, self._setup, records))

    def run(self, is_time_left: Callable[[], bool]) -> Iterator[Progress]:
        """Rounds, while there is time and something to try."""
        for kernel in self.kernels:
            if not is_time_left():
                return
            yield self._round(kernel)
        while is_time_left() and (open_kernels := [kernel for kernel in self.kernels if kernel.promise > 0]):
            yield self._round(max(open_kernels, key=lambda kernel: kernel.promise))

    def _round(self, kernel: Kernel) -> Progress:
        kernel.tuner.round()
        return Progress(kernel.name, self.kernels, self._measurer.measured)

    def confirm(self) -> list[Gain]:
        """Measure the best candidates of each kernel again. One that is not clearly better is not used."""
        return [self._confirmed(kernel) for kernel in self.kernels if kernel.tuner.history.best is not None]

    def _confirmed(self, kernel: Kernel) -> Gain:
        first, *others = kernel.tuner.confirm()
        before = first.microseconds
        best = min(others, key=lambda candidate: candidate.microseconds, default=first)
        winner = best.job if best.microseconds < CLEARLY * before else None
        for candidate in others:
            if candidate.job != winner:
                self._measurer.put(candidate.job, State.REPEATED)
        after, tried = before if winner is None else best.microseconds, len(kernel.tuner.history.throughputs)
        return Gain(kernel.name, kernel.weight, before, after, tried, winner)

    def used(self, gains: Sequence[Gain], records: Records) -> Iterator[Record]:
        """What the compiler would find in ``records`` if the results were accepted."""
        for kernel in self.kernels:
            space = kernel.tuner.space
            yield from records.best(space.naive, str(space.target), self._setup.threads, State.CONFIRMED)
        for job in _winners(gains):
            outcome = records.find(job)
            if outcome is not None:
                yield Record(job, outcome, State.CONFIRMED)

    def accept(self, gains: Sequence[Gain]) -> None:
        """Accept the results: ``compile`` uses them."""
        for job in _winners(gains):
            self._measurer.put(job, State.CONFIRMED)

    def withdraw(self, gains: Sequence[Gain]) -> None:
        """Withdraw the results: ``compile`` does not use them."""
        for job in _winners(gains):
            self._measurer.put(job, State.REPEATED)


def _winners(gains: Sequence[Gain]) -> Iterator[Job]:
    return (gain.winner for gain in gains if gain.winner is not None)


def _kernels(
    computed: Sequence[Computed], target: Target, measurer: Measurer, setup: Setup, records: Records | None
) -> Iterator[Kernel]:
    merged: dict[str, Computed] = {}
    for one in computed:
        key = identity(one.naive)
        known = merged.setdefault(key, replace(one, calls=0))
        merged[key] = replace(known, calls=known.calls + one.calls)
    between = between_bytes(computed, target)
    for one in merged.values():
        space = None if one.naive.dims else candidates_of(named(one.naive), target, setup.spaces, threads=setup.threads)
        if space is not None:
            cold = Cold(one.weights, between) if between else Cold()
            similar = records if setup.transfer else None
            borrowed = nearest_schedule(similar, space.naive, target, setup.threads) if similar else None
            history = (
                measured_nearby(
                    similar, space, setup, partial(candidates_of, spaces=setup.spaces, threads=setup.threads)
                )
                if similar
                else ()
            )
            yield Kernel(one.naive.name, one.calls, KernelTuner(space, measurer, setup, cold, borrowed, history))


def between_bytes(computed: Sequence[Computed], target: Target) -> int:
    """Bytes of weights that pass through the caches between two runs of a kernel.

    A power of two, so that models of similar size share measurements; 0 if all fit in a core's own cache.
    """
    total = sum(one.weight_bytes for one in computed)
    if total <= target.l2_bytes:
        return 0
    return 1 << (min(total, 2 * target.l3_bytes) - 1).bit_length()
