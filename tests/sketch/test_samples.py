"""Random samples of sketches compute what the naive program does; hardly any has no schedule."""

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

from tests.sketch.computations import NAMES, outputs
from tilewright import te
from tilewright.base.arrays import random_array
from tilewright.base.errors import ScheduleError
from tilewright.loops.interpreter import interpret
from tilewright.measure.difference import Reference
from tilewright.schedule.schedule import Schedule
from tilewright.sketch import sketch_spaces
from tilewright.target.target import Target
from tilewright.te.stage import TeSchedule

FOUR_CORES = replace(Target.host(), cores=4)
MOST_REFUSED = 0.05
MANY = 500
MOST_WRONG = 1e-4
"""Of float32: sums are added up in other orders than the interpreter's."""


def samples(whole: TeSchedule, count: int, seed: int) -> Iterator[Schedule | str]:
    """So many candidates, each of some sketch; for one that has no schedule, why."""
    random = np.random.default_rng(seed)
    spaces = [space for _, space in sketch_spaces(whole.program, FOUR_CORES)]
    for _ in range(count):
        space = spaces[random.integers(len(spaces))]
        try:
            yield space.schedule(space.sample(1, random)[0])
        except ScheduleError as error:
            yield reason(error)


def reason(error: ScheduleError) -> str:
    """Which primitive refuses, and why, without names and numbers."""
    call, _, why = str(error).splitlines()[0].partition(" is refused: ")
    return f"{call.split('(')[0]}: {re.sub('`[^`]*`|[0-9]+', '_', why)}"


class Interpreted:
    """Random inputs of a computation, and what the interpreter makes of them: once for all of its samples."""

    def __init__(self, whole: TeSchedule) -> None:
        self._whole = whole
        random = np.random.default_rng(0)
        self._feeds = {
            buffer.name: random_array(buffer.dtype, tuple(int(str(extent)) for extent in buffer.shape), random)
            for buffer in whole.naive.inputs
        }
        self._results = interpret(whole.naive, self._feeds)

    def check(self, one: Schedule) -> None:
        """``one`` is built, and computes the same."""
        kernel = te.build(self._whole.scheduled(one), threads=2)
        for spec, found in zip(kernel.outputs, kernel.run(None, self._feeds), strict=True):
            difference = Reference.of(self._results[spec.name]).difference(found)
            assert difference.worst < MOST_WRONG, one.trace


def test_forty_computations() -> None:
    assert len(set(NAMES)) == len(NAMES) >= 40


@pytest.mark.share(3)
@pytest.mark.parametrize("name", NAMES)
def test_samples(name: str) -> None:
    """Some are scheduled, one is built."""
    whole = te.create_schedule(outputs(name))
    found = [*samples(whole, 5, seed=0)]
    scheduled = [one for one in found if isinstance(one, Schedule)]
    assert len(scheduled) >= len(found) - 1, Counter(one for one in found if isinstance(one, str))
    Interpreted(whole).check(scheduled[0])


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_many_samples(name: str) -> None:
    """20,000 over all computations."""
    whole = te.create_schedule(outputs(name))
    interpreted, refused = Interpreted(whole), Counter[str]()
    for one in samples(whole, MANY, seed=1):
        if isinstance(one, str):
            refused[one] += 1
        else:
            interpreted.check(one)
    print(name, dict(refused))
    assert refused.total() <= MOST_REFUSED * MANY, refused
