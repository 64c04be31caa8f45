"""What the page shows besides jobs: workers, the devices of a fleet, and what is in a file of tuning records."""

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tilewright.base.errors import TilewrightError
from tilewright.base.files import stamp
from tilewright.measure.records import Records


@dataclass(frozen=True, slots=True)
class Device:
    """A device of a fleet. ``state``: free, leased by somebody, or suspect."""

    name: str
    key: str
    state: str
    target: str
    cores: int
    memory_bytes: int
    celsius: float | None
    finished: int
    lost: int


@dataclass(frozen=True, slots=True)
class Devices:
    """The devices of a fleet, and who waits for them; or why nothing is known."""

    devices: tuple[Device, ...] = ()
    waiting: tuple[str, ...] = ()
    fault: str | None = None


@dataclass(frozen=True, slots=True)
class Recorded:
    """How many measurements there are, by verdict; or why nothing is known."""

    counts: Mapping[str, int] = field(default_factory=dict[str, int])
    fault: str | None = None


@dataclass(frozen=True, slots=True)
class Surroundings:
    """Asked for each view. ``devices``, ``records``: None if the service was not told of a fleet, or of records."""

    workers: Callable[[], int] = lambda: 0
    devices: Callable[[], Devices] | None = None
    records: Callable[[], Recorded] | None = None


class RecordsWatch:
    """The file of records at ``path``, read again when it has changed."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._stamps: tuple[tuple[int, ...] | None, ...] = ()
        self._known = Recorded()

    def recorded(self) -> Recorded:
        """What is in the file now."""
        with self._lock:
            stamps = tuple(_stamp(path) for path in (self._path, Path(f"{self._path}-wal")))
            if stamps != self._stamps:
                self._stamps, self._known = stamps, self._read()
            return self._known

    def _read(self) -> Recorded:
        try:
            found = Records.open_to_read(self._path)
            if found is None:
                return Recorded(fault="there are no records yet")
            with found as records:
                return Recorded({verdict.value: count for verdict, count in records.counts().items()})
        except TilewrightError as error:
            return Recorded(fault=str(error))


def _stamp(path: Path) -> tuple[int, ...] | None:
    try:
        return stamp(path.stat())
    except OSError:
        return None
