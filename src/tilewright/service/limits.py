"""Limits of the service: of one request, of one job, and of all jobs of a token."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from tilewright.base import fields
from tilewright.base.errors import ResourceLimit, TilewrightError

_MIB = 1 << 20
_DAY = 86_400.0


class QuotaExceeded(ResourceLimit):
    """A token has as many jobs as it may have."""


class TooLarge(ResourceLimit):
    """The body of a request is larger than allowed."""


class StoreFull(ResourceLimit):
    """The file system of the store is almost full."""


class Unavailable(TilewrightError):
    """The database or the store of objects does not answer now. Nothing is lost; to be tried again."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What a request and a job may take; bytes and seconds. Each job has a child process of its own."""

    body_bytes: int = 512 * _MIB
    """A model, or a zip with a model and its weights."""
    unpacked_bytes: int = 2048 * _MIB
    """All files of a zip."""
    body_seconds: float = 600.0
    """Until a model has arrived."""
    uploads: int = 8
    """Models that arrive at the same time."""
    streams: int = 64
    """Streams of events at the same time."""
    memory_bytes: int = 4096 * _MIB
    """Address space of a child beyond that at its start."""
    seconds: float = 600.0
    """From the start of a child to its end."""
    output_bytes: int = 2048 * _MIB
    """Each file that a child writes."""
    attempts: int = 5
    """Workers that may die of a job."""
    lease_seconds: float = 15.0
    """A worker that says nothing for so long has died."""
    free_bytes: int = 256 * _MIB
    """What stays free in the file system of the store."""

    @staticmethod
    def read(plain: Mapping[str, object]) -> "Limits":
        """The limits of ``dataclasses.asdict``."""
        return replace(Limits(), **{name: fields.number(value) for name, value in plain.items()})


@dataclass(frozen=True, slots=True)
class Quota:
    """What a token may submit. ``waiting``: jobs that have not ended; ``day``: jobs within 24 hours."""

    waiting: int = 100
    day: int = 1000

    def check(self, owner: str, waiting: int, today: int) -> None:
        """Raises ``QuotaExceeded`` if one more is too many."""
        if waiting >= self.waiting:
            raise QuotaExceeded(f"{owner} has {waiting} jobs that have not ended, and may have {self.waiting}: wait")
        if today >= self.day:
            raise QuotaExceeded(f"{owner} submitted {today} jobs within a day, and may submit {self.day}: wait")

    @staticmethod
    def since(now: float) -> float:
        """The time from which jobs count as those of a day."""
        return now - _DAY
