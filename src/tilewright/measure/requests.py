"""``Request``: a job that is to be measured, or only built, as the user's process sends it to whoever runs it."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from math import inf

from tilewright.base import fields
from tilewright.measure.job import Job, read_forms, read_timing
from tilewright.measure.messages import BadMessageError


@dataclass(frozen=True, slots=True)
class Request:
    """A job, and the time limits of checking and of timing it, in seconds.

    ``only_build``: it is to be built, and kept for another child that measures it. ``best_us``: the least that a
    candidate for the same workload has taken; 0 if that is not known.
    """

    number: int
    job: Job
    run_seconds: float
    only_build: bool = False
    best_us: float = 0.0

    @property
    def hopeless_us(self) -> float:
        """Who takes longer is timed once; infinity if nobody is."""
        return self.job.timing.hopeless * self.best_us or inf

    def message(self) -> dict[str, object]:
        """The request as JSON."""
        return asdict(self)

    @staticmethod
    def read(message: Mapping[str, object]) -> "Request":
        """The request from JSON. Raises ``BadMessageError``."""
        try:
            job = fields.mapping(message["job"])
            read = Job(
                fields.text(job["program"]),
                fields.text(job["trace"]),
                fields.text(job["target"]),
                fields.whole(job["threads"]),
                fields.whole(job["seed"]),
                read_timing(job["timing"]),
                fields.text(job["scheduled"]),
                read_forms(fields.items(job["intrinsics"])),
            )
            only_build = message["only_build"] is True
            seconds, best_us = fields.number(message["run_seconds"]), fields.number(message["best_us"])
            return Request(fields.whole(message["number"]), read, seconds, only_build, best_us)
        except (KeyError, TypeError, ValueError) as error:
            raise BadMessageError(f"not a request: {error!r}") from error
