"""The devices of a fleet, as its scheduler says them: asked every few seconds by a thread, shown on the page."""

import threading
from collections.abc import Mapping
from contextlib import suppress
from typing import Final

from tilewright.base import fields
from tilewright.base.errors import FleetError
from tilewright.fleet.access import Access
from tilewright.fleet.fleet import Fleet
from tilewright.service.surroundings import Device, Devices

_PATIENCE_SECONDS: Final = 1.0
_GOODBYE_SECONDS: Final = 5.0


class FleetWatch:
    """A context manager: the thread asks within the block."""

    def __init__(self, access: Access, seconds: float = 2.0) -> None:
        """``seconds``: between two questions."""
        self._access, self._seconds = access, seconds
        self._stopped = threading.Event()
        self._devices = Devices(fault="the fleet was not asked yet")
        self._thread = threading.Thread(target=self._run, name="fleet", daemon=True)

    def __enter__(self) -> "FleetWatch":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._thread.join(_GOODBYE_SECONDS)

    def devices(self) -> Devices:
        """What was said last."""
        return self._devices

    def _run(self) -> None:
        while not self._stopped.is_set():
            try:
                with Fleet.connect(self._access, _PATIENCE_SECONDS) as fleet:
                    self._ask(fleet)
            except FleetError as error:
                self._devices = Devices(fault=str(error))
            self._stopped.wait(self._seconds)

    def _ask(self, fleet: Fleet) -> None:
        while not self._stopped.is_set():
            self._devices = _read(fleet.status())
            self._stopped.wait(self._seconds)


def _read(status: Mapping[str, object]) -> Devices:
    members = [fields.mapping(member) for member in fields.items(status["devices"])]
    queue = [fields.mapping(waiting) for waiting in fields.items(status["queue"])]
    return Devices(
        tuple(_device(member) for member in members),
        tuple(f"{waiting['user']} waits for {waiting['key']}" for waiting in queue),
    )


def _device(member: Mapping[str, object]) -> Device:
    said = fields.mapping(member["device"])
    celsius: float | None = None
    with suppress(KeyError):
        celsius = fields.number(fields.mapping(said["machine"])["celsius"])
    state = "free" if member["suspect_seconds"] is None else "suspect"
    kind = " (simulated)" if said.get("simulated") else ""
    return Device(
        fields.text(said["name"]),
        fields.text(said["key"]),
        (state if member["user"] is None else f"leased by {member['user']}") + kind,
        fields.text(said["target"]),
        fields.whole(said["cores"]),
        fields.whole(said["memory_bytes"]),
        celsius,
        fields.whole(member["finished"]),
        fields.whole(member["lost"]),
    )
