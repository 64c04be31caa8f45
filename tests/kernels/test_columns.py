"""Chains of reductions along an axis before the last one: all steps of a strip of columns, then those of the next."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.backend.cpu.support import Array, run_native
from tests.closeness import assert_near
from tilewright import te
from tilewright.base.dtypes import f32
from tilewright.cost.analytic import schedule
from tilewright.loops.ir import Alloc, Loop, LoopKind
from tilewright.loops.lower import lower
from tilewright.loops.memory import LOCAL
from tilewright.loops.program import Program
from tilewright.loops.visit import walk
from tilewright.ops.operator import require
from tilewright.schedule.schedule import Schedule
from tilewright.target.target import Target
from tilewright.tensor.build import placeholder

TARGETS = [Target.host(), Target.host().restricted("avx2")]
SHAPES = st.lists(st.integers(1, 9), min_size=1, max_size=2)


def along(operator: str, shape: tuple[int, ...], axis: int) -> Program:
    x = placeholder(shape, f32, "x")
    return lower(require(operator).apply([x], {"axis": axis}), name="k", inputs=[x])


def normalized(shape: tuple[int, ...], axis: int) -> Program:
    """``x`` less its mean along ``axis``, by the root of the mean of the squares of that."""
    x, count = te.placeholder(shape, name="x"), float(shape[axis])
    kept = tuple(1 if place == axis else extent for place, extent in enumerate(shape))

    def at(index: tuple[te.Expr, ...], place: te.Expr) -> tuple[te.Expr, ...]:
        return (*index[:axis], place, *index[axis + 1 :])

    zero, k, r = te.const(0), te.reduce_axis((0, shape[axis]), name="k"), te.reduce_axis((0, shape[axis]), name="r")
    mean = te.compute(kept, lambda *i: te.sum(x[at(i, k.var)], axis=[k]), name="mean")
    centred = te.compute(shape, lambda *i: x[i] - mean[at(i, zero)] / count, name="centred")
    squares = te.compute(kept, lambda *i: te.sum(centred[at(i, r.var)] * centred[at(i, r.var)], axis=[r]), name="sq")
    result = te.compute(shape, lambda *i: centred[i] / te.sqrt(squares[at(i, zero)] / count + 1e-3), name="result")
    return lower([result], name="k", inputs=[x])


def random(shape: tuple[int, ...]) -> Array:
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


def expected(operator: str, x: Array, axis: int) -> Array:
    """The same in float64."""
    wide = x.astype(np.float64)
    if operator == "Normalized":
        centred = wide - wide.mean(axis, keepdims=True)
        return centred / np.sqrt((centred**2).mean(axis, keepdims=True) + 1e-3)
    raised = np.exp(wide - wide.max(axis, keepdims=True))
    share = raised / raised.sum(axis, keepdims=True)
    return np.log(share) if operator == "LogSoftmax" else share


@pytest.mark.parametrize("target", TARGETS, ids=["host", "avx2"])
@pytest.mark.parametrize("operator", ["Softmax", "LogSoftmax", "Normalized"])
@given(before=SHAPES, reduced=st.integers(1, 40), columns=st.integers(1, 70))
@settings(max_examples=15)
def test_results(target: Target, operator: str, before: list[int], reduced: int, columns: int) -> None:
    shape, axis = (*before, reduced, columns), len(before)
    naive = normalized(shape, axis) if operator == "Normalized" else along(operator, shape, axis)
    x = random(shape)
    (result,) = run_native(schedule(Schedule(naive), target).program, {"x": x}, checked=True, target=target)
    assert_near(result, expected(operator, x, axis).astype(np.float32), 1e-5)


@pytest.mark.parametrize("target", TARGETS, ids=["host", "avx2"])
@pytest.mark.parametrize(("shape", "axis"), [((300, 40, 510), 1), ((90, 7000), 0), ((3, 20, 50, 300), 1)])
def test_no_step_goes_over_all_columns(target: Target, shape: tuple[int, ...], axis: int) -> None:
    """What is between the steps has the columns of a strip, in each worker's memory; strips are distributed."""
    for naive in (along("Softmax", shape, axis), normalized(shape, axis)):
        statements = list(walk(schedule(Schedule(naive), target).program.body))
        made = [stmt.buffer for stmt in statements if isinstance(stmt, Alloc)]
        assert made
        assert all(buffer.memory == LOCAL for buffer in made)
        assert all(int(str(buffer.shape[-1])) <= 8 * target.lanes(32) for buffer in made)
        loops = [stmt for stmt in statements if isinstance(stmt, Loop) and stmt.kind is LoopKind.PARALLEL]
        assert len(loops) == len(shape) - 1
