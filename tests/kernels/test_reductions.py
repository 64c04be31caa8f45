"""Sums of rows: elements that lie side by side are joined until they fill lanes."""

from math import prod

import numpy as np
import pytest

from tests.backend.cpu.support import run_native
from tilewright import te
from tilewright.kernels.reductions import reduces_rows, schedule_reduction
from tilewright.loops.lower import lower
from tilewright.loops.program import Program
from tilewright.schedule.schedule import Schedule
from tilewright.schedule.tree import BlockRef, all_blocks

LANES = 16


def total(shape: tuple[int, ...], axes: tuple[int, ...]) -> Program:
    """The sum over ``axes``; it keeps the others."""
    x = te.placeholder(shape, name="x")
    reduced = {axis: te.reduce_axis((0, shape[axis]), name=f"r{axis}") for axis in axes}
    kept = [axis for axis in range(len(shape)) if axis not in axes]

    def element(*index: te.Expr) -> te.Expr:
        places = {**reduced, **dict(zip(kept, index, strict=True))}
        return te.sum(x[tuple(places[axis] for axis in range(len(shape)))], axis=list(reduced.values()))

    return lower([te.compute(tuple(shape[axis] for axis in kept), element, name="y")], name="k", inputs=[x])


@pytest.mark.parametrize(
    ("shape", "axes", "joined"),
    [
        ((6, 4, 9, 5), (0, 2, 3), True),
        ((6, 4, 9, 3), (2, 3), True),
        ((6, 4, 1, 5), (2, 3), False),
        ((6, 4, 9, 32), (2, 3), False),
        ((6, 9, 4, 5), (1, 3), False),
    ],
)
def test_short_rows_are_joined(shape: tuple[int, ...], axes: tuple[int, ...], joined: bool) -> None:
    program = total(shape, axes)
    (block,) = all_blocks(program.body)
    assert reduces_rows(block)
    s = Schedule(program)
    schedule_reduction(s, BlockRef("y"), LANES, parallel=False)
    assert ("s.fuse(" in str(s.trace)) is joined
    values = np.arange(prod(shape), dtype=np.float32).reshape(shape) % 7
    (result,) = run_native(s.program, {"x": values})
    np.testing.assert_array_equal(result, values.sum(axis=axes))


@pytest.mark.parametrize(("size", "step", "in_lanes"), [(32, 32, True), (32, 40, True), (32, 31, False), (4, 4, False)])
def test_rows_one_after_the_other_are_no_windows(size: int, step: int, in_lanes: bool) -> None:
    """Long ones have partial results in lanes; windows that overlap, and short ones, are lanes."""
    x, k = te.placeholder((3, 8 * step + size), name="x"), te.reduce_axis((0, size), name="k")
    y = te.compute((3, 8), lambda i, j: te.max(x[i, j * step + k.var], axis=k), name="y")
    program = lower([y], name="k", inputs=[x])
    (block,) = all_blocks(program.body)
    assert reduces_rows(block) is in_lanes
    s = Schedule(program)
    schedule_reduction(s, BlockRef("y"), LANES, parallel=False)
    values = np.random.default_rng(0).standard_normal((3, 8 * step + size)).astype(np.float32)
    (result,) = run_native(s.program, {"x": values})
    windows = np.lib.stride_tricks.sliding_window_view(values, size, axis=1)[:, : 8 * step : step]
    np.testing.assert_array_equal(result, windows.max(axis=-1))
