"""The search for a kernel's schedule: Algorithm 1 of Chen et al., "Learning to Optimize Tensor Programs" (2018).

Each round proposes a batch, measures it, and learns from it. The search is determined by the seed and the measurements.
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
from tilewright.kernels.dot_products import all_dot_products
from tilewright.loops.program import without_constants
from tilewright.measure.job import Form, Job, Timing
from tilewright.measure.row import State
from tilewright.measure.verdicts import Outcome, Phase, Verdict
from tilewright.schedule.schedule import Schedule
from tilewright.space.space import Candidates, Digits, Floats
from tilewright.tune.measurer import Measurer
from tilewright.tune.models.model import Measured
from tilewright.tune.models.rater import Reporting
from tilewright.tune.recorded import CONFIRMING, CONFIRMING_AGAIN, SEARCHING
from tilewright.tune.strategy import Models, Searches, rater_of, searcher_of
from tilewright.tune.untuned import schedule

QUICK = Timing(repeats=3, least_seconds=0.001, hopeless=2.0)
CAREFUL = Timing(repeats=10, least_seconds=0.004)
FINALISTS = 8
"""Number of fastest candidates to measure again: some were only lucky, as slow kernels have few runs."""
FEWEST = 2
"""After each round the slower half of them is dropped, until this many remain."""
ALL_FAIL = 32
"""The search ends after this many failures without a correct candidate."""


class Start(Enum):
    """The start of a search."""

    ANALYTIC = "analytic"
    """The analytic model's best candidate; its estimate is also a feature of the learned model."""
    RANDOM = "random"


