"""The scheduler of a fleet: Dask's, with the leases of ``leases`` as one more thing that it can be asked for.

Everything in it is lost when it ends: devices join again, and clients ask again. What was measured is in the clients'
records.
"""

import asyncio
import json
import logging
import time
from collections.abc import Callable, Mapping
from contextlib import suppress

import dask
from distributed import Scheduler
from distributed.comm import Comm
from distributed.diagnostics.plugin import SchedulerPlugin

from tilewright.base import fields
from tilewright.base.errors import FleetError, TilewrightError
from tilewright.base.files import reason
from tilewright.fleet.access import Access
from tilewright.fleet.inventory import Inventory
from tilewright.fleet.leases import Lease, Leases, Request

OPERATION = "tilewright-fleet"
"""What the scheduler is asked, and what devices are told."""
INVENTORY = "tilewright-inventory"
SETTINGS: Mapping[str, object] = {
    "distributed.scheduler.allowed-failures": 3,
    "distributed.scheduler.worker-ttl": "15s",  # a device that hangs is dropped after one to two of these
    "distributed.scheduler.http.routes": [],
    "distributed.worker.http.routes": [],
    "distributed.comm.timeouts.connect": "10s",
    "distributed.comm.timeouts.tcp": "30s",
    "distributed.admin.tick.limit": "1h",  # no warnings of a busy machine
}
"""Dask's, for schedulers and devices. HTTP pages have no certificates, so there are none."""
NO_PAGE = "127.0.0.1:0"
"""Where Dask's server of pages listens, which can't be left out."""
_TICK_SECONDS = 0.25
_log = logging.getLogger("tilewright.fleet")

Clock = Callable[[], float]


