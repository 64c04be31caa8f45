"""Measures candidates with the accelerator's simulators: a ``Bench`` for the tuner.

A candidate is compiled, run by the functional simulator, which checks tokens, and its results are compared with those
of the naive program on this machine's processor. Its time is what the cycle simulator says, in microseconds at the
configuration's clock: the same on every machine.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from tilewright.backend.vta.compiler import translated
from tilewright.backend.vta.config import Config
from tilewright.backend.vta.cycles import Timing
from tilewright.backend.vta.memories import memories
from tilewright.backend.vta.runtime import Runtime
from tilewright.backend.vta.simulated import SimulatedDevice
from tilewright.base.errors import TilewrightError
from tilewright.loops.parser import parse_program
from tilewright.measure.job import Job
from tilewright.measure.verdicts import MAX_DETAIL, Outcome, Phase, Verdict
from tilewright.measure.workload import Workload, load
from tilewright.target.target import Target


@dataclass(slots=True)
class CycleBench:
    """Measures in this process: a simulator can't be crashed by a candidate."""

    config: Config
    timing: Timing
    _workloads: dict[tuple[str, int], Workload] = field(default_factory=dict[tuple[str, int], Workload])

    def measure_all(self, jobs: Iterable[Job]) -> Iterator[tuple[Job, Outcome]]:
        """Each job with its outcome. Raises ``MeasureError`` if the naive program can't run."""
        for job in jobs:
            yield job, self._measured(job)

    def _measured(self, job: Job) -> Outcome:
        workload = self._workload(job)
        on_chip = memories(self.config)
        known = (on_chip.inp, on_chip.wgt, on_chip.acc)
        phase = Phase.BUILD
        try:
            scheduled = parse_program(job.scheduled, [form.intrinsic() for form in job.intrinsics], known)
            program = translated(scheduled, self.config)
            phase = Phase.CHECK
            runtime = Runtime(SimulatedDevice(self.config, timing=self.timing))
            run = runtime.run(program, {operand.name: workload.inputs[operand.name] for operand in program.inputs})
        except TilewrightError as error:
            verdict = Verdict.BUILD_ERROR if phase is Phase.BUILD else Verdict.WRONG
            return Outcome(verdict, str(error)[:MAX_DETAIL], phase)
        if fault := workload.fault(run.results):
            return Outcome(Verdict.WRONG, fault[:MAX_DETAIL], phase)
        cycles = run.report.cycles
        assert cycles is not None, "the device has times"
        told = {"cycles": float(cycles.total), "clock_mhz": float(self.config.clock_mhz)}
        return Outcome(Verdict.OK, times_us=(cycles.total / self.config.clock_mhz,), machine=told)

    def _workload(self, job: Job) -> Workload:
        key = (job.workload, job.seed)
        if key not in self._workloads:
            self._workloads[key] = load(job.program, job.seed, Target.parse(job.target))
        return self._workloads[key]
