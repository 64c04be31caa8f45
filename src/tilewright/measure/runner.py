"""Measuring, as the rest of the compiler sees it.

    with Runner() as runner:
        outcome = runner.measure(job)
        for job, outcome in runner.measure_all(jobs): ...

Whatever a candidate does, the caller gets an ``Outcome``, and when the ``with`` ends nothing is left running.
"""

import json
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from types import TracebackType

from tilewright.base import fields
from tilewright.base.errors import MeasureError
from tilewright.base.files import reason
from tilewright.measure.job import Job
from tilewright.measure.limits import Limits
from tilewright.measure.messages import MAX_REQUEST, Request, read_outcome, receive_blocking, send_blocking
from tilewright.measure.spawn import spawn
from tilewright.measure.verdicts import MAX_DETAIL, Outcome, Phase, Verdict
from tilewright.measure.worker import CHILD

_SUPERVISOR = (sys.executable, "-P", "-m", "tilewright.measure.supervisor")
_GOODBYE_SECONDS = 10.0
_BUILDS_AHEAD = 1
"""Jobs that wait for a child to build them, so that no child waits while the next one is made."""


class Runner:
    """Measures jobs in processes under the contract. For one thread.

    ``lanes``: candidates at once (they disturb each other's times: more than one for builds and checks only);
    ``spares``: children ready to take over after a fault, which takes two, as it is repeated in a fresh one;
    ``command``: what starts a child; ``folder``: where what is only built is kept until it is measured, removed when
    the processes end.
    """

    def __init__(
        self,
        limits: Limits | None = None,
        *,
        lanes: int = 1,
        spares: int = 2,
        command: Sequence[str] = CHILD,
        folder: Path | None = None,
    ) -> None:
        self._limits = limits or Limits()
        self._lanes = lanes
        self._spares = spares
        self._command = tuple(command)
        self._folder = folder
        self._supervisor: _Supervisor | None = None
        self._best: dict[str, tuple[float, float]] = {}
        """Of each workload the least microseconds of a run, and seconds of checking."""
        self._number = 0

    def __enter__(self) -> "Runner":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """End all processes, whatever they are at."""
        if self._supervisor is not None:
            self._supervisor.close()
            self._supervisor = None

    def measure(self, job: Job) -> Outcome:
        """The outcome of one job. Raises ``MeasureError`` if it can't be measured, whatever its schedule is."""
        ((_, outcome),) = self.measure_all([job])
        return outcome

    def confirm(self, job: Job) -> Outcome:
        """The outcome on other data. For a winner, before anything relies on it."""
        return self.measure(replace(job, seed=job.seed + 1))

    def measure_all(self, jobs: Iterable[Job]) -> Iterator[tuple[Job, Outcome]]:
        """Each job with its outcome, as they become known. Jobs are taken only when they can be started.

        What was built by ``build_all``, in the same folder, is not built again. If the supervisor dies, the jobs that
        it had are ``DEVICE_LOST``, and another one serves the rest. Raises ``MeasureError`` for a job that can't be
        measured, whatever its schedule is, and if no child can start.
        """
        for job, outcome in self._all(jobs, only_build=False):
            assert outcome is not None, "what is measured has an outcome"
            yield job, outcome

    def build_all(self, jobs: Iterable[Job]) -> Iterator[tuple[Job, Outcome | None]]:
        """Build jobs, for ``measure_all`` of a runner with the same folder. With each job an outcome if it is refused.

        Otherwise as ``measure_all``, but that a job is taken before it can be started.
        """
        return self._all(jobs, only_build=True)

    def _all(self, jobs: Iterable[Job], *, only_build: bool) -> Iterator[tuple[Job, Outcome | None]]:
        waiting = iter(jobs)
        most = self._lanes + (_BUILDS_AHEAD if only_build else 0)
        sent: dict[int, Job] = {}
        try:
            while True:
                while len(sent) < most and (job := next(waiting, None)) is not None:
                    self._send(job, sent, only_build)
                if not sent:
                    return
                answer = self._started().receive()
                if answer is None:
                    detail = self._lose()
                    lost, sent = sent, {}
                    yield from ((job, Outcome(Verdict.DEVICE_LOST, detail)) for job in lost.values())
                else:
                    job = sent.pop(fields.whole(answer.get("number", -1)), None)
                    yield self._answered(job, answer)
        finally:
            if sent:
                self.close()  # what is still running answers nobody

    def _send(self, job: Job, sent: dict[int, Job], only_build: bool) -> None:
        self._number += 1
        sent[self._number] = job
        best_us, check_seconds = self._best.get(job.workload, (None, 0.0))
        seconds = self._limits.run_deadline(best_us, check_seconds)
        self._started().send(Request(self._number, job, seconds, only_build, best_us or 0.0).message())

    def _answered(self, job: Job | None, answer: Mapping[str, object]) -> tuple[Job, Outcome | None]:
        if job is not None and "built" in answer:
            return job, None
        if job is None or "outcome" not in answer:
            raise MeasureError(str(answer.get("unmeasurable", answer.get("fatal", answer)))[:MAX_DETAIL])
        outcome = read_outcome(fields.mapping(answer["outcome"]))
        if outcome.median_us is not None:
            found = (outcome.median_us, outcome.seconds.get(Phase.CHECK.value, 0.0))
            known = self._best.get(job.workload, found)
            self._best[job.workload] = (min(found[0], known[0]), min(found[1], known[1]))
        return job, outcome

    def _started(self) -> "_Supervisor":
        if self._supervisor is None:
            self._supervisor = _Supervisor(self._limits, self._lanes, self._spares, self._command, self._folder)
        return self._supervisor

    def _lose(self) -> str:
        """The supervisor is gone: clean up after it; its last words."""
        words = self._started().close()
        self._supervisor = None
        return f"the supervisor ended unexpectedly {words}".strip()


class _Supervisor:
    """The supervisor's process."""

    def __init__(self, limits: Limits, lanes: int, spares: int, command: Sequence[str], folder: Path | None) -> None:
        options: dict[str, int | str] = {"lanes": lanes, "spares": spares, "limits": json.dumps(asdict(limits))}
        options["folder"] = "" if folder is None else str(folder)
        try:
            self._spawned = spawn(_SUPERVISOR, options, ("--", *command))
        except OSError as error:
            raise MeasureError(f"no process to measure in can be started: {reason(error)}") from error

    def send(self, message: Mapping[str, object]) -> None:
        """Send a request; if the supervisor is gone, ``receive`` will tell."""
        try:
            send_blocking(self._spawned.socket, message)
        except ConnectionError:
            return

    def receive(self) -> dict[str, object] | None:
        """The next answer; None if the supervisor is gone."""
        return receive_blocking(self._spawned.socket, MAX_REQUEST)

    def close(self) -> str:
        """Let the supervisor end everything, and wait for that; its last words."""
        process = self._spawned.process
        self._spawned.socket.close()
        try:
            process.wait(_GOODBYE_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        return self._spawned.last_words()
