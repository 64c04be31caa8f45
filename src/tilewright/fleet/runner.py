"""``FleetRunner``: measures jobs on all devices of a key, as ``measure.Runner`` does on this machine.

Candidates are built here, in children, while others are measured there; a device is sent the image. A job whose device
is lost is measured again on another one; if it loses more of them than chance explains (``losses``), its outcome is
``DEVICE_LOST``. When the scheduler is gone, all is asked for again once it is back. Each job has one outcome in the
end.
"""

import queue
import shutil
import tempfile
import threading
import time
import uuid
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import TracebackType

from tilewright.base import fields
from tilewright.base.errors import FleetError, MeasureError
from tilewright.fleet.connection import DisconnectedError, Reply, Task
from tilewright.fleet.fleet import (
    Fleet,
    Grant,
    Wanted,
    measure_message,
    most_seconds,
    raise_error,
    upload_messages,
)
from tilewright.fleet.leases import Ending
from tilewright.fleet.losses import Losses
from tilewright.fleet.ways import limits_for
from tilewright.measure.job import Job
from tilewright.measure.limits import Limits
from tilewright.measure.messages import read_outcome
from tilewright.measure.runner import Runner
from tilewright.measure.verdicts import Outcome, Verdict

_BUILDERS = 2
_BUILDS = 2000
_AHEAD = 4
"""Images that wait, for each device."""
_TICK_SECONDS = 0.05
_POLL_SECONDS = 0.25
_SHARE_SECONDS = 2.0
"""How long a device is kept at least when others wait for it: children have to start anew after that."""


@dataclass(slots=True)
class _Work:
    """A job, built. ``losses``: the devices that were lost while they measured it; ``last``: why the last one was."""

    job: Job
    image: bytes
    losses: list[str] = field(default_factory=list[str])
    last: str = ""

    def lose(self, device: str, why: str) -> None:
        """A device was lost."""
        self.losses.append(device)
        self.last = why


@dataclass(slots=True)
class _Lane:
    """A leased device, and what it does."""

    grant: Grant
    since: float
    work: _Work | None = None
    task: Task | None = None
    before: tuple[Task, ...] = ()
    """Uploads: Dask drops a task that nobody refers to."""
    deadline: float = float("inf")
    finished: int = 0
    is_wanted: bool = False
    """Others wait for it who come first."""


