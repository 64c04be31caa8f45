"""The process in which cycles are simulated: ``tilewright.measure.simulated_child``, started by a supervisor."""

from collections.abc import Sequence

from tilewright.base.errors import MeasureError
from tilewright.measure.apart import ApartBench
from tilewright.measure.build import Image, RefusedError, as_artifact
from tilewright.measure.candidate import Say
from tilewright.measure.child import serve_as
from tilewright.measure.messages import Done
from tilewright.measure.requests import Request
from tilewright.measure.verdicts import Outcome, Phase, Verdict
from tilewright.measure.workload import Workload
from tilewright.simulation.cores import device_of
from tilewright.simulation.cycles import Simulated, simulate
from tilewright.simulation.emulator import Stopped
from tilewright.target.target import Target


class SimulatedBench(ApartBench):
    """Counts cycles."""

    def measured(self, request: Request, say: Say) -> Outcome:
        """See ``ApartBench``."""
        job, target = request.job, Target.parse(request.job.target)
        if job.timing.simulated != device_of(target):
            raise MeasureError(f"here are simulated cycles of {device_of(target)}; they are not asked for")
        if job.threads != 1:
            raise MeasureError(f"cycles are simulated for one thread, not {job.threads}")
        workload = self.prepared(job)
        say(Done(Phase.PREPARE))
        image = self.image(job)
        say(Done(Phase.BUILD))
        found = _run(image, workload.stored_for(job.trace), request.run_seconds)
        say(Done(Phase.CHECK))
        return Outcome(Verdict.OK, times_us=(found.cost.cycles / 1e3,), machine=found.facts)


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
