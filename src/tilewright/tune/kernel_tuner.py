"""The search for a kernel's schedule: Algorithm 1 of Chen et al., "Learning to Optimize Tensor Programs" (2018).

Rounds of proposing a batch, measuring it, and learning from it. Everything follows from the seed and what is measured.
"""

from collections import Counter
from dataclasses import dataclass, field
from enum import Enum
from math import inf

import numpy as np
from numpy.typing import NDArray

from tilewright.measure.job import Job, Timing
from tilewright.measure.verdicts import Outcome, Verdict
from tilewright.tune.kernel_space import KernelSpace
from tilewright.tune.measurer import Measurer
from tilewright.tune.models.boosted import BoostedTrees
from tilewright.tune.recorded import CONFIRMING, SEARCHING, recorded_text
from tilewright.tune.search.annealing import AnnealingSearcher
from tilewright.tune.space import Digits

FloatArray = NDArray[np.float64]

QUICK = Timing(repeats=3, least_seconds=0.002)
CAREFUL = Timing(repeats=10, least_seconds=0.004)
FINALISTS = 3
"""The fastest candidates that are measured again."""
ALL_FAIL = 32
"""If so many candidates have failed and none was right, the search ends."""


class Start(Enum):
    """Where a search begins."""

    ANALYTIC = "analytic"
    """With what the analytic model thinks best, which is also one of the learned model's features."""
    RANDOM = "random"


@dataclass(frozen=True, slots=True)
class Setup:
    """How a kernel is tuned. ``batch``: candidates in a round."""

    batch: int = 32
    seed: int = 0
    start: Start = Start.ANALYTIC
    threads: int = 1


@dataclass(slots=True)
class History:
    """What was measured, in order: digits, throughputs (runs per second, 0 for failures), verdicts."""

    digits: list[Digits] = field(default_factory=list[Digits])
    throughputs: list[float] = field(default_factory=list[float])
    verdicts: Counter[Verdict] = field(default_factory=Counter[Verdict])
    details: list[str] = field(default_factory=list[str])
    """What was wrong with the first few that failed."""

    def add(self, digits: Digits, outcome: Outcome) -> None:
        """One more candidate."""
        self.digits.append(digits)
        self.throughputs.append(_throughput(outcome))
        self.verdicts[outcome.verdict] += 1
        if outcome.verdict is not Verdict.OK and len(self.details) < 3:
            self.details.append(f"{outcome.verdict.value}: {outcome.detail}")

    @property
    def best(self) -> int | None:
        """The position of the fastest candidate; None if none was right."""
        return int(np.argmax(self.throughputs)) if max(self.throughputs, default=0.0) > 0 else None


def _throughput(outcome: Outcome) -> float:
    return 0.0 if outcome.median_us is None else 1e6 / min(outcome.times_us)


@dataclass(frozen=True, slots=True)
class Confirmed:
    """A candidate that was measured again; infinity microseconds if it was not right then."""

    job: Job
    microseconds: float


class KernelTuner:
    """The search for one kernel. Raises ``BadInput`` if LightGBM is missing."""

    def __init__(self, space: KernelSpace, measurer: Measurer, setup: Setup) -> None:
        self.space = space
        self.history = History()
        self.is_over = False
        """All of the space is measured, or nothing of it works."""
        self._measurer = measurer
        self._setup = setup
        self._model = BoostedTrees(seed=setup.seed)
        self._searcher = AnnealingSearcher(space, self._score, setup.seed)
        self._text = recorded_text(space.naive)

    @property
    def best_seconds(self) -> float | None:
        """Of the fastest candidate; None if none was right yet."""
        best = self.history.best
        return None if best is None else 1 / self.history.throughputs[best]

    def round(self) -> None:
        """Propose a batch, measure it, learn from it."""
        batch = self._proposed()
        if not len(batch):
            self.is_over = True
            return
        outcomes = self._measurer.measure([self.job(digits) for digits in batch])
        for digits, outcome in zip(batch, outcomes, strict=True):
            self.history.add(digits, outcome)
        self._searcher.learn(batch, np.array(self.history.throughputs[-len(batch) :]))
        self._model.fit(self._features(np.array(self.history.digits)), np.array(self.history.throughputs))
        failed = len(self.history.throughputs)
        self.is_over = len(batch) < self._setup.batch or (self.history.best is None and failed >= ALL_FAIL)

    def confirm(self) -> list[Confirmed]:
        """The analytic model's candidate and then the fastest ones, measured carefully and on other data."""
        order: list[int] = np.argsort(self.history.throughputs)[::-1][:FINALISTS].tolist()
        finalists = [self.history.digits[place] for place in order if self.history.throughputs[place] > 0]
        jobs = {job.id: job for job in map(self._careful, [self.space.analytic(), *finalists])}
        outcomes = self._measurer.measure(list(jobs.values()))
        times = [inf if outcome.median_us is None else outcome.median_us for outcome in outcomes]
        return [Confirmed(job, time) for job, time in zip(jobs.values(), times, strict=True)]

    def job(self, digits: Digits) -> Job:
        """The measurement of one candidate."""
        return self._job(digits, SEARCHING, QUICK)

    def _careful(self, digits: Digits) -> Job:
        return self._job(digits, CONFIRMING, CAREFUL)

    def _job(self, digits: Digits, seed: int, timing: Timing) -> Job:
        trace = self.space.schedule(digits).trace.to_json()
        return Job(self._text, trace, str(self.space.target), self._setup.threads, seed, timing)

    def _proposed(self) -> Digits:
        """The next batch. The first one begins with the analytic model's choice, unless the start is random."""
        if self.history.digits or self._setup.start is Start.RANDOM:
            return self._searcher.propose(self._setup.batch)
        first = self.space.analytic()[None]
        self._searcher.learn(first, np.zeros(1))
        return np.concatenate([first, self._searcher.propose(self._setup.batch - 1)])

    def _score(self, digits: Digits) -> FloatArray:
        """What the learned model thinks; before it has learned, the analytic one, if the search starts from that."""
        if self.history.best is None and self._setup.start is Start.ANALYTIC:
            return -np.log(self.space.estimates(digits))
        return self._model.score(self._features(digits))

    def _features(self, digits: Digits) -> FloatArray:
        """Numbers of the knobs; and the analytic estimate, unless the start is random."""
        columns = [np.log2(1.0 + column) for column in self.space.numbers(digits).T]
        if self._setup.start is Start.ANALYTIC:
            columns.append(np.log(self.space.estimates(digits)))
        return np.stack(columns, axis=1)
