"""Tuning a whole model: which of its kernels to try next, until the time is over, and what is kept in the end.

After a round for each kernel, the next is the one whose further search promises most for the model (the gradient of
Zheng et al., "Ansor", OSDI 2020, section 6, without its similarity of tasks): what rounds have gained lately, and
optimistically what is left, weighted by how often the model runs the kernel.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from tilewright.base.errors import ScheduleError
from tilewright.base.target import Target
from tilewright.loops.program import Program
from tilewright.measure.job import Job
from tilewright.tune.kernel_space import KernelSpace
from tilewright.tune.kernel_tuner import KernelTuner, Setup
from tilewright.tune.measurer import Measurer
from tilewright.tune.recorded import KERNEL, recorded_text

ALPHA = 0.2
"""How much what was gained counts, against what might be."""
WINDOW = 3
"""Rounds over which gains are looked at."""
CLEARLY = 0.99
"""The part of the analytic choice's time that a candidate may take, at most, to be called better."""


@dataclass(slots=True)
class Kernel:
    """A distinct kernel of the model. ``weight``: how often a run calls it."""

    name: str
    weight: int
    tuner: KernelTuner
    times: list[float] = field(default_factory=list[float])
    """The best time after each round, in seconds."""

    @property
    def promise(self) -> float:
        """By how many seconds of a run one more round might shorten it."""
        if self.tuner.is_over or not self.times:
            return 0.0
        now, rounds = self.times[-1], len(self.times)
        before = self.times[max(0, rounds - 1 - WINDOW)]
        gained = (before - now) / min(WINDOW, max(1, rounds - 1))
        return self.weight * (ALPHA * gained + (1 - ALPHA) * now / rounds)


@dataclass(frozen=True, slots=True)
class Progress:
    """After a round: of which kernel, and where the search stands."""

    kernel: str
    kernels: tuple[Kernel, ...]
    measured: int


@dataclass(frozen=True, slots=True)
class Gain:
    """What became of one kernel: microseconds of the analytic choice, and of the fastest candidate."""

    name: str
    weight: int
    before_us: float
    after_us: float
    tried: int
    winners: tuple[Job, ...]
    """The measurements of the candidates that are clearly faster than the analytic choice."""


class ModelTuner:
    """Tunes the kernels of one model that have fixed extents and something to choose."""

    def __init__(
        self, programs: Sequence[tuple[Program, int]], target: Target, measurer: Measurer, setup: Setup
    ) -> None:
        """``programs``: naive programs, and how often a run calls each."""
        self._measurer = measurer
        self.kernels = tuple(_kernels(programs, target, measurer, setup))

    def run(self, is_time_left: Callable[[], bool]) -> Iterator[Progress]:
        """Rounds, as long as there is time and something to try."""
        for kernel in self.kernels:
            if not is_time_left():
                return
            yield self._round(kernel)
        while is_time_left() and (open_kernels := [kernel for kernel in self.kernels if kernel.promise > 0]):
            yield self._round(max(open_kernels, key=lambda kernel: kernel.promise))

    def _round(self, kernel: Kernel) -> Progress:
        kernel.tuner.round()
        best = kernel.tuner.best_seconds
        if best is not None:
            kernel.times.append(best)
        return Progress(kernel.name, self.kernels, self._measurer.measured)

    def confirm(self) -> list[Gain]:
        """Measure the best candidates of each kernel again. One that is not clearly better is not to be used."""
        return [self._confirmed(kernel) for kernel in self.kernels if kernel.times]

    def _confirmed(self, kernel: Kernel) -> Gain:
        first, *others = kernel.tuner.confirm()
        before = first.microseconds
        for candidate in others:
            if not candidate.microseconds < CLEARLY * before:
                self._measurer.withdraw(candidate.job, "not clearly faster than the analytic model's choice")
        winners = [candidate for candidate in others if candidate.microseconds < CLEARLY * before]
        after = min((candidate.microseconds for candidate in winners), default=before)
        tried = len(kernel.tuner.history.throughputs)
        return Gain(kernel.name, kernel.weight, before, after, tried, tuple(candidate.job for candidate in winners))

    def withdraw(self, gains: Sequence[Gain], reason: str) -> None:
        """Let nobody use what was found."""
        for job in (job for gain in gains for job in gain.winners):
            self._measurer.withdraw(job, reason)


def _kernels(
    programs: Sequence[tuple[Program, int]], target: Target, measurer: Measurer, setup: Setup
) -> Iterator[Kernel]:
    merged: dict[str, tuple[Program, int]] = {}
    for program, weight in programs:
        text = recorded_text(program)
        merged[text] = (program, weight + merged.get(text, (program, 0))[1])
    for program, weight in merged.values():
        space = None if program.dims else _space(program, target)
        if space is not None and len(space.knobs):
            yield Kernel(program.name, weight, KernelTuner(space, measurer, setup))


def _space(program: Program, target: Target) -> KernelSpace | None:
    """None for what has no space: a body in loop IR is scheduled in one way."""
    try:
        return KernelSpace.of(replace(program, name=KERNEL), target)
    except ScheduleError:
        return None
