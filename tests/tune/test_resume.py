"""A search that ends at any moment goes on as if it had not, from its records alone."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.measure.jobs import HOST as TARGET
from tests.measure.jobs import product
from tilewright.measure.job import Job
from tilewright.measure.records import Records
from tilewright.measure.verdicts import Outcome, Verdict
from tilewright.target.target import Target
from tilewright.tune.kernel_tuner import KernelTuner, Setup, Start
from tilewright.tune.measurer import Measurer
from tilewright.tune.spaces import kernel_space

SPACE = kernel_space(replace(product("mm", 64), name="tuned"), Target.parse(TARGET))
ROUNDS = 4


class KilledError(Exception):
    """The search is over, in the middle of something."""


class MadeUpBench:
    """Times that depend on the job alone; dies before the ``last`` measurement."""

    def __init__(self, last: int | None = None) -> None:
        self.asked: list[str] = []
        self._last = last

    def measure_all(self, jobs: Iterable[Job]) -> Iterator[tuple[Job, Outcome]]:
        for job in jobs:
            if len(self.asked) == self._last:
                raise KilledError
            self.asked.append(job.id)
            time = np.random.default_rng(int(job.id[:8], 16)).uniform(1, 9)
            yield job, Outcome(Verdict.CRASH, "SIGSEGV") if time > 7 else Outcome(Verdict.OK, times_us=(time,))


def search(path: Path, bench: MadeUpBench, setup: Setup) -> KernelTuner:
    with Records.open(path) as records, records.session({}) as session:
        tuner = KernelTuner(SPACE, Measurer(bench, records, session), setup)
        for _ in range(ROUNDS):
            tuner.round()
        return tuner


@pytest.fixture(scope="module", params=Start)
def uninterrupted(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Setup, MadeUpBench, KernelTuner]:
    setup = Setup(first=12, batch=12, seed=5, start=request.param)
    bench = MadeUpBench()
    return setup, bench, search(tmp_path_factory.mktemp("whole") / "whole.db", bench, setup)


@pytest.mark.share(3)
@pytest.mark.parametrize("killed_at", [0, 1, 11, 12, 13, 30, 40])
def test_a_search_that_was_killed(
    uninterrupted: tuple[Setup, MadeUpBench, KernelTuner], killed_at: int, tmp_path: Path
) -> None:
    setup, whole, wanted = uninterrupted
    assert killed_at < len(whole.asked) <= ROUNDS * 12
    first, second = MadeUpBench(last=killed_at), MadeUpBench()
    with pytest.raises(KilledError):
        search(tmp_path / "killed.db", first, setup)
    found = search(tmp_path / "killed.db", second, setup)
    assert first.asked + second.asked == whole.asked
    assert found.history.throughputs == wanted.history.throughputs


def test_what_another_search_has_measured_is_taken_from_its_records(tmp_path: Path) -> None:
    search(tmp_path / "r.db", MadeUpBench(), Setup(first=12, batch=12, seed=1))
    again = MadeUpBench()
    search(tmp_path / "r.db", again, Setup(first=12, batch=12, seed=1))
    assert again.asked == []
    other = MadeUpBench()
    search(tmp_path / "r.db", other, Setup(first=12, batch=12, seed=2))
    assert 0 < len(other.asked) <= ROUNDS * 12
