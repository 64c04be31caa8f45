"""Boxes that are stored across the lanes: transposed in registers, wherever that is the same."""

import numpy as np
import pytest

from tests.backend.cpu.support import run_native
from tilewright.backend.cpu.image import kernel_text
from tilewright.base import dtypes
from tilewright.base.dtypes import DType
from tilewright.loops.ir import Buffer, If, Loop, LoopKind, Stmt, Store
from tilewright.loops.program import Program
from tilewright.loops.visit import seq
from tilewright.symbolic.expr import Expr, Read, Var, cast, const
from tilewright.symbolic.traversal import substitute

row, lane = Var("row"), Var("lane")


def matrix(name: str, dtype: DType, rows: int, columns: int) -> Buffer:
    return Buffer(name, dtype, (const(rows), const(columns)))


def box(rows: int, lanes: int, body: Stmt) -> Loop:
    return Loop(row, const(rows), Loop(lane, const(lanes), body, LoopKind.VECTORIZED), LoopKind.UNROLLED)


@pytest.mark.share(2)
@pytest.mark.parametrize("dtype", [dtypes.f32, dtypes.f64, dtypes.f16, dtypes.u8, dtypes.boolean])
@pytest.mark.parametrize("lanes", [4, 8, 9, 15, 16, 32])
def test_boxes_of_all_sizes(dtype: DType, lanes: int) -> None:
    for rows in (2, 3, 4, 7, 8, 13, 16, 20, 33):
        a, out = matrix("a", dtype, rows, lanes), matrix("out", dtype, lanes, rows + 3)
        program = Program("k", (a, out), box(rows, lanes, Store(out, (lane, row + 1), Read(a, (row, lane)))))
        values = np.random.default_rng(rows).integers(0, 2 if dtype.is_bool else 100, (rows, lanes))
        (result,) = run_native(program, {"a": values.astype(dtype.numpy)})
        np.testing.assert_array_equal(result[:, 1 : rows + 1], values.astype(dtype.numpy).T)
        assert ("scatter" in kernel_text(program).text) is (lanes * dtype.itemsize < 16)


def test_what_all_lanes_share_is_stored_in_each() -> None:
    a, out = matrix("a", dtypes.f32, 5, 1), matrix("out", dtypes.f32, 8, 5)
    program = Program("k", (a, out), box(5, 8, Store(out, (lane, row), Read(a, (row, const(0))))))
    values = np.arange(5, dtype=np.float32)[:, None]
    (result,) = run_native(program, {"a": values})
    np.testing.assert_array_equal(result, np.broadcast_to(values.T, (8, 5)))


ELSEWHERE: dict[str, tuple[Expr, Expr]] = {
    "rows overlap": (const(0), row + lane * 2),
    "rows go backwards": (lane, 7 - row),
    "rows lie apart": (lane, row * 2),
    "lanes follow the row": (lane, (row + lane) % 8),
}


@pytest.mark.parametrize("name", ELSEWHERE)
def test_other_boxes_are_scattered(name: str) -> None:
    """Where elements do not lie side by side, or two are stored to one place, of which the later one stays."""
    a, out = matrix("a", dtypes.f32, 4, 8), matrix("out", dtypes.f32, 8, 18)
    where = ELSEWHERE[name]
    program = Program("k", (a, out), box(4, 8, Store(out, where, Read(a, (row, lane)))))
    values = np.random.default_rng(0).standard_normal((4, 8)).astype(np.float32)
    (result,) = run_native(program, {"a": values})
    expected = np.zeros((8, 18), np.float32)
    for r, c in np.ndindex(4, 8):
        expected[tuple(int(str(substitute(i, {row: const(r), lane: const(c)}))) for i in where)] = values[r, c]
    stored = expected != 0
    np.testing.assert_array_equal(result[stored], expected[stored])
    assert "scatter" in kernel_text(program).text


def test_a_box_that_reads_what_it_stores_goes_row_by_row() -> None:
    out, a = matrix("out", dtypes.f32, 4, 4), matrix("a", dtypes.f32, 4, 4)
    value = Read(a, (row, lane)) + cast(Read(out, (lane, const(0))), dtypes.f32)
    first = Loop(lane, const(4), Store(out, (lane, const(0)), const(0.0, dtypes.f32)))
    again = box(4, 4, Store(out, (lane, row), value))
    body = Loop(Var("once"), const(1), first)
    program = Program("k", (a, out), seq(body, again))
    values = np.arange(16, dtype=np.float32).reshape(4, 4)
    (result,) = run_native(program, {"a": values})
    expected = values.T.copy()
    expected[:, 1:] += expected[:, :1]
    np.testing.assert_array_equal(result, expected)


def test_guarded_boxes_store_only_what_the_guard_allows() -> None:
    a, out = matrix("a", dtypes.f32, 4, 8), matrix("out", dtypes.f32, 8, 4)
    flag = Buffer("flag", dtypes.f32, (const(1),))
    stored = box(4, 8, Store(out, (lane, row), Read(a, (row, lane))))
    program = Program("k", (a, flag, out), If(Read(flag, (const(0),)) > 0.0, stored, None))
    values = np.ones((4, 8), np.float32)
    (result,) = run_native(program, {"a": values, "flag": np.ones(1, np.float32)})
    np.testing.assert_array_equal(result, values.T)
