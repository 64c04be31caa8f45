"""A time that can't be is not believed."""

import pytest

from tests.measure.jobs import EMPTY, HOST, QUICK, product
from tilewright.loops.lower import lower
from tilewright.measure.candidate import Bench
from tilewright.measure.clock import Clock, Times
from tilewright.measure.job import Job
from tilewright.measure.limits import Limits
from tilewright.measure.messages import Said
from tilewright.measure.requests import Request
from tilewright.measure.roofline import least_us
from tilewright.measure.verdicts import Outcome, Phase, Verdict
from tilewright.target.target import Target
from tilewright.tensor import build as te


def test_the_least_time_is_that_of_the_multiply_adds() -> None:
    target = Target.parse(HOST)
    each = target.fma_per_cycle * target.lanes(32) * 8000.0
    assert least_us(product("mm", 64), target, 1) == pytest.approx(64**3 / each)
    assert least_us(product("mm", 64), target, 2) == pytest.approx(64**3 / each / 2)
    a = te.placeholder((64, 64), name="a")
    assert least_us(lower(te.compute((64, 64), lambda i, j: a[i, j] * 2.0 + 1.0, name="b"), "b"), target, 1) == 0.0


@pytest.mark.parametrize(("microseconds", "verdict"), [(0.001, Verdict.WRONG), (50.0, Verdict.OK)])
def test_what_is_faster_than_can_be_is_wrong(
    monkeypatch: pytest.MonkeyPatch, microseconds: float, verdict: Verdict
) -> None:
    monkeypatch.setattr(Clock, "time", lambda *_: Times((100.0, microseconds), 1.0, 0.0))
    said: list[Said] = []
    Bench(Limits()).measure(Request(0, Job(str(product("mm", 64)), EMPTY, HOST, timing=QUICK), 30.0), said.append)
    (*_, outcome) = said
    assert isinstance(outcome, Outcome)
    assert outcome.verdict is verdict
    assert verdict is Verdict.OK or (outcome.phase is Phase.TIME and "multiply-adds" in outcome.detail)
