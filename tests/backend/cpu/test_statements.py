"""Loops, guards, parallel regions and memory, as native code, against NumPy."""

import numpy as np
import pytest

from tests.backend.cpu.support import run_native
from tilewright.backend.cpu.image import kernel_text
from tilewright.base.dtypes import f32, i64, index
from tilewright.base.errors import OutOfBounds
from tilewright.loops.ir import Alloc, Buffer, If, Loop, LoopKind, Seq, Stmt, Store
from tilewright.loops.memory import GLOBAL, LOCAL, Memory
from tilewright.loops.program import Dim, Program
from tilewright.symbolic.expr import Expr, Extent, Read, Var, const, equal, select

i, j, k, n = Var("i"), Var("j"), Var("k"), Extent("n")


def vector(name: str, extent: int | Expr, dtype=f32, memory: Memory = GLOBAL) -> Buffer:
    return Buffer(name, dtype, (const(extent) if isinstance(extent, int) else extent,), memory)


def ramp(count: int) -> np.ndarray:
    return np.arange(count, dtype=np.float32)


@pytest.mark.parametrize("kind", [LoopKind.SERIAL, LoopKind.VECTORIZED, LoopKind.UNROLLED, LoopKind.PARALLEL])
@pytest.mark.parametrize("count", [0, 1, 5, 16])
def test_loop_kinds(kind: LoopKind, count: int) -> None:
    a, out = vector("a", max(count, 1)), vector("out", max(count, 1))
    body = Seq(
        (Store(out, (const(0),), const(0.0, f32)), Loop(i, const(count), Store(out, (i,), Read(a, (i,)) * 2.0), kind))
    )
    (result,) = run_native(Program("k", (a, out), body), {"a": ramp(max(count, 1)) + 1}, threads=2)
    expected = (ramp(max(count, 1)) + 1) * 2 if count else np.zeros(1, np.float32)
    np.testing.assert_array_equal(result, expected)


def test_nested_parallel_loops_are_recovered_in_order() -> None:
    out = Buffer("out", f32, (const(3), const(5), const(7)))
    value = (i * 100 + j * 10 + k).astype(f32)
    body: Stmt = Store(out, (i, j, k), value)
    for var, extent in ((k, 7), (j, 5), (i, 3)):
        body = Loop(var, const(extent), body, LoopKind.PARALLEL)
    (result,) = run_native(Program("k", (out,), body), {}, threads=2)
    expected = np.add.outer(np.add.outer(np.arange(3) * 100, np.arange(5) * 10), np.arange(7))
    np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize("extent", [31, 32, 33, 64, 65, 100])
@pytest.mark.parametrize("outer", [LoopKind.SERIAL, LoopKind.PARALLEL])
def test_tails_write_nothing_beyond(extent: int, outer: LoopKind) -> None:
    a, out = vector("a", extent), vector("out", 128)
    flat = i * 32 + j
    fill = Loop(k, const(128), Store(out, (k,), const(-1.0, f32)))
    inner = Loop(j, const(32), If(flat < extent, Store(out, (flat,), Read(a, (flat,)))), LoopKind.VECTORIZED)
    program = Program("k", (a, out), Seq((fill, Loop(i, const(4), inner, outer))))
    (result,) = run_native(program, {"a": ramp(extent)}, threads=2)
    np.testing.assert_array_equal(result, np.concatenate([ramp(extent), np.full(128 - extent, -1, np.float32)]))


def test_an_index_that_was_stored_anew_is_read_anew() -> None:
    table, rows, out, row = vector("table", 8), vector("rows", 4, i64), vector("out", 4), vector("row", 1, i64)
    at = Read(row, (const(0),)).astype(index)
    body = Seq((Store(row, (const(0),), Read(rows, (i,))), Store(out, (i,), Read(table, (at,)))))
    program = Program("k", (table, rows, out), Alloc(row, Loop(i, const(4), body, LoopKind.UNROLLED)))
    (result,) = run_native(program, {"table": ramp(8), "rows": np.array([5, 2, 7, 2])})
    np.testing.assert_array_equal(result, [5, 2, 7, 2])


