"""One candidate, in a process that may die of it: prepare, build, check, time.

No time counts before the results were right in two runs between guard pages, with poisoned outputs, inputs unaltered
and nothing written beside the arrays.
"""

import math
from collections.abc import Callable

from tilewright.base.errors import MeasureError, TilewrightError
from tilewright.base.target import Target
from tilewright.loops.ir import Alloc
from tilewright.loops.parser import parse_program
from tilewright.loops.program import Program
from tilewright.loops.verify import verify
from tilewright.loops.visit import walk
from tilewright.measure.clock import Clock, Timed, machine_state
from tilewright.measure.guard import Guarded, Side, poison
from tilewright.measure.job import Job
from tilewright.measure.limits import Limits
from tilewright.measure.messages import Done, Request, Said, Unmeasurable
from tilewright.measure.verdicts import Outcome, Phase, Verdict
from tilewright.measure.workload import Workload, executable, load
from tilewright.runtime.elsewhere import misfit
from tilewright.runtime.model import Executable
from tilewright.schedule.replay import replay
from tilewright.schedule.trace import Trace
from tilewright.symbolic.expr import Const

Say = Callable[[Said], None]
Build = Callable[[Program, Target, int], Executable]

_TIMING_FRACTION = 0.5
"""Of the time that a phase may take, what repeats may fill."""


class _RefusedError(Exception):
    """The candidate got its verdict before the end."""

    def __init__(self, verdict: Verdict, phase: Phase, detail: str) -> None:
        super().__init__(detail)
        self.outcome = Outcome(verdict, detail, phase)


class Bench:
    """Measures candidates, one after the other; keeps the last workload, as the next is often of the same."""

    def __init__(self, limits: Limits, build: Build = executable) -> None:
        self._limits = limits
        self._build = build
        self._clock = Clock(Target.host())
        self._key: tuple[str, int] | None = None
        self._workload: Workload | None = None

    def measure(self, request: Request, say: Say) -> None:
        """Measure a candidate and say what came out; what happens on the way, too."""
        try:
            say(self._measured(request, say))
        except MeasureError as error:
            say(Unmeasurable(str(error)))
        except _RefusedError as refused:
            say(refused.outcome)

    def _measured(self, request: Request, say: Say) -> Outcome:
        job = request.job
        target = Target.parse(job.target)
        reason = misfit(target.arch.value, target.features)
        if reason is not None:
            raise MeasureError(f"{job.target} can't be measured here: {reason}")
        workload = self._prepared(job, target)
        say(Done(Phase.PREPARE))
        kernel = self._built(job, target)
        say(Done(Phase.BUILD))
        for side in (Side.RIGHT, Side.LEFT):
            _check(kernel, workload, side)
        say(Done(Phase.CHECK))
        try:
            timed = Timed(kernel, workload.inputs)
            times = self._clock.time(timed, job.timing, _TIMING_FRACTION * request.run_seconds)
        except MemoryError as error:
            raise _RefusedError(Verdict.OOM, Phase.TIME, "no memory left while being timed") from error
        return Outcome(
            Verdict.OK,
            times_us=times.times_us,
            baseline_us=times.baseline_us,
            drift=times.drift,
            machine=machine_state(),
        )

    def _prepared(self, job: Job, target: Target) -> Workload:
        key = (job.workload, job.seed)
        if self._workload is None or self._key != key:
            self._key, self._workload = None, None  # its memory goes first
            self._workload = load(job.program, job.seed, target)
            self._key = key
        return self._workload

    def _built(self, job: Job, target: Target) -> Executable:
        """The scheduled program as native code."""
        try:
            scheduled = replay(Trace.from_json(job.trace), parse_program(job.program)).program
            verify(scheduled)
            needed = _allocated(scheduled)
            if needed > self._limits.memory_bytes:
                raise _RefusedError(Verdict.OOM, Phase.BUILD, f"it would allocate {needed} bytes")
            return self._build(scheduled, target, job.threads)
        except TilewrightError as error:
            raise _RefusedError(Verdict.BUILD_ERROR, Phase.BUILD, str(error)) from error
        except MemoryError as error:
            raise _RefusedError(Verdict.OOM, Phase.BUILD, "no memory left while building") from error
        except (TypeError, ValueError, LookupError, AttributeError, ArithmeticError, RecursionError) as error:
            # A trace from a file may call a primitive with anything.
            raise _RefusedError(Verdict.BUILD_ERROR, Phase.BUILD, f"{type(error).__name__}: {error}") from error


def _allocated(program: Program) -> int:
    """Bytes of the buffers that a program allocates; those of run-time size do not count."""
    buffers = [stmt.buffer for stmt in walk(program.body) if isinstance(stmt, Alloc)]
    extents = [[e.value for e in buffer.shape if isinstance(e, Const)] for buffer in buffers]
    return sum(int(math.prod(known)) * buffer.dtype.itemsize for buffer, known in zip(buffers, extents, strict=True))


def _check(kernel: Executable, workload: Workload, side: Side) -> None:
    """One run between guard pages. Raises ``_RefusedError`` with what is wrong with it."""
    program = workload.program
    arrays = {buffer.name: _guarded(workload, buffer.name, side) for buffer in program.inputs}
    results = {
        buffer.name: Guarded(workload.expected[buffer.name].shape, buffer.dtype, side) for buffer in program.results
    }
    for result in results.values():
        poison(result.array)
    try:
        kernel.run(
            {name: array.array for name, array in arrays.items()}, {name: made.array for name, made in results.items()}
        )
    except MemoryError as error:
        raise _RefusedError(Verdict.OOM, Phase.CHECK, "no memory left while running") from error
    except TilewrightError as error:
        raise _RefusedError(Verdict.WRONG, Phase.CHECK, str(error)) from error
    fault = workload.fault({name: made.array for name, made in results.items()}) or _altered(workload, arrays)
    beside = [name for name, made in {**arrays, **results}.items() if not made.untouched()]
    if beside:
        fault = fault or f"memory beside {', '.join(beside)} was written to"
    if fault:
        raise _RefusedError(Verdict.WRONG, Phase.CHECK, fault)


def _guarded(workload: Workload, name: str, side: Side) -> Guarded:
    buffer = next(buffer for buffer in workload.program.inputs if buffer.name == name)
    values = workload.inputs[name]
    made = Guarded(values.shape, buffer.dtype, side)
    made.array[...] = values
    return made


def _altered(workload: Workload, arrays: dict[str, Guarded]) -> str:
    """The inputs that are not what they were; the bytes count, as NaN differs from itself."""
    changed = [name for name, made in arrays.items() if made.array.tobytes() != workload.inputs[name].tobytes()]
    return f"it altered the inputs {', '.join(changed)}" if changed else ""
