"""Tunes whole networks: allocates rounds to their kernels, and decides which results to keep.

Networks that have a kernel in common share it: it is searched once, and counts as often as all of them call it. Which
kernel gets the next round is for a ``TaskScheduler`` to say (``tune/scheduler``).
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from math import inf, prod

from tilewright.loops.identity import identity
from tilewright.loops.program import Program, with_constants
from tilewright.measure.build import shape_of
from tilewright.measure.job import Job
from tilewright.measure.records import Records
from tilewright.measure.row import Record, State
from tilewright.target.target import Target
from tilewright.tune.kernel_tuner import Cold, KernelTuner, Setup
from tilewright.tune.known import measured_before
from tilewright.tune.measurer import Measurer
from tilewright.tune.nearest import measured_nearby, nearest_schedule
from tilewright.tune.recorded import named
from tilewright.tune.scheduler.gradient import Gradient
from tilewright.tune.scheduler.groups import operations_of, tag_of
from tilewright.tune.scheduler.state import Point, TaskScheduler, TaskState
from tilewright.tune.spaces import candidates_of
from tilewright.tune.strategy import shared

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
    """A distinct kernel. ``key``: its identity; ``name``: in the first network that has it; ``calls``: in a run of each
    network."""

    key: str
    name: str
    calls: tuple[int, ...]
    tuner: KernelTuner
    flops: int
    tag: str | None
    points: list[Point] = field(default_factory=list[Point])

    @staticmethod
    def of(naive: Program, calls: tuple[int, ...], tuner: KernelTuner) -> "Kernel":
        """A kernel without a round."""
        return Kernel(identity(naive), naive.name, calls, tuner, operations_of(naive), tag_of(naive))

    @property
    def weight(self) -> int:
        """The number of calls in a run of all networks."""
        return sum(self.calls)

    @property
    def state(self) -> TaskState:
        """What the scheduler sees."""
        tuner = self.tuner
        return TaskState(
            calls=self.calls,
            points=tuple(self.points),
            flops=self.flops,
            tag=self.tag,
            next_trials=tuner.next_size,
            untuned=tuner.analytic_seconds,
            is_over=tuner.is_over,
        )

    def round(self) -> None:
        """Search one round."""
        self.tuner.round()
        seconds = self.tuner.best_seconds
        self.points.append(Point(len(self.tuner.history.digits), inf if seconds is None else seconds))


@dataclass(frozen=True, slots=True)
class Progress:
    """The state after a round, and its kernel."""

    kernel: str
    kernels: tuple[Kernel, ...]
    measured: int


@dataclass(frozen=True, slots=True)
class Gain:
    """The result for one kernel: microseconds of the analytic choice (infinity if it failed in the confirmation), and
    of the fastest candidate. ``key``, ``name``, ``calls``: as of ``Kernel``."""

    key: str
    name: str
    calls: tuple[int, ...]
    before_us: float
    after_us: float
    tried: int
    winner: Job | None
    """The measurement of the fastest candidate, if it is clearly faster than the analytic choice."""


class ModelTuner:
    """Tunes the kernels of networks that have fixed extents and open choices."""

    def __init__(
        self,
        networks: Sequence[Sequence[Computed]],
        target: Target,
        measurer: Measurer,
        setup: Setup,
        records: Records | None = None,
        scheduler: TaskScheduler | None = None,
    ) -> None:
        """``records``: a database that may have schedules of similar kernels. ``scheduler``: by default, the gradient
        of the sum of all latencies."""
        self._measurer = measurer
        self._setup = replace(setup, model=shared(setup.model, setup.seed))
        self._scheduler = scheduler or Gradient(seed=setup.seed)
        self.kernels = tuple(_kernels(networks, target, measurer, self._setup, records))

    def run(self, is_time_left: Callable[[], bool]) -> Iterator[Progress]:
        """Rounds, while there is time and the scheduler has a task for one."""
        while is_time_left():
            chosen = self._scheduler.next([kernel.state for kernel in self.kernels])
            if chosen is None:
                return
            kernel = self.kernels[chosen]
            kernel.round()
            yield Progress(kernel.name, self.kernels, self._measurer.measured)

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
        return Gain(kernel.key, kernel.name, kernel.calls, before, after, tried, winner)

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


@dataclass(frozen=True, slots=True)
class _Merged:
    """A kernel of several networks; ``between``: the most that any of them reads between two runs of it."""

    first: Computed
    calls: tuple[int, ...]
    between: int = 0

    def called(self, network: int, calls: int, between: int) -> "_Merged":
        """With more calls in a network."""
        more = (*self.calls[:network], self.calls[network] + calls, *self.calls[network + 1 :])
        return _Merged(self.first, more, max(self.between, between))


def _merged(networks: Sequence[Sequence[Computed]], target: Target) -> list[_Merged]:
    found: dict[str, _Merged] = {}
    for place, computed in enumerate(networks):
        between = between_bytes(computed, target)
        for one in computed:
            key = identity(one.naive)
            known = found.get(key) or _Merged(one, (0,) * len(networks))
            found[key] = known.called(place, one.calls, between)
    return list(found.values())


def _kernels(
    networks: Sequence[Sequence[Computed]], target: Target, measurer: Measurer, setup: Setup, records: Records | None
) -> Iterator[Kernel]:
    for one in _merged(networks, target):
        naive = with_constants(one.first.naive, one.first.weights)
        space = None if naive.dims else candidates_of(named(naive), target, setup.spaces, threads=setup.threads)
        if space is not None:
            cold = Cold(one.first.weights, one.between) if one.between else Cold()
            similar = records if setup.transfer else None
            borrowed = nearest_schedule(similar, space.naive, target, setup.threads) if similar else None
            history = (
                measured_nearby(
                    similar, space, setup, partial(candidates_of, spaces=setup.spaces, threads=setup.threads)
                )
                if similar
                else ()
            )
            tuner = KernelTuner(space, measurer, setup, cold, borrowed, history)
            if similar:
                tuner.start_from(measured_before(similar, space, setup.threads, tuner.timing))
            yield Kernel.of(naive, one.calls, tuner)


def between_bytes(computed: Sequence[Computed], target: Target) -> int:
    """Bytes of weights that pass through the caches between two runs of a kernel.

    A power of two, so that models of similar size share measurements; 0 if all fit in a core's own cache.
    """
    total = sum(one.weight_bytes for one in computed)
    if total <= target.l2_bytes:
        return 0
    return 1 << (min(total, 2 * target.l3_bytes) - 1).bit_length()
