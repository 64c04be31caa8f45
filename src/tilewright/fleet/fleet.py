"""``Fleet``: a client's view. It asks for devices, uses them, and gives them back.

with Fleet.connect(access) as fleet, fleet.request("rpi4", timeout=60) as board:
    outcome = board.measure(job)
"""

import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from types import TracebackType

from tilewright.base import errors, fields
from tilewright.base.errors import BadInput, FleetError, MeasureError, TilewrightError
from tilewright.base.names import shown
from tilewright.fleet.access import Access
from tilewright.fleet.connection import Connection, DisconnectedError, Reply, Task
from tilewright.fleet.device import Verb
from tilewright.fleet.inventory import Inventory
from tilewright.fleet.leases import Ending
from tilewright.fleet.ways import limits_for
from tilewright.measure.job import Job
from tilewright.measure.limits import Limits
from tilewright.measure.messages import read_outcome
from tilewright.measure.requests import Request
from tilewright.measure.verdicts import Outcome, Phase
from tilewright.target.target import Target

PATIENCE = 60.0
"""Seconds for which a client waits for a scheduler, or for a first device of a key, that is gone."""
CHUNK = 4 << 20
"""Bytes of an upload that are sent at once."""
_POLL_SECONDS = 0.25
_FIRST_POLL_SECONDS = 0.02
_SLACK_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class Grant:
    """A lease, as the client has it."""

    lease: str
    address: str
    device: Inventory
    seconds: float

    @staticmethod
    def read(message: object) -> "Grant":
        """From JSON. Raises ``KeyError``, ``TypeError`` if it is malformed."""
        found = fields.mapping(message)
        lease, address = fields.text(found["lease"]), fields.text(found["address"])
        return Grant(lease, address, Inventory.read(found["device"]), fields.number(found["seconds"]))


@dataclass(frozen=True, slots=True)
class Wanted:
    """A request that waits."""

    key: str
    priority: int = 0
    seconds: float | None = None

    def message(self, name: str) -> dict[str, object]:
        """As JSON."""
        return {"request": name, "key": self.key, "priority": self.priority, "seconds": self.seconds}


@dataclass(frozen=True, slots=True)
class Answer:
    """What the scheduler says now and then: leases that were granted, by request; the number of devices; leases that
    have ended, and those for whose device others wait."""

    granted: Mapping[str, Grant]
    devices: int
    ended: Mapping[str, Ending]
    wanted: frozenset[str]

    @staticmethod
    def read(message: Mapping[str, object]) -> "Answer":
        """From JSON. Raises ``KeyError``, ``TypeError``, ``ValueError`` if it is malformed."""
        return Answer(
            {name: Grant.read(found) for name, found in fields.mapping(message["granted"]).items()},
            fields.whole(message["devices"]),
            {name: Ending(ending) for name, ending in fields.mapping(message["ended"]).items()},
            frozenset(map(fields.text, fields.items(message["wanted"]))),
        )


