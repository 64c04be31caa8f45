"""The reference back end: what it counts, and what it finds."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.loops import workloads
from tests.schedule.movement import small_integers
from tilewright import te
from tilewright.backend.reference import Fault, Report, Thread, run_reference
from tilewright.base.arrays import Array
from tilewright.base.errors import BadFeed, BadProgram
from tilewright.loops.interpreter import interpret
from tilewright.loops.ir import NOTHING, Barrier, Loop
from tilewright.loops.lower import lower
from tilewright.loops.memory import GLOBAL, LOCAL, SHARED, Memory, Sharing
from tilewright.loops.parser import parse_program
from tilewright.loops.program import Program
from tilewright.loops.verify import verify
from tilewright.loops.visit import transform_stmts

PAGE = (Path(__file__).parents[3] / "docs" / "reference-backend.md").read_text()
SIZE, TILE, THREADS, STEP = 64, 16, 8, 8


def example() -> dict[str, object]:
    """The names that the page's example leaves behind."""
    names: dict[str, object] = {}
    code = PAGE.split("```python\n")[1].split("```")[0]
    exec(code, names)
    return names


def without_barrier(program: Program, number: int) -> Program:
    """``program`` without one of its barriers, counted in program order."""
    seen = iter(range(1 << 30))
    body = transform_stmts(program.body, lambda s: NOTHING if isinstance(s, Barrier) and next(seen) == number else None)
    return replace(program, body=body)


