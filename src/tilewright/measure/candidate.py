"""Measures one candidate, in a process that it may crash: prepare, build, check, time.

A time is valid only after correct results in two runs between guard pages, with poisoned outputs, unaltered inputs and
no writes outside of the arrays.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from tilewright.base.arrays import Array
from tilewright.base.errors import MeasureError, TilewrightError
from tilewright.measure.build import Builder, Image, Kept, RefusedError, Start, start
from tilewright.measure.clock import Clock, Timed
from tilewright.measure.guard import Guarded, Side, poison, same_bytes
from tilewright.measure.job import Job, Timing
from tilewright.measure.limits import Limits
from tilewright.measure.machine import machine_state
from tilewright.measure.messages import Built, Done, Said, Unmeasurable
from tilewright.measure.requests import Request
from tilewright.measure.roofline import least_us
from tilewright.measure.verdicts import Outcome, Phase, Verdict
from tilewright.measure.workload import Workload, load
from tilewright.runtime.elsewhere import misfit
from tilewright.runtime.executable import Executable
from tilewright.runtime.memory import aligned_array
from tilewright.target.target import Target

Say = Callable[[Said], None]
Turns = tuple[Mapping[str, Array], ...]

_MOST_COPIES = 512
"""Maximum copies of cold inputs: smaller inputs load in no time."""
_TIMING_FRACTION = 0.5
"""The fraction of a phase's time limit that repeats may use."""


@dataclass(frozen=True, slots=True)
class _Arguments:
    """Arrays with guard pages at one end, by the names of the inputs and of the results."""

    inputs: dict[str, Guarded]
    results: dict[str, Guarded]

    @staticmethod
    def of(workload: Workload, side: Side) -> "_Arguments":
        """Set the inputs to their values."""
        program = workload.program
        inputs = {b.name: Guarded(workload.inputs[b.name].shape, b.dtype, side) for b in program.inputs}
        for name, made in inputs.items():
            made.array[...] = workload.inputs[name]
        results = {b.name: Guarded(workload.expected[b.name].shape, b.dtype, side) for b in program.results}
        return _Arguments(inputs, results)


@dataclass(frozen=True, slots=True)
class _Prepared:
    """A workload, and the arrays that candidates get."""

    workload: Workload
    guarded: Mapping[Side, _Arguments]
    cold: dict[tuple[tuple[str, ...], int], Turns] = field(default_factory=dict[tuple[tuple[str, ...], int], Turns])

    @staticmethod
    def of(workload: Workload) -> "_Prepared":
        """Its inputs between guard pages."""
        return _Prepared(workload, {side: _Arguments.of(workload, side) for side in Side})

    def stored_for(self, job: Job) -> "_Prepared":
        """The same with constants as the job's schedule wants them."""
        workload = self.workload.stored_for(job.trace)
        return self if workload is self.workload else _Prepared.of(workload)

    def turns(self, timing: Timing) -> Turns:
        """The inputs of successive runs: with enough copies of cold ones that each is evicted from the caches by the
        others."""
        key = timing.cold, timing.between_bytes
        if key not in self.cold:
            self.cold[key] = _copies(self.workload.inputs, *key)
        return self.cold[key]


class Measuring(Protocol):
    """What measures, in a child."""

    def measure(self, request: Request, say: Say) -> None:
        """Measure a candidate, or only build it, and report the outcome and the progress."""
        ...


