"""Serial loops stop where their guards do: one body, without the guard."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.backend.cpu.support import run_native
from tilewright.backend.cpu.prepare import prepare
from tilewright.base.dtypes import f32, i64, index
from tilewright.loops.ir import Alloc, Buffer, If, Loop, LoopKind, Seq, Stmt, Store
from tilewright.loops.memory import LOCAL
from tilewright.loops.program import Dim, Program
from tilewright.loops.visit import walk
from tilewright.symbolic.expr import Expr, Extent, Read, Var, const

i, ii, u, k, n = Var("i"), Var("ii"), Var("u"), Var("k"), Extent("n")
OUT = Buffer("out", f32, (const(64),))
KINDS = [LoopKind.SERIAL, LoopKind.PARALLEL, LoopKind.UNROLLED]


def fill() -> Stmt:
    return Loop(k, const(64), Store(OUT, (k,), const(-1.0, f32)))


def tiled(extent: int, tile: int, inner: int, outer: LoopKind, unguarded: bool = False) -> Program:
    """Tiles of ``tile`` rows of ``inner`` elements; each is computed in a private buffer, and copied from there."""
    own = Buffer("own", f32, (const(inner),), LOCAL)
    flat, again = (i * tile + ii) * inner + u, (i * tile + ii) * inner + k
    compute = Loop(u, const(inner), If(flat < extent, Store(own, (u,), flat.astype(f32))), LoopKind.UNROLLED)
    copy = Loop(k, const(inner), If(again < extent, Store(OUT, (again,), Read(own, (k,)))), LoopKind.UNROLLED)
    last = Store(OUT, (const(63),), ii.astype(f32)) if unguarded else Seq(())
    body = Loop(ii, const(tile), Seq((Alloc(own, Seq((compute, copy))), last)))
    return Program("k", (OUT,), Seq((fill(), Loop(i, const(-(-extent // (tile * inner))), body, outer))))


def guards(program: Program) -> list[Expr]:
    return [node.condition for node in walk(prepare(program).body) if isinstance(node, If)]


@given(st.integers(1, 48), st.integers(1, 7), st.sampled_from([1, 2, 4]), st.sampled_from(KINDS), st.booleans())
@settings(max_examples=40, deadline=None)
def test_results_are_those_of_numpy(extent: int, tile: int, inner: int, outer: LoopKind, unguarded: bool) -> None:
    (result,) = run_native(tiled(extent, tile, inner, outer, unguarded), {})
    expected = np.concatenate([np.arange(extent), np.full(64 - extent, -1)]).astype(np.float32)
    if unguarded:
        expected[63] = tile - 1
    np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize("outer", [LoopKind.SERIAL, LoopKind.PARALLEL])
@pytest.mark.parametrize("inner", [1, 4])
def test_there_is_one_body_without_guards(outer: LoopKind, inner: int) -> None:
    program = tiled(7 * inner, 5, inner, outer)
    stores = [node for node in walk(prepare(program).body) if isinstance(node, Store) and node.buffer.name == "own"]
    assert guards(program) == []
    assert len(stores) == 1


def test_a_guard_on_lanes_stays() -> None:
    flat = i * 4 + ii
    lanes = Loop(ii, const(4), If(flat < n, Store(OUT, (flat,), const(1.0, f32))), LoopKind.VECTORIZED)
    program = Program("k", (OUT, Buffer("a", f32, (n,))), Seq((fill(), Loop(i, const(16), lanes))), (Dim(n, 64),))
    assert guards(program)


@pytest.mark.parametrize("count", [0, 3, 16, 50])
def test_a_loop_stops_at_a_run_time_extent(count: int) -> None:
    a = Buffer("a", f32, (n,))
    flat = i * 16 + ii
    body = Loop(ii, const(16), If(flat < n, Store(OUT, (flat,), Read(a, (flat,)))))
    program = Program("k", (a, OUT), Seq((fill(), Loop(i, const(4), body, LoopKind.PARALLEL))), (Dim(n, 64),))
    assert guards(program) == []
    values = np.arange(count, dtype=np.float32)
    (result,) = run_native(program, {"a": values})
    np.testing.assert_array_equal(result, np.concatenate([values, np.full(64 - count, -1, np.float32)]))


def test_a_loop_does_not_stop_at_what_it_stores() -> None:
    """The limit grows while the loop runs."""
    limit = Buffer("limit", i64, (const(1),))
    flat = i * 8 + ii
    grow = Store(limit, (const(0),), (flat + 2).astype(i64))
    body = If(flat < Read(limit, (const(0),)).astype(index), Seq((Store(OUT, (flat,), const(1.0, f32)), grow)))
    loops = Loop(i, const(2), Loop(ii, const(8), body))
    start = Store(limit, (const(0),), const(1, i64))
    (result,) = run_native(Program("k", (OUT,), Seq((fill(), Alloc(limit, Seq((start, loops)))))), {})
    np.testing.assert_array_equal(result, [1.0] * 16 + [-1.0] * 48)


def test_a_loop_with_a_literal_extent_of_nothing_does_not_run() -> None:
    body = Loop(ii, 2 - i, Store(OUT, (i * 16 + ii,), const(1.0, f32)))
    (result,) = run_native(Program("k", (OUT,), Seq((fill(), Loop(i, const(4), body, LoopKind.UNROLLED)))), {})
    np.testing.assert_array_equal(np.flatnonzero(result > 0), [0, 1, 16])
