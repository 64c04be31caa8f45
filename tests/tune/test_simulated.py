"""A kernel is tuned for a processor that is not here."""

from pathlib import Path

import pytest

pytest.importorskip("capstone")
pytest.importorskip("unicorn")

from tests.measure.jobs import product
from tilewright.base.errors import BadInput, Unsupported
from tilewright.measure.records import Records
from tilewright.measure.row import State
from tilewright.target.target import Target
from tilewright.tune.kernel import TunedKernel, tune_kernel

A72 = Target.parse("aarch64,cortex-a72")


def tuned(records: Path) -> TunedKernel:
    """By a search that measures a few candidates."""
    naive = product("p", 40)
    return tune_kernel(naive, target=A72, simulated=True, trials=8, search="random", transfer=False, records=records)


@pytest.mark.slow
def test_the_same_search_finds_the_same(tmp_path: Path) -> None:
    first, again = tuned(tmp_path / "a.db"), tuned(tmp_path / "b.db")
    assert first.schedule.trace == again.schedule.trace
    assert (first.microseconds, first.analytic_microseconds) == (again.microseconds, again.analytic_microseconds)
    assert first.microseconds <= first.analytic_microseconds
    assert first.microseconds >= 40**3 / 4 / 1e3  # thousands of cycles; one multiply-add of a vector in each
    with Records.open(tmp_path / "a.db") as records:
        every = list(records.all())
        assert {record.job.timing.simulated for record in every} == {"cortex-a72 1"}
        confirmed = [record for record in every if record.state is State.CONFIRMED]
    assert len(confirmed) == first.is_kept


def test_what_can_not_be_simulated_is_refused() -> None:
    with pytest.raises(BadInput, match="one thread"):
        tune_kernel(product("p", 8), target=A72, simulated=True, threads=2)
    with pytest.raises(Unsupported, match="cortex-a72"):
        tune_kernel(product("p", 8), target=Target.parse("x86_64"), simulated=True)
