"""A device while it is leased: does what the holder of the lease asks for, in children, and nothing for others.

It is asked by tasks of Dask, one at a time (``perform``), and told of leases by the scheduler. When a lease ends, the
children are killed, whatever they do; what the task then returns says so.
"""

import asyncio
import json
import os
import shutil
import tempfile
import threading
import time
from collections import OrderedDict
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum
from hashlib import sha256
from pathlib import Path

from distributed import Worker, get_worker
from distributed.diagnostics.plugin import WorkerPlugin

from tilewright.base import fields
from tilewright.base.errors import BadInput, FleetError, MeasureError, TilewrightError
from tilewright.base.store import Store
from tilewright.fleet.board import Board
from tilewright.fleet.remote_run import run_model
from tilewright.fleet.scheduler import OPERATION
from tilewright.fleet.ways import NATIVE, Way
from tilewright.measure.messages import outcome_message
from tilewright.measure.requests import Request
from tilewright.measure.runner import Runner

_STORE_BYTES = 8 << 30
_STALE_SECONDS = 86_400.0
_GRACE_SECONDS = 2.0
"""What a device does when the scheduler is lost may be done within that: a scheduler takes as long to come back."""
_REMEMBERED = 64
"""Outcomes that are kept for a client that did not get them, as its connection broke."""
Parts = tuple[bytes, ...]


class Verb(Enum):
    """What a leased device does."""

    UPLOAD = "upload"
    """Keep bytes by their hash."""
    MEASURE = "measure"
    """One job, by the contract of ``measure``."""
    RUN = "run"
    """A model, in a process of its own (``remote_run``)."""
    ACCELERATE = "accelerate"
    """A program, on a simulated accelerator of any configuration (``board``)."""


@dataclass(slots=True)
class _Held:
    """A lease, and what there is as long as it lasts. ``folder``: for outputs; ``board``: the accelerator."""

    id: str
    folder: Path
    upload: bytearray = field(default_factory=bytearray)
    stop: threading.Event = field(default_factory=threading.Event)
    measuring: threading.Event = field(default_factory=threading.Event)
    board: Board = field(default_factory=Board)