@dataclass(frozen=True, slots=True)
class Setup:
    """Parameters of tuning a kernel. ``first`` and ``batch``: minimum and maximum candidates of a round."""

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
    """Start from the records of similar kernels. Without them, the search depends on the seed alone."""
    simulated: str = ""
    """Whose cycles are simulated in place of measurements: see ``Timing``."""
    device: str = ""
    """What times depend on beside the target: see ``Timing``."""

    def round_size(self, known: int) -> int:
        """The number of candidates of the next round, after ``measured`` ones.

        The model learns most from the first few candidates: rounds begin small and grow. Fitting it and scoring a few
        candidates takes less time than one build.
        """
        return min(self.batch, max(self.first, known // 4))


@dataclass(frozen=True, slots=True)
class Cold:
    """The inputs that are not in the caches when a run begins: see ``Timing``."""

    inputs: tuple[str, ...] = ()
    between_bytes: int = 0


@dataclass(slots=True)
class History:
    """Measurements in order: digits, throughputs (runs per second, 0 for failures), verdicts."""

    digits: list[Digits] = field(default_factory=list[Digits])
    throughputs: list[float] = field(default_factory=list[float])
    verdicts: Counter[Verdict] = field(default_factory=Counter[Verdict])
    details: list[str] = field(default_factory=list[str])
    """Errors of the first few failures."""

    def add(self, digits: Digits, outcome: Outcome) -> None:
        """Add one candidate."""
        self.digits.append(digits)
        self.throughputs.append(_throughput(outcome))
        self.verdicts[outcome.verdict] += 1
        if outcome.verdict is not Verdict.OK and len(self.details) < 3:
            self.details.append(f"{outcome.verdict.value}: {outcome.detail}")

    @property
    def best(self) -> int | None:
        """The position of the fastest candidate; None if none was correct."""
        return int(np.argmax(self.throughputs)) if max(self.throughputs, default=0.0) > 0 else None

    def causes(self) -> str:
        """The number of failures by kind, and the messages of the first few; empty if there were none."""
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
    """The time of each of several candidates, from their times in each round; infinity if it failed in one.

    That of the first is the minimum of all rounds; the others are compared with it round by round, by the median of the
    ratios. Between rounds, the machine's speed may change by a factor of two, such as when a virtual machine's
    processors move.
    """
    own = list(zip(*rounds, strict=True))
    if inf in own[0]:
        return [inf if inf in times else min(times) for times in own]
    ratios = ([time / first for time, first in zip(times, own[0], strict=True)] for times in own)
    return [inf if inf in of_one else min(own[0]) * median(of_one) for of_one in ratios]


def _times(jobs: Sequence[Job], rounds: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """The times of ``jobs``, which were in all rounds, relative to the first."""
    ids = [job.id for job in jobs]
    return dict(zip(ids, compared([[times[key] for key in ids] for times in rounds]), strict=True))


@dataclass(frozen=True, slots=True)
class Confirmed:
    """A candidate that was measured again. ``microseconds``: see ``compared``; infinity if it failed in a round."""

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
        """Transfer from similar kernels: ``borrowed``, a good schedule of one, is confirmed with the others;
        ``history``: measured candidates, from which the cost model starts (``similar``)."""
        self.space = space
        self.history = History()
        self.is_over = False
        """Whether the whole space is measured, or all candidates fail."""
        self._measurer = measurer
        self._setup = setup
        is_known = setup.start is Start.ANALYTIC
        asked = setup.search.asks_a_model
        self._rater = (
            rater_of(setup.model, space, setup.seed, with_estimates=is_known, history=history) if asked else None
        )
        self._has_history = bool(history) and setup.model is Model.TREES  # others start from nothing
        self._searcher = searcher_of(setup.search, setup.model, space, self._score, setup.seed)
        self._own_place: int | None = None
        """Where the analytic choice is in the history, if the search begins with it."""
        self._text = str(space.naive)
        self._cold = cold or Cold()
        self._borrowed = borrowed

    @property
    def best_seconds(self) -> float | None:
        """The time of the fastest candidate; None if none was correct yet."""
        best = self.history.best
        return None if best is None else 1 / self.history.throughputs[best]

    @property
    def analytic_seconds(self) -> float | None:
        """The time of the analytic model's choice, if the search began with it and it was correct."""
        first = [] if self._own_place is None else self.history.throughputs[self._own_place :]
        return 1 / first[0] if first and first[0] > 0 else None

    @property
    def looked_at(self) -> str:
        """How the cost model looked at candidates; empty if it does not say."""
        return self._rater.looked_at() if isinstance(self._rater, Reporting) else ""

    @property
    def next_size(self) -> int:
        """The number of candidates of the next round."""
        return self._setup.round_size(len(self.history.digits))

    def start_from(self, known: Sequence[tuple[Digits, Outcome]]) -> None:
        """Begin with candidates and what came out in earlier searches, as if this one had measured them. To be called
        before the first round."""
        analytic = self.space.analytic() if self._setup.start is Start.ANALYTIC else None
        for digits, outcome in known:
            if analytic is not None and (digits == analytic).all():
                self._own_place = len(self.history.digits)
            self.history.add(digits, outcome)
        if known:
            self._learn(np.array(self.history.digits))

    def round(self) -> None:
        """Propose a batch, measure it, and learn from it."""
        wanted = self.next_size
        batch = self._proposed(wanted)
        if not len(batch):
            self.is_over = True
            return
        for digits, outcome in zip(batch, self._measured(batch), strict=True):
            self.history.add(digits, outcome)
        self._learn(batch)
        failed = len(self.history.throughputs)
        self.is_over = len(batch) < wanted or (self.history.best is None and failed >= ALL_FAIL)

    def _learn(self, batch: Digits) -> None:
        """Learn from the last measurements, those of ``batch``."""
        self._searcher.learn(batch, np.array(self.history.throughputs[-len(batch) :]))
        if self._rater is not None:
            self._rater.fit(np.array(self.history.digits), np.array(self.history.throughputs))

    def confirm(self) -> list[Confirmed]:
        """The analytic choice and then the fastest candidates, measured carefully, in rounds of other data.

        The results are used only after ``ModelTuner.accept``.
        """
        finalists = self._finalists()
        first, *others = (job for job, _ in finalists)
        rounds: list[dict[str, float]] = []
        left = others
        for seed in (CONFIRMING, *CONFIRMING_AGAIN):
            if rounds:
                times = _times([first, *left], rounds)
                left = sorted(left, key=lambda job: times[job.id])[: max(FEWEST, len(left) // 2)]
            # In alternating order: the load of the machine varies.
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
        """The timing parameters during a search."""
        return self._as_cold(QUICK)

    def job(self, digits: Digits) -> Job:
        """The measurement of one candidate."""
        made = self._job(self.space.schedule(digits), SEARCHING, QUICK)
        return replace(made, digits=tuple(digits.tolist()), decisions=self.space.decisions(digits))

    def _analytic(self) -> Schedule:
        """What the compiler does where nothing was measured: it stores no constants anew."""
        return schedule(without_constants(self.space.naive), self.space.target)

    def _job(self, scheduled: Schedule, seed: int, timing: Timing) -> Job:
        trace, target = scheduled.trace.to_json(), str(self.space.target)
        program, known = scheduled.program, all_dot_products().forms
        own = tuple(Form.of(intrinsic) for intrinsic in program.intrinsics if intrinsic not in known)
        return Job(self._text, trace, target, self._setup.threads, seed, self._as_cold(timing), str(program), own)

    def _as_cold(self, timing: Timing) -> Timing:
        cold, setup = self._cold, self._setup
        place = replace(timing, simulated=setup.simulated, device=setup.device)
        return replace(place, cold=cold.inputs, between_bytes=cold.between_bytes)

    def _measured(self, batch: Digits) -> list[Outcome]:
        """The outcomes; candidates without a valid schedule fail without a measurement."""
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
        """The next batch. The first one begins with the analytic choice, unless it is known, or the start is random."""
        analytic = self.space.analytic() if self._setup.start is Start.ANALYTIC else None
        if self._own_place is not None or analytic is None:
            return self._searcher.propose(count)
        self._own_place = len(self.history.digits)
        first = analytic[None]
        self._searcher.learn(first, np.zeros(1))
        return np.concatenate([first, self._searcher.propose(count - 1)])

    def _score(self, digits: Digits) -> Floats:
        """Scores of the learned model; before the first fit, of the analytic one if the search starts from it."""
        if self._rater is not None and (self.history.best is not None or self._has_history):
            return self._rater.score(digits)
        estimates = self.space.estimates(digits) if self._setup.start is Start.ANALYTIC else None
        if self._rater is not None and estimates is None:
            return self._rater.score(digits)
        return np.zeros(len(digits)) if estimates is None else -np.log(estimates)