class FleetPlugin(SchedulerPlugin):
    """Answers clients, and tells devices of their leases."""

    name = "tilewright-fleet"

    def __init__(self, most_seconds: float, clock: Clock = time.monotonic) -> None:
        """``most_seconds``: maximum of a lease."""
        self._leases = Leases(most_seconds, self._tell)
        self._clock = clock
        self._scheduler: Scheduler | None = None
        self._ticking: asyncio.Task[None] | None = None

    async def start(self, scheduler: Scheduler) -> None:
        """Called by Dask."""
        self._scheduler = scheduler
        scheduler.handlers[OPERATION] = self.answer
        self._ticking = asyncio.create_task(self._tick())

    async def before_close(self) -> None:
        """Called by Dask."""
        if self._ticking is not None:
            self._ticking.cancel()

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(_TICK_SECONDS)
            self._leases.expire(self._clock())

    # --- devices --------------------------------------------------------------------------------------------------

    def add_worker(self, scheduler: Scheduler, worker: str) -> None:
        """Called by Dask: a device has joined. What is no device of Tilewright gets no leases."""
        described = scheduler.workers[worker].extra.get(INVENTORY)
        try:
            device = Inventory.read(described)
        except (KeyError, TypeError, TilewrightError) as error:
            _log.warning("%s is no device: %s", worker, error)
            return
        _log.info("%s joined (%s, %s)", device.name, device.key, device.target)
        self._leases.join(worker, device, self._clock())

    def remove_worker(self, scheduler: Scheduler, worker: str, **_: object) -> None:
        """Called by Dask: a device is gone."""
        self._leases.leave(worker, self._clock())

    def remove_client(self, scheduler: Scheduler, client: str) -> None:
        """Called by Dask: a client is gone."""
        self._leases.forget(client, self._clock())

    def _tell(self, lease: Lease, begins: bool) -> None:
        assert self._scheduler is not None, "leases are given by a scheduler that runs"
        stream = self._scheduler.stream_comms.get(lease.address)
        if stream is not None:
            with suppress(OSError):  # it is going; then all its leases end anyway
                stream.send({"op": OPERATION, "lease": lease.id, "begins": begins})

    # --- clients --------------------------------------------------------------------------------------------------

    def answer(self, comm: Comm, message: str) -> str:
        """Answer a client: both are JSON. A certificate says who the user is; else the client does."""
        try:
            asked = fields.mapping(json.loads(message))
            user = _certified(comm) or fields.text(asked["user"])
            match asked["verb"]:
                case "poll":
                    answer = self._poll(asked, user)
                case "return":
                    self._return(asked)
                    answer = {}
                case "status":
                    answer = self._status()
                case verb:
                    raise ValueError(f"unknown verb {verb!r:.40}")
        except (KeyError, TypeError, ValueError, TilewrightError) as error:
            answer = {"error": f"the scheduler was asked for what it does not know: {error!r:.200}"}
        return json.dumps(answer)

    def _poll(self, asked: Mapping[str, object], user: str) -> dict[str, object]:
        """All that a client wants to know now and then: what was granted, what has ended, what others wait for."""
        now, client = self._clock(), fields.text(asked["client"])
        granted: dict[str, object] = {}
        for item in map(fields.mapping, fields.items(asked["requests"])):
            request = _request(item, client, user)
            lease = self._leases.request(request, now)
            if lease is not None:
                granted[request.id] = _described(lease, now)
        ended: dict[str, str] = {}
        wanted: list[str] = []
        for item in map(fields.mapping, fields.items(asked["leases"])):
            lease_id = fields.text(item["lease"])
            ending = self._leases.keep(lease_id, fields.whole(item["finished"]))
            if ending is not None:
                ended[lease_id] = ending.value
            elif self._leases.is_wanted(lease_id, now):
                wanted.append(lease_id)
        devices = len(self._leases.matching(fields.text(asked["key"])))
        return {"granted": granted, "devices": devices, "ended": ended, "wanted": wanted}

    def _return(self, asked: Mapping[str, object]) -> None:
        now = self._clock()
        for request in fields.items(asked["requests"]):
            self._leases.withdraw(fields.text(request))
        for lease in fields.items(asked["leases"]):
            self._leases.give_back(fields.text(lease), now, failed=asked["failed"] is True)

    def _status(self) -> dict[str, object]:
        now = self._clock()
        return {
            "devices": [self._member(address, now) for address in self._leases.members],
            "queue": [
                {"key": q.key, "user": q.user, "priority": q.priority, "seconds": q.seconds}
                for q in self._leases.queue(now)
            ],
            "most_seconds": self._leases.most_seconds,
        }

    def _member(self, address: str, now: float) -> dict[str, object]:
        assert self._scheduler is not None, "a scheduler that runs is asked"
        member = self._leases.members[address]
        health, lease = self._leases.health[member.device.name], member.lease
        seen = time.time() - self._scheduler.workers[address].last_seen
        return {
            "device": member.device.message(),
            "user": None if lease is None else lease.request.user,
            "seconds_left": None if lease is None else lease.end - now,
            "suspect_seconds": max(0.0, health.suspect_until - now) if health.suspect_until > now else None,
            "finished": health.finished,
            "lost": health.lost,
            "seen_seconds": max(0.0, seen),
        }


def _request(item: Mapping[str, object], client: str, user: str) -> Request:
    seconds = fields.optional(item["seconds"])
    wanted = float("inf") if seconds is None else max(0.0, seconds)
    key, priority = fields.text(item["key"]), fields.whole(item["priority"])
    return Request(fields.text(item["request"]), client, user, key, priority, wanted)


def _described(lease: Lease, now: float) -> dict[str, object]:
    device = lease.device.message()
    return {"lease": lease.id, "address": lease.address, "device": device, "seconds": lease.end - now}


def _certified(comm: Comm) -> str | None:
    """The name in the certificate of whoever asks; None without encryption."""
    certificate = comm.extra_info.get("peercert")
    names = (
        [value for part in certificate["subject"] for kind, value in part if kind == "commonName"]
        if certificate
        else []
    )
    return names[0] if names else None


async def serve(access: Access, most_seconds: float, ready: Callable[[str], None]) -> None:
    """Serve until cancelled; ``ready`` gets the address. Raises ``FleetError`` if nothing can listen there,
    ``FleetAuthError`` as ``Access.security`` does."""
    address, plugin = access.address, FleetPlugin(most_seconds)
    with dask.config.set(SETTINGS):
        try:
            made = Scheduler(
                host=address.host,
                port=address.port,
                protocol="tls" if address.is_encrypted else "tcp",
                security=access.security(),
                dashboard=False,
                dashboard_address=NO_PAGE,
                plugins=[plugin],
            )
            async with made as scheduler:
                ready(scheduler.address)
                await scheduler.finished()
        except OSError as error:
            raise FleetError(f"no scheduler can listen on {address}: {reason(error)}") from error
