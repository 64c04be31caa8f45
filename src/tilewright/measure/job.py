"""A measurement that is wanted: a naive program, a schedule for it, and how to run it.

Everything is text and numbers, so that a job can be sent, kept and hashed. Two jobs with the same ``id`` are the same
measurement.
"""

import hashlib
import json
from dataclasses import asdict, dataclass, field

from tilewright.base.errors import CorruptRecord
from tilewright.base.target import Target

IR_VERSION = 1
"""Of the notation of loop programs. A workload of another version is another workload."""


@dataclass(frozen=True, slots=True)
class Timing:
    """How a candidate is timed: ``repeats`` times, each a mean over as many runs as take ``least_seconds``."""

    repeats: int = 10
    least_seconds: float = 0.01


@dataclass(frozen=True, slots=True)
class Job:
    """``program``: text of a naive loop program with fixed extents; ``trace``: JSON of the schedule (``Trace``);
    ``target``: text of a ``Target``; ``seed``: of the inputs.
    """

    program: str
    trace: str
    target: str
    threads: int = 1
    seed: int = 0
    timing: Timing = field(default_factory=Timing)

    @property
    def workload(self) -> str:
        """Hash of what is computed."""
        return workload_hash(self.program)

    @property
    def id(self) -> str:
        """Hash of everything that decides about the measurement."""
        schedule = json.dumps(_parsed(self.trace), sort_keys=True, separators=(",", ":"))
        config = json.dumps([self.threads, self.seed, asdict(self.timing)], sort_keys=True)
        return _hash("\0".join(("job", self.workload, schedule, target_fingerprint(self.target), config)))


def workload_hash(program: str, version: int = IR_VERSION) -> str:
    """The key of a program: of its text, so that equal programs must be printed alike."""
    return _hash(f"workload {version}\0{program}")


def target_fingerprint(target: str) -> str:
    """The key of a processor. Raises ``ParseError`` if ``target`` is none."""
    return _hash(target_json(target))


def target_json(target: str) -> str:
    """All facts of a target, in one form."""
    facts = asdict(Target.parse(target))
    return json.dumps({**facts, "arch": facts["arch"].value}, sort_keys=True)


def _parsed(trace: str) -> object:
    try:
        return json.loads(trace)
    except (ValueError, RecursionError) as error:
        raise CorruptRecord(f"a schedule must be JSON: {error}") from error


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
