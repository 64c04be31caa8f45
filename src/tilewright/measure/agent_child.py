"""The process that measures on a board without Python: ``tilewright.measure.agent_child --agent=COMMAND ...``.

It is started by a supervisor, builds a program of each candidate, and has the agent on the board run it. What is not
as in ``candidate``: there are no guard pages, and instead of cold copies of some inputs, all caches are filled with
other data before each call.
"""

import argparse
import math
import time
from collections.abc import Sequence
from pathlib import Path

from tilewright.backend.shipping.board import board_program
from tilewright.backend.shipping.interface import Interface
from tilewright.base.arrays import Array
from tilewright.base.errors import MeasureError, Unsupported
from tilewright.measure.agent import Agent, EndedError, Session
from tilewright.measure.apart import ApartBench
from tilewright.measure.build import Image, RefusedError, as_artifact
from tilewright.measure.candidate import Say, believe
from tilewright.measure.child import serve_as
from tilewright.measure.guard import same_bytes
from tilewright.measure.job import Job, Timing
from tilewright.measure.limits import Limits
from tilewright.measure.messages import Done
from tilewright.measure.requests import Request
from tilewright.measure.roofline import least_us
from tilewright.measure.verdicts import Outcome, Phase, Verdict
from tilewright.measure.workload import Workload
from tilewright.target.target import Target

_TIMING_FRACTION = 0.5
"""The fraction of a phase's time limit that repeats may use."""


class AgentBench(ApartBench):
    """Measures behind an agent."""

    def __init__(self, agent: Agent, limits: Limits, folder: Path | None = None) -> None:
        super().__init__(limits, folder)
        self._agent = agent

    def measured(self, request: Request, say: Say) -> Outcome:
        """See ``ApartBench``."""
        job = request.job
        _check(job)
        workload = self.prepared(job)
        say(Done(Phase.PREPARE))
        interface, program = _program(self.image(job), job.timing)
        workload = workload.stored_for(job.trace)
        say(Done(Phase.BUILD))
        phase = Phase.CHECK
        try:
            with self._agent.start(program, interface, 2 * request.run_seconds) as session:
                inputs = [workload.inputs[tensor.name] for tensor in interface.inputs]
                right = _right(session, inputs, workload, interface)
                say(Done(Phase.CHECK))
                phase = Phase.TIME
                budget = _TIMING_FRACTION * request.run_seconds
                times = _Timed(session, inputs, right).sample(job.timing, budget, request.hopeless_us)
        except EndedError as ended:
            return ended.outcome(phase)
        believe(min(times), least_us(workload.program, Target.parse(job.target), job.threads))
        return Outcome(Verdict.OK, times_us=times)


def _check(job: Job) -> None:
    """Raises ``MeasureError`` for what an agent can't do."""
    if job.timing.simulated:
        raise MeasureError(f"here is a board, and simulated cycles of {job.timing.simulated} are asked for")
    if job.threads != 1:
        raise MeasureError(f"an agent's programs run on one thread, not {job.threads}")


def _program(image: Image, timing: Timing) -> tuple[Interface, bytes]:
    try:
        return board_program(as_artifact(image), timing.between_bytes if timing.cold else 0)
    except Unsupported as error:
        raise RefusedError(Verdict.BUILD_ERROR, Phase.BUILD, str(error)) from error


def _right(session: Session, inputs: Sequence[Array], workload: Workload, interface: Interface) -> tuple[Array, ...]:
    """The outputs of the first call. Raises ``RefusedError`` if they are wrong."""
    outputs, _ = session.call(inputs)
    names = [tensor.name for tensor in interface.outputs]
    if fault := workload.fault(dict(zip(names, outputs, strict=True))):
        raise RefusedError(Verdict.WRONG, Phase.CHECK, fault)
    return outputs


class _Timed:
    """A kernel behind an agent, whose outputs stay ``right``."""

    def __init__(self, session: Session, inputs: Sequence[Array], right: Sequence[Array]) -> None:
        self._session = session
        self._inputs = inputs
        self._right = right

    def sample(self, timing: Timing, budget: float, hopeless_us: float) -> tuple[float, ...]:
        """As ``clock.Timed.sample``. Raises ``RefusedError`` if results change."""
        end = time.monotonic() + budget
        warm = self._mean_us(1)
        if warm > hopeless_us and (warm := self._mean_us(1)) > hopeless_us:
            return (warm,)
        calls = max(1, math.ceil(timing.least_seconds * 1e6 / warm))
        samples = [self._mean_us(calls)]
        while len(samples) < timing.repeats and time.monotonic() < end:
            samples.append(self._mean_us(calls))
        return tuple(samples)

    def _mean_us(self, calls: int) -> float:
        outputs, seconds = self._session.call(self._inputs, calls)
        if not all(map(same_bytes, outputs, self._right)):
            raise RefusedError(Verdict.WRONG, Phase.TIME, "its results differ from call to call")
        return seconds * 1e6


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve until the supervisor closes the socket."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--agent", required=True)
    own, others = parser.parse_known_args(arguments)
    agent = Agent.parse(own.agent)
    return serve_as(lambda limits, folder: AgentBench(agent, limits, folder), others)


if __name__ == "__main__":
    raise SystemExit(main())
