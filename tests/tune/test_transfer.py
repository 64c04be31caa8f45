"""A search begins with what was measured of similar kernels."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.measure.jobs import HOST as TARGET
from tests.measure.jobs import product
from tests.tune.test_kernel_tuner import MadeUp
from tilewright.measure.records import Records
from tilewright.measure.verdicts import Outcome, Verdict
from tilewright.space.space import Digits, Floats, Space
from tilewright.target.target import Target
from tilewright.tune.kernel_tuner import KernelTuner, Setup
from tilewright.tune.model_tuner import Computed, ModelTuner
from tilewright.tune.nearest import measured_nearby
from tilewright.tune.recorded import named
from tilewright.tune.spaces import space_of

HOST = Target.parse(TARGET)
NEAR, WANTED = (space_of(named(product("mm", size)), HOST) for size in (96, 128))
SETUP = Setup(first=16, batch=16)


def microseconds(space: Space, digits: Digits) -> Floats:
    """The opposite of what the analytic model thinks: only records can tell."""
    estimates = space.estimates(digits)
    assert estimates is not None
    return 1e9 / estimates


def measured_before(path: Path) -> None:
    """Of the similar kernel, 60 candidates."""
    random = np.random.default_rng(0)
    rows = np.stack([random.integers(0, radix, 4000) for radix in NEAR.radices], axis=1)
    rows = rows[NEAR.allowed(rows)][:60]
    tuner = KernelTuner(NEAR, MadeUp(), SETUP)
    with Records.open(path) as records, records.session({}) as session:
        for digits, time in zip(rows, microseconds(NEAR, rows), strict=True):
            records.add(session, tuner.job(digits), Outcome(Verdict.OK, times_us=(float(time),)))


def first_batch(records: Records | None, setup: Setup) -> Floats:
    """What the candidates take that a search for the wanted kernel measures first."""
    tuner = ModelTuner([[Computed(WANTED.naive, 1)]], HOST, MadeUp(), setup, records).kernels[0].tuner
    tuner.round()
    return microseconds(WANTED, np.array(tuner.history.digits[1:]))  # the first one is the analytic model's


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("transfer") / "r.db"
    measured_before(found)
    return found


def test_the_first_candidates_are_those_that_similar_kernels_suggest(path: Path) -> None:
    with Records.open(path) as records:
        with_history, without = first_batch(records, SETUP), first_batch(records, replace(SETUP, transfer=False))
        np.testing.assert_array_equal(without, first_batch(None, SETUP))
    assert np.median(with_history) < np.median(without) / 2


def test_history_is_of_the_same_threads_and_family_and_of_sessions_that_ended(path: Path) -> None:
    with Records.open(path) as records:
        (seen,) = measured_nearby(records, WANTED, SETUP, space_of)
        assert len(seen.features) == 60
        assert measured_nearby(records, NEAR, SETUP, space_of) == []
        assert measured_nearby(records, WANTED, replace(SETUP, threads=2), space_of) == []
        assert measured_nearby(records, WANTED, replace(SETUP, device="board"), space_of) == []
        with records.session({}) as session:
            tuner = KernelTuner(space_of(named(product("mm", 112)), HOST), MadeUp(), SETUP)
            digits = tuner.space.analytic()
            assert digits is not None
            assert (
                KernelTuner(tuner.space, MadeUp(), replace(SETUP, device="board")).job(digits).timing.device == "board"
            )
            records.add(session, tuner.job(digits), Outcome(Verdict.OK, times_us=(1.0,)))
            assert len(measured_nearby(records, WANTED, SETUP, space_of)) == 1
        assert len(measured_nearby(records, WANTED, SETUP, space_of)) == 2


def test_digits_of_another_space_are_left_out(path: Path) -> None:
    def another(program: object, target: Target) -> Space:
        del program, target
        return space_of(named(product("mm", 40)), HOST)

    with Records.open(path) as records:
        assert measured_nearby(records, WANTED, SETUP, another) == []
