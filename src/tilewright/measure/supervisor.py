"""Supervises children and deadlines: ``python -m tilewright.measure.supervisor``, started by a ``Runner``.

It is a separate process for two reasons. It is a subreaper, so orphans of its children become its children and are
killed; in the user's process that would affect the user's processes too. And it outlives the user's process: when that
ends in any way, the supervisor kills all remaining processes and ends.

A single-threaded event loop: it receives requests, starts children ahead of need, assigns candidates to them, and
handles messages, ends of processes and deadlines. Messages of children are checked; no child can block this loop.
"""

import argparse
import json
import os
import selectors
import shutil
import signal
import socket
import time
from collections import deque
from collections.abc import Sequence
from contextlib import suppress

from tilewright.measure.limits import Limits
from tilewright.measure.messages import (
    MAX_REQUEST,
    BadMessageError,
    Built,
    Channel,
    Done,
    Errand,
    Ready,
    Unmeasurable,
    outcome_message,
    read_said,
)
from tilewright.measure.processes import become_subreaper, bury_strays, children_of
from tilewright.measure.verdicts import FAULTS, Outcome, Phase, Verdict
from tilewright.measure.worker import Task, Worker, verdict_of_end

_MAX_FAILED_STARTS = 3
_ENDING_SECONDS = 1.0
_VERDICT_PHASES = {
    Verdict.OK: (Phase.TIME,),
    Verdict.WRONG: (Phase.CHECK, Phase.TIME),
    Verdict.BUILD_ERROR: (Phase.BUILD,),
    Verdict.OOM: (Phase.BUILD, Phase.CHECK, Phase.TIME),
}
"""The phases in which a child can send these verdicts."""
_RUNNING = (Phase.CHECK, Phase.TIME)
_VERDICTS_APART = {**_VERDICT_PHASES, **dict.fromkeys((Verdict.CRASH, Verdict.TIMEOUT, Verdict.DEVICE_LOST), _RUNNING)}
"""The same of a child whose candidates run elsewhere: it sees how they end."""


