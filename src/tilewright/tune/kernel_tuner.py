"""The search for a kernel's schedule: Algorithm 1 of Chen et al., "Learning to Optimize Tensor Programs" (2018).

Rounds of proposing a batch, measuring it, and learning from it. Everything follows from the seed and what is measured.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from math import inf
from statistics import median

import numpy as np

from tilewright.base.errors import ScheduleError
from tilewright.base.search import Model, Search, Spaces
from tilewright.cost.analytic import schedule
from tilewright.kernels.dot_products import all_dot_products
from tilewright.measure.job import Form, Job, Timing
from tilewright.measure.row import State
from tilewright.measure.verdicts import Outcome, Phase, Verdict
from tilewright.schedule.schedule import Schedule
from tilewright.space.space import Candidates, Digits, Floats
from tilewright.tune.measurer import Measurer
from tilewright.tune.models.model import Measured
from tilewright.tune.recorded import CONFIRMING, CONFIRMING_AGAIN, SEARCHING
from tilewright.tune.strategy import Models, Searches, rater_of, searcher_of

QUICK = Timing(repeats=3, least_seconds=0.001, hopeless=2.0)
CAREFUL = Timing(repeats=10, least_seconds=0.004)
FINALISTS = 8
"""The fastest candidates that are measured again. Some of them are there by luck: a slow kernel has few runs."""
FEWEST = 2
"""After each round the slower half of them is dropped, until this many are left."""
ALL_FAIL = 32
"""The search ends if this many candidates have failed and none was right."""


class Start(Enum):
    """Where a search begins."""

    ANALYTIC = "analytic"
    """With what the analytic model thinks best, which is also one of the learned model's features."""
    RANDOM = "random"


