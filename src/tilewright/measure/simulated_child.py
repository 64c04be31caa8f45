"""The process in which cycles are simulated: ``python -m tilewright.measure.simulated_child``, started by a supervisor.

What a candidate computes in the emulator is checked against the reference, compiled for this machine.
"""

from collections.abc import Sequence
from pathlib import Path

from tilewright.base.errors import MeasureError, Unsupported
from tilewright.measure.build import Builder, Image, Kept, RefusedError, as_artifact
from tilewright.measure.candidate import Say
from tilewright.measure.child import serve_as
from tilewright.measure.job import Job
from tilewright.measure.limits import Limits
from tilewright.measure.messages import Built, Done, Request, Unmeasurable
from tilewright.measure.verdicts import Outcome, Phase, Verdict
from tilewright.measure.workload import Workload, load
from tilewright.simulation.cores import device_of
from tilewright.simulation.cycles import Simulated, simulate
from tilewright.simulation.emulator import Stopped
from tilewright.target.target import Target


class SimulatedBench:
    """Measures candidates in sequence, as ``candidate.Bench``."""

    def __init__(self, limits: Limits, folder: Path | None = None) -> None:
        self._builder = Builder(limits.memory_bytes)
        self._kept = None if folder is None else Kept(folder)
        self._key: tuple[str, int] | None = None
        self._workload: Workload | None = None

    def measure(self, request: Request, say: Say) -> None:
        """See ``Measuring``."""
        try:
            say(self._built(request.job, say) if request.only_build else self._measured(request, say))
        except (MeasureError, Unsupported) as error:
            say(Unmeasurable(str(error)))
        except RefusedError as refused:
            say(refused.outcome)

    def _built(self, job: Job, say: Say) -> Built:
        if self._kept is None:
            raise MeasureError("there is no folder to keep in what is built")
        say(Done(Phase.PREPARE))
        self._kept.put(job, self._builder.build(job))
        return Built()

    def _measured(self, request: Request, say: Say) -> Outcome:
        job, target = request.job, Target.parse(request.job.target)
        if job.timing.simulated != device_of(target):
            raise MeasureError(f"here are simulated cycles of {device_of(target)}; they are not asked for")
        if job.threads != 1:
            raise MeasureError(f"cycles are simulated for one thread, not {job.threads}")
        workload = self._prepared(job)
        say(Done(Phase.PREPARE))
        image = (None if self._kept is None else self._kept.take(job)) or self._builder.build(job)
        say(Done(Phase.BUILD))
        found = _run(image, workload, request.run_seconds)
        say(Done(Phase.CHECK))
        facts = {"cycles": found.cost.cycles, "instructions": float(found.instructions)}
        misses = {"l1_misses": found.near.all, "l2_misses": found.far.all}
        return Outcome(Verdict.OK, times_us=(found.cost.cycles / 1e3,), machine={**facts, **misses})

    def _prepared(self, job: Job) -> Workload:
        key = (job.workload, job.seed)
        if self._workload is None or self._key != key:
            self._key, self._workload = None, None  # its memory is freed first
            self._workload = load(job.program, job.seed, Target.host())
            self._key = key
        return self._workload


def _run(image: Image, workload: Workload, seconds: float) -> Simulated:
    """Raises ``RefusedError`` if it does what it may not, or its results are wrong."""
    try:
        found = simulate(as_artifact(image), workload.inputs, seconds)
    except Stopped as stopped:
        raise RefusedError(Verdict.WRONG, Phase.CHECK, str(stopped)) from stopped
    names = [spec.name for spec in image.manifest.outputs]
    fault = workload.fault(dict(zip(names, found.outputs, strict=True)))
    if fault:
        raise RefusedError(Verdict.WRONG, Phase.CHECK, fault)
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve until the supervisor closes the socket."""
    return serve_as(SimulatedBench, arguments)


if __name__ == "__main__":
    raise SystemExit(main())
