"""The search for one kernel and for a model, with made-up times: no processes."""

import zlib
from collections.abc import Iterable, Mapping
from dataclasses import replace
from importlib.util import find_spec
from math import inf

import numpy as np
import pytest

from tests.measure.jobs import HOST as TARGET
from tests.measure.jobs import product
from tilewright.base.errors import ScheduleError
from tilewright.base.search import Model, Search
from tilewright.loops.program import Program
from tilewright.measure.job import Job, Timing
from tilewright.measure.row import State
from tilewright.measure.verdicts import Outcome, Verdict
from tilewright.schedule.schedule import Schedule
from tilewright.space.config import Config
from tilewright.space.space import Digits, Floats, Space
from tilewright.target.target import Target
from tilewright.tune.features import individuals
from tilewright.tune.kernel_tuner import FINALISTS, KernelTuner, Setup, Start, compared
from tilewright.tune.measurer import NOTHING_PREDICTED, Measurer
from tilewright.tune.model_tuner import Computed, ModelTuner
from tilewright.tune.models import rater
from tilewright.tune.models.looptree import LoopTree
from tilewright.tune.models.model import Measured
from tilewright.tune.recorded import SEARCHING
from tilewright.tune.spaces import kernel_space
from tilewright.tune.strategy import searcher_of, shared

HOST = Target.parse(TARGET)
NEEDS_TORCH = pytest.mark.skipif(find_spec("torch") is None, reason="needs torch")
SPACE = kernel_space(replace(product("mm", 64), name="tuned"), HOST)


class MadeUp(Measurer):
    """Times by a formula over the knobs; ``works``: which of the candidates are right."""

    def __init__(self, rate: float = 1.0, failing: float = 0.0) -> None:
        self.measured = 0
        self.asked: list[str] = []
        self.predicted: set[str] = set()
        self.states: dict[Job, State] = {}
        self._rate = rate
        self._failing = failing

    def measure(
        self,
        jobs: Iterable[Job],
        predicted: Mapping[str, float] = NOTHING_PREDICTED,
        state: State = State.SEARCHED,
    ) -> list[Outcome]:
        wanted = list(jobs)
        self.states |= dict.fromkeys(wanted, state)
        self.asked += [job.id for job in wanted]
        self.predicted |= predicted.keys()
        self.measured += len(wanted)
        return [self._outcome(job) for job in wanted]

    def put(self, job: Job, state: State) -> None:
        self.states[job] = state

    def _outcome(self, job: Job) -> Outcome:
        random = np.random.default_rng(int(job.id[:8], 16))
        if random.uniform() < self._failing:
            return Outcome(Verdict.CRASH, "SIGSEGV")
        return Outcome(Verdict.OK, times_us=(self._rate * (1 + job.trace.count("unroll") % 3 + random.uniform()),))


def tuned(measurer: Measurer, setup: Setup, rounds: int) -> KernelTuner:
    tuner = KernelTuner(SPACE, measurer, setup)
    for _ in range(rounds):
        tuner.round()
    return tuner


@pytest.mark.parametrize("start", Start)
def test_equal_seeds_propose_the_same(start: Start) -> None:
    asked = []
    for seed in (0, 0, 1):
        measurer = MadeUp()
        tuner = tuned(measurer, Setup(first=8, batch=8, seed=seed, start=start), 3)
        assert len({tuple(digits) for digits in tuner.history.digits}) == len(measurer.asked) == 24
        asked.append(measurer.asked)
    assert asked[0] == asked[1]
    assert asked[0] != asked[2]


@pytest.mark.parametrize("search", Search)
def test_each_searcher_goes_on_from_the_analytic_choice(search: Search) -> None:
    """To other candidates each round, rated before they are measured if a model is asked."""
    measurer = MadeUp()
    tuner = tuned(measurer, Setup(first=8, batch=8, search=search, model=Model.RANDOM), 3)
    assert len(tuner.history.digits) == len({tuple(digits) for digits in tuner.history.digits}) == 24
    assert measurer.asked[0] == tuner.job(SPACE.analytic()).id
    assert bool(measurer.predicted) is search.asks_a_model