class Supervisor:
    """``lanes``: concurrent candidates; ``spares``: further children, ready to take over from the first end of a child
    on; ``apart``: candidates run outside of the children; ``folder``: images built for other children, empty if there
    are none.
    """

    def __init__(
        self,
        user: Channel,
        limits: Limits,
        counts: tuple[int, int],
        command: Sequence[str],
        folder: str,
        *,
        apart: bool,
    ) -> None:
        self._user = user
        self._limits = limits
        self._lanes, self._spares = counts
        self._has_lost = False
        """Whether a child has ended. Before that spares would be started in vain: most searches lose none."""
        self._command = command
        self._verdicts = _VERDICTS_APART if apart else _VERDICT_PHASES
        self._folder = folder
        self._queue: deque[Task] = deque()
        self._workers: list[Worker] = []
        self._failed_starts = 0
        self._selector = selectors.DefaultSelector()
        self._selector.register(user.socket, selectors.EVENT_READ, None)

    def run(self) -> None:
        """Serve until the user's end is closed; then no process of ours is left."""
        try:
            while not self._user.closed:
                self._assign()
                self._staff()
                self._wait()
        finally:
            for worker in list(self._workers):
                self._end(worker)
            bury_strays(())
            if self._folder:
                shutil.rmtree(self._folder, ignore_errors=True)

    # --- children -------------------------------------------------------------------------------------------------

    def _staff(self) -> None:
        """Start the missing children."""
        spares = self._spares if self._has_lost else 0
        while len(self._workers) < self._lanes + spares:
            worker = Worker(self._command, self._limits, self._folder)
            self._workers.append(worker)
            self._selector.register(worker.channel.socket, selectors.EVENT_READ, worker)
            self._selector.register(worker.handle, selectors.EVENT_READ, worker)

    def _assign(self) -> None:
        """Give tasks to idle children: used ones first, to save fresh ones for tasks that need them."""
        while self._queue and sum(worker.task is not None for worker in self._workers) < self._lanes:
            task = self._queue[0]
            idle = sorted((w for w in self._workers if w.idle), key=lambda worker: -worker.uses)
            fit = [worker for worker in idle if not (task.fresh and worker.uses)]
            if not fit:
                if idle:
                    self._end(idle[0])  # a fresh child replaces it
                return
            self._queue.popleft()
            fit[0].start(task)

    def _end(self, worker: Worker) -> tuple[int | None, str]:
        """End a child and all its descendants; returns its exit status, if it had ended by itself, and its last error
        output."""
        with suppress(KeyError):  # a closed channel is not polled any more
            self._selector.unregister(worker.channel.socket)
        self._selector.unregister(worker.handle)
        self._workers.remove(worker)
        self._has_lost = True
        status = worker.end()
        bury_strays({other.id for other in self._workers})
        return status, worker.errors()

    # --- events ---------------------------------------------------------------------------------------------------

    def _wait(self) -> None:
        """Wait for the next event, and handle it."""
        self._selector.modify(self._user.socket, _wanted(self._user), None)
        for worker in self._workers:
            if not worker.channel.closed:
                self._selector.modify(worker.channel.socket, _wanted(worker.channel), worker)
        first = min((worker.deadline for worker in self._workers), default=float("inf"))
        timeout = None if first == float("inf") else max(0.0, first - time.monotonic())
        events = self._selector.select(timeout)
        for key, mask in events:
            owner = key.data
            if owner is None:
                self._hear_user(mask)
            elif isinstance(owner, Worker) and owner in self._workers:
                self._hear(owner, mask, ended=key.fd == owner.handle)
        for worker in [worker for worker in self._workers if worker.is_late()]:
            self._late(worker)

    def _hear_user(self, mask: int) -> None:
        if mask & selectors.EVENT_WRITE:
            self._user.flush()
        for message in self._user.receive():
            self._queue.append(Task(Errand.read(message), time.monotonic()))

    def _hear(self, worker: Worker, mask: int, *, ended: bool) -> None:
        if mask & selectors.EVENT_WRITE:
            worker.channel.flush()
        try:
            for message in worker.channel.receive():
                self._said(worker, message)
                if worker not in self._workers:
                    return
        except BadMessageError as error:
            self._fault(worker, Outcome(Verdict.PROTOCOL, str(error), worker.phase))
            return
        if ended:
            self._gone(worker)
        elif worker.channel.closed:
            # Usually the child is just ending, and how it ends determines the verdict.
            self._selector.unregister(worker.channel.socket)
            worker.deadline = min(worker.deadline, time.monotonic() + _ENDING_SECONDS)

    def _said(self, worker: Worker, message: dict[str, object]) -> None:
        said = read_said(message, self._verdicts)
        match said:
            case Ready() if not worker.ready:
                self._failed_starts = 0
                worker.rest()
            case Done(phase) if worker.finish_phase(phase):
                pass
            case Built() if worker.builds and worker.phase is Phase.BUILD:
                task = worker.release()
                self._answer(task, {"built": task.seconds if task is not None else {}})
            case Unmeasurable(reason) if worker.builds or (worker.task is not None and worker.phase is Phase.PREPARE):
                task = worker.release()
                self._answer(task, {"unmeasurable": reason})
            case Outcome() if worker.task is not None:
                self._outcome(worker, said)
            case _:
                raise BadMessageError(f"out of turn: {str(message)[:80]}")

    def _outcome(self, worker: Worker, outcome: Outcome) -> None:
        """A child has sent a verdict: it must have left no process; it continues unless there was a fault."""
        if worker.phase not in self._verdicts[outcome.verdict]:
            outcome = Outcome(Verdict.PROTOCOL, f"the verdict {outcome.verdict.value} out of turn", worker.phase)
        elif children_of(worker.id):
            outcome = Outcome(Verdict.PROTOCOL, "it left processes behind", worker.phase)
        if outcome.verdict in FAULTS:
            self._fault(worker, outcome)
            return
        self._settle(worker.release(), outcome)
        if worker.uses >= self._limits.uses:
            self._end(worker)

    def _gone(self, worker: Worker) -> None:
        """A child has ended, or has closed its socket."""
        task, phase, used = worker.release(), worker.phase, worker.uses > 1
        status, errors = self._end(worker)
        if task is not None:
            self._judge(task, verdict_of_end(status, errors, phase), used=used)
        elif not worker.ready:
            self._failed_starts += 1
            if self._failed_starts == _MAX_FAILED_STARTS:
                self._user.send({"fatal": f"children can't start; the last one ended with {status}: {errors}"})
                self._user.flush()
                self._user.closed = True

    def _late(self, worker: Worker) -> None:
        if worker.task is None or worker.channel.closed:
            self._gone(worker)
        else:
            self._fault(worker, Outcome(Verdict.TIMEOUT, f"not done with the phase {worker.phase.value}", worker.phase))

    def _fault(self, worker: Worker, outcome: Outcome) -> None:
        """End a faulty child."""
        task, used = worker.release(), worker.uses > 1
        self._end(worker)
        if task is not None:
            self._judge(task, outcome, used=used)

    def _judge(self, task: Task, outcome: Outcome, *, used: bool) -> None:
        """A verdict that ended a child. If that had measured others before, they may be the cause: repeat it once."""
        if used and outcome.verdict is not Verdict.TIMEOUT:
            task.fresh, task.arrived = True, time.monotonic()
            self._queue.appendleft(task)
        elif outcome.phase is Phase.PREPARE:
            what = f"{outcome.verdict.value}: {outcome.detail}"
            self._answer(task, {"unmeasurable": f"the reference could not be computed ({what})"})
        else:
            self._settle(task, outcome)

    def _settle(self, task: Task | None, outcome: Outcome) -> None:
        if task is not None:
            message = outcome_message(outcome)
            self._answer(task, {"outcome": {**message, "seconds": task.seconds}})

    def _answer(self, task: Task | None, answer: dict[str, object]) -> None:
        if task is not None:
            self._user.send({"number": task.request.number, **answer})


def _wanted(channel: Channel) -> int:
    return selectors.EVENT_READ | (selectors.EVENT_WRITE if channel.pending else 0)


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve a ``Runner``."""
    parser = argparse.ArgumentParser(description="Supervises measurements for a runner; not for people.")
    for name in ("socket", "lanes", "spares", "apart"):
        parser.add_argument(f"--{name}", type=int, required=True)
    parser.add_argument("--limits", type=json.loads, required=True)
    parser.add_argument("--folder", required=True)
    parser.add_argument("command", nargs="+")
    given = parser.parse_args(arguments)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.set_inheritable(given.socket, False)
    become_subreaper()
    user = Channel(socket.socket(fileno=given.socket), MAX_REQUEST)
    counts, limits = (given.lanes, given.spares), Limits(**given.limits)
    Supervisor(user, limits, counts, given.command, given.folder, apart=bool(given.apart)).run()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
