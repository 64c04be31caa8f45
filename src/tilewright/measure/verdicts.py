"""The result of measuring a candidate: a verdict, and its times or the reason of the failure."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from statistics import median

from tilewright.base import fields

MAX_DETAIL = 2000
"""Maximum characters of a stored error text."""


class Verdict(Enum):
    """Every candidate gets exactly one verdict. The values are stored in the database and sent in messages."""

    OK = "ok"
    """Correct results, and a time."""
    WRONG = "wrong"
    """Wrong results, altered inputs, memory written outside of outputs; or an impossible time."""
    CRASH = "crash"
    """Ended by a signal that it caused."""
    TIMEOUT = "timeout"
    """Exceeded its time limit, which the parent enforces."""
    OOM = "oom"
    """Exceeded its memory limit."""
    BUILD_ERROR = "build_error"
    """Refused by the parser, a schedule primitive, the verifier or the code generator."""
    DEVICE_LOST = "device_lost"
    """The measuring process has died; implies nothing about the candidate."""
    PROTOCOL = "protocol"
    """Broke the contract: a malformed message, an end without one, or processes left behind."""


FAULTS = frozenset({Verdict.WRONG, Verdict.CRASH, Verdict.TIMEOUT, Verdict.OOM, Verdict.PROTOCOL})
"""Verdicts after which the measuring process is not reused."""


class Phase(Enum):
    """The phases of a candidate in a child, in order, each with its own deadline."""

    PREPARE = "prepare"
    """Inputs and the reference; the candidate is not involved yet."""
    BUILD = "build"
    CHECK = "check"
    TIME = "time"


@dataclass(frozen=True, slots=True)
class Outcome:
    """The verdict on one candidate.

    ``times_us``: microseconds of one run, for each repeat; ``baseline_us``: those of the baseline kernel; ``drift``:
    the relative change of the baseline meanwhile. ``seconds``: the duration of each phase, and of the wait before
    (``queue``). ``phase``: where it failed, if it did.
    """

    verdict: Verdict
    detail: str = ""
    phase: Phase | None = None
    times_us: tuple[float, ...] = ()
    baseline_us: float | None = None
    drift: float | None = None
    seconds: Mapping[str, float] = field(default_factory=dict[str, float])
    machine: Mapping[str, float] = field(default_factory=dict[str, float])
    """Observations of the machine during timing: load, frequency, temperature."""
    predicted: float | None = None
    """The predicted score of the candidate: more is faster, without a unit."""

    @property
    def median_us(self) -> float | None:
        """The representative time; None unless the verdict is OK."""
        return median(self.times_us) if self.verdict is Verdict.OK else None

    @property
    def mad_us(self) -> float | None:
        """Median absolute deviation of the times from their median."""
        middle = self.median_us
        return None if middle is None else median(abs(time - middle) for time in self.times_us)

    def around(self) -> dict[str, object]:
        """All fields except the verdict, its text and the times, as JSON."""
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
        """An outcome from untrusted data. Raises ``KeyError``, ``TypeError`` or ``ValueError`` if it is invalid."""
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
    """Whether ``value`` can be the microseconds of a run: neither 1e-300 nor a month is plausible."""
    return math.isfinite(value) and 1e-4 <= value <= 1e12
