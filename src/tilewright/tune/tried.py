"""Results of measuring schedules for one kernel, on one target, with one number of threads."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum

from tilewright.base.errors import TilewrightError
from tilewright.loops.program import Program
from tilewright.measure.row import Record, State
from tilewright.target.target import Target
from tilewright.tune.recorded import CONFIRMING, SEARCHING, named
from tilewright.tune.untuned import schedule


class Became(Enum):
    """The status of the best schedule."""

    CONFIRMED = "confirmed"
    """The whole model was faster with it: ``compile`` uses it."""
    WITHDRAWN = "withdrawn"
    """Measured again but not confirmed: it or the whole model was not clearly faster, or the search ended."""
    OPEN = "not confirmed yet"
    """The search ended before the confirmation."""


@dataclass(frozen=True, slots=True)
class Tried:
    """``schedules``: how many different ones were measured. ``own_us`` and ``best_us``: microseconds of the analytic
    choice, and of the fastest, measured on the same data; None where that is not known."""

    schedules: int
    own_us: float | None
    best_us: float | None
    became: Became
    best: Record | None
    """The fastest that was right."""
    is_own: bool
    """Whether that is the analytic choice."""

    @staticmethod
    def of(naive: Program, target: Target, records: Sequence[Record]) -> "Tried":
        """Of all ``records`` of ``naive`` for ``target`` with one number of threads."""
        own = _analytic(naive, target)
        fastest: tuple[Record | None, float | None] = (None, None)
        for seed in (CONFIRMING, SEARCHING):
            best = _fastest(record for record in records if record.job.seed == seed)
            analytic = _fastest(record for record in records if record.job.seed == seed and record.job.trace == own)
            if best is not None and (analytic is not None or fastest[0] is None):
                fastest = best, None if analytic is None else analytic.outcome.median_us
            if analytic is not None:
                break
        record, own_us = fastest
        best_us = None if record is None else record.outcome.median_us
        states = {one.state for one in records}
        became = Became.CONFIRMED if State.CONFIRMED in states else Became.OPEN
        if became is Became.OPEN and State.REPEATED in states:
            became = Became.WITHDRAWN
        is_own = record is not None and record.job.trace == own
        return Tried(len({one.job.trace for one in records}), own_us, best_us, became, record, is_own)

    @property
    def gain(self) -> float | None:
        """How many times faster the fastest is than the analytic choice; None if that was not measured."""
        return None if self.own_us is None or self.best_us is None else self.own_us / self.best_us


def _analytic(naive: Program, target: Target) -> str | None:
    """The analytic choice; None for a program of a foreign file that has none."""
    try:
        return schedule(named(naive), target).trace.to_json()
    except TilewrightError:
        return None


def _fastest(records: Iterable[Record]) -> Record | None:
    right = [record for record in records if record.outcome.median_us is not None]
    return min(right, key=lambda record: record.outcome.median_us or 0.0, default=None)
