"""The compiler's own space as a tuner sees it: the same candidates, and each computes what the program says."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.measure.jobs import product
from tilewright.cost.analytic import schedule
from tilewright.loops.interpreter import interpret
from tilewright.schedule.schedule import Schedule
from tilewright.space.space import Space
from tilewright.target.target import Target
from tilewright.tune.spaces import kernel_space

HOST = Target.host()
PRODUCT = product("mm", 9)
SPACE = kernel_space(PRODUCT, HOST)


def everything(space: Space) -> np.ndarray:
    return np.indices(space.radices).reshape(len(space.radices), -1).T


def test_the_analytic_candidate_is_what_the_compiler_takes() -> None:
    taken = schedule(Schedule(PRODUCT), HOST)
    assert str(SPACE.schedule(SPACE.analytic()).program) == str(taken.program)


def test_the_analytic_candidate_has_the_best_estimate() -> None:
    allowed = everything(SPACE)
    allowed = allowed[SPACE.allowed(allowed)]
    assert SPACE.estimates(SPACE.analytic()[None])[0] == pytest.approx(SPACE.estimates(allowed).min(), rel=1e-9)


@given(st.data())
def test_every_allowed_candidate_computes_the_same(data: st.DataObject) -> None:
    allowed = everything(SPACE)
    allowed = allowed[SPACE.allowed(allowed)]
    digits = allowed[data.draw(st.integers(0, len(allowed) - 1))]
    assert (SPACE.digits(SPACE.describe(digits)) == digits).all()
    random = np.random.default_rng(0)
    inputs = {name: random.standard_normal((9, 9)).astype(np.float32) for name in "AB"}
    found = interpret(SPACE.schedule(digits).program, inputs)["C"]
    np.testing.assert_allclose(found, interpret(PRODUCT, inputs)["C"], rtol=1e-5)