def test_searchers_differ() -> None:
    """What they propose: nothing is scheduled for that. A generation of the genetic one is 100."""
    tried: list[bytes] = []
    for search in Search:
        searcher = searcher_of(search, Model.RANDOM, SPACE, lambda digits: digits.sum(axis=1) / 100, 0)
        proposed: list[Digits] = []
        for _ in range(3):
            proposed.append(searcher.propose(64))
            searcher.learn(proposed[-1], proposed[-1].sum(axis=1) / 10)
        tried.append(np.concatenate(proposed).tobytes())
    assert len(set(tried)) == len(Search)


class Averages:
    """In place of the network, which needs torch."""

    def __init__(self, tree: LoopTree, seed: int) -> None:
        self._width = tree.width

    def fit(self, features: Floats, throughputs: Floats) -> None:
        assert features.shape == (*throughputs.shape, self._width)

    def score(self, features: Floats) -> Floats:
        return np.nan_to_num(np.nanmean(features, axis=1))


@pytest.mark.parametrize("network", [Averages, pytest.param(None, marks=NEEDS_TORCH)])
def test_the_network_over_loops_is_asked_for_few_candidates(
    network: type[Averages] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each must be scheduled to be rated."""
    if network is not None:
        monkeypatch.setattr(rater, "TreeGRU", network)
    scheduled: list[bytes] = []
    contexts = rater.loop_contexts

    def watched(program: Program) -> Floats:
        scheduled.append(str(program).encode())
        return contexts(program)

    monkeypatch.setattr(rater, "loop_contexts", watched)
    measurer = MadeUp()
    tuner = tuned(measurer, Setup(first=6, batch=6, model=Model.TREE_GRU), 2)
    assert len(measurer.asked) == 12
    assert 12 < len(scheduled) < 300
    assert len(measurer.predicted) == 12 or network is None  # what a trained network rates depends on the processor
    scores = tuner._score(np.array(tuner.history.digits))
    assert np.isfinite(scores).all()
    assert len(set(scores.tolist())) > 6


def test_the_model_over_statements_is_asked_for_few_candidates(monkeypatch: pytest.MonkeyPatch) -> None:
    scheduled: list[bytes] = []
    seen = individuals.statement_features

    def watched(program: Program, target: Target) -> Floats:
        scheduled.append(str(program).encode())
        return seen(program, target)

    monkeypatch.setattr(individuals, "statement_features", watched)
    measurer = MadeUp()
    for model in (Model.STATEMENTS, shared(Model.STATEMENTS, 0)):
        scheduled.clear()
        tuner = tuned(measurer, Setup(first=6, batch=6, model=model), 2)
        assert 12 < len(scheduled) < 300
    scores = tuner._score(np.array(tuner.history.digits))
    assert np.isfinite(scores).all()
    assert len(set(scores.tolist())) > 6


def test_models_that_learn_nothing_from_similar_kernels_begin_as_without_them() -> None:
    nothing = Measured(np.zeros((4, 3)), np.arange(1.0, 5.0))
    asked: list[list[str]] = []
    for history in ((), (nothing,)):
        measurer = MadeUp()
        KernelTuner(SPACE, measurer, Setup(first=6, batch=6, model=Model.STATEMENTS), history=history).round()
        asked.append(measurer.asked)
    assert asked[0] == asked[1]


def test_kernels_of_a_model_share_the_model_over_statements() -> None:
    programs = [Computed(product("a", 64), 1), Computed(product("b", 48), 1)]
    first, second = ModelTuner([programs], HOST, MadeUp(), Setup(model=Model.STATEMENTS)).kernels
    unknown = np.array([second.tuner.space.analytic()])
    assert second.tuner._rater is not None
    before = second.tuner._rater.score(unknown)[0]
    first.tuner.round()
    assert second.tuner._rater.score(unknown)[0] != before


def test_rounds_grow_with_what_is_known() -> None:
    setup = Setup(first=4, batch=32)
    assert [setup.round_size(known) for known in (0, 4, 16, 20, 24, 80, 128, 1000)] == [4, 4, 4, 5, 6, 20, 32, 32]
    measurer = MadeUp()
    tuned(measurer, Setup(first=4, batch=6), 6)
    assert len(measurer.asked) == 4 + 4 + 4 + 4 + 4 + 5


def test_the_analytic_choice_is_the_first_of_an_analytic_start() -> None:
    measurer = MadeUp()
    tuner = tuned(measurer, Setup(batch=4), 1)
    assert measurer.asked[0] == tuner.job(SPACE.analytic()).id
    assert tuned(MadeUp(), Setup(batch=4, start=Start.RANDOM), 1).history.digits


def test_the_best_is_the_fastest_that_is_right() -> None:
    tuner = tuned(MadeUp(failing=0.5), Setup(first=16, batch=16), 3)
    assert tuner.history.verdicts[Verdict.CRASH] > 8
    assert tuner.best_seconds == 1 / max(tuner.history.throughputs)


def test_a_search_in_which_everything_fails_ends_and_says_why() -> None:
    tuner = tuned(MadeUp(failing=1.0), Setup(first=16, batch=16), 2)
    assert tuner.is_over
    assert tuner.best_seconds is None
    assert tuner.history.details == ["crash: SIGSEGV"] * 3


def test_a_space_that_is_exhausted_is_over() -> None:
    small = kernel_space(replace(product("mm", 2), name="tuned"), HOST)
    tuner = KernelTuner(small, MadeUp(), Setup(first=1000, batch=1000))
    tuner.round()
    assert tuner.is_over
    assert len({tuple(digits) for digits in tuner.history.digits}) == len(tuner.history.digits)


def test_the_analytic_choice_and_the_best_are_confirmed_on_other_data() -> None:
    tuner = tuned(MadeUp(), Setup(first=16, batch=16), 2)
    confirmed = tuner.confirm()
    assert {candidate.job.seed for candidate in confirmed} == {1}
    assert confirmed[0].job.trace == tuner.job(SPACE.analytic()).trace
    assert 2 <= len(confirmed) <= 1 + FINALISTS


class Lucky(MadeUp):
    """On other data than those of the search, times follow from the schedule alone."""

    def _outcome(self, job: Job) -> Outcome:
        found = super()._outcome(job)
        return found if job.seed == SEARCHING else replace(found, times_us=(1 + zlib.crc32(job.trace.encode()) / 1e9,))


def test_of_those_that_were_fast_by_luck_the_best_is_kept() -> None:
    measurer = Lucky()
    tuner = tuned(measurer, Setup(first=32, batch=32), 2)
    searching = len(measurer.asked)
    analytic, *finalists = tuner.confirm()
    asked = measurer.asked[searching:]
    assert 4 < len(finalists) <= FINALISTS  # some are scheduled alike
    assert len(asked) == len(finalists) + len(finalists) // 2 + 2 + 2 + 4  # the analytic choice is in each round
    times = [measurer._outcome(candidate.job).times_us[0] for candidate in finalists]
    kept = [time for time, candidate in zip(times, finalists, strict=True) if candidate.microseconds < inf]
    assert sorted(kept) == pytest.approx(sorted(times)[: len(kept)])
    assert len(kept) == 2
    assert analytic.microseconds < inf


def test_rounds_go_where_most_is_to_be_gained() -> None:
    """One of two equal kernels is called a hundred times."""
    programs = [Computed(product("a", 64), 1), Computed(product("b", 48), 100), Computed(product("c", 48), 0)]
    tuner = ModelTuner([programs], HOST, MadeUp(), Setup(batch=8))
    assert [kernel.weight for kernel in tuner.kernels] == [1, 100]  # b and c are the same program
    rounds = iter(range(10))
    list(tuner.run(lambda: next(rounds, None) is not None))
    tried = [len(kernel.tuner.history.digits) for kernel in tuner.kernels]
    assert tried[1] > tried[0]


def test_a_kernel_whose_first_candidates_fail_is_not_given_up() -> None:
    """None of the first four is right with a probability of two thirds."""
    programs = [Computed(product("mm", size), 1) for size in (32, 48, 64, 80, 96)]
    tuner = ModelTuner([programs], HOST, MadeUp(failing=0.9), Setup())
    tuners = [kernel.tuner for kernel in tuner.kernels]
    rounds = iter(range(30))

    def is_open() -> bool:
        return next(rounds, None) is not None and any(each.best_seconds is None for each in tuners)

    list(tuner.run(is_open))
    assert any(max(each.history.throughputs[:4]) == 0.0 for each in tuners)
    assert all(each.best_seconds is not None or each.is_over for each in tuners)


def test_what_is_not_clearly_better_is_withdrawn() -> None:
    measurer = MadeUp()
    tuner = ModelTuner([[Computed(product("a", 64), 1)]], HOST, measurer, Setup(first=16, batch=16))
    rounds = iter(range(2))
    list(tuner.run(lambda: next(rounds, None) is not None))
    (gain,) = tuner.confirm()
    first, *others = tuner.kernels[0].tuner.confirm()
    best = min(others, key=lambda candidate: candidate.microseconds)
    assert best.microseconds < 0.99 * first.microseconds
    assert gain.winner == best.job
    assert (gain.before_us, gain.after_us) == (first.microseconds, best.microseconds)
    assert {measurer.states[candidate.job] for candidate in (first, *others)} == {State.REPEATED}
    tuner.accept([gain])
    assert [job for job, state in measurer.states.items() if state is State.CONFIRMED] == [best.job]
    measurer.states[others[-1].job] = State.CONFIRMED  # by an earlier search
    tuner.confirm()
    assert measurer.states[others[-1].job] is State.REPEATED
    tuner.withdraw([gain])
    assert measurer.states[best.job] is State.REPEATED


def test_candidates_are_compared_round_by_round() -> None:
    """The machine is twice as slow in two rounds: nothing but their order makes the second look better by its best."""
    assert compared([(10.0, 11.0), (20.0, 22.0), (22.0, 20.0), (20.0, 22.0)]) == [10.0, pytest.approx(11.0)]
    assert compared([(10.0, 9.0), (20.0, 18.0), (20.0, 40.0), (10.0, 9.0)]) == [10.0, pytest.approx(9.0)]
    assert compared([(20.0, 18.0), (20.0, 18.0), (20.0, 9.0), (20.0, 18.0)]) == [20.0, pytest.approx(18.0)]


def test_a_candidate_that_is_not_right_in_one_round_is_out() -> None:
    assert compared([(10.0, inf), (10.0, 5.0), (10.0, 5.0), (10.0, 5.0)]) == [10.0, inf]
    assert compared([(inf, 6.0), (10.0, 5.0)]) == [inf, 5.0]


def lucky(s: Schedule, config: Config) -> None:
    """Two values of twenty go."""
    luck = config.choice("luck", range(20))
    if luck not in (0, 17):
        raise ScheduleError("the template gave up")
    y, *_ = s.get_loops("C")
    s.unroll(s.split(y, (None, config.choice("rows", range(1, 4))))[1])


def test_a_space_that_is_mostly_invalid_finishes_and_says_why() -> None:
    space = Space.of(lucky, product("mm", 12), HOST)
    measurer = MadeUp()
    tuner = KernelTuner(space, measurer, Setup(first=16, batch=16))
    while not tuner.is_over:
        tuner.round()
    assert len(measurer.asked) == 6
    assert tuner.best_seconds is not None
    assert tuner.history.causes().startswith("54 of 60 failed (54 build_error): build_error: the template gave up; ")


def test_weights_are_cold_where_a_model_has_more_than_a_cache_holds() -> None:
    target = replace(HOST, l2_bytes=1 << 12, l3_bytes=1 << 16)

    def timing(*computed: Computed, beside: tuple[Computed, ...] = ()) -> Timing:
        first = ModelTuner([computed, beside], target, MadeUp(), Setup()).kernels[0].tuner
        analytic = first.space.analytic()
        assert analytic is not None
        return first.job(analytic).timing

    large = timing(Computed(product("a", 64), 3, ("B",)), Computed(product("b", 8), 1))
    assert (large.cold, large.between_bytes) == (("B",), 1 << 16)  # 3 * 64 * 64 * 4 bytes; a power of two
    larger = timing(Computed(product("a", 64), 100, ("A", "B")))
    assert (larger.cold, larger.between_bytes) == (("A", "B"), 1 << 17)  # twice the largest cache
    small = timing(Computed(product("b", 8), 1, ("B",)))
    assert (small.cold, small.between_bytes) == ((), 0)
    shared = timing(Computed(product("b", 8), 1, ("B",)), beside=(Computed(product("c", 8), 100, ("B",)),))
    assert (shared.cold, shared.between_bytes) == (("B",), 1 << 15)  # as in the network that reads more
