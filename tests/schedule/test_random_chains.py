"""Random chains of primitives on random programs keep the meaning, and replay."""

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.schedule.programs import Move, block_moves, loop_moves, tensors
from tilewright.base.errors import ScheduleError
from tilewright.loops.interpreter import Order, interpret
from tilewright.loops.lower import lower
from tilewright.loops.parser import parse_program
from tilewright.loops.program import Program
from tilewright.loops.verify import verify
from tilewright.schedule.replay import replay
from tilewright.schedule.schedule import Schedule
from tilewright.schedule.trace import Trace

_SETTINGS = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])


def attempt(s: Schedule, move: Move) -> None:
    """Apply ``move``, or see that a refusal leaves everything as it was."""
    before = (s.program, len(s.trace.steps))
    try:
        move(s)
    except ScheduleError as error:
        # `s.split(loop, s.sample_perfect_tile(...))` may have sampled before it was refused.
        assert s.program == before[0]
        assert str(s.program).splitlines()[0] in str(error)


def outputs(program: Program, order: Order) -> dict[str, np.ndarray]:
    random = np.random.default_rng(0)
    feeds = {
        p.name: random.integers(-9, 9, tuple(int(str(extent)) for extent in p.shape)).astype(p.dtype.numpy)
        for p in program.inputs
    }
    return interpret(program, feeds, order=order)


def check(naive: Program, s: Schedule) -> None:
    verify(s.program)
    wanted = outputs(naive, Order.ASCENDING)
    for order in (Order.ASCENDING, Order.SHUFFLED):
        for name, values in outputs(s.program, order).items():
            np.testing.assert_array_equal(values, wanted[name], err_msg=f"{order}\n{s.trace}\n{s.program}")
    assert parse_program(str(s.program)) == s.program
    again = replay(Trace.from_json(s.trace.to_json()), naive)
    assert again.program == s.program
    assert again.trace == s.trace


@given(st.data())
@settings(_SETTINGS, max_examples=100)
def test_loops(data: st.DataObject) -> None:
    naive = lower(data.draw(tensors()))
    s = Schedule(naive)
    for _ in range(data.draw(st.integers(2, 8))):
        attempt(s, data.draw(loop_moves(s)))
    check(naive, s)


@given(st.data())
@settings(_SETTINGS, max_examples=100)
def test_all_primitives(data: st.DataObject) -> None:
    naive = lower(data.draw(tensors()))
    s = Schedule(naive)
    for _ in range(data.draw(st.integers(2, 8))):
        attempt(s, data.draw(st.one_of(loop_moves(s), block_moves(s), block_moves(s))))
    check(naive, s)


@pytest.mark.slow
@given(st.data())
@settings(_SETTINGS, max_examples=2000)
def test_all_primitives_long(data: st.DataObject) -> None:
    naive = lower(data.draw(tensors()))
    s = Schedule(naive)
    for _ in range(data.draw(st.integers(4, 12))):
        attempt(s, data.draw(st.one_of(loop_moves(s), block_moves(s), block_moves(s))))
    check(naive, s)
