"""The fastest candidate, wrong on purpose, never becomes the best."""

import sys
from dataclasses import replace
from pathlib import Path

from tests.measure.jobs import HOST as TARGET
from tests.measure.jobs import product
from tests.tune.cheating_child import is_honest
from tilewright.measure.limits import Limits
from tilewright.measure.pool import Pool
from tilewright.measure.records import Records
from tilewright.measure.row import State
from tilewright.measure.verdicts import Verdict
from tilewright.target.target import Target
from tilewright.tune.kernel_tuner import KernelTuner, Setup
from tilewright.tune.measurer import Measurer
from tilewright.tune.recorded import CONFIRMING_AGAIN
from tilewright.tune.spaces import kernel_space

CHEATING = (sys.executable, "-P", str(Path(__file__).with_name("cheating_child.py")))
HOST = Target.parse(TARGET)
SPACE = kernel_space(replace(product("mm", 40), name="tuned"), HOST)


def test_a_wrong_candidate_never_becomes_the_best(tmp_path: Path) -> None:
    limits = Limits(uses=1000)
    with (
        Records.open(tmp_path / "r.db") as records,
        records.session({}) as session,
        Pool(1, limits, command=CHEATING) as pool,
    ):
        tuner = KernelTuner(SPACE, Measurer(pool, records, session), Setup(first=8, batch=8))
        tuner.round()
        assert tuner.history.verdicts[Verdict.WRONG] >= 2
        assert tuner.history.verdicts[Verdict.OK] >= 2
        best = tuner.history.best
        assert best is not None
        assert is_honest(tuner.job(tuner.history.digits[best]))
        for candidate in tuner.confirm():  # those that are slower than others are not in all rounds
            every = [candidate.job, *(replace(candidate.job, seed=seed) for seed in CONFIRMING_AGAIN)]
            assert all(map(is_honest, every)) or candidate.microseconds == float("inf")
        best_of_all = records.best(SPACE.naive, TARGET, 1, State.REPEATED, count=100)
        assert all(is_honest(record.job) for record in best_of_all)