class Bench:
    """Measures candidates in sequence; caches the last workload, as the next is often the same."""

    def __init__(self, limits: Limits, folder: Path | None = None, start: Start = start) -> None:
        """``folder``: images that other processes have built, or that this one builds for others."""
        self._builder = Builder(limits.memory_bytes)
        self._kept = None if folder is None else Kept(folder)
        self._start = start
        self._clock = Clock(Target.host())
        self._key: tuple[str, int] | None = None
        self._ready: _Prepared | None = None

    def measure(self, request: Request, say: Say) -> None:
        """Measure a candidate, or only build it, and report the outcome and the progress."""
        try:
            say(self._built(request, say) if request.only_build else self._measured(request, say))
        except MeasureError as error:
            say(Unmeasurable(str(error)))
        except RefusedError as refused:
            say(refused.outcome)

    def _built(self, request: Request, say: Say) -> Built:
        if self._kept is None:
            raise MeasureError("there is no folder to keep in what is built")
        say(Done(Phase.PREPARE))
        self._kept.put(request.job, self._builder.build(request.job))
        return Built()

    def _measured(self, request: Request, say: Say) -> Outcome:
        job = request.job
        target = Target.parse(job.target)
        reason = misfit(target.platform, target.features)
        if reason is not None:
            raise MeasureError(f"{job.target} can't be measured here: {reason}")
        if job.timing.simulated:
            raise MeasureError(f"here code is timed, and simulated cycles of {job.timing.simulated} are asked for")
        prepared = self._prepared(job, target)
        say(Done(Phase.PREPARE))
        kernel = self._start(self._image(job), job, prepared.workload.program.name)
        prepared = prepared.stored_for(job)
        workload, guarded = prepared.workload, prepared.guarded
        say(Done(Phase.BUILD))
        _check(kernel, workload, guarded[Side.RIGHT])
        _check(kernel, workload, guarded[Side.LEFT], known=guarded[Side.RIGHT].results)
        say(Done(Phase.CHECK))
        try:
            timed = Timed(kernel, *prepared.turns(job.timing))
            budget = _TIMING_FRACTION * request.run_seconds
            times = self._clock.time(timed, job.timing, budget, request.hopeless_us)
        except MemoryError as error:
            raise RefusedError(Verdict.OOM, Phase.TIME, "no memory left while being timed") from error
        believe(min(times.times_us), least_us(workload.program, target, job.threads))
        return Outcome(
            Verdict.OK,
            times_us=times.times_us,
            baseline_us=times.baseline_us,
            drift=times.drift,
            machine=machine_state(),
        )

    def _prepared(self, job: Job, target: Target) -> _Prepared:
        key = (job.program, job.seed)
        if self._ready is None or self._key != key:
            self._key, self._ready = None, None  # its memory is freed first
            self._ready = _Prepared.of(load(job.program, job.seed, target))
            self._key = key
        return self._ready

    def _image(self, job: Job) -> Image:
        """The image for this job, built now if there is none."""
        kept = None if self._kept is None else self._kept.take(job)
        return kept or self._builder.build(job)


def _check(
    kernel: Executable, workload: Workload, arguments: _Arguments, known: Mapping[str, Guarded] | None = None
) -> None:
    """One run between guard pages. Raises ``RefusedError`` if its results are wrong.

    ``known``: correct results; equal bytes need no further comparison. Altered arguments are not reused: this process
    ends then.
    """
    arrays, results = arguments.inputs, arguments.results
    for result in results.values():
        poison(result.array)
    try:
        kernel.run(
            {name: array.array for name, array in arrays.items()}, {name: made.array for name, made in results.items()}
        )
    except MemoryError as error:
        raise RefusedError(Verdict.OOM, Phase.CHECK, "no memory left while running") from error
    except TilewrightError as error:
        raise RefusedError(Verdict.WRONG, Phase.CHECK, str(error)) from error
    is_known = known is not None and all(same_bytes(made.array, known[name].array) for name, made in results.items())
    fault = "" if is_known else workload.fault({name: made.array for name, made in results.items()})
    fault = fault or _altered(workload, arrays)
    beside = [name for name, made in {**arrays, **results}.items() if not made.untouched()]
    if beside:
        fault = fault or f"memory beside {', '.join(beside)} was written to"
    if fault:
        raise RefusedError(Verdict.WRONG, Phase.CHECK, fault)


def believe(fastest: float, possible: float) -> None:
    """Raises ``RefusedError`` for a time below what any processor can reach."""
    if fastest < possible:
        detail = f"{fastest:.3g} us: its multiply-adds take {possible:.3g} us on the fastest processor of this kind"
        raise RefusedError(Verdict.WRONG, Phase.TIME, detail)


def _copies(inputs: Mapping[str, Array], cold: tuple[str, ...], between_bytes: int) -> Turns:
    """Raises ``MeasureError`` for an invalid input."""
    if strange := set(cold) - set(inputs):
        raise MeasureError(f"{', '.join(sorted(strange))} shall be cold, but is no input of the program")
    size = sum(inputs[name].nbytes for name in cold)
    count = min(1 + between_bytes // size, _MOST_COPIES) if size else 1
    return (inputs, *({**inputs, **{name: _copy(inputs[name]) for name in cold}} for _ in range(count - 1)))


def _copy(array: Array) -> Array:
    copy = aligned_array(array.shape, array.dtype)
    copy[...] = array
    return copy


def _altered(workload: Workload, arrays: Mapping[str, Guarded]) -> str:
    """The inputs that were altered; compares bytes, as NaN differs from itself."""
    changed = [name for name, made in arrays.items() if not same_bytes(made.array, workload.inputs[name])]
    return f"it altered the inputs {', '.join(changed)}" if changed else ""
