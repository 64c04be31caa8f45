"""A record as text: the columns of the database. Nothing that is read is trusted."""

import json
from dataclasses import asdict, dataclass
from enum import Enum

from tilewright.base import fields
from tilewright.base.errors import BadInput, CorruptRecord
from tilewright.measure.job import Job, read_forms, read_timing
from tilewright.measure.verdicts import MAX_DETAIL, Outcome
from tilewright.schedule.trace import Trace
from tilewright.target.target import Target

MAX_PROGRAM = 4 << 20
"""Characters of a program. Schedules are shorter."""
MAX_STEPS = 10_000
"""Steps of a schedule: replaying must end."""
_MAX_TIMES = 10_000


class State(Enum):
    """What a record is good for. Only a schedule that was confirmed is used, and a time that was compared."""

    SEARCHED = "searched"
    """Measured while one searched, quickly."""
    REPEATED = "repeated"
    """Measured carefully, so that it may become one of the next two; or it was one, and is no longer."""
    CONFIRMED = "confirmed"
    """The whole model was faster with this schedule: ``compile`` uses it."""
    COMPARED = "compared"
    """Of a kernel as the compiler schedules it: ``compile`` compares ways to compute a node by its time."""


@dataclass(frozen=True, slots=True)
class Record:
    """A job, what became of it, and what that is good for."""

    job: Job
    outcome: Outcome
    state: State = State.SEARCHED


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
    state: str

    @staticmethod
    def of(job: Job, outcome: Outcome, state: State = State.SEARCHED) -> "Row":
        """The row that says this."""
        config: dict[str, object] = {"threads": job.threads, "seed": job.seed, "timing": asdict(job.timing)}
        own: dict[str, object] = {
            "intrinsics": [asdict(form) for form in job.intrinsics],
            "digits": job.digits,
            "decisions": job.decisions,
        }
        config |= {name: value for name, value in own.items() if value}
        return Row(
            job.program,
            job.target,
            job.trace,
            json.dumps(config, sort_keys=True),
            outcome.verdict.value,
            outcome.detail[:MAX_DETAIL].encode(errors="replace").decode(),
            json.dumps(outcome.times_us),
            json.dumps(outcome.around(), sort_keys=True),
            state.value,
        )

    def record(self) -> Record:
        """What the row says. Raises ``CorruptRecord`` if something is malformed or out of range."""
        try:
            self.program.encode()  # a ValueError if it is no text that can be kept
            return Record(self._job(), self._outcome(), State(self.state))
        except (ValueError, TypeError, KeyError, RecursionError, BadInput) as fault:
            raise CorruptRecord(f"malformed: {fault}") from fault

    def _job(self) -> Job:
        if len(self.program) > MAX_PROGRAM or len(self.schedule) > MAX_PROGRAM:
            raise ValueError(f"a program or schedule of more than {MAX_PROGRAM} characters")
        steps = len(Trace.from_json(self.schedule).steps)
        if steps > MAX_STEPS:
            raise ValueError(f"a schedule of {steps} steps; at most {MAX_STEPS} are replayed")
        Target.parse(self.target)
        config = fields.mapping(json.loads(self.config))
        return Job(
            self.program,
            self.schedule,
            self.target,
            fields.whole(config["threads"]),
            fields.whole(config["seed"]),
            read_timing(config["timing"]),
            intrinsics=read_forms(fields.items(config.get("intrinsics", []))),
            digits=tuple(map(fields.whole, fields.items(config.get("digits", [])))),
            decisions=tuple(map(_decision, fields.items(config.get("decisions", [])))),
        )

    def _outcome(self) -> Outcome:
        times = fields.items(json.loads(self.times_us))
        if len(times) > _MAX_TIMES:
            raise ValueError(f"{len(times)} times; at most {_MAX_TIMES} can be right")
        return Outcome.read(self.status, self.error, times, fields.mapping(json.loads(self.environment)))


def _decision(pair: object) -> tuple[str, str]:
    name, value = map(fields.text, fields.items(pair))
    return name, value
