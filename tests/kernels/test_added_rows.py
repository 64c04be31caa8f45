"""Rows that are combined to one: strip by strip, and of each a few rows at a time."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.backend.cpu.support import run_native
from tests.closeness import assert_near
from tilewright import te
from tilewright.base.dtypes import f32
from tilewright.cost.analytic import schedule
from tilewright.kernels.reductions import adds_rows
from tilewright.loops.ir import Alloc, Loop, LoopKind
from tilewright.loops.lower import lower
from tilewright.loops.program import Program
from tilewright.loops.visit import walk
from tilewright.ops.operator import require
from tilewright.schedule.schedule import Schedule
from tilewright.schedule.tree import all_blocks
from tilewright.target.target import Target
from tilewright.tensor.ir import Tensor

ZEN3 = Target.parse("x86_64,znver3,l1=32K,l2=512K,l3=32M,cores=1")
TARGETS = [Target.host(), Target.host().restricted("avx2")]


def reduced(operator: str, shape: tuple[int, ...], axis: int) -> Program:
    x = te.placeholder(shape, f32, "x")
    return lower(require(operator).apply([x], {"axes": (axis,), "keepdims": 0}), name="k", inputs=[x])


def mean(rows: int, columns: int) -> Program:
    return reduced("ReduceMean", (rows, columns), 0)


def buffers(program: Program) -> list[tuple[int, ...]]:
    allocated = [stmt.buffer.shape for stmt in walk(program.body) if isinstance(stmt, Alloc)]
    return [tuple(int(str(extent)) for extent in shape) for shape in allocated]


def parallel(program: Program) -> list[int]:
    loops = [stmt for stmt in walk(program.body) if isinstance(stmt, Loop) and stmt.kind is LoopKind.PARALLEL]
    return [int(str(loop.extent)) for loop in loops if str(loop.extent) != "1"]


@pytest.mark.parametrize("target", TARGETS, ids=["host", "avx2"])
@pytest.mark.parametrize("operator", ["ReduceMean", "ReduceMax", "ReduceSum", "ReduceL2"])
@given(before=st.integers(1, 3), rows=st.integers(16, 70), columns=st.integers(800, 1300))
@settings(max_examples=10)
def test_results(target: Target, operator: str, before: int, rows: int, columns: int) -> None:
    program = schedule(Schedule(reduced(operator, (before, rows, columns), 1)), target).program
    assert "_rf" in str(program)
    x = np.random.default_rng(rows).standard_normal((before, rows, columns)).astype(np.float32)
    (result,) = run_native(program, {"x": x}, checked=True, target=target)
    wide = x.astype(np.float64)
    wanted = {
        "ReduceMean": wide.mean(1),
        "ReduceMax": wide.max(1),
        "ReduceSum": wide.sum(1),
        "ReduceL2": np.sqrt((wide**2).sum(1)),
    }[operator]
    assert_near(result, wanted.astype(np.float32), 1e-5)


@pytest.mark.parametrize("place", [(0, 700), (15, 3), (39, 0)], ids=str)
def test_one_nan_is_the_largest_of_its_column_only(place: tuple[int, int]) -> None:
    x = np.random.default_rng(0).standard_normal((40, 1000)).astype(np.float32)
    x[place] = np.nan
    program = schedule(Schedule(reduced("ReduceMax", x.shape, 0)), ZEN3.restricted("avx2")).program
    assert "_rf" in str(program)
    (result,) = run_native(program, {"x": x})
    np.testing.assert_array_equal(result, x.max(0))


def test_sums_of_a_strip_stay_near_and_parts_of_them_in_registers() -> None:
    program = schedule(Schedule(mean(96, 14336)), ZEN3).program
    strip, part = buffers(program)
    assert 512 <= strip[-1] <= 1024
    assert part[-1] <= 4 * ZEN3.lanes(32)
    assert parallel(program) == [-(-14336 // strip[-1])]


@pytest.mark.parametrize(
    ("rows", "columns", "is_far"),
    [(96, 2048, True), (8, 14336, False), (96, 100, False), (16, 256, False), (40, 256, True)],
)
def test_only_many_long_rows_are_read_so(rows: int, columns: int, is_far: bool) -> None:
    """Few rows are streams that processors foresee, and what the first cache holds has no streams."""
    assert ("_rf" in str(schedule(Schedule(mean(rows, columns)), ZEN3).program)) == is_far


def test_cores_share_a_single_row_of_results() -> None:
    two = Target.parse("x86_64,znver3,l1=32K,l2=512K,l3=32M,cores=2")
    assert parallel(schedule(Schedule(mean(384, 2048)), two).program) == [4]
    assert parallel(schedule(Schedule(mean(384, 2048)), ZEN3).program) == [2]


X = te.placeholder((20, 30, 40), name="x")
R, Q = te.reduce_axis((0, 30), "r"), te.reduce_axis((0, 11), "q")


@pytest.mark.parametrize(
    ("tensor", "expected"),
    [
        (te.compute((20, 40), lambda i, j: te.sum(X[i, R, j], axis=R)), True),
        (te.compute((40, 20), lambda j, i: te.sum(X[i, R, j], axis=R)), False),  # lanes lie apart
        (te.compute((30, 20), lambda i, j: te.sum(X[j, i, Q], axis=Q)), False),  # along the rows
        (te.compute((20, 20, 40), lambda h, i, j: te.sum(X[i, h + Q, j], axis=Q)), False),  # a window
        (te.compute((20, 30), lambda i, j: te.sum(X[i, R, j + 1], axis=R)), False),  # a part of rows
    ],
    ids=["rows", "transposed", "within rows", "window", "shifted"],
)
def test_what_rows_are(tensor: Tensor, expected: bool) -> None:
    (block,) = all_blocks(lower(tensor, "k").body)
    assert adds_rows(block) == expected