@dataclass(frozen=True, slots=True)
class Setup:
    """How a kernel is tuned. ``first`` and ``batch``: the fewest and the most candidates in a round."""

    first: int = 4
    batch: int = 32
    seed: int = 0
    start: Start = Start.ANALYTIC
    threads: int = 1
    search: Searches = Search.ANNEALING
    model: Models = Model.TREES
    spaces: Spaces = Spaces.TEMPLATES
    """What is searched."""
    transfer: bool = True
    """Begin with what the records of similar kernels teach. Without them, the search follows from the seed alone."""

    def round_size(self, known: int) -> int:
        """How many candidates a round has where so many were measured before.

        The model learns most from the first few: rounds begin small, and grow with what is known. To fit it and to ask
        it for a few candidates takes less time than to build one.
        """
        return min(self.batch, max(self.first, known // 4))


@dataclass(frozen=True, slots=True)
class Cold:
    """Which inputs are not in the caches when a run begins, as other data come in between: see ``Timing``."""

    inputs: tuple[str, ...] = ()
    between_bytes: int = 0


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

    def causes(self) -> str:
        """How many candidates failed, in which ways, and what was said of the first few; empty if none did."""
        failed = {verdict: count for verdict, count in self.verdicts.items() if verdict is not Verdict.OK}
        if not failed:
            return ""
        counts = ", ".join(f"{count} {verdict.value}" for verdict, count in sorted(failed.items(), key=lambda v: -v[1]))
        return f"{sum(failed.values())} of {len(self.digits)} failed ({counts}): {'; '.join(self.details)}"


def _throughput(outcome: Outcome) -> float:
    return 0.0 if outcome.median_us is None else 1e6 / min(outcome.times_us)


def _microseconds(outcome: Outcome) -> float:
    return inf if outcome.median_us is None else outcome.median_us


def compared(rounds: Sequence[Sequence[float]]) -> list[float]:
    """What each of several candidates takes, by what they took in each round; infinity if one was not right in any.

    That of the first is the least of all rounds; the others are compared with it round by round, and the median tells.
    From one round to another the machine may be twice as fast: two processors of a virtual machine are near each other,
    and then they are not.
    """
    own = list(zip(*rounds, strict=True))
    if inf in own[0]:
        return [inf if inf in times else min(times) for times in own]
    ratios = ([time / first for time, first in zip(times, own[0], strict=True)] for times in own)
    return [inf if inf in of_one else min(own[0]) * median(of_one) for of_one in ratios]


def _times(jobs: Sequence[Job], rounds: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """What each of ``jobs``, which were in all rounds, takes in comparison with the first."""
    ids = [job.id for job in jobs]
    return dict(zip(ids, compared([[times[key] for key in ids] for times in rounds]), strict=True))


@dataclass(frozen=True, slots=True)
class Confirmed:
    """A candidate that was measured again. ``microseconds``: see ``compared``; infinity if it was not in all rounds."""

    job: Job
    microseconds: float
    schedule: Schedule


class KernelTuner:
    """The search for one kernel. Raises ``BadInput`` if LightGBM is missing."""

    def __init__(
        self,
        space: Candidates,
        measurer: Measurer,
        setup: Setup,
        cold: Cold | None = None,
        borrowed: Schedule | None = None,
        history: Sequence[Measured] = (),
    ) -> None:
        """What similar kernels teach: ``borrowed``, a schedule that was good for one, is one of those that are
        confirmed; ``history``: candidates that were measured, which the cost model starts from (``similar``)."""
        self.space = space
        self.history = History()
        self.is_over = False
        """All of the space is measured, or nothing of it works."""
        self._measurer = measurer
        self._setup = setup
        is_known = setup.start is Start.ANALYTIC
        asked = setup.search.asks_a_model
        self._rater = (
            rater_of(setup.model, space, setup.seed, with_estimates=is_known, history=history) if asked else None
        )
        self._has_history = bool(history) and setup.model is Model.TREES  # others start from nothing
        self._searcher = searcher_of(setup.search, setup.model, space, self._score, setup.seed)
        self._text = str(space.naive)
        self._cold = cold or Cold()
        self._borrowed = borrowed

    @property
    def best_seconds(self) -> float | None:
        """Of the fastest candidate; None if none was right yet."""
        best = self.history.best
        return None if best is None else 1 / self.history.throughputs[best]

    @property
    def analytic_seconds(self) -> float | None:
        """Of what the analytic model thinks best, if the search began with that and it was right."""
        first = self.history.throughputs[:1] if self._setup.start is Start.ANALYTIC else []
        return 1 / first[0] if first and first[0] > 0 else None

    def round(self) -> None:
        """Propose a batch, measure it, learn from it."""
        wanted = self._setup.round_size(len(self.history.digits))
        batch = self._proposed(wanted)
        if not len(batch):
            self.is_over = True
            return
        for digits, outcome in zip(batch, self._measured(batch), strict=True):
            self.history.add(digits, outcome)
        self._searcher.learn(batch, np.array(self.history.throughputs[-len(batch) :]))
        if self._rater is not None:
            self._rater.fit(np.array(self.history.digits), np.array(self.history.throughputs))
        failed = len(self.history.throughputs)
        self.is_over = len(batch) < wanted or (self.history.best is None and failed >= ALL_FAIL)

    def confirm(self) -> list[Confirmed]:
        """The analytic choice and then the fastest candidates, measured carefully, in rounds of other data.

        Nobody uses what is measured before it is put to use (``ModelTuner.accept``).
        """
        finalists = self._finalists()
        first, *others = (job for job, _ in finalists)
        rounds: list[dict[str, float]] = []
        left = others
        for seed in (CONFIRMING, *CONFIRMING_AGAIN):
            if rounds:
                times = _times([first, *left], rounds)
                left = sorted(left, key=lambda job: times[job.id])[: max(FEWEST, len(left) // 2)]
            # In one order and in the other: what else the machine does comes and goes.
            rounds.append(self._again([first, *left], seed, backwards=len(rounds) % 2 == 1))
        times = _times([first, *left], rounds)
        return [Confirmed(job, times.get(job.id, inf), scheduled) for job, scheduled in finalists]

    def _finalists(self) -> list[tuple[Job, Schedule]]:
        """The analytic choice, the fastest candidates, and what is borrowed; each once."""
        order: list[int] = np.argsort(self.history.throughputs)[::-1][:FINALISTS].tolist()
        finalists = [self.history.digits[place] for place in order if self.history.throughputs[place] > 0]
        borrowed = [] if self._borrowed is None else [self._borrowed]
        schedules = [self._analytic(), *map(self.space.schedule, finalists), *borrowed]
        jobs = ((self._job(scheduled, CONFIRMING, CAREFUL), scheduled) for scheduled in schedules)
        return list({job.id: (job, scheduled) for job, scheduled in jobs}.values())

    def _again(self, jobs: Sequence[Job], seed: int, *, backwards: bool) -> dict[str, float]:
        """Measure jobs on other data; the microseconds by their ids."""
        ordered = jobs[::-1] if backwards else jobs
        again = [replace(job, seed=seed) for job in ordered]
        outcomes = self._measurer.measure(again, state=State.REPEATED)
        return {job.id: _microseconds(outcome) for job, outcome in zip(ordered, outcomes, strict=True)}

    @property
    def timing(self) -> Timing:
        """How candidates are timed while one searches."""
        return self._as_cold(QUICK)

    def job(self, digits: Digits) -> Job:
        """The measurement of one candidate."""
        made = self._job(self.space.schedule(digits), SEARCHING, QUICK)
        return replace(made, digits=tuple(digits.tolist()), decisions=self.space.decisions(digits))

    def _analytic(self) -> Schedule:
        """What the compiler does where nothing was measured."""
        return schedule(Schedule(self.space.naive), self.space.target)

    def _job(self, scheduled: Schedule, seed: int, timing: Timing) -> Job:
        trace, target = scheduled.trace.to_json(), str(self.space.target)
        program, known = scheduled.program, all_dot_products().forms
        own = tuple(Form.of(intrinsic) for intrinsic in program.intrinsics if intrinsic not in known)
        return Job(self._text, trace, target, self._setup.threads, seed, self._as_cold(timing), str(program), own)

    def _as_cold(self, timing: Timing) -> Timing:
        return replace(timing, cold=self._cold.inputs, between_bytes=self._cold.between_bytes)

    def _measured(self, batch: Digits) -> list[Outcome]:
        """The outcomes; those that have no schedule need no measurement to fail."""
        predicted: dict[str, float] = {}
        refused: dict[int, Outcome] = {}
        scores = None if self._rater is None else self._score(batch).tolist()

        def scheduled() -> Iterator[Job]:
            for place, digits in enumerate(batch):
                try:
                    job = self.job(digits)
                except ScheduleError as error:
                    refused[place] = Outcome(Verdict.BUILD_ERROR, str(error), Phase.BUILD)
                    continue
                if scores is not None:
                    predicted[job.id] = scores[place]
                yield job

        measured = iter(self._measurer.measure(scheduled(), predicted))
        return [refused[place] if place in refused else next(measured) for place in range(len(batch))]

    def _proposed(self, count: int) -> Digits:
        """The next batch. The first one begins with the analytic choice, unless the start is random."""
        analytic = self.space.analytic() if self._setup.start is Start.ANALYTIC else None
        if self.history.digits or analytic is None:
            return self._searcher.propose(count)
        first = analytic[None]
        self._searcher.learn(first, np.zeros(1))
        return np.concatenate([first, self._searcher.propose(count - 1)])

    def _score(self, digits: Digits) -> Floats:
        """What the learned model thinks; before it has learned, the analytic one, if the search starts from that."""
        if self._rater is not None and (self.history.best is not None or self._has_history):
            return self._rater.score(digits)
        estimates = self.space.estimates(digits) if self._setup.start is Start.ANALYTIC else None
        if self._rater is not None and estimates is None:
            return self._rater.score(digits)
        return np.zeros(len(digits)) if estimates is None else -np.log(estimates)
