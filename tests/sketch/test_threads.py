"""Sketches for blocks and threads: samples run on the reference back end as the naive program does."""

from collections import Counter
from collections.abc import Iterator

import numpy as np
import pytest

from tests.sketch.computations import NAMES, outputs
from tests.sketch.test_samples import FOUR_CORES, MOST_REFUSED, MOST_WRONG, reason
from tilewright import te
from tilewright.backend.reference.machine import run_reference
from tilewright.base.arrays import random_array
from tilewright.base.errors import ScheduleError
from tilewright.loops.launch import launches
from tilewright.loops.program import Program
from tilewright.schedule.schedule import Schedule
from tilewright.sketch import BLOCKS_AND_THREADS, sketch_spaces

FAST = ("least", "sum", "norm", "pooling", "long sums")


def samples(naive: Program, count: int, seed: int) -> Iterator[Schedule | str]:
    """So many candidates, each of some sketch; for one that has no schedule, why."""
    random = np.random.default_rng(seed)
    spaces = [space for _, space in sketch_spaces(naive, FOUR_CORES, structure=BLOCKS_AND_THREADS)]
    for _ in range(count):
        space = spaces[random.integers(len(spaces))]
        try:
            yield space.schedule(space.sample(1, random)[0])
        except ScheduleError as error:
            yield reason(error)


def check(naive: Program, one: Schedule) -> None:
    """No races, no wrong accesses, no barriers missing; and what the naive program computes."""
    random = np.random.default_rng(0)
    feeds = {b.name: random_array(b.dtype, [int(str(e)) for e in b.shape], random) for b in naive.inputs}
    expected, _ = run_reference(naive, feeds, {})
    found, report = run_reference(one.program, feeds, {})
    report.check()
    for name, right in expected.items():
        exact, made = right.astype(np.float64), found[name].astype(np.float64)
        assert np.abs(made - exact).max() <= MOST_WRONG * max(np.abs(exact).max(), 1e-9), one.trace


def test_what_a_product_becomes() -> None:
    naive = te.create_schedule(outputs("product")).program
    found = [one for one in samples(naive, 5, seed=2) if isinstance(one, Schedule)]
    texts = [str(one) for one in found]
    assert all("in shared" in text and "in local" in text and "blockIdx.x" in text for text in texts)
    assert any("barrier" in text for text in texts)
    assert all(len(launches(one.program)) == 1 for one in found)


@pytest.mark.parametrize("name", FAST)
def test_samples(name: str) -> None:
    naive = te.create_schedule(outputs(name)).program
    for one in samples(naive, 2, seed=0):
        assert isinstance(one, Schedule), one
        check(naive, one)


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_many_samples(name: str) -> None:
    naive = te.create_schedule(outputs(name)).program
    found = [*samples(naive, 40, seed=1)]
    refused = Counter(one for one in found if isinstance(one, str))
    assert refused.total() <= MOST_REFUSED * len(found), refused
    for one in [one for one in found if isinstance(one, Schedule)][:4]:
        check(naive, one)
