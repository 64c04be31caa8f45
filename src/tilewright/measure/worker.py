"""A child process from the supervisor's view: process, channel, task, deadline."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from tilewright.measure.limits import Limits
from tilewright.measure.messages import MAX_ANSWER, Channel, Errand
from tilewright.measure.processes import kill_group, waited
from tilewright.measure.spawn import spawn
from tilewright.measure.verdicts import Outcome, Phase, Verdict

CHILD: Sequence[str] = (sys.executable, "-P", "-m", "tilewright.measure.child")

_PHASES = tuple(Phase)
_MEMORY_WORDS = ("out of memory", "bad_alloc", "cannot allocate")


@dataclass
class Task:
    """A request in progress. ``fresh``: it needs a child that has not measured anything before."""

    request: Errand
    arrived: float
    fresh: bool = False
    seconds: dict[str, float] = field(default_factory=dict[str, float])


class Worker:
    """One child process. Only ``end`` kills it."""

    def __init__(self, command: Sequence[str], limits: Limits, folder: str) -> None:
        self._limits = limits
        options: dict[str, int | str] = {"parent": os.getpid(), "memory": limits.memory_bytes}
        self._spawned = spawn(command, {**options, "files": limits.file_bytes, "folder": folder})
        self.id = self._spawned.process.pid
        self.handle = os.pidfd_open(self.id)
        """Readable when the process has ended, even if others hold its socket."""
        self.channel = Channel(self._spawned.socket, MAX_ANSWER)
        self.ready = False
        self.uses = 0
        self.task: Task | None = None
        self.phase = Phase.PREPARE
        self._since, self._allowed, self._waited = time.monotonic(), limits.start_seconds, 0.0
        self.deadline = self._since + self._allowed

    @property
    def idle(self) -> bool:
        """Whether it is ready and idle."""
        return self.ready and self.task is None

    @property
    def builds(self) -> bool:
        """Whether its task is only a build."""
        return self.task is not None and self.task.request.only_build

    def start(self, task: Task) -> None:
        """Let the child measure a candidate."""
        now = time.monotonic()
        task.seconds["queue"] = task.seconds.get("queue", 0.0) + now - task.arrived
        self.task, self.phase = task, Phase.PREPARE
        self._clock(now)
        self.channel.send(task.request.message)

    def finish_phase(self, phase: Phase) -> bool:
        """Start the next phase; False if the child is not in this one, or it is the last."""
        if self.task is None or phase is not self.phase or phase is _PHASES[-1]:
            return False
        self._note()
        self.phase = _PHASES[_PHASES.index(phase) + 1]
        self._clock(time.monotonic())
        return True

    def release(self) -> Task | None:
        """The completed task; the child becomes idle."""
        self._note()
        task, self.task = self.task, None
        self.uses += 1
        self.deadline = float("inf")
        return task

    def rest(self) -> None:
        """The child has said that it is ready."""
        self.ready = True
        self.deadline = float("inf")

    def _note(self) -> None:
        if self.task is not None:
            self.task.seconds[self.phase.value] = time.monotonic() - self._since

    def _clock(self, now: float) -> None:
        run_seconds = self.task.request.run_seconds if self.task is not None else 0.0
        self._since, self._allowed = now, self._limits.seconds(self.phase, run_seconds)
        self._waited = waited(self.id)
        self.deadline = now + self._allowed

    def is_late(self) -> bool:
        """Whether the deadline has passed. It is put off by the time for which the child waited for a processor, as a
        busy machine is no fault of a candidate."""
        if not self.channel.closed and self.deadline <= time.monotonic():
            self.deadline = self._since + self._allowed + max(0.0, waited(self.id) - self._waited)
        return self.deadline <= time.monotonic()

    def end(self) -> int | None:
        """Kill the process and its group, and free all resources; returns its exit status if it had ended by itself."""
        status = self._spawned.process.poll()
        kill_group(self.id)
        with suppress(subprocess.TimeoutExpired):
            self._spawned.process.wait(5)
        self.channel.close()
        os.close(self.handle)
        return status

    def errors(self) -> str:
        """The end of the child's standard error; can be read once."""
        return self._spawned.last_words()


def verdict_of_end(status: int | None, errors: str, phase: Phase) -> Outcome:
    """The verdict for a child that has ended, or closed its socket (status None), during a candidate."""
    if status is None:
        return Outcome(Verdict.PROTOCOL, "it closed its connection", phase)
    if status >= 0:
        return Outcome(Verdict.PROTOCOL, f"it ended with status {status} and no result\n{errors}".strip(), phase)
    name = signal_name(-status)
    if -status == signal.SIGXCPU:
        return Outcome(Verdict.TIMEOUT, "it used more processor time than it had", phase)
    if -status == signal.SIGKILL:
        return Outcome(Verdict.OOM, "the system killed it, most likely for want of memory", phase)
    if -status == signal.SIGABRT and any(word in errors.lower() for word in _MEMORY_WORDS):
        return Outcome(Verdict.OOM, errors, phase)
    return Outcome(Verdict.CRASH, f"{name}\n{errors}".strip(), phase)


def signal_name(number: int) -> str:
    """The name of a signal: ``SIGSEGV`` ..."""
    return signal.Signals(number).name if number in set(signal.Signals) else f"signal {number}"