class FleetRunner:
    """Measures on the devices of ``key``, at most ``most`` at a time. For the thread of its ``Fleet``.

    ``limits``: of builds, and what devices are expected to have (default: the usual ones of their kind); they enforce
    their own.
    """

    def __init__(
        self, fleet: Fleet, key: str, limits: Limits | None = None, *, priority: int = 0, most: int = 64
    ) -> None:
        self._fleet = fleet
        self._wanted = Wanted(key, priority)
        self._limits = limits
        self._most = most
        self._run = uuid.uuid4().hex
        self._lanes: list[_Lane] = []
        self._requests: set[str] = set()
        self._polled = 0.0
        self._devices = 0
        """As the scheduler said last."""
        self._alone_since: float | None = None
        self._losses = Losses()

    def __enter__(self) -> "FleetRunner":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Give all devices back."""
        for lane in self._lanes:
            if lane.task is not None:
                lane.task.cancel()
        self._fleet.give_back(list(self._requests), [lane.grant.lease for lane in self._lanes])
        self._lanes, self._requests = [], set()

    def measure(self, job: Job) -> Outcome:
        """The outcome of one job. Raises as ``measure_all`` does."""
        ((_, outcome),) = self.measure_all([job])
        return outcome

    def confirm(self, job: Job) -> Outcome:
        """The outcome on other data: validates a winner before it is used."""
        return self.measure(replace(job, seed=job.seed + 1))

    def measure_all(self, jobs: Iterable[Job]) -> Iterator[tuple[Job, Outcome]]:
        """Each job with its outcome, in order of completion.

        Raises ``MeasureError`` if a workload can't be measured, ``FleetError`` if there is no device of this key, or
        no scheduler, for long.
        """
        self._devices = self._devices or len(self._fleet.devices(self._wanted.key))
        is_over = False
        with _Builds(self._limits or Limits()) as builds:
            try:
                yield from self._all(iter(jobs), builds)
                is_over = True
            finally:
                if not is_over:
                    self.close()  # running jobs have no receiver any more

    def _all(self, jobs: Iterator[Job], builds: "_Builds") -> Iterator[tuple[Job, Outcome]]:
        ready: deque[_Work] = deque()
        is_read = False
        while True:
            while not is_read and len(ready) + builds.active < _BUILDERS + _AHEAD * max(1, len(self._lanes)):
                job = next(jobs, None)
                is_read = job is None
                builds.put(job)
            for job, outcome in builds.take():
                if outcome is None:
                    ready.append(_Work(job, builds.image(job)))
                else:
                    yield job, outcome
            yield from self._harvest(ready)
            busy = sum(lane.work is not None for lane in self._lanes)
            if is_read and not ready and not busy and not builds.active:
                self._withdraw()
                return
            try:
                self._tend(ready, wanted=min(self._most, busy + len(ready)))
                self._assign(ready)
            except DisconnectedError as error:
                self._restart(ready, error)
            builds.wait(_TICK_SECONDS)

    # --- devices --------------------------------------------------------------------------------------------------

    def _tend(self, ready: deque[_Work], wanted: int) -> None:
        """Ask for devices, and see what became of those that are leased."""
        now = time.monotonic()
        if now - self._polled < (_POLL_SECONDS if self._lanes or not self._requests else _TICK_SECONDS):
            return
        self._polled = now
        missing = min(wanted, self._devices) - len(self._lanes) - len(self._requests)
        self._requests |= {uuid.uuid4().hex for _ in range(missing)}
        requests = dict.fromkeys(self._requests, self._wanted)
        leases = {lane.grant.lease: lane.finished for lane in self._lanes}
        answer = self._fleet.poll(requests, leases, self._wanted.key)
        for lane in self._lanes:
            lane.finished -= leases[lane.grant.lease]
        for request, grant in answer.granted.items():
            self._requests.discard(request)
            self._lanes.append(_Lane(grant, now))
        for lane in [lane for lane in self._lanes if lane.grant.lease in answer.ended]:
            is_loss = answer.ended[lane.grant.lease] is Ending.LOST
            self._drop(lane, ready, "the device is gone" if is_loss else "")
        for lane in [lane for lane in self._lanes if lane.deadline < now]:
            self._fleet.give_back([], [lane.grant.lease], failed=True)
            self._drop(lane, ready, "the device did not answer in time")
        for lane in self._lanes:
            lane.is_wanted = lane.grant.lease in answer.wanted and now - lane.since > _SHARE_SECONDS
        self._devices = answer.devices
        self._require_devices(now)

    def _require_devices(self, now: float) -> None:
        """Raises ``FleetError`` if there was no device for long."""
        if self._devices:
            self._alone_since = None
            return
        self._alone_since = now if self._alone_since is None else self._alone_since
        if now - self._alone_since > self._fleet.patience:
            raise FleetError(f"all devices called {self._wanted.key} are gone")

    def _drop(self, lane: _Lane, ready: deque[_Work], loss: str) -> None:
        """A lease is over; its work is to be done again. ``loss``: why, if the work may be the cause."""
        self._lanes.remove(lane)
        if lane.task is not None:
            lane.task.cancel()
        if lane.work is not None:
            if loss:
                self._blame(lane.work, lane, loss)
            ready.appendleft(lane.work)

    def _blame(self, work: _Work, lane: _Lane, why: str) -> None:
        """A device was lost, perhaps because of its work."""
        self._losses.lost += 1
        work.lose(lane.grant.device.name, why)

    def _restart(self, ready: deque[_Work], cause: Exception) -> None:
        """The scheduler is gone, and all leases with it."""
        for lane in list(self._lanes):
            self._drop(lane, ready, "")
        self._requests = set()
        self._fleet.reconnect(cause)

    def _withdraw(self) -> None:
        if self._requests:
            self._fleet.give_back(list(self._requests), [])
            self._requests = set()

    # --- jobs -----------------------------------------------------------------------------------------------------

    def _assign(self, ready: deque[_Work]) -> None:
        """Give work to idle devices, and back those that others wait for. Raises ``DisconnectedError``; then the work
        is in ``ready`` or a lane."""
        shared = [lane for lane in self._lanes if lane.work is None and lane.is_wanted]
        if shared:
            self._fleet.give_back([], [lane.grant.lease for lane in shared])
            self._lanes = [lane for lane in self._lanes if lane not in shared]
        for lane in self._lanes:
            if lane.work is None and ready and not self._losses.convict(ready[0].losses):
                lane.work = ready.popleft()
                self._submit(lane, lane.work)

    def _submit(self, lane: _Lane, work: _Work) -> None:
        self._losses.tried += 1
        message, program = measure_message(work.job, f"{self._run}:{work.job.id}")
        new = self._fleet.uploads(lane.grant.device, [program])
        uploads = upload_messages(program, work.job.program.encode()) if new else []
        lane.before = tuple(self._fleet.submit(lane.grant, upload, parts) for upload, parts in uploads)
        lane.task = self._fleet.submit(lane.grant, message, (work.image,) if work.image else ())
        lane.deadline = time.monotonic() + most_seconds(self._limits or limits_for(lane.grant.device))

    def _harvest(self, ready: deque[_Work]) -> Iterator[tuple[Job, Outcome]]:
        """The outcomes that there are."""
        for lane in list(self._lanes):
            if lane.task is None or lane.work is None or not lane.task.is_done():
                continue
            try:
                reply = lane.task.reply()
            except DisconnectedError as error:
                self._restart(ready, error)
                break
            work, lane.task, lane.deadline = lane.work, None, float("inf")
            outcome = self._outcome(lane, reply)
            lane.work = None
            if outcome is None:
                ready.appendleft(work)
            else:
                lane.finished += 1
                yield work.job, outcome
        for work in [work for work in ready if self._losses.convict(work.losses)]:
            ready.remove(work)
            yield work.job, Outcome(Verdict.DEVICE_LOST, f"lost with {', '.join(work.losses)}; last: {work.last}")

    def _outcome(self, lane: _Lane, reply: Reply | None) -> Outcome | None:
        """The outcome of a lane's work; None if it is to be done again."""
        if reply is None or "ended" in reply[0]:
            return None  # the next poll says why
        answer = reply[0]
        raise_error(answer)
        if "missing" in answer:
            self._fleet.forget_uploads(lane.grant.device, [fields.text(key) for key in fields.items(answer["missing"])])
            return None
        outcome = read_outcome(fields.mapping(answer["outcome"]))
        if outcome.verdict is Verdict.DEVICE_LOST and lane.work is not None:
            self._blame(lane.work, lane, outcome.detail)
            return None
        return outcome