class Fleet:
    """A fleet's client. For one thread."""

    def __init__(self, access: Access, patience: float = PATIENCE) -> None:
        """Use ``connect``."""
        self._access = access
        self._patience = patience
        self._connection = Connection(access)
        self._uploaded: dict[str, set[str]] = {}
        """Hashes, by the name of a device: what it has had lately."""

    @staticmethod
    def connect(access: Access, patience: float = PATIENCE) -> "Fleet":
        """Connect to a scheduler. ``patience``: seconds that a lost one is waited for.

        Raises ``FleetError`` if none answers, ``FleetAuthError`` if it refuses the certificate, or there is none.
        """
        return Fleet(access, patience)

    def __enter__(self) -> "Fleet":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Disconnect; what is leased is given back."""
        self._connection.close()

    # --- devices --------------------------------------------------------------------------------------------------

    def status(self) -> dict[str, object]:
        """Devices and the queue, as the scheduler says them. Raises ``FleetError``."""
        try:
            return self._connection.ask("status", {})
        except DisconnectedError as error:
            raise self._gone(error) from error

    def devices(self, key: str | None = None) -> list[Inventory]:
        """The devices that ``key`` means; by default all. Raises ``FleetError`` if it means none."""
        members = [fields.mapping(member) for member in fields.items(self.status()["devices"])]
        known = [Inventory.read(member["device"]) for member in members]
        found = [device for device in known if key is None or device.answers_to(key)]
        if not found and key is not None:
            raise FleetError(f"no device is called {shown(key)}, by name or key; there are: {_listed(known)}")
        return found

    def target(self, key: str) -> Target:
        """What code is made for. Raises ``BadInput`` if the devices of ``key`` differ, ``FleetError`` if there are
        none."""
        return Target.parse(self._kind(key).target)

    def simulated(self, key: str) -> str:
        """Whose cycles the devices of ``key`` tell in place of times; empty if they tell times. Raises as ``target``
        does."""
        return self._kind(key).simulated

    def facts(self, key: str) -> str:
        """What times of the devices of ``key`` depend on beside their target; empty if they tell cycles. Raises
        ``FleetError`` if there are none."""
        return " / ".join(sorted({device.facts for device in self.devices(key)}))

    def _kind(self, key: str) -> Inventory:
        """One device of ``key``, like which all are."""
        found = self.devices(key)
        if len({device.target for device in found}) != 1:
            raise BadInput(f"devices called {shown(key)} have different targets: name one of {_listed(found)}")
        if len({device.simulated for device in found}) != 1:
            raise BadInput(f"some devices called {shown(key)} are emulated: name one of {_listed(found)}")
        return found[0]

    def cores(self, key: str) -> int:
        """The fewest processors of a device of ``key``. Raises ``FleetError`` if there are none."""
        return min(device.cores for device in self.devices(key))

    def request(
        self, key: str, *, priority: int = 0, seconds: float | None = None, timeout: float | None = None
    ) -> "Leased":
        """Lease a device: waits until one is free. A context manager, which gives it back.

        ``key``: a name, or the key of several devices; ``priority``: more goes first; ``seconds``: the longest that it
        is wanted, of which the server may grant less. Raises ``FleetError`` if there is no such device, or none was
        free within ``timeout`` seconds.
        """
        self.devices(key)
        name, wanted = uuid.uuid4().hex, Wanted(key, priority, seconds)
        end = time.monotonic() + (float("inf") if timeout is None else timeout)
        pause = _FIRST_POLL_SECONDS
        while True:
            try:
                granted = self.poll({name: wanted}, {}, key).granted.get(name)
            except DisconnectedError as error:
                self.reconnect(error)
                continue
            if granted is not None:
                return Leased(self, granted)
            if time.monotonic() > end:
                self.give_back([name], [])
                raise FleetError(
                    f"no device called {key} was free within {timeout:g} seconds; see tilewright fleet status"
                )
            time.sleep(pause)
            pause = min(2 * pause, _POLL_SECONDS)

    # --- for ``Leased`` and ``FleetRunner`` -----------------------------------------------------------------------

    @property
    def patience(self) -> float:
        """Seconds that what is gone is waited for."""
        return self._patience

    def poll(self, requests: Mapping[str, Wanted], leases: Mapping[str, int], key: str) -> Answer:
        """Ask for requests and leases, these with the number of jobs finished since; and for the number of devices of
        ``key``. Raises ``DisconnectedError``."""
        asked = {
            "key": key,
            "requests": [wanted.message(name) for name, wanted in requests.items()],
            "leases": [{"lease": lease, "finished": finished} for lease, finished in leases.items()],
        }
        return Answer.read(self._connection.ask("poll", asked))

    def give_back(self, requests: Sequence[str], leases: Sequence[str], *, failed: bool = False) -> None:
        """Withdraw requests and end leases. ``failed``: their device did not answer in time."""
        asked = {"requests": list(requests), "leases": list(leases), "failed": failed}
        try:
            self._connection.ask("return", asked)
        except DisconnectedError:
            return  # then they have ended anyway

    def submit(self, grant: Grant, message: Mapping[str, object], parts: Sequence[bytes] = ()) -> Task:
        """Start a task on a leased device. Raises ``DisconnectedError``."""
        return self._connection.submit(grant.address, grant.lease, message, parts)

    def uploads(self, device: Inventory, keys: Sequence[str]) -> list[str]:
        """Those of ``keys`` that the device has not had from this client; they count as sent from now on."""
        known = self._uploaded.setdefault(device.name, set())
        new = [key for key in dict.fromkeys(keys) if key not in known]
        known.update(new)
        return new

    def forget_uploads(self, device: Inventory, keys: Sequence[str]) -> None:
        """The device says that it has them not."""
        self._uploaded.setdefault(device.name, set()).difference_update(keys)

    def reconnect(self, cause: Exception) -> None:
        """Connect anew: all leases are gone. Raises ``FleetError`` if there is no scheduler for ``patience``
        seconds."""
        self._connection.close()
        end = time.monotonic() + self._patience
        while True:
            try:
                if not self._access.refuses():
                    self._connection = Connection(self._access)
                    return
            except FleetError as error:
                cause = error
            if time.monotonic() > end:
                raise self._gone(cause) from cause
            time.sleep(_POLL_SECONDS)

    def _gone(self, cause: Exception) -> FleetError:
        return FleetError(f"the fleet at {self._access.address} is gone: {cause}")


class Leased:
    """A device that is leased. What is asked of it raises ``FleetError`` after the lease has ended."""

    def __init__(self, fleet: Fleet, grant: Grant) -> None:
        """Use ``Fleet.request``."""
        self._fleet = fleet
        self._grant = grant

    @property
    def device(self) -> Inventory:
        """What it is."""
        return self._grant.device

    @property
    def seconds(self) -> float:
        """How long the lease was granted for."""
        return self._grant.seconds

    def __enter__(self) -> "Leased":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Give it back."""
        self._fleet.give_back([], [self._grant.lease])

    def upload(self, content: bytes) -> str:
        """Send bytes, unless the device has had them; returns their hash."""
        key = sha256(content).hexdigest()
        if self._fleet.uploads(self.device, [key]):
            self.upload_again(key, content)
        return key

    def upload_again(self, key: str, content: bytes) -> None:
        """Send bytes, whose hash is ``key``."""
        self._fleet.uploads(self.device, [key])
        for message, parts in upload_messages(key, content):
            self._call(message, parts, _SLACK_SECONDS)

    def measure(self, job: Job, limits: Limits | None = None) -> Outcome:
        """The outcome of a job. ``limits``: those of the device, by which it is waited for (default: the usual ones of
        its kind). Raises ``MeasureError`` if
        its workload can't be measured there."""
        message, program = measure_message(job, uuid.uuid4().hex)
        answer, _ = self.call(message, {program: job.program.encode()}, most_seconds(limits or limits_for(self.device)))
        return read_outcome(fields.mapping(answer["outcome"]))

    def call(self, message: Mapping[str, object], contents: Mapping[str, bytes], seconds: float) -> Reply:
        """Let it do something that needs ``contents``, by hash. ``seconds``: how long it may take."""
        for key, content in contents.items():
            if self._fleet.uploads(self.device, [key]):
                self.upload_again(key, content)
        answer, parts = self._call(message, (), seconds)
        if "missing" in answer:  # it has been restarted, or has dropped what was not used for long
            for key in map(fields.text, fields.items(answer["missing"])):
                self.upload_again(key, contents[key])
            answer, parts = self._call(message, (), seconds)
        if "missing" in answer:
            raise FleetError(f"{self.device.name} does not keep what it is sent")
        return answer, parts

    def _call(self, message: Mapping[str, object], parts: Sequence[bytes], seconds: float) -> Reply:
        try:
            task = self._fleet.submit(self._grant, message, parts)
            reply = self._await(task, time.monotonic() + seconds)
        except DisconnectedError as error:
            self._fleet.reconnect(error)
            raise FleetError(f"the scheduler was gone, and the lease of {self.device.name} with it") from error
        if reply is None or "ended" in reply[0]:
            raise FleetError(f"the lease of {self.device.name} has ended")
        raise_error(reply[0])
        return reply

    def _await(self, task: Task, end: float) -> Reply | None:
        pause = _FIRST_POLL_SECONDS / 10
        checked = time.monotonic()
        while not task.is_done():
            time.sleep(pause)
            pause = min(2 * pause, _FIRST_POLL_SECONDS)
            if time.monotonic() - checked > _POLL_SECONDS:
                checked = time.monotonic()
                ending = self._fleet.poll({}, {self._grant.lease: 0}, self.device.name).ended.get(self._grant.lease)
                if ending is not None and not task.is_done():
                    task.cancel()
                    raise FleetError(f"the lease of {self.device.name} has ended: {ending.value}")
            if time.monotonic() > end:
                task.cancel()
                self._fleet.give_back([], [self._grant.lease], failed=True)
                raise FleetError(f"{self.device.name} did not answer in time")
        return task.reply()


