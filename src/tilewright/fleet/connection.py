"""A client's connection to a scheduler: questions about leases, and tasks on leased devices."""

import asyncio
import getpass
import json
import platform
import uuid
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import CancelledError
from contextlib import suppress
from dataclasses import dataclass

from distributed import Client, Future
from distributed.scheduler import KilledWorker

from tilewright.base import fields
from tilewright.base.errors import FleetAuthError, FleetError
from tilewright.fleet.access import Access
from tilewright.fleet.device import Parts, perform
from tilewright.fleet.scheduler import OPERATION

CONNECT_SECONDS = 10.0
Reply = tuple[dict[str, object], Parts]


class DisconnectedError(Exception):
    """The scheduler is gone, and with it all leases and tasks."""


@dataclass(frozen=True, slots=True)
class Task:
    """A task on a device."""

    future: "Future[tuple[str, Parts]]"

    def on_done(self, call: Callable[[], None]) -> None:
        """``call`` is called, from another thread, when the task is over in any way."""
        self.future.add_done_callback(lambda _: call())

    def is_done(self) -> bool:
        """Whether it is over."""
        return self.future.done()

    def reply(self) -> Reply | None:
        """What the device has answered; None if Dask has lost the task. Raises ``DisconnectedError``."""
        try:
            message, parts = self.future.result(CONNECT_SECONDS)
        except (KilledWorker, CancelledError, TimeoutError):
            return None
        except OSError as error:
            raise DisconnectedError(str(error)) from error
        return fields.mapping(json.loads(message)), parts

    def cancel(self) -> None:
        """It is not wanted any more."""
        with suppress(OSError, CancelledError):
            self.future.cancel()


class Connection:
    """One connection; after it is lost, one makes another. For one thread."""

    def __init__(self, access: Access) -> None:
        """Raises ``FleetError`` if no scheduler answers, ``FleetAuthError`` if it refuses the certificate."""
        security = access.security()
        try:
            self._client = Client(
                str(access.address), security=security, timeout=CONNECT_SECONDS, set_as_default=False, name="tilewright"
            )
        except (OSError, TimeoutError) as error:
            raise _refused(access, error) from error

    def close(self) -> None:
        """End it; the scheduler ends its leases."""
        with suppress(OSError, TimeoutError, CancelledError):
            self._client.close(1.0)

    def ask(self, verb: str, asked: Mapping[str, object]) -> dict[str, object]:
        """The scheduler's answer. Raises ``DisconnectedError``, or ``FleetError`` if there is no fleet."""
        if self._client.status != "running":  # Dask tries again by itself, ever more rarely
            raise DisconnectedError("the connection to the scheduler broke")
        user = f"{getpass.getuser()}@{platform.node()}"
        message = json.dumps({**asked, "verb": verb, "client": self._client.id, "user": user})
        try:
            text = self._client.sync(self._ask, message)
        except (OSError, TimeoutError, CancelledError) as error:
            raise DisconnectedError(str(error)) from error
        if not isinstance(text, str):
            raise FleetError("the scheduler at this address is one of Dask, and not of tilewright fleet serve")
        answer = fields.mapping(json.loads(text))
        if "error" in answer:
            raise FleetError(fields.text(answer["error"]))
        return answer

    async def _ask(self, message: str) -> object:
        asking = getattr(self._client.scheduler, OPERATION)(message=message)
        return await asyncio.wait_for(asking, CONNECT_SECONDS)

    def submit(self, address: str, lease: str, message: Mapping[str, object], parts: Sequence[bytes] = ()) -> Task:
        """Let the leased device at ``address`` do something. Raises ``DisconnectedError``."""
        arguments = (lease, json.dumps(message), tuple(parts))
        key = f"tilewright-{uuid.uuid4().hex}"
        try:
            return Task(self._client.submit(perform, *arguments, key=key, workers=[address], pure=False))
        except (OSError, RuntimeError) as error:  # RuntimeError: Dask's, of a client that has ended
            raise DisconnectedError(str(error)) from error


def _refused(access: Access, error: Exception) -> FleetError | FleetAuthError:
    causes: list[BaseException] = [error]
    while (cause := causes[-1].__cause__ or causes[-1].__context__) is not None and len(causes) < 10:
        causes.append(cause)
    told = " ".join(map(str, causes))
    if access.address.is_encrypted and ("ssl" in told.lower() or "certificate" in told.lower()):
        return FleetAuthError(f"{access.address} and {access.tls} do not trust each other: {error}")
    return FleetError(
        f"no fleet answers at {access.address}: {error or 'it took too long'}; is tilewright fleet serve running there?"
    )