def test_masked_stores_to_a_private_tile_keep_the_other_lanes() -> None:
    a, out, tile = vector("a", 20), vector("out", 32), vector("tile", 32, memory=LOCAL)
    fill = Loop(i, const(32), Store(tile, (i,), const(7.0, f32)), LoopKind.VECTORIZED)
    some = Loop(j, const(32), If(j < 20, Store(tile, (j,), Read(a, (j,)))), LoopKind.VECTORIZED)
    copy = Loop(k, const(32), Store(out, (k,), Read(tile, (k,))), LoopKind.VECTORIZED)
    (result,) = run_native(Program("k", (a, out), Alloc(tile, Seq((fill, some, copy)))), {"a": ramp(20)})
    np.testing.assert_array_equal(result, np.concatenate([ramp(20), np.full(12, 7, np.float32)]))


def test_a_load_after_a_store_sees_it() -> None:
    out = vector("out", 2)
    first = Store(out, (const(0),), const(3.0, f32))
    second = Store(out, (const(1),), Read(out, (const(0),)) + 1.0)
    third = Store(out, (const(0),), Read(out, (const(0),)) + Read(out, (const(1),)))
    (result,) = run_native(Program("k", (out,), Seq((first, second, third))), {})
    np.testing.assert_array_equal(result, [7.0, 4.0])


@pytest.mark.parametrize("kind", [LoopKind.SERIAL, LoopKind.VECTORIZED])
@pytest.mark.parametrize("stride", [0, 1, 2, -1, 3])
def test_strided_reads(kind: LoopKind, stride: int) -> None:
    a, out = vector("a", 64), vector("out", 16)
    start = 48 if stride < 0 else 5
    program = Program("k", (a, out), Loop(i, const(16), Store(out, (i,), Read(a, (i * stride + start,))), kind))
    (result,) = run_native(program, {"a": ramp(64)})
    np.testing.assert_array_equal(result, ramp(64)[start + stride * np.arange(16)])


@pytest.mark.parametrize("kind", [LoopKind.SERIAL, LoopKind.VECTORIZED])
def test_strided_stores_and_gathers_by_data(kind: LoopKind) -> None:
    a, index, out = vector("a", 50), vector("index", 16, i64), vector("out", 48)
    fill = Loop(k, const(48), Store(out, (k,), const(0.0, f32)))
    body = Loop(i, const(16), Store(out, (i * 3 + 1,), Read(a, (Read(index, (i,)),))), kind)
    indices = np.random.default_rng(0).integers(0, 50, 16)
    (result,) = run_native(Program("k", (a, index, out), Seq((fill, body))), {"a": ramp(50), "index": indices})
    expected = np.zeros(48, np.float32)
    expected[1::3] = ramp(50)[indices]
    np.testing.assert_array_equal(result, expected)


def test_branches_beside_each_other_gather_by_what_was_loaded_before_them() -> None:
    """Each makes the address for itself: what one has made does not exist in the other."""
    at, a = vector("at", 3, i64), vector("a", 5)
    first, second, places = (vector(name, 3) for name in ("first", "second", "places"))
    where = Read(at, (i,))
    branches = [
        If(equal(where, const(skipped, i64)), Store(out, (i,), const(-1.0, f32)), Store(out, (i,), Read(a, (where,))))
        for out, skipped in ((first, 4), (second, 2))
    ]
    body = Seq((Store(places, (i,), where.astype(f32)), *branches))
    program = Program("k", (at, a, first, second, places), Loop(i, const(3), body), outputs=3)
    found = run_native(program, {"at": np.array([4, 0, 2]), "a": ramp(5) * 10})
    np.testing.assert_array_equal(found, [[-1, 0, 20], [40, 0, -1], [4, 0, 2]])


@pytest.mark.parametrize("kind", [LoopKind.SERIAL, LoopKind.VECTORIZED])
def test_a_select_guards_its_reads(kind: LoopKind) -> None:
    """Far out of bounds on the side that is not chosen: reading it would crash."""
    a, out = vector("a", 8), vector("out", 16)
    far = i * (1 << 40) - 5
    value = select((i >= 3) & (i < 8), Read(a, (select((i >= 3) & (i < 8), i, far),)), -1.0)
    (result,) = run_native(Program("k", (a, out), Loop(i, const(16), Store(out, (i,), value), kind)), {"a": ramp(8)})
    np.testing.assert_array_equal(result, [-1, -1, -1, 3, 4, 5, 6, 7, *[-1] * 8])


