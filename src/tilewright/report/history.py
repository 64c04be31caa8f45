"""What was measured for each kernel, in order: how a search went."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime

from tilewright.base.errors import TilewrightError
from tilewright.cost.work import Work, count
from tilewright.loops.parser import parse_program
from tilewright.loops.program import Program
from tilewright.measure.records import Records
from tilewright.measure.row import State
from tilewright.measure.verdicts import Outcome


@dataclass(frozen=True, slots=True)
class Trial:
    """One measurement: seconds since the first one of its search, and what came out."""

    seconds: float
    outcome: Outcome


@dataclass(slots=True)
class Search:
    """All measurements of one program on one target, with one number of threads and on the same data."""

    program: str
    target: str
    threads: int
    trials: list[Trial] = field(default_factory=list[Trial])

    @property
    def work(self) -> Work | None:
        """What one run computes and touches; None if that is not known."""
        parsed = self._parsed()
        return None if parsed is None else count(parsed, {})

    @property
    def shapes(self) -> str:
        """The results and parameters, as a person tells kernels apart."""
        parsed = self._parsed()
        return "?" if parsed is None else ", ".join(repr(buffer) for buffer in parsed.params)

    @property
    def best_us(self) -> float | None:
        """The fastest time that was right."""
        return min((us for trial in self.trials if (us := trial.outcome.median_us) is not None), default=None)

    @property
    def first_us(self) -> float | None:
        """The first time that was right: a search begins with the analytic model's choice."""
        return next((us for trial in self.trials if (us := trial.outcome.median_us) is not None), None)

    def best_so_far(self) -> Iterator[tuple[int, float, float]]:
        """Trials, seconds and the best microseconds, whenever that became better, and at the end."""
        best = float("inf")
        for number, trial in enumerate(self.trials, 1):
            us = trial.outcome.median_us
            if us is not None and us < best:
                best = us
                yield number, trial.seconds, best
        if self.trials and best < float("inf"):
            yield len(self.trials), self.trials[-1].seconds, best

    def _parsed(self) -> Program | None:
        try:
            return parse_program(self.program)
        except TilewrightError:
            return None


def searches(records: Records) -> list[Search]:
    """The searches in a database in the order in which they began.

    Raises ``CorruptRecord`` if the file is damaged.
    """
    found: dict[tuple[str, str, int], Search] = {}
    began: dict[tuple[str, str, int], datetime] = {}
    for created, record in records.dated():
        job = record.job
        if record.state is State.SEARCHED:
            key = (job.program, job.target, job.threads)
            begin = began.setdefault(key, created)
            trial = Trial((created - begin).total_seconds(), record.outcome)
            found.setdefault(key, Search(*key)).trials.append(trial)
    return list(found.values())
