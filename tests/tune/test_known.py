"""A search begins with what earlier ones measured of the same kernel, and with the analytic choice."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.sketch import programs
from tilewright.base.search import Model, Search, Spaces
from tilewright.measure.job import Job
from tilewright.measure.records import Records
from tilewright.measure.verdicts import Outcome, Verdict
from tilewright.schedule.schedule import Schedule
from tilewright.space.config import Config
from tilewright.space.space import Candidates, Digits, Space
from tilewright.space.union import Union
from tilewright.target.target import Target
from tilewright.tune.kernel_tuner import KernelTuner, Setup
from tilewright.tune.known import measured_before
from tilewright.tune.measurer import Measurer
from tilewright.tune.recorded import named
from tilewright.tune.search.evolution import Breeding, EvolutionSearch
from tilewright.tune.spaces import candidates_of

TARGET = replace(Target.host(), cores=1)
NAIVE = named(programs.naive(programs.matmul(24, 32, 16)))
SETUP = Setup(first=6, batch=6, search=EvolutionSearch(Breeding(population=24, generations=1)), model=Model.RANDOM)


def space_of(spaces: Spaces) -> Candidates:
    found = candidates_of(NAIVE, TARGET, spaces)
    assert found is not None
    return found


class Bench:
    """Times that depend on the schedule alone; some fail."""

    def __init__(self) -> None:
        self.asked: list[Job] = []

    def measure_all(self, jobs: Iterable[Job]) -> Iterator[tuple[Job, Outcome]]:
        for job in jobs:
            self.asked.append(job)
            time = np.random.default_rng(int(job.id[:8], 16)).uniform(1, 9)
            yield job, Outcome(Verdict.CRASH, "SIGSEGV") if time > 8 else Outcome(Verdict.OK, times_us=(time,))


def searched(path: Path, space: Candidates, setup: Setup, rounds: int = 2) -> tuple[KernelTuner, Bench]:
    bench = Bench()
    with Records.open(path) as records, records.session({}) as session:
        tuner = KernelTuner(space, Measurer(bench, records, session), setup)
        tuner.start_from(measured_before(records, space, 1, tuner.timing))
        for _ in range(rounds):
            tuner.round()
    return tuner, bench


def keys(digits: Iterable[Digits]) -> list[tuple[int, ...]]:
    return [tuple(one.tolist()) for one in digits]


@pytest.mark.parametrize("spaces", [Spaces.TEMPLATES, Spaces.SKETCHES, Spaces.ALL])
def test_a_second_search_begins_with_what_is_known(spaces: Spaces, tmp_path: Path) -> None:
    space = space_of(spaces)
    first, asked = searched(tmp_path / "r.db", space, SETUP)
    second, others = searched(tmp_path / "r.db", space, replace(SETUP, seed=9), rounds=1)
    known = len({job.id for job in asked.asked})
    assert 6 < known <= 12
    assert set(keys(second.history.digits[:known])) <= set(keys(first.history.digits))
    assert second.history.throughputs[:known] == [
        dict(zip(keys(first.history.digits), first.history.throughputs, strict=True))[key]
        for key in keys(second.history.digits[:known])
    ]
    assert not {job.id for job in asked.asked} & {job.id for job in others.asked}
    assert second.best_seconds == min(second.best_seconds or 1.0, first.best_seconds or 1.0)
    if spaces is not Spaces.SKETCHES:
        assert second.analytic_seconds == first.analytic_seconds is not None


def test_what_a_killed_search_measured_is_not_known(tmp_path: Path) -> None:
    space, timing = space_of(Spaces.SKETCHES), KernelTuner(space_of(Spaces.SKETCHES), _nothing(), SETUP).timing
    path = tmp_path / "r.db"

    def begin(records: Records, session: int) -> None:
        KernelTuner(space, Measurer(Bench(), records, session), SETUP).round()
        raise KeyboardInterrupt

    with Records.open(path) as records:
        with pytest.raises(KeyboardInterrupt), records.session({}) as session:
            begin(records, session)
        assert len(list(records.all())) > 2
        assert measured_before(records, space, 1, timing) == []


def _nothing() -> Measurer:
    return Measurer.__new__(Measurer)


def test_what_was_measured_in_other_spaces_is_known_in_their_union(tmp_path: Path) -> None:
    path, union = tmp_path / "r.db", space_of(Spaces.ALL)
    assert isinstance(union, Union)
    tried: list[tuple[tuple[str, str], ...]] = []
    for spaces in (Spaces.TEMPLATES, Spaces.SKETCHES):
        _, bench = searched(path, space_of(spaces), SETUP)
        tried += [job.decisions for job in bench.asked]
    tuner, _ = searched(path, union, SETUP, rounds=0)
    found = [union.decisions(digits) for digits in tuner.history.digits]
    assert found == [one if one[0][0] == "space" else (("space", "template"), *one) for one in tried]
    assert tuner.analytic_seconds is not None
    back, _ = searched(path, space_of(Spaces.TEMPLATES), SETUP, rounds=0)
    assert 0 < len(back.history.digits) < len(found)


def test_other_threads_timings_and_schedules_are_not_known(tmp_path: Path) -> None:
    path, space = tmp_path / "r.db", space_of(Spaces.SKETCHES)
    tuner, _ = searched(path, space, SETUP)
    with Records.open(path) as records:
        assert len(measured_before(records, space, 1, tuner.timing)) > 6
        assert measured_before(records, space, 2, tuner.timing) == []
        assert measured_before(records, space, 1, replace(tuner.timing, repeats=99)) == []


def test_a_template_that_asks_the_same_and_does_something_else(tmp_path: Path) -> None:
    def rows(s: Schedule, config: Config) -> None:
        s.split(s.get_loops("C")[0], (None, config.choice("size", [2, 4, 6, 8, 12])))

    def columns(s: Schedule, config: Config) -> None:
        s.split(s.get_loops("C")[1], (None, config.choice("size", [2, 4, 6, 8, 12])))

    one, other = (Space.of(template, NAIVE, TARGET) for template in (rows, columns))
    tuner, _ = searched(tmp_path / "r.db", one, SETUP, rounds=1)
    with Records.open(tmp_path / "r.db") as records:
        assert len(measured_before(records, one, 1, tuner.timing)) == 5
        assert measured_before(records, other, 1, tuner.timing) == []


@pytest.mark.parametrize("search", [Search.EVOLUTION, Search.BEAM])
def test_the_analytic_choice_of_any_member_is_measured_first_and_is_a_parent(search: Search) -> None:
    union = space_of(Spaces.ALL)
    assert isinstance(union, Union)
    turned = Union(union.members[::-1], union.labels[::-1])
    analytic = turned.analytic()
    assert analytic is not None
    assert turned.labels[int(analytic[0])] == "template"
    scored: list[Digits] = []

    class Watched:
        """A ``Rating``."""

        def rater(self, space: Candidates, seed: int) -> "Watched":
            return self

        def fit(self, digits: Digits, throughputs: np.ndarray) -> None:
            pass

        def score(self, digits: Digits) -> np.ndarray:
            scored.append(digits)
            return np.arange(len(digits), dtype=np.float64)

    class InMemory(Measurer):
        def __init__(self) -> None:
            self.jobs: list[Job] = []

        def measure(self, jobs: Iterable[Job], *_: object) -> list[Outcome]:  # type: ignore[override]
            made = list(jobs)
            self.jobs += made
            return [Outcome(Verdict.OK, times_us=(5.0,)) for _ in made]

    tuner = KernelTuner(turned, measurer := InMemory(), Setup(first=6, batch=6, search=search, model=Watched()))
    tuner.round()
    assert measurer.jobs[0].digits == tuple(analytic.tolist())
    scored.clear()
    tuner.round()
    if search is Search.EVOLUTION:
        assert (scored[0] == analytic).all(axis=1).any(), "in the first generation"
    assert tuner.analytic_seconds == pytest.approx(5e-6)
    assert tuner.history.digits[0].tolist() == analytic.tolist()