def test_siblings_and_nested_allocations() -> None:
    """Large buffers live in the workspace: what is alive together must not share memory."""
    size = 40_000
    a, out, x, y = vector("a", size), vector("out", size), vector("x", size), vector("y", size)

    def copy(source: Buffer, target: Buffer, var: str, add: float) -> Stmt:
        at = Var(var)
        return Loop(at, const(size), Store(target, (at,), Read(source, (at,)) + add))

    total = Loop(Var("t"), const(size), Store(out, (Var("t"),), Read(x, (Var("t"),)) + Read(y, (Var("t"),))))
    body = Alloc(x, Seq((copy(a, x, "p", 1.0), Alloc(y, Seq((copy(x, y, "q", 2.0), total))))))
    (result,) = run_native(Program("k", (a, out), body), {"a": ramp(size)})
    np.testing.assert_array_equal(result, 2 * ramp(size) + 4)


@pytest.mark.parametrize("count", [0, 1, 31, 32, 70])
def test_run_time_extents(count: int) -> None:
    a, out = vector("a", n), vector("out", n)
    flat = i * 32 + j
    inner = Loop(j, const(32), If(flat < n, Store(out, (flat,), Read(a, (flat,)) + 1.0)), LoopKind.VECTORIZED)
    program = Program("k", (a, out), Loop(i, (n + 31) // 32, inner, LoopKind.PARALLEL), (Dim(n, 100),))
    (result,) = run_native(program, {"a": ramp(count)}, threads=2)
    np.testing.assert_array_equal(result, ramp(count) + 1)


@pytest.mark.parametrize("kind", [LoopKind.SERIAL, LoopKind.VECTORIZED, LoopKind.PARALLEL])
@pytest.mark.parametrize("offset", [-1, 1])
def test_the_checked_mode_reports_accesses_out_of_bounds(kind: LoopKind, offset: int) -> None:
    a, out = vector("a", 16), vector("out", 16)
    program = Program("k", (a, out), Loop(i, const(16), Store(out, (i,), Read(a, (i + offset,))), kind))
    with pytest.raises(OutOfBounds, match="a"):
        run_native(program, {"a": ramp(16)}, checked=True)


def test_the_checked_mode_lets_right_programs_pass() -> None:
    a, out = vector("a", 50), vector("out", 50)
    flat = i * 32 + j
    inner = Loop(j, const(32), If(flat < 50, Store(out, (flat,), Read(a, (flat,)))), LoopKind.VECTORIZED)
    program = Program("k", (a, out), Loop(i, const(2), inner))
    (result,) = run_native(program, {"a": ramp(50)}, checked=True)
    np.testing.assert_array_equal(result, ramp(50))


def test_the_checked_mode_writes_a_branch_for_each_condition_once() -> None:
    """Nothing for what is known to be in bounds; so that unrolled bodies do not become too large to compile."""
    a, out = vector("a", 16), Buffer("out", f32, (const(16), const(16)))
    row = Loop(j, const(16), Store(out, (i, j), Read(a, (i,)) + Read(a, (j,))), LoopKind.UNROLLED)
    text = kernel_text(Program("k", (a, out), Loop(i, const(16), row)), checked=True).text
    assert text.count("call void @tw_fail") == 1  # that i is less than 16


@pytest.mark.parametrize("place", [2, 3])
def test_the_checked_mode_reports_what_is_wrong_after_what_is_right(place: int) -> None:
    a, places, out = vector("a", 2), vector("places", 4, i64), vector("out", 4)
    body = Loop(i, const(4), Store(out, (i,), Read(a, (Read(places, (i,)),))), LoopKind.UNROLLED)
    feeds = {"a": ramp(2), "places": np.array([1, 0, 1, place])}
    with pytest.raises(OutOfBounds, match=f"{place}"):
        run_native(Program("k", (a, places, out), body), feeds, checked=True)