def upload_messages(key: str, content: bytes) -> list[tuple[dict[str, object], tuple[bytes, ...]]]:
    """The messages that send bytes."""
    starts = range(0, max(1, len(content)), CHUNK)
    return [
        (
            {"verb": Verb.UPLOAD.value, "hash": key, "last": start + CHUNK >= len(content)},
            (content[start : start + CHUNK],),
        )
        for start in starts
    ]


def measure_message(job: Job, token: str) -> tuple[dict[str, object], str]:
    """The message that has a job measured, and the hash of its program. The same ``token`` gets the same outcome."""
    request = Request(0, job, 0.0).message()
    key = sha256(job.program.encode()).hexdigest()
    described = {**fields.mapping(request["job"]), "program": ""}
    return {"verb": Verb.MEASURE.value, "token": token, "program": key, "request": {**request, "job": described}}, key


def most_seconds(limits: Limits) -> float:
    """The longest that a device with these limits measures a job, twice, as faults are repeated."""
    phases = sum(limits.seconds(phase, limits.run_seconds) for phase in Phase)
    return 2 * (limits.start_seconds + phases) + _SLACK_SECONDS


def raise_error(answer: Mapping[str, object]) -> None:
    """Raise what the device has raised, if it has."""
    if "error" in answer:
        kind = getattr(errors, fields.text(answer["kind"]), MeasureError)
        is_known = isinstance(kind, type) and issubclass(kind, TilewrightError)
        text = fields.text(answer["error"])
        try:
            error = kind(text) if is_known else MeasureError(text)
        except TypeError:  # a kind that has more than a text
            error = MeasureError(text)
        raise error


def _listed(devices: Sequence[Inventory]) -> str:
    return ", ".join(f"{device.name} ({device.key})" for device in devices) or "none"
