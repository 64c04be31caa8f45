"""``Runner``: the interface of measuring for the rest of the compiler.

    with Runner() as runner:
        outcome = runner.measure(job)
        for job, outcome in runner.measure_all(jobs): ...

Whatever a candidate does, the caller gets an ``Outcome``, and no process is left running when the ``with`` ends.
"""

import json
import socket
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from types import TracebackType

from tilewright.base import fields
from tilewright.base.errors import MeasureError
from tilewright.base.files import reason
from tilewright.measure.job import Job
from tilewright.measure.limits import Limits
from tilewright.measure.messages import MAX_REQUEST, read_outcome, receive_blocking, send_blocking
from tilewright.measure.requests import Request
from tilewright.measure.spawn import spawn
from tilewright.measure.verdicts import MAX_DETAIL, Outcome, Phase, Verdict
from tilewright.measure.worker import CHILD

_SUPERVISOR = (sys.executable, "-P", "-m", "tilewright.measure.supervisor")
_GOODBYE_SECONDS = 10.0
_BUILDS_AHEAD = 1
"""Jobs queued for building, so that children do not idle while the next job is created."""


class Runner:
    """Measures jobs in processes under the contract. For one thread.

    ``lanes``: concurrent candidates (they disturb each other's times: use more than one only for builds and checks);
    ``spares``: children ready to take over after a fault, which takes two, as it is repeated in a fresh one; they are
    started when the first child has ended, so that a search without faults takes neither their time nor their memory;
    ``command``: the command line of a child; ``apart``: its candidates run outside of it, so that it may tell of their
    ends, too; ``folder``: images that are built but not yet measured, removed when the processes end.
    """

    def __init__(
        self,
        limits: Limits | None = None,
        *,
        lanes: int = 1,
        spares: int = 2,
        command: Sequence[str] = CHILD,
        apart: bool = False,
        folder: Path | None = None,
    ) -> None:
        self._limits = limits or Limits()
        self._lanes = lanes
        self._spares = spares
        self._command = tuple(command)
        self._apart = apart
        self._folder = folder
        self._supervisor: _Supervisor | None = None
        self._best: dict[str, tuple[float, float]] = {}
        """For each workload, the minimum microseconds of a run, and the seconds of checking."""
        self._number = 0

    def __enter__(self) -> "Runner":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """End all processes, in any state."""
        if self._supervisor is not None:
            self._supervisor.close()
            self._supervisor = None

    def interrupt(self) -> None:
        """From any thread: end all processes now; jobs that are active get ``DEVICE_LOST``. ``close`` is still due."""
        supervisor = self._supervisor
        if supervisor is not None:
            supervisor.interrupt()

    def measure(self, job: Job) -> Outcome:
        """The outcome of one job. Raises ``MeasureError`` if its workload can't be measured."""
        ((_, outcome),) = self.measure_all([job])
        return outcome

    def confirm(self, job: Job) -> Outcome:
        """The outcome on other data: validates a winner before it is used."""
        return self.measure(replace(job, seed=job.seed + 1))

    def measure_all(self, jobs: Iterable[Job]) -> Iterator[tuple[Job, Outcome]]:
        """Each job with its outcome, in order of completion. Jobs are taken only when they can be started.

        Images of ``build_all`` in the same folder are not built again. If the supervisor dies, its active jobs are
        ``DEVICE_LOST``, and a new one serves the rest. Raises ``MeasureError`` if a workload can't be measured, or no
        child can start.
        """
        for job, outcome in self._all(jobs, only_build=False):
            assert outcome is not None, "what is measured has an outcome"
            yield job, outcome

    def build_all(self, jobs: Iterable[Job]) -> Iterator[tuple[Job, Outcome | None]]:
        """Build jobs, for ``measure_all`` of a runner with the same folder. Yields each job, with an outcome if it is
        refused.

        Otherwise as ``measure_all``, except that jobs are taken before they can be started.
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
                self.close()  # running jobs have no receiver any more

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
            counts = {"lanes": self._lanes, "spares": self._spares, "apart": int(self._apart)}
            self._supervisor = _Supervisor(self._limits, counts, self._command, self._folder)
        return self._supervisor

    def _lose(self) -> str:
        """Clean up after a supervisor that has ended; returns its last error output."""
        words = self._started().close()
        self._supervisor = None
        return f"the supervisor ended unexpectedly {words}".strip()


class _Supervisor:
    """The supervisor's process."""

    def __init__(self, limits: Limits, counts: Mapping[str, int], command: Sequence[str], folder: Path | None) -> None:
        options: dict[str, int | str] = {**counts, "limits": json.dumps(asdict(limits))}
        options["folder"] = "" if folder is None else str(folder)
        try:
            self._spawned = spawn(_SUPERVISOR, options, ("--", *command))
        except OSError as error:
            raise MeasureError(f"no process to measure in can be started: {reason(error)}") from error

    def send(self, message: Mapping[str, object]) -> None:
        """Send a request; if the supervisor has ended, ``receive`` reports it."""
        try:
            send_blocking(self._spawned.socket, message)
        except ConnectionError:
            return

    def receive(self) -> dict[str, object] | None:
        """The next answer; None if the supervisor has ended."""
        return receive_blocking(self._spawned.socket, MAX_REQUEST)

    def interrupt(self) -> None:
        """Let the supervisor end all processes, as if the user's process had ended."""
        with suppress(OSError):  # it is closed already
            self._spawned.socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> str:
        """Let the supervisor end all processes, and wait for it; returns its last error output."""
        process = self._spawned.process
        self._spawned.socket.close()
        try:
            process.wait(_GOODBYE_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        return self._spawned.last_words()
