"""What random schedules got wrong once: each is refused now, or right."""

import numpy as np
import pytest

from tests.backend.cpu.support import run_native
from tests.backend.cpu.workloads import WORKLOADS, Workload
from tilewright.base.dtypes import f32, i32
from tilewright.base.errors import ScheduleError
from tilewright.loops.interpreter import interpret
from tilewright.loops.lower import lower
from tilewright.loops.memory import GLOBAL, LOCAL
from tilewright.loops.parser import parse_program
from tilewright.schedule.schedule import Schedule
from tilewright.tensor import build as te

BY_NAME = {workload.name: workload for workload in WORKLOADS}


def check(schedule: Schedule, workload: Workload) -> None:
    """The interpreter and native code find what they found before."""
    program = schedule.program
    results = dict(zip((r.name for r in program.results), run_native(program, workload.feeds), strict=True))
    for found in (interpret(program, workload.feeds), results):
        for name, expected in workload.expected.items():
            np.testing.assert_array_equal(found[name], expected)


def test_a_fused_reduction_starts_at_its_zero_point() -> None:
    """``reorder`` of the parts of a loop that drives spatial and reduction axes: the init would come too late."""
    schedule = Schedule(BY_NAME["max_pool"].program)
    outer, inner = schedule.split(schedule.fuse("i", "r"), [None, 4])
    with pytest.raises(ScheduleError, match="first point of the reduction"):
        schedule.reorder(inner, outer)


def test_a_padding_stage_is_not_computed_from_the_inside_only() -> None:
    """Rows of zeros read nothing of the copy, so no iteration that copies would make them."""
    schedule = Schedule(BY_NAME["conv2d"].program)
    schedule.cache_read("P", "X", LOCAL)
    with pytest.raises(ScheduleError, match="no index of"):
        schedule.reverse_compute_at("P", "X_local_1")


def test_what_a_loop_computes_anew_is_not_inlined_as_its_first_iteration() -> None:
    """After ``compute_at`` the buffer has no dimension for the loop, but the value moves with it."""
    workload = BY_NAME["welford"]
    schedule = Schedule(workload.program)
    schedule.cache_read("count", "X", GLOBAL)
    schedule.compute_at("X_global", "i")
    with pytest.raises(ScheduleError, match="computed anew"):
        schedule.compute_inline("X_global")


def test_inlining_does_not_leave_the_scope_of_what_is_read() -> None:
    schedule = Schedule(BY_NAME["dense"].program)
    schedule.compute_at("C", "i_1")
    with pytest.raises(ScheduleError, match="not allocated"):
        schedule.compute_inline("biased")


def test_padding_does_not_read_below_zero() -> None:
    with pytest.raises(ScheduleError, match="padded points"):
        Schedule(BY_NAME["transpose_add"].program).pad("Y", (2, 2))


def test_padding_does_not_read_what_a_layout_left_undefined() -> None:
    schedule = Schedule(BY_NAME["softmax"].program)
    schedule.transform_layout("Y", "total", "i -> i // 4, i % 4")
    with pytest.raises(ScheduleError, match="undefined"):
        schedule.pad("Y", (2, 4))


def test_padding_does_not_update_what_nothing_initializes() -> None:
    schedule = Schedule(BY_NAME["matmul_prime"].program)
    schedule.decompose_reduction("C", "i")
    with pytest.raises(ScheduleError, match="initializes"):
        schedule.pad("C", (2, 1, 1))


def test_an_opaque_writer_leaves_padding_undefined() -> None:
    schedule = Schedule(BY_NAME["reversed_twice"].program)
    with pytest.raises(ScheduleError, match="writes ranges"):
        schedule.transform_layout("flip", "flip", "i -> i // 4, i % 4")


def test_a_recurrent_reduction_is_decomposed_within_its_step() -> None:
    workload = BY_NAME["recurrent_cell"]
    schedule = Schedule(workload.program)
    schedule.decompose_reduction("gates", "k")
    found = interpret(schedule.program, workload.feeds)
    np.testing.assert_allclose(found["hidden"], workload.expected["hidden"], 1e-6)


def test_the_sum_of_nothing_is_zero() -> None:
    check(Schedule(BY_NAME["matmul_empty_sum"].program), BY_NAME["matmul_empty_sum"])


def test_a_reduction_over_no_axes_is_its_source() -> None:
    x = te.placeholder((3,), i32, "X")
    program = lower(te.compute((3,), lambda i: te.sum(x[i], axis=()), "Y"))
    feeds = {"X": np.int32([1, 2, 3])}
    np.testing.assert_array_equal(interpret(program, feeds)["Y"], feeds["X"])


def test_lanes_of_partial_results_do_not_share_them() -> None:
    """``rfactor`` inside a vectorized loop allocates the partial results there."""
    workload = BY_NAME["matmul_row"]
    schedule = Schedule(workload.program)
    schedule.vectorize("j")
    schedule.rfactor("k", 0)
    check(schedule, workload)


def test_two_consumers_need_the_whole_window() -> None:
    """One reads the first element of the window, the other the last."""
    x = te.placeholder((10,), f32, "X")
    t = te.compute((10,), lambda i: x[i] * 2.0, "T")
    first = te.compute((8,), lambda i: t[i], "first")
    program = lower([te.compute((8,), lambda i: first[i] + t[i + 2], "Y")])
    schedule = Schedule(program)
    (loop,) = schedule.get_loops("Y")
    schedule.compute_at("first", loop)
    schedule.compute_at("T", loop)
    values = np.arange(10, dtype=np.float32)
    expected = values[:8] * 2 + values[2:] * 2
    np.testing.assert_array_equal(interpret(schedule.program, {"X": values})["Y"], expected)
    np.testing.assert_array_equal(run_native(schedule.program, {"X": values})[0], expected)


AHEAD = """\
program ahead(X: f32[8]) -> (Y: f32[8]):
  alloc T: f32[9]
  for i in range(9):
    block start(vi = i: spatial 9):
      writes T[vi]
      T[vi] = f32(0.0)
  for j in range(8):
    block T(vj = j: spatial 8):
      reads X[vj]
      writes T[vj]
      T[vj] = X[vj]
    block Y(vk = j: spatial 8):
      reads T[vk +: 2]
      writes Y[vk]
      Y[vk] = T[vk] + T[vk + 1]
"""


def test_what_the_next_iteration_writes_is_not_read_in_parallel() -> None:
    schedule = Schedule(parse_program(AHEAD))
    with pytest.raises(ScheduleError, match="another iteration"):
        schedule.parallel("j")
