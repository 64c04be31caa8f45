"""A record as text: the columns of the database, and a line of an export. Nothing that is read is trusted."""

import json
import math
from dataclasses import asdict, dataclass
from typing import cast

from tilewright.base.errors import BadInput, CorruptRecord
from tilewright.base.target import Target
from tilewright.measure.job import Job, Timing
from tilewright.measure.verdicts import MAX_DETAIL, Outcome, Phase, Verdict, is_time
from tilewright.schedule.trace import Trace

MAX_PROGRAM = 4 << 20
"""Characters of a program. Schedules are shorter."""
MAX_STEPS = 10_000
"""Steps of a schedule: replaying must end."""
_MAX_TIMES = 10_000


@dataclass(frozen=True, slots=True)
class Record:
    """A job and what became of it."""

    job: Job
    outcome: Outcome


@dataclass(frozen=True, slots=True)
class Row:
    """The texts of a record; what is no plain text is JSON. ``environment``: what was found beside the times."""

    program: str
    target: str
    schedule: str
    config: str
    status: str
    error: str
    times_us: str
    environment: str

    @staticmethod
    def of(job: Job, outcome: Outcome) -> "Row":
        """The row that says this."""
        config = {"threads": job.threads, "seed": job.seed, "timing": asdict(job.timing)}
        environment = {
            "phase": None if outcome.phase is None else outcome.phase.value,
            "baseline_us": outcome.baseline_us,
            "drift": outcome.drift,
            "seconds": dict(outcome.seconds),
            "machine": dict(outcome.machine),
        }
        return Row(
            job.program,
            job.target,
            job.trace,
            json.dumps(config, sort_keys=True),
            outcome.verdict.value,
            outcome.detail[:MAX_DETAIL],
            json.dumps(outcome.times_us),
            json.dumps(environment, sort_keys=True),
        )

    def record(self) -> Record:
        """What the row says. Raises ``CorruptRecord`` if something is malformed or out of range."""
        try:
            record = Record(self._job(), self._outcome())
        except (ValueError, TypeError, KeyError, RecursionError, BadInput) as fault:
            raise CorruptRecord(f"malformed: {fault}") from fault
        times = record.outcome.times_us
        if not all(map(is_time, times)) or bool(times) != (record.outcome.verdict is Verdict.OK):
            raise CorruptRecord(f"the verdict {self.status} can't go with the times {list(times[:3])}")
        return record

    def _job(self) -> Job:
        if len(self.program) > MAX_PROGRAM or len(self.schedule) > MAX_PROGRAM:
            raise ValueError(f"a program or schedule of more than {MAX_PROGRAM} characters")
        steps = len(Trace.from_json(self.schedule).steps)
        if steps > MAX_STEPS:
            raise ValueError(f"a schedule of {steps} steps; at most {MAX_STEPS} are replayed")
        Target.parse(self.target)
        config = _object(json.loads(self.config))
        timing = _object(config["timing"])
        return Job(
            self.program,
            self.schedule,
            self.target,
            _whole(config["threads"]),
            _whole(config["seed"]),
            Timing(_whole(timing["repeats"]), _number(timing["least_seconds"])),
        )

    def _outcome(self) -> Outcome:
        around = _object(json.loads(self.environment))
        times = cast("list[object]", json.loads(self.times_us))
        if len(times) > _MAX_TIMES:
            raise ValueError(f"{len(times)} times; at most {_MAX_TIMES} can be right")
        phase = around["phase"]
        return Outcome(
            Verdict(self.status),
            self.error,
            None if phase is None else Phase(phase),
            tuple(map(_number, times)),
            _optional(around["baseline_us"]),
            _optional(around["drift"]),
            _numbers(around["seconds"]),
            _numbers(around["machine"]),
        )


def _object(value: object) -> dict[str, object]:
    if not isinstance(value, dict):
        raise TypeError(f"expected an object, found {type(value).__name__}")
    return cast("dict[str, object]", value)


def _numbers(value: object) -> dict[str, float]:
    return {name: _number(number) for name, number in _object(value).items()}


def _number(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise TypeError(f"expected a finite number, found {value!r}")
    return value


def _whole(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"expected a whole number, found {value!r}")
    return value


def _optional(value: object) -> float | None:
    return None if value is None else _number(value)