class _Builds:
    """Builds jobs in children, watched by a thread, into a folder."""

    def __init__(self, limits: Limits) -> None:
        self.active = 0
        """Jobs that were put and not yet taken."""
        self._limits = replace(limits, uses=_BUILDS)
        self._folder = Path(tempfile.mkdtemp(prefix="tilewright-built-"))
        self._jobs: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self._done: queue.SimpleQueue[tuple[Job, Outcome | None] | MeasureError] = queue.SimpleQueue()
        self._early: list[tuple[Job, Outcome | None] | MeasureError] = []
        self._thread = threading.Thread(target=self._build, daemon=True)

    def __enter__(self) -> "_Builds":
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.put(None)
        self._thread.join()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _build(self) -> None:
        with Runner(self._limits, lanes=_BUILDERS, spares=0, folder=self._folder) as runner:
            try:
                for built in runner.build_all(iter(self._jobs.get, None)):
                    self._done.put(built)
            except MeasureError as error:
                self._done.put(error)

    def put(self, job: Job | None) -> None:
        """Build it; None: there are no more."""
        self.active += job is not None
        self._jobs.put(job)

    def wait(self, seconds: float) -> None:
        """Wait until something is built, at most so long."""
        with suppress(queue.Empty):
            self._early.append(self._done.get(timeout=seconds))

    def take(self) -> list[tuple[Job, Outcome | None]]:
        """What is done. Raises ``MeasureError`` if something can't be built at all."""
        with suppress(queue.Empty):
            while True:
                self._early.append(self._done.get_nowait())
        taken, self._early = self._early, []
        found: list[tuple[Job, Outcome | None]] = []
        for item in taken:
            if isinstance(item, MeasureError):
                raise item
            found.append(item)
        self.active -= len(found)
        return found

    def image(self, job: Job) -> bytes:
        """The image of a job that was built; empty if it is gone, and the device has to build it."""
        path = self._folder / job.id
        try:
            content = path.read_bytes()
            path.unlink()
        except OSError:
            return b""
        return content
