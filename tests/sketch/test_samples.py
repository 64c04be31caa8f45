"""Random samples of sketches compute what the naive program does; hardly any has no schedule."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

from tests.sketch import programs
from tilewright import te
from tilewright.base.errors import ScheduleError
from tilewright.schedule.schedule import Schedule
from tilewright.sketch import sketch_spaces
from tilewright.target.target import Target
from tilewright.tensor.ir import Tensor

FOUR_CORES = replace(Target.host(), cores=4)
OUTPUTS = {
    "product": programs.matmul(12, 48, 20),
    "long sums": programs.matmul(4, 4, 64),
    "two products": programs.two_products(12, 8, 20),
    "convolution": programs.convolution(6, 4, 16),
    "pooling": programs.max_pool(9, 3),
    "least": programs.least(5, 96),
    "softmax": programs.softmax(5, 36),
    "sum": programs.everything_summed(12, 40),
    "norm": programs.norm(16),
    "product of rows": programs.product_of_rows(12, 24, 40),
    "gram": programs.gram(12, 32),
    "stencils": programs.smoothed_twice(13, 30),
}
MOST_REFUSED = 0.05


def samples(output: Tensor, count: int, seed: int) -> Iterator[Schedule | None]:
    """So many candidates of each sketch; None for one that has no schedule."""
    random = np.random.default_rng(seed)
    for _, space in sketch_spaces(programs.naive(output), FOUR_CORES):
        for digits in space.sample(count, random):
            try:
                yield space.schedule(digits)
            except ScheduleError:
                yield None


def check(name: str, count: int, seed: int) -> None:
    """Each sample is built, and compared with the interpreter."""
    output = OUTPUTS[name]
    whole, found = te.create_schedule(output), [*samples(output, count, seed)]
    assert sum(one is None for one in found) <= MOST_REFUSED * len(found)
    for one in found:
        if one is not None:
            compared = te.build(whole.scheduled(one), threads=2).check()
            assert all(difference.worst < 1e-4 for difference in compared.values()), one.trace


@pytest.mark.parametrize("name", OUTPUTS)
def test_samples(name: str) -> None:
    check(name, 2, seed=0)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("name", OUTPUTS)
def test_many_samples(name: str, seed: int) -> None:
    check(name, 20, seed=seed + 1)
