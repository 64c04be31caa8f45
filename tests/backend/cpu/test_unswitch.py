"""What is selected for a whole loop is selected before it; results stay what they are."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.backend.cpu.support import run_native
from tilewright import te
from tilewright.backend.cpu.prepare import prepare
from tilewright.base.dtypes import f32
from tilewright.kernels.schedules import schedule_elementwise
from tilewright.loops.ir import Loop, LoopKind, Stmt, Store
from tilewright.loops.lower import lower
from tilewright.loops.program import Program
from tilewright.loops.visit import children, walk
from tilewright.schedule.schedule import Schedule
from tilewright.schedule.tree import BlockRef
from tilewright.symbolic.expr import Expr, Read, Select, const, equal
from tilewright.symbolic.traversal import walk as walk_expr
from tilewright.target.machine import ENOUGH_CHUNKS

LANES = 16


def joined(channels: list[int], rows: int, shifted: bool = False) -> Program:
    """Tensors (channels, rows, 16) side by side along their channels; ``shifted``: row r is row r - 1, the first 0."""
    parts = [te.placeholder((count, rows, LANES), name=f"p{place}") for place, count in enumerate(channels)]

    def element(c: Expr, r: Expr, lane: Expr) -> Expr:
        at, row = sum(channels[:-1]), r - 1 if shifted else r
        value: Expr = parts[-1][c - at, row, lane]
        for part, count in zip(reversed(parts[:-1]), reversed(channels[:-1]), strict=True):
            at -= count
            value = te.select(c < at + count, part[c - at, row, lane], value)
        return te.select(r >= 1, value, 0.0) if shifted else value

    result = te.compute((sum(channels), rows, LANES), element, name="joined")
    return lower([result], name="join", inputs=parts)


def scheduled(program: Program, parallel: bool = True) -> Program:
    s = Schedule(program)
    schedule_elementwise(s, BlockRef("joined"), 4 * LANES, parallel)
    return s.program


def selecting_in_loops(stmt: Stmt, inside: bool = False) -> int:
    """How many stores in serial loops select."""
    match stmt:
        case Loop(kind=kind, body=body):
            return selecting_in_loops(body, inside or kind is LoopKind.SERIAL)
        case Store(_, _, value):
            return int(inside and any(isinstance(node, Select) for node in walk_expr(value)))
        case _:
            return sum(selecting_in_loops(inner, inside) for inner in children(stmt))


def parallel_iterations(program: Program) -> int:
    loops = [node for node in walk(program.body) if isinstance(node, Loop) and node.kind is LoopKind.PARALLEL]
    return int(np.prod([int(str(loop.extent)) for loop in loops]))


@pytest.mark.parametrize("parallel", [False, True])
def test_rows_are_copied_without_a_choice(parallel: bool) -> None:
    program = scheduled(joined([3, 2, 1, 4, 20], rows=28), parallel)
    assert selecting_in_loops(prepare(program).body) == 0
    assert not parallel or ENOUGH_CHUNKS <= parallel_iterations(program) < 30 * 28


def test_a_choice_that_changes_in_the_loop_stays() -> None:
    a, b = (te.placeholder((4, 6), name=name) for name in "ab")
    checkered = te.compute((4, 6), lambda y, x: te.select((y + x) % 2 < 1, a[y, x], b[y, x]), name="checkered")
    program = lower([checkered], name="checkered", inputs=[a, b])
    assert selecting_in_loops(prepare(program).body) == 1
    feeds = {"a": np.zeros((4, 6), np.float32), "b": np.ones((4, 6), np.float32)}
    (result,) = run_native(program, feeds)
    np.testing.assert_array_equal(result, np.indices((4, 6)).sum(axis=0) % 2)


def test_few_channels_are_shared_among_threads_by_parts_of_rows() -> None:
    program = scheduled(joined([1, 2], rows=40))
    assert ENOUGH_CHUNKS <= parallel_iterations(program) < 3 * 40
    assert selecting_in_loops(prepare(program).body) == 0


@settings(deadline=None, max_examples=25)
@given(
    channels=st.lists(st.integers(1, 4), min_size=1, max_size=6),
    rows=st.integers(1, 45),
    parallel=st.booleans(),
    shifted=st.booleans(),
)
def test_results_are_those_of_numpy(channels: list[int], rows: int, parallel: bool, shifted: bool) -> None:
    random = np.random.default_rng(rows)
    given_parts = [random.standard_normal((count, rows, LANES), np.float32) for count in channels]
    expected = np.concatenate(given_parts)
    if shifted:
        expected = np.pad(expected, ((0, 0), (1, 0), (0, 0)))[:, :rows]
    program = scheduled(joined(channels, rows, shifted), parallel)
    feeds = {f"p{place}": part for place, part in enumerate(given_parts)}
    (result,) = run_native(program, feeds, threads=2)
    np.testing.assert_array_equal(result, expected)


def test_terms_that_are_left_out_take_no_loop() -> None:
    """A sum over every second tap: for the others, the loop over channels would store what is there."""
    x, w = te.placeholder((9, 40), name="x"), te.placeholder((9, 40, LANES), name="w")
    tap, channel = te.reduce_axis((0, 9), name="tap"), te.reduce_axis((0, 40), name="channel")
    factor = te.select(equal(tap.var % 2, 0), const(1.0, f32), const(0.0, f32))

    def term(lane: Expr) -> Expr:
        return x[tap, channel] * w[tap, channel, lane] * factor

    total = te.compute((LANES,), lambda lane: te.sum(term(lane), axis=(tap, channel)), name="total")
    s = Schedule(lower([total], name="taps", inputs=[x, w]))
    lane, *taps = s.get_loops("total")
    s.reorder(*taps, lane)
    s.vectorize(lane)
    s.skip_zeros("total")
    given = {t.name: np.random.default_rng(0).standard_normal([int(str(e)) for e in t.shape]) for t in (x, w)}
    arrays = {name: array.astype(np.float32) for name, array in given.items()}
    expected = np.einsum("tc,tcl->l", arrays["x"][::2], arrays["w"][::2])
    np.testing.assert_allclose(run_native(s.program, arrays)[0], expected, rtol=1e-5, atol=1e-5)
    stores = [node for node in walk(prepare(s.program).body) if isinstance(node, Store)]
    assert stores and not any(store.value == Read(store.buffer, store.indices) for store in stores)


def test_steps_that_are_written_out_test_once_whether_they_are_left_out() -> None:
    """All terms of the first and of the last tiles are padding; tiles are too large to be copied for each."""
    x, w = te.placeholder((24, 64), name="x"), te.placeholder((64, LANES), name="w")
    k = te.reduce_axis((0, 64), name="k")
    row = te.compute((48, 64), lambda i, j: te.select(te.all(i >= 12, i < 36), x[i - 12, j], 0.0), name="row")
    y = te.compute((48, LANES), lambda i, lane: te.sum(row[i, k] * w[k, lane], axis=k), name="y")
    s = Schedule(lower([y], name="rows", inputs=[x, w]))
    s.skip_padding("y", (12, 1, 1))
    i, lane, step = s.get_loops("y")
    tile, i = s.split(i, (None, 12))
    s.reorder(tile, step, i, lane)
    s.unroll(step)
    s.unroll(i)
    s.vectorize(lane)
    stores = [node for node in walk(prepare(s.program).body) if isinstance(node, Store) and node.buffer.name == "y"]
    assert not any(isinstance(node, Select) for store in stores for node in walk_expr(store.value))
    random = np.random.default_rng(3)
    image, weights = (random.standard_normal(shape).astype(np.float32) for shape in ((24, 64), (64, LANES)))
    wanted = np.pad(image, ((12, 12), (0, 0))) @ weights
    np.testing.assert_allclose(run_native(s.program, {"x": image, "w": weights})[0], wanted, rtol=1e-4, atol=1e-4)
