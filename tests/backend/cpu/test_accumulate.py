"""What a serial loop accumulates stays in registers: nothing is stored in it."""

import numpy as np
import pytest

from tilewright import te
from tilewright.backend.cpu.prepare import prepare
from tilewright.backend.cpu.prepare.accumulate import accumulate
from tilewright.base import dtypes
from tilewright.loops.ir import Alloc, Buffer, Loop, LoopKind, Stmt, Store
from tilewright.loops.memory import GLOBAL
from tilewright.loops.visit import seq, walk
from tilewright.symbolic.expr import Expr, Var, const


def matmul(order: str) -> te.TeSchedule:
    """Tiles of 4 by 16 elements; the reduction is directly around them, or around everything."""
    a, b = te.placeholder((16, 40), name="A"), te.placeholder((40, 64), name="B")
    k = te.reduce_axis((0, 40), "k")
    whole = te.create_schedule(te.compute((16, 64), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C"))
    s = whole.schedule.copy()
    i, j, steps = s.get_loops("C")
    i0, i1 = s.split(i, (None, 4))
    j0, j1 = s.split(j, (None, 16))
    s.reorder(*{"inside": (i0, j0, steps, i1, j1), "outside": (steps, i0, j0, i1, j1)}[order])
    s.unroll(i1)
    s.vectorize(j1)
    return whole.scheduled(s)


def stores_of_result(stmt: Stmt) -> int:
    """In the innermost serial loops of ``stmt``."""
    serial = [node for node in walk(stmt) if isinstance(node, Loop) and node.kind is LoopKind.SERIAL]
    innermost = [loop for loop in serial if not any(inner in serial for inner in walk(loop.body))]
    stores = (node for loop in innermost for node in walk(loop.body) if isinstance(node, Store))
    return sum(store.buffer.name == "C" and store.value.has_reads for store in stores)


@pytest.mark.parametrize("order", ["inside", "outside"])
def test_a_product(order: str) -> None:
    schedule = matmul(order)
    assert stores_of_result(prepare(schedule.program).body) == (0 if order == "inside" else 1)
    kernel = te.build(schedule, threads=1)
    assert kernel.check()["C"].worst < 1e-5
    a, b = (np.random.default_rng(0).standard_normal(shape, np.float32) for shape in ((16, 40), (40, 64)))
    np.testing.assert_allclose(kernel(a, b), a @ b, atol=1e-4)


N = 8
ROW, LANE, STEP = Var("i"), Var("j"), Var("k")
C, A = (Buffer(name, dtypes.f32, (const(N), const(N)), GLOBAL) for name in "CA")


def sums(*indices: Expr, kinds: tuple[LoopKind, LoopKind] = (LoopKind.UNROLLED, LoopKind.VECTORIZED)) -> Loop:
    """``for k: for i: for j: C[indices] += A[k, j]``."""
    store = Store(C, indices, C[indices] + A[STEP, LANE])
    return Loop(STEP, const(N), Loop(ROW, const(2), Loop(LANE, const(4), store, kinds[1]), kinds[0]))


def has_tile(loop: Loop) -> bool:
    return any(isinstance(node, Alloc) for node in walk(accumulate(loop)))


def test_which_loops_accumulate_in_registers() -> None:
    assert has_tile(sums(ROW, LANE))
    assert has_tile(sums(const(0), LANE + 4 * ROW)), "each has digits of its own"
    assert not has_tile(sums(ROW, LANE + STEP)), "another place in each iteration"
    assert not has_tile(sums(const(0), ROW + LANE)), "two iterations store one element"
    assert not has_tile(sums(ROW, LANE, kinds=(LoopKind.SERIAL, LoopKind.VECTORIZED))), (
        "too much for registers, perhaps"
    )


def test_what_others_use_stays_in_memory() -> None:
    loop = sums(ROW, LANE)
    reading = Store(A, (STEP, STEP), C[const(0), const(0)])
    assert not has_tile(Loop(STEP, const(N), seq(loop.body, reading)))


def test_names_of_loops_are_not_captured() -> None:
    """Somebody's loop is called as a copy of another one might be."""
    a, b = te.placeholder((8, 40), name="A"), te.placeholder((40, 16), name="B")
    k = te.reduce_axis((0, 40), "k")
    whole = te.create_schedule(te.compute((8, 16), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C"))
    for suffix in ("in", "out", "1", "2", "tile"):
        s = whole.schedule.copy()
        i, j, steps = s.get_loops("C")
        outer, inner = s.split(i, (None, 4), names=(f"x_{suffix}", "x"))
        s.reorder(outer, steps, inner, j)
        s.unroll(inner)
        s.vectorize(j)
        assert te.build(whole.scheduled(s), threads=1).check()["C"].worst < 1e-5


def test_all_steps_around_a_tile_are_in_registers() -> None:
    """Of two loops over steps the outer one counts, also if something is packed in between."""
    tap, packed = Var("r"), Buffer("P", dtypes.f32, (const(N),), GLOBAL)
    inner = sums(ROW, LANE)
    both = Loop(tap, const(3), inner)
    assert stored(both) == 0
    copy = Loop(Var("p"), const(N), Store(packed, (Var("p"),), A[tap, Var("p")]))
    assert stored(Loop(tap, const(3), Alloc(packed, seq(copy, inner)))) == 0
    assert stored(Loop(tap, const(3), sums(ROW, LANE + tap))) == 1, "another place in each step"
    assert stored(Loop(tap, const(3), Alloc(C, inner))) == 1, "what is new in each step"


def stored(loop: Loop) -> int:
    """How many statements in ``loop`` store what is accumulated."""
    (whole,) = (node for node in walk(accumulate(loop)) if isinstance(node, Loop) and node.var == loop.var)
    return sum(isinstance(node, Store) and node.buffer == C for node in walk(whole.body))


@pytest.mark.parametrize("threads", [1, 2])
def test_partial_results_of_a_sum_that_one_thread_computes(threads: int) -> None:
    """Alone in its parallel loop, an iteration has its buffers in the workspace, of which LLVM makes no registers."""
    partial = Buffer("P", dtypes.f32, (const(4),), GLOBAL)
    zero = Loop(ROW, const(4), Store(partial, (ROW,), const(0.0, dtypes.f32)), LoopKind.VECTORIZED)
    step = Loop(LANE, const(4), Store(partial, (LANE,), partial[LANE] + A[STEP, LANE]), LoopKind.VECTORIZED)
    body = Alloc(partial, seq(zero, Loop(STEP, const(N), step)))
    made = accumulate(Loop(Var("p"), const(threads), body, LoopKind.PARALLEL))
    (serial,) = (node for node in walk(made) if isinstance(node, Loop) and node.kind is LoopKind.SERIAL)
    stored = {node.buffer.name for node in walk(serial) if isinstance(node, Store)}
    assert stored == ({"P_tile"} if threads == 1 else {"P"})