class Device:
    """``folder``: for what is kept by hash, and during leases; ``way``: how it does what it is asked for; ``spares``:
    of the children that measure, which stay warm between leases (``Runner``)."""

    def __init__(self, folder: Path, way: Way = NATIVE, *, spares: int = 1) -> None:
        self.folder = folder
        self._way = way
        self._leases = folder / "leases"
        self._leases.mkdir(parents=True, exist_ok=True)
        _sweep(self._leases)
        (folder / "store").mkdir(mode=0o700, exist_ok=True)
        self._store = Store(folder / "store", _STORE_BYTES)
        self._built = folder / f"built-{os.getpid()}"
        self._runner = Runner(way.limits, spares=spares, command=way.measuring, apart=way.is_apart, folder=self._built)
        self._busy = threading.Lock()
        """Held while a task uses what is kept, and the runner."""
        self._lock = threading.Lock()
        self._held: _Held | None = None
        self._known: OrderedDict[str, dict[str, object]] = OrderedDict()

    # --- leases: from Dask's thread -------------------------------------------------------------------------------

    def lease(self, lease: str, begins: bool) -> None:
        """A lease begins, or has ended."""
        with self._lock:
            ended = self._held if begins or (self._held is not None and self._held.id == lease) else None
            if ended is not None:
                self._held = None
            if begins:
                self._held = _Held(lease, Path(tempfile.mkdtemp(dir=self._leases)))
        if ended is not None:
            self._stop(ended)

    def end(self, seconds: float = 0.0) -> None:
        """End the lease, if there is one: the scheduler is gone. ``seconds``: how long what is being done may still
        take: the outcome is kept, as the client will ask for it again, and children stay warm."""
        with self._lock:
            ended, self._held = self._held, None
        if ended is not None:
            if self._busy.acquire(timeout=seconds):
                self._busy.release()
            self._stop(ended)

    def close(self) -> None:
        """End all processes."""
        self.end()
        with self._busy:
            self._runner.close()
        shutil.rmtree(self._built, ignore_errors=True)

    def _stop(self, held: _Held) -> None:
        """Kill what runs for a lease; children that do nothing stay for the next one."""
        held.stop.set()
        if held.measuring.is_set():
            self._runner.interrupt()
        shutil.rmtree(held.folder, ignore_errors=True)

    # --- work: from the thread of Dask's tasks --------------------------------------------------------------------

    def perform(self, lease: str, message: str, parts: Parts) -> tuple[str, Parts]:
        """Do what the holder of a lease asks for; the answer is JSON, and bytes.

        ``{"error": text, "kind": name}`` is an error that is to be raised there, ``{"missing": hashes}`` asks for
        uploads, ``{"ended": true}`` says that the lease has ended.
        """
        with self._lock:
            held = self._held
        if held is None or held.id != lease:
            return json.dumps({"ended": True}), ()
        try:
            with self._busy:
                answer, returned = self._do(held, fields.mapping(json.loads(message)), parts)
        except TilewrightError as error:
            answer, returned = {"error": str(error), "kind": type(error).__name__}, ()
        except (KeyError, TypeError, ValueError, OSError) as error:
            answer, returned = {"error": f"the device can't do that: {error!r:.200}", "kind": FleetError.__name__}, ()
        if held.stop.is_set():
            answer, returned = {"ended": True}, ()
        return json.dumps(answer), returned

    def _do(self, held: _Held, asked: Mapping[str, object], parts: Parts) -> tuple[dict[str, object], Parts]:
        match Verb(asked["verb"]):
            case Verb.UPLOAD:
                return self._upload(held, fields.text(asked["hash"]), parts, is_last=asked["last"] is True), ()
            case Verb.MEASURE:
                return self._measure(held, asked, parts), ()
            case Verb.RUN:
                names = [fields.text(name) for name in fields.items(asked["artifacts"])]
                arrays = [fields.text(fields.mapping(feed)["hash"]) for feed in fields.items(asked["feeds"])]
                missing = self._missing((*names, *arrays))
                if missing:
                    return {"missing": missing}, ()
                return run_model(self._way.running, asked, held.folder, self._store.directory, held.stop)
            case Verb.ACCELERATE:
                keys = [fields.text(fields.mapping(given)["hash"]) for given in fields.items(asked["writes"])]
                missing = self._missing(tuple(keys))
                if missing:
                    return {"missing": missing}, ()
                return held.board.run(asked, self._content, held.stop)

    def _upload(self, held: _Held, key: str, parts: Parts, *, is_last: bool) -> dict[str, object]:
        for part in parts:
            held.upload += part
        if is_last:
            content, held.upload = bytes(held.upload), bytearray()
            if sha256(content).hexdigest() != key:
                raise BadInput("what was uploaded is not what was to be uploaded: its hash differs")
            self._store.put(key, content)
            if self._store.get(key) is None:
                raise FleetError("the device can't keep what was uploaded: its disk is full, or it is too large")
        return {}

    def _content(self, key: str) -> bytes:
        content = self._store.get(key)
        if content is None:
            raise FleetError("the device does not keep what it is sent")
        return content

    def _missing(self, keys: tuple[str, ...]) -> list[str]:
        return [key for key in dict.fromkeys(keys) if self._store.get(key) is None]

    def _measure(self, held: _Held, asked: Mapping[str, object], parts: Parts) -> dict[str, object]:
        token = fields.text(asked["token"])
        known = self._known.get(token)
        if known is not None:
            return known
        key = fields.text(asked["program"])
        program = self._store.get(key)
        if program is None:
            return {"missing": [key]}
        request = fields.mapping(asked["request"])
        job = Request.read({**request, "job": {**fields.mapping(request["job"]), "program": program.decode()}}).job
        if parts:
            self._built.mkdir(exist_ok=True)
            (self._built / job.id).write_bytes(parts[0])
        begin = time.monotonic()
        held.measuring.set()
        try:
            outcome = self._runner.measure(job)
        finally:
            held.measuring.clear()
        answer: dict[str, object] = {"outcome": outcome_message(outcome), "seconds": time.monotonic() - begin}
        if not held.stop.is_set():
            self._known[token] = answer
            while len(self._known) > _REMEMBERED:
                self._known.popitem(last=False)
        return answer


class DevicePlugin(WorkerPlugin):
    """Connects a ``Device`` to Dask."""

    name = "tilewright-device"

    def __init__(self, device: Device) -> None:
        self.device = device

    def setup(self, worker: Worker) -> None:
        """Called by Dask, before the scheduler knows the worker."""
        worker.stream_handlers[OPERATION] = self.device.lease

    async def teardown(self, worker: Worker) -> None:
        """Called by Dask, before it waits for tasks: the scheduler is gone, or this device goes."""
        await asyncio.to_thread(self.device.end, _GRACE_SECONDS)


def perform(lease: str, message: str, parts: Parts) -> tuple[str, Parts]:
    """The task that clients submit. Raises ``MeasureError`` where there is no device."""
    plugin = get_worker().plugins.get(DevicePlugin.name)
    if not isinstance(plugin, DevicePlugin):
        raise MeasureError("this is no device of a fleet")
    return plugin.device.perform(lease, message, parts)


def _sweep(folder: Path) -> None:
    """Remove what processes that were killed have left."""
    for path in folder.iterdir():
        with suppress(OSError):
            if time.time() - path.stat().st_mtime > _STALE_SECONDS:
                shutil.rmtree(path, ignore_errors=True)
