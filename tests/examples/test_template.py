"""The example's template: every schedule that it makes computes a matrix product."""

import numpy as np
import pytest

from examples import template
from tests.schedule.movement import assert_same
from tilewright.base.errors import ScheduleError
from tilewright.loops.interpreter import interpret
from tilewright.space.space import Space, size
from tilewright.tune.search.random import RandomSearcher


def test_random_candidates_compute_the_product() -> None:
    program = template.product(6, 10, 4)
    space = Space.of(template.matmul, program)
    random = np.random.default_rng(0)
    a, b = random.integers(-3, 4, (6, 4)).astype(np.float32), random.integers(-3, 4, (4, 10)).astype(np.float32)
    programs: set[str] = set()
    for digits in RandomSearcher(space, seed=0).propose(30):
        try:
            s = space.schedule(digits)
        except ScheduleError:
            continue
        assert_same(program, s.program)
        np.testing.assert_array_equal(interpret(s.program, {"A": a, "B": b})["C"], a @ b)
        programs.add(str(s.program))
    assert len(programs) >= 20


def test_size() -> None:
    assert size(Space.of(template.matmul, template.product(128, 128, 128))) == 8 * 6 * 5 * 2 * 8 * 2


def test_main_prints_a_schedule(capsys: pytest.CaptureFixture[str]) -> None:
    template.main()
    printed = capsys.readouterr().out
    assert "7680 schedules" in printed
    assert "block C(" in printed