def test_the_matmul_of_the_page() -> None:
    """By hand: 16 blocks copy 64 rows of A and 64 columns of B in 16; 64 threads multiply tiles of 2 x 2."""
    names = example()
    outputs, report, a, b = (names[name] for name in ("outputs", "report", "a", "b"))
    assert isinstance(report, Report)
    assert isinstance(outputs, dict)
    np.testing.assert_allclose(outputs["C"], np.float64(a) @ np.float64(b), rtol=1e-4, atol=1e-4)  # type: ignore[arg-type]
    blocks, f32 = (SIZE // TILE) ** 2, 4
    copied = blocks * TILE * SIZE * f32
    products = SIZE**3 * f32
    assert [report.loaded("A"), report.loaded("B"), report.stored("C")] == [copied, copied, SIZE * SIZE * f32]
    assert [report.stored("A_shared_2"), report.stored("B_shared_2")] == [copied, copied]
    assert report.loaded(GLOBAL) == 2 * copied
    assert (report.loaded(SHARED), report.stored(SHARED)) == (2 * products, 2 * copied)
    assert (report.loaded(LOCAL), report.stored(LOCAL)) == (products + SIZE * SIZE * f32,) * 2
    assert report.operations == 2 * SIZE**3
    assert report.barriers == blocks * SIZE // STEP
    assert str(report).strip() in PAGE
    assert not report.findings


def test_a_removed_barrier_is_a_race_that_names_both_accesses() -> None:
    schedule = example()["s"]
    assert isinstance(schedule, te.TeSchedule)
    feeds = {name: np.ones((SIZE, SIZE), np.float32) for name in "AB"}
    _, report = te.run_on_reference(without_barrier(schedule.program, 0), feeds)
    race = report.races[0]
    assert (race.first.buffer, race.second.buffer) == ("A_shared_2", "A_shared_2")
    assert (race.first.is_write, race.second.is_write) == (True, False)
    assert race.first.index == race.second.index
    assert race.first.thread != race.second.thread
    assert race.first.statement.startswith("A_shared_first: A_shared_2[vko % 2, v0 % 16, v1] = A[")
    assert race.second.statement.startswith("C: C_local[vy % 16, vx % 16] = C_local[vy % 16, vx % 16] + A_shared_2[")
    with pytest.raises(BadProgram, match=r"race: thread \(0, 0, 0\) of block \(0, 0, 0\) writes A_shared_2\[0, 0, 0\]"):
        report.check()


def run(text: str, **feeds: Array) -> Report:
    """The report on a program, which the loop interpreter takes, too, if there are no findings."""
    program = parse_program(text)
    outputs, report = run_reference(program, feeds)
    if not report.findings:
        for name, wanted in interpret(program, feeds).items():
            np.testing.assert_array_equal(outputs[name], wanted)
    return report


def ramp(*shape: int) -> Array:
    return np.arange(np.prod(shape), dtype=np.float32).reshape(shape)


EXCHANGE = """
program f(A: f32[8]) -> (B: f32[8]):
  for b in blockIdx.x(2):
    alloc S: f32[4] in shared
    for t in threadIdx.x(4):
      S[t] = A[b * 4 + t]
    barrier
    for u in threadIdx.x(4):
      B[b * 4 + u] = S[3 - u]
"""


def test_threads_exchange_through_a_memory_of_blocks() -> None:
    report = run(EXCHANGE, A=ramp(8))
    assert (report.loaded(SHARED), report.stored(SHARED), report.barriers) == (32, 32, 2)
    race = run(EXCHANGE.replace("    barrier\n", ""), A=ramp(8)).races[0]
    assert race.first.thread == Thread((0, 0, 0), (3, 0, 0))
    assert race.second.thread == Thread((0, 0, 0), (0, 0, 0))
    assert (race.first.index, race.second.statement) == ((3,), "B[b * 4 + u] = S[3 - u]")


def test_a_thread_may_use_what_it_has_written_without_waiting() -> None:
    assert not run(EXCHANGE.replace("    barrier\n", "").replace("3 - u", "u"), A=ramp(8)).findings


def test_memory_that_is_used_again_must_be_waited_for() -> None:
    """The buffer is another one in each iteration; its memory is not."""
    text = """
program f(A: f32[3, 4]) -> (B: f32[3, 4]):
  for b in blockIdx.x(1):
    for i in range(3):
      alloc S: f32[4] in shared
      for t in threadIdx.x(4):
        S[t] = A[i, t]
      barrier
      for u in threadIdx.x(4):
        B[i, u] = S[3 - u]
"""
    (race,) = run(text, A=ramp(3, 4)).races
    assert (race.first.is_write, race.second.is_write) == (False, True)
    assert not run(
        text.replace("    for i in range(3):\n", "    for i in range(3):\n      barrier\n"), A=ramp(3, 4)
    ).findings


def test_all_that_write_at_once_race() -> None:
    report = run("program f() -> (B: i32[1]):\n  for t in threadIdx.x(4):\n    B[0] = i32(t)\n")
    assert "B[0]" in str(report.races[0])
    assert report.races[0].first.is_write
    assert report.races[0].second.is_write


def test_a_reader_is_remembered_behind_others() -> None:
    """Thread 1 writes what itself and thread 0 have read."""
    text = """
program f(A: f32[1]) -> (B: f32[2], C: f32[1]):
  for b in blockIdx.x(1):
    alloc S: f32[1] in shared
    S[0] = A[0]
    barrier
    for t in threadIdx.x(2):
      B[t] = S[0]
    for u in threadIdx.x(2):
      if u == 1:
        S[0] = f32(2.0)
    barrier
    C[0] = S[0]
"""
    (race,) = run(text, A=ramp(1)).races
    assert (race.first.thread, race.second.thread) == (Thread((0, 0, 0), (0, 0, 0)), Thread((0, 0, 0), (1, 0, 0)))


def test_blocks_have_no_barrier_between_them() -> None:
    text = """
program f(A: f32[4]) -> (B: f32[4], C: f32[4]):
  for b in blockIdx.x(4):
    B[b] = A[b]
    barrier
    C[b] = B[(b + 3) % 4]
"""
    report = run(text, A=ramp(4))
    assert report.races[0].first.thread == Thread((0, 0, 0), (0, 0, 0))
    assert report.races[0].second.thread == Thread((1, 0, 0), (0, 0, 0))
    apart = text.replace("    barrier\n    C[b]", "  for c in blockIdx.x(4):\n    C[c]").replace("b + 3", "c + 3")
    assert not run(apart, A=ramp(4)).findings


def test_a_block_that_writes_what_another_has_read() -> None:
    text = "program f() -> (B: i32[4], C: i32[4]):\n  for i in range(4):\n    B[i] = 1\n    C[i] = 1\n"
    text += "  for b in blockIdx.x(3):\n    C[b] = B[0]\n    if b == 2:\n      B[0] = 7\n"
    (race,) = run(text).races
    assert (race.first.is_write, race.second.thread) == (False, Thread((2, 0, 0), (0, 0, 0)))


@pytest.mark.parametrize(
    ("old", "new", "fault", "index"),
    [
        ("S[3 - u]", "S[4 - u]", Fault.OUT_OF_BOUNDS, (4,)),
        ("A[b * 4 + t]", "A[b * 4 + t - 1]", Fault.OUT_OF_BOUNDS, (-1,)),
        ("S[t] =", "S[t * 2] =", Fault.OUT_OF_BOUNDS, (4,)),
        ("in shared", "in local", Fault.OUT_OF_SCOPE, (3,)),
        ("    for t in threadIdx.x(4)", "    for t in threadIdx.x(3)", Fault.NEVER_WRITTEN, (3,)),
    ],
)
def test_wrong_accesses(old: str, new: str, fault: Fault, index: tuple[int, ...]) -> None:
    assert old in EXCHANGE
    report = run(EXCHANGE.replace(old, new), A=ramp(8))
    trouble = next(trouble for trouble in report.troubles if trouble.fault is fault)
    assert trouble.access.index == index
    with pytest.raises(BadProgram, match=fault.value[:15]):
        report.check()


def test_what_is_shared_by_a_block_is_no_other_blocks() -> None:
    """Even where no verifier has looked."""
    moved = EXCHANGE.replace("    alloc S: f32[4] in shared\n", "").replace(
        "  for b in", "  alloc S: f32[4] in shared\n  for b in"
    )
    trouble = run(moved, A=ramp(8)).troubles[0]
    assert (trouble.fault, trouble.access.thread) == (Fault.OUT_OF_SCOPE, Thread((1, 0, 0), (0, 0, 0)))


def test_an_output_that_nobody_writes() -> None:
    report = run("program f() -> (B: i32[2]):\n  B[0] = 1\n")
    assert [(t.fault, t.access.index, t.access.thread) for t in report.troubles] == [(Fault.NEVER_WRITTEN, (1,), None)]


@pytest.mark.parametrize(("memory", "held"), [(Sharing.BLOCK, 32), (Sharing.THREAD, 8)])
def test_capacities(memory: Sharing, held: int) -> None:
    """A block holds all of its buffer, a thread the elements that it uses."""
    text = """
program f(A: f32[8]) -> (B: f32[8]):
  for b in blockIdx.x(1):
    alloc S: f32[8] in small
    for t in threadIdx.x(4):
      for i in range(2):
        S[t * 2 + i] = A[t * 2 + i]
    for u in threadIdx.x(4):
      for j in range(2):
        B[u * 2 + j] = S[u * 2 + j]
"""
    for capacity in (held - 1, held):
        program = parse_program(text, memories=[Memory("small", capacity, memory, alignment=4)])
        _, report = run_reference(program, {"A": ramp(8)})
        assert [item.bytes for item in report.overflows] == ([held] if capacity < held else [])
        assert not report.races
        assert not report.troubles


def test_each_thread_has_what_it_allocates() -> None:
    text = """
program f(A: f32[3, 4]) -> (B: f32[3]):
  for t in threadIdx.x(3):
    alloc S: f32[4] in local
    for i in range(4):
      S[3 - i] = A[t, i]
    if t > 0:
      B[t] = S[0] - S[3]
    else:
      B[t] = S[1]
"""
    assert not run(text, A=ramp(3, 4)).findings


@pytest.mark.parametrize(
    "tensor",
    [
        workloads.conv2d_padded(5, 2, 3, 3, 1),
        workloads.welford(3, 4),
        workloads.lstm(3, 2),
        workloads.insertion_sort(5),
        workloads.matmul(2, 3, 0),
    ],
)
def test_any_program_runs(tensor: object) -> None:
    """Also without a grid: conditions, several results, recurrences, sorting, sums of nothing."""
    program = lower(tensor)  # type: ignore[arg-type]
    feeds = small_integers(program, {})
    outputs, report = run_reference(program, feeds)
    report.check()
    for name, wanted in interpret(program, feeds).items():
        np.testing.assert_array_equal(outputs[name], wanted)


def test_intrinsics_run_as_they_are_described() -> None:
    a, b = te.placeholder((4,), name="X"), te.placeholder((4,), name="Y")
    k = te.reduce_axis((0, 4), name="k")
    dot = te.decl_tensor_intrin(
        te.compute((), lambda: te.sum(a[k] * b[k], axis=k), name="dot"), "dot", reset="zero", update="add"
    )
    x, y = te.placeholder((6, 8), name="X"), te.placeholder((5, 8), name="Y")
    r = te.reduce_axis((0, 8), name="r")
    z = te.compute((6, 5), lambda i, j: te.sum(x[i, r] * y[j, r], axis=r), name="Z")
    s = te.create_schedule(z)
    _, inner = s[z].split(r, factor=4)
    s[z].tensorize(inner, dot)
    s[z].bind(z.op.axis[0], "blockIdx.x")
    s[z].bind(z.op.axis[1], "threadIdx.x")
    s.place_barriers()
    feeds = small_integers(s.program, {})
    outputs, report = te.run_on_reference(s, feeds)
    report.check()
    np.testing.assert_array_equal(outputs["Z"], feeds["X"] @ feeds["Y"].T)


def test_feeds_must_fit() -> None:
    with pytest.raises(BadFeed, match="no array is given for A"):
        run(EXCHANGE)
    with pytest.raises(BadFeed, match="A is list; give a NumPy array"):
        te.run_on_reference(parse_program(EXCHANGE), {"A": [1.0]})
    with pytest.raises(BadFeed, match="can't be"):
        run(EXCHANGE, A=ramp(4))
    with pytest.raises(BadProgram, match="runs one kernel alone"):
        run("program f() -> (B: i32[2]):\n  kernel other(B)\n")


def test_loops_over_threads_may_be_of_different_lengths() -> None:
    text = """
program f(A: f32[6]) -> (B: f32[6]):
  for b in blockIdx.z(1):
    alloc S: f32[6] in shared
    for t in threadIdx.y(6):
      S[t] = A[t]
    barrier
    for u in threadIdx.y(2):
      for v in threadIdx.x(3):
        B[u * 3 + v] = S[u * 3 + v]
"""
    verify(parse_program(text))
    assert not run(text, A=ramp(6)).findings
    assert len(run(text.replace("    barrier\n", ""), A=ramp(6)).races) == 1
    assert any(isinstance(node, Loop) for node in [parse_program(text).body])
