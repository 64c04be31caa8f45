"""Records as rows of the database, with validation of everything that is read."""

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
"""Maximum characters of a program. Schedules are shorter."""
MAX_STEPS = 10_000
"""Maximum steps of a schedule: replay must end."""
_MAX_TIMES = 10_000


class State(Enum):
    """The use of a record. ``compile`` uses only confirmed schedules, and compared times."""

    SEARCHED = "searched"
    """Measured quickly, during a search."""
    REPEATED = "repeated"
    """Measured carefully, as a candidate for one of the next two states; or withdrawn from them."""
    CONFIRMED = "confirmed"
    """The whole model was faster with this schedule: ``compile`` uses it."""
    COMPARED = "compared"
    """A kernel as the compiler schedules it: ``compile`` compares algorithms of a node by these times."""


@dataclass(frozen=True, slots=True)
class Record:
    """A job, its outcome, and its state."""

    job: Job
    outcome: Outcome
    state: State = State.SEARCHED


@dataclass(frozen=True, slots=True)
class Row:
    """The columns of a record; all except plain texts are JSON. ``environment``: observations during timing."""

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
        """The row of a record."""
        config: dict[str, object] = {"threads": job.threads, "seed": job.seed, "timing": job.timing.described()}
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
        """The record of the row. Raises ``CorruptRecord`` if a column is malformed or out of range."""
        try:
            self.program.encode()  # a ValueError for a text that can't be encoded
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
