"""The result of measuring a candidate: a verdict, and its times or the reason of the failure."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from statistics import median

from tilewright.base import fields

MAX_DETAIL = 2000
"""Characters of an error text that are kept."""


class Verdict(Enum):
    """Every candidate gets exactly one. The values are those of the database and of messages."""

    OK = "ok"
    """Right results, and a time."""
    WRONG = "wrong"
    """Results that differ from the reference, inputs that it altered, memory that it wrote beside its outputs; or a
    time that can't be."""
    CRASH = "crash"
    """Ended by a signal of its own making."""
    TIMEOUT = "timeout"
    """Not done in the time it had; the parent measures that."""
    OOM = "oom"
    """More memory than it may have."""
    BUILD_ERROR = "build_error"
    """Refused by the parser, a schedule primitive, the verifier or the code generator."""
    DEVICE_LOST = "device_lost"
    """Whoever was measuring is gone; says nothing of the candidate."""
    PROTOCOL = "protocol"
    """Broke the contract: garbage in place of a message, an end without one, or processes left behind."""


FAULTS = frozenset({Verdict.WRONG, Verdict.CRASH, Verdict.TIMEOUT, Verdict.OOM, Verdict.PROTOCOL})
"""After these, the process that measured is not used again."""


class Phase(Enum):
    """What a child does with a candidate, in this order. Each phase has a clock of its own."""

    PREPARE = "prepare"
    """Inputs and the reference; the candidate is not yet involved."""
    BUILD = "build"
    CHECK = "check"
    TIME = "time"


@dataclass(frozen=True, slots=True)
class Outcome:
    """The verdict on one candidate.

    ``times_us``: microseconds of one run, for each repeat; ``baseline_us``: of the baseline kernel, beside them;
    ``drift``: by how much of itself the baseline changed meanwhile. ``seconds``: what each phase took, and ``queue``,
    the wait before. ``phase``: where it ended, if it did not end well.
    """

    verdict: Verdict
    detail: str = ""
    phase: Phase | None = None
    times_us: tuple[float, ...] = ()
    baseline_us: float | None = None
    drift: float | None = None
    seconds: Mapping[str, float] = field(default_factory=dict[str, float])
    machine: Mapping[str, float] = field(default_factory=dict[str, float])
    """What was read of the machine beside the times: load, frequency, temperature."""
    predicted: float | None = None
    """What whoever wanted the measurement had thought of the candidate: more is faster, in no unit."""

    @property
    def median_us(self) -> float | None:
        """The time that counts; None unless the verdict is OK."""
        return median(self.times_us) if self.verdict is Verdict.OK else None

    @property
    def mad_us(self) -> float | None:
        """Median absolute deviation of the times from their median."""
        middle = self.median_us
        return None if middle is None else median(abs(time - middle) for time in self.times_us)

    def around(self) -> dict[str, object]:
        """What was found beside the verdict, its text and the times, as JSON has it."""
        return {
            "phase": None if self.phase is None else self.phase.value,
            "baseline_us": self.baseline_us,
            "drift": self.drift,
            "seconds": dict(self.seconds),
            "machine": dict(self.machine),
            "predicted": self.predicted,
        }

    @staticmethod
    def read(verdict: object, detail: object, times: object, around: Mapping[str, object]) -> "Outcome":
        """What somebody else wrote. Raises ``KeyError``, ``TypeError`` or ``ValueError`` if that can't be."""
        phase = around["phase"]
        outcome = Outcome(
            Verdict(verdict),
            fields.text(detail),
            None if phase is None else Phase(phase),
            tuple(map(fields.number, fields.items(times))),
            fields.optional(around["baseline_us"]),
            fields.optional(around["drift"]),
            fields.numbers(around["seconds"]),
            fields.numbers(around["machine"]),
            fields.optional(around["predicted"]),
        )
        found = outcome.times_us
        if bool(found) != (outcome.verdict is Verdict.OK) or not all(map(is_time, found)):
            raise ValueError(f"the verdict {outcome.verdict.value} can't go with the times {list(found[:3])}")
        return outcome


def is_time(value: float) -> bool:
    """Whether ``value`` can be the microseconds of a run: a clock tells neither 1e-300 nor a month."""
    return math.isfinite(value) and 1e-4 <= value <= 1e12
