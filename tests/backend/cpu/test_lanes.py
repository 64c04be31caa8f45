"""Buffers that live in vectorized loops belong to one lane; what has no lanes runs serially."""

from collections.abc import Callable
from typing import TypeAlias

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.backend.cpu.support import run_native
from tilewright.backend.cpu.abilities import Abilities
from tilewright.backend.cpu.image import kernel_text
from tilewright.backend.cpu.places import Runs, runs_of
from tilewright.backend.cpu.prepare.lanes import fit_lanes
from tilewright.backend.cpu.values import integers
from tilewright.base.dtypes import DType, boolean, f32, index
from tilewright.loops.ir import Alloc, Buffer, Call, Callee, Loop, LoopKind, Seq, Stmt, Store
from tilewright.loops.memory import GLOBAL, LOCAL, Memory
from tilewright.loops.program import Program
from tilewright.loops.visit import walk
from tilewright.symbolic.expr import TRUE, Expr, Read, Var, const, maximum, minimum, select, unary
from tilewright.symbolic.operations import UnaryOp

i, k = Var("i"), Var("k")


def matrix(name: str, rows: int, columns: int, scope: Memory = GLOBAL) -> Buffer:
    return Buffer(name, f32, (const(rows), const(columns)), scope)


def test_each_lane_has_its_own_buffer() -> None:
    """Each lane sums a row backwards through a buffer of its own."""
    a, out, own = matrix("a", 6, 4), matrix("out", 6, 1), Buffer("own", f32, (const(4),), LOCAL)
    fill = Loop(k, const(4), Store(own, (3 - k,), Read(a, (i, k))))
    k2 = Var("k2")
    spot = (i, const(0))
    total = Loop(k2, const(4), Store(out, spot, Read(out, spot) * 2.0 + Read(own, (k2,))))
    body = Seq((Store(out, spot, const(0.0, f32)), Alloc(own, Seq((fill, total)))))
    program = Program("k", (a, out), Loop(i, const(6), body, LoopKind.VECTORIZED))
    values = np.arange(24, dtype=np.float32).reshape(6, 4)
    (result,) = run_native(program, {"a": values})
    np.testing.assert_array_equal(result[:, 0], values @ np.float32([1, 2, 4, 8]))


def test_parallel_loops_and_calls_inside_are_serial() -> None:
    out = matrix("out", 4, 4)
    store = Store(out, (i, k), const(1.0, f32))
    inner = Loop(k, const(4), store, LoopKind.PARALLEL)
    fitted = fit_lanes(Loop(i, const(4), inner, LoopKind.VECTORIZED))
    assert [s.kind for s in walk(fitted) if isinstance(s, Loop)] == [LoopKind.VECTORIZED, LoopKind.SERIAL]
    call = Call(Callee.INTRINSIC, "anything", ())
    fitted = fit_lanes(Loop(i, const(4), Seq((store, call)), LoopKind.VECTORIZED))
    assert isinstance(fitted, Loop) and fitted.kind is LoopKind.SERIAL


Condition: TypeAlias = Callable[[Expr, Expr], Expr]

NEAR: list[Callable[[Expr], Expr]] = [
    lambda x: x // 4 * 4 + 1,
    lambda x: 15 - x,
    lambda x: x * 2,
    lambda x: x % 3 + 2,
    lambda x: 31 - x * 2,
    lambda x: x * 3 + 1,
    lambda x: 63 - x * 3,
    lambda x: x * 4 + 3,
    lambda x: x * x // 4,
    lambda x: x % 2 * 40 + x,
    lambda x: x % 2 * 200 + x // 2,
    lambda x: x % 3 * 120 + x // 3,
    lambda x: x % 4 * 100 + x,
]


@pytest.mark.parametrize("where", NEAR)
@pytest.mark.parametrize("checked", [False, True])
@pytest.mark.parametrize("rows", [1, 3])
def test_lanes_that_lie_close_together_are_permuted(where: Callable[[Expr], Expr], checked: bool, rows: int) -> None:
    a, out = matrix("a", rows, 350), matrix("out", rows, 16)
    store = Store(out, (k, i), Read(a, (k, where(i))))
    program = Program("k", (a, out), Loop(k, const(rows), Loop(i, const(16), store, LoopKind.VECTORIZED)))
    values = np.random.default_rng(0).standard_normal((rows, 350)).astype(np.float32)
    (result,) = run_native(program, {"a": values}, checked=checked)
    picked = [int(str(where(const(lane)))) for lane in range(16)]
    np.testing.assert_array_equal(result, values[:, picked])
    assert "gather" not in kernel_text(program).text


def test_lanes_far_apart_are_gathered() -> None:
    a, out = matrix("a", 16, 32), matrix("out", 1, 16)
    store = Store(out, (const(0), i), Read(a, (i, const(3))))
    program = Program("k", (a, out), Loop(i, const(16), store, LoopKind.VECTORIZED))
    values = np.random.default_rng(0).standard_normal((16, 32)).astype(np.float32)
    (result,) = run_native(program, {"a": values})
    np.testing.assert_array_equal(result[0], values[:, 3])
    assert "gather" in kernel_text(program).text


@pytest.mark.parametrize(("span", "gathers"), [(63, False), (64, True)])
def test_lanes_that_span_more_than_four_vectors_are_gathered(span: int, gathers: bool) -> None:
    a, out = matrix("a", 1, 80), matrix("out", 1, 16)
    store = Store(out, (const(0), i), Read(a, (const(0), i * 4 + i // 15 * (span - 60))))
    program = Program("k", (a, out), Loop(i, const(16), store, LoopKind.VECTORIZED))
    values = np.random.default_rng(0).standard_normal((1, 80)).astype(np.float32)
    (result,) = run_native(program, {"a": values})
    np.testing.assert_array_equal(result[0], values[0, [*range(0, 60, 4), span]])
    assert ("gather" in kernel_text(program).text) is gathers


def test_only_a_run_that_can_not_begin_earlier_has_a_mask() -> None:
    """All memory between two elements of a buffer is in it. Of every third element in 16 lanes, two would be at one
    position of two runs."""
    a, out = matrix("a", 1, 61), matrix("out", 1, 16)
    for where, masked in ((i * 2, 0), (i * 3, 1), (i * 4, 0), (i % 2 * 45 + i, 0), (15 - i, 0), (i // 2 * 2, 1)):
        store = Store(out, (const(0), i), Read(a, (const(0), where)))
        program = Program("k", (a, out), Loop(i, const(16), store, LoopKind.VECTORIZED))
        for abilities, expected in ((Abilities(), masked), (Abilities(has_masks=True), int(str(where) != "15 - i"))):
            text = kernel_text(program, abilities=abilities).text
            assert text.count("call <16 x float> @llvm.masked.load") == expected


@pytest.mark.parametrize("stride", [2, 3, 4])
def test_eight_lanes_of_a_stride_have_no_masks(stride: int) -> None:
    a, out = matrix("a", 1, 7 * stride + 1), matrix("out", 1, 8)
    store = Store(out, (const(0), i), Read(a, (const(0), i * stride)))
    program = Program("k", (a, out), Loop(i, const(8), store, LoopKind.VECTORIZED))
    values = np.random.default_rng(0).standard_normal((1, 7 * stride + 1)).astype(np.float32)
    (result,) = run_native(program, {"a": values})
    np.testing.assert_array_equal(result[0], values[0, ::stride])
    assert "masked" not in kernel_text(program).text


@given(st.lists(st.integers(0, 64), min_size=8, max_size=8), st.integers(0, 255), st.sampled_from([1, 2, 3, 4, 9]))
def test_runs_hold_their_elements_and_nothing_beyond(drawn: list[int], bits: int, stride: int) -> None:
    offsets = drawn if stride == 9 else [first + stride * lane for lane, first in enumerate(drawn[:1] * 8)]
    active = tuple(bits >> lane & 1 for lane in range(8)) if bits else ()
    known = integers(tuple(offsets), index)
    for runs in (runs_of(known, active, has_masks=has_masks) for has_masks in (False, True)):
        if runs is not None:
            check_runs(runs, offsets, active)


def check_runs(runs: Runs, offsets: list[int], active: tuple[int, ...]) -> None:
    needed = [offset for lane, offset in enumerate(offsets) if not active or active[lane]]
    assert all(min(needed) <= start and start + count - 1 <= max(needed) for start, count in runs.spans)
    assert all(count == 8 for _, count in runs.spans[:-1])
    assert all(0 <= position < runs.spans[run][1] for run, position in runs.places)
    for lane, (run, position) in enumerate(runs.places):
        if not active or active[lane]:
            assert runs.spans[run][0] + position == offsets[lane]


def test_lanes_in_more_than_four_runs_are_gathered() -> None:
    a, out = matrix("a", 1, 500), matrix("out", 1, 16)
    store = Store(out, (const(0), i), Read(a, (const(0), i % 5 * 100 + i // 5)))
    program = Program("k", (a, out), Loop(i, const(16), store, LoopKind.VECTORIZED))
    values = np.random.default_rng(0).standard_normal((1, 500)).astype(np.float32)
    (result,) = run_native(program, {"a": values})
    np.testing.assert_array_equal(result[0], values[0, [lane % 5 * 100 + lane // 5 for lane in range(16)]])
    assert "gather" in kernel_text(program).text


CONDITIONS: list[Condition] = [
    lambda row, lane: row < 2,
    lambda row, lane: lane < 5,
    lambda row, lane: (row < 2) & (lane < 5),
    lambda row, lane: lane + row * 3 < 7,
    lambda row, lane: (row > 0) & (lane + row * 3 < 7),
    lambda row, lane: lane < 0,
]
PLACES: list[Callable[[Expr], Expr]] = [
    lambda x: x,
    lambda x: x * 3,
    lambda x: x * x,
    lambda x: x // 3,
    lambda x: x * 0,
]


@pytest.mark.parametrize("where", PLACES)
@pytest.mark.parametrize("holds", CONDITIONS)
@pytest.mark.parametrize("nested", [False, True])
@pytest.mark.parametrize("private", [False, True])
def test_what_is_not_selected_is_zero(
    where: Callable[[Expr], Expr], holds: Condition, nested: bool, private: bool
) -> None:
    """A select between a read and zero is a load that leaves zeros, whatever is in memory."""
    a, out, own = matrix("a", 4, 250), matrix("out", 4, 16), Buffer("own", f32, (const(4), const(250)), LOCAL)
    source = own if private else a
    value = select(holds(k, i), Read(source, (k, where(i))), const(0.0, f32))
    if nested:
        value = select(k < 3, value, const(0.0, f32))
    lanes = Loop(i, const(16), Store(out, (k, i), value), LoopKind.VECTORIZED)
    body: Stmt = Loop(k, const(4), lanes, LoopKind.UNROLLED if private else LoopKind.SERIAL)
    if private:
        row, column = Var("row"), Var("column")
        copied = Store(own, (row, column), Read(a, (row, column)))
        fill = Loop(row, const(4), Loop(column, const(250), copied))
        body = Alloc(own, Seq((fill, body)))
    values = np.random.default_rng(0).standard_normal((4, 250)).astype(np.float32)
    (result,) = run_native(Program("k", (a, out), body), {"a": values})
    for row_number, lane in np.ndindex(4, 16):
        is_chosen = holds(const(row_number), const(lane)) == TRUE and not (nested and row_number == 3)
        place = int(str(where(const(lane))))
        expected = values[row_number, place] if is_chosen else np.float32(0)
        assert result[row_number, lane] == expected, (row_number, lane)


def test_what_a_condition_reads_is_read_without_a_mask() -> None:
    """As for a softmax: what is far below the maximum is zero. What only a part of the condition guards has a mask."""
    a, out = matrix("a", 1, 16), matrix("out", 1, 16)
    read = Read(a, (const(0), i))
    texts: list[str] = []
    for condition in (read < 0.0, (i < 5) & (read < 0.0), select(i < 5, read, const(1.0, f32)) < 0.0):
        value = select(condition, read * 2.0, const(3.0, f32))
        program = Program("k", (a, out), Loop(i, const(16), Store(out, (const(0), i), value), LoopKind.VECTORIZED))
        texts.append(kernel_text(program).text)
        values = np.random.default_rng(0).standard_normal((1, 16)).astype(np.float32)
        (result,) = run_native(program, {"a": values})
        chosen = (values < 0) & ((np.arange(16) < 5) | (len(texts) == 1))
        np.testing.assert_array_equal(result, np.where(chosen, values * 2, np.float32(3)))
    assert ["llvm.masked.load" in text for text in texts] == [False, True, True]
    assert ["load <16 x float>" in text for text in texts] == [True, False, False]


def test_weights_of_a_softmax_are_not_scaled() -> None:
    """They are normal numbers, as an exponential has if its operand has these limits."""
    a, out = matrix("a", 1, 16), matrix("out", 1, 16)
    guard = f"0x{(1023 - 64) << 52:016X}"
    texts: list[str] = []
    for least in (-87.0, -88.0):
        value = unary(UnaryOp.EXP, minimum(maximum(Read(a, (const(0), i)), const(least, f32)), const(0.0, f32)))
        program = Program("k", (a, out), Loop(i, const(16), Store(out, (const(0), i), value), LoopKind.VECTORIZED))
        texts.append(kernel_text(program).text)
        values = np.linspace(-100, 5, 16, dtype=np.float32).reshape(1, 16)
        (result,) = run_native(program, {"a": values})
        np.testing.assert_allclose(result, np.exp(np.clip(values.astype(np.float64), least, 0)), rtol=3e-7)
    assert [guard in text for text in texts] == [False, True]


@pytest.mark.parametrize("other", [-0.0, 1.0, float("-inf")])
def test_other_values_than_zero_are_selected(other: float) -> None:
    a, out = matrix("a", 1, 16), matrix("out", 1, 16)
    value = select(i < 5, Read(a, (const(0), i)), const(other, f32))
    program = Program("k", (a, out), Loop(i, const(16), Store(out, (const(0), i), value), LoopKind.VECTORIZED))
    (result,) = run_native(program, {"a": np.ones((1, 16), np.float32)})
    expected = np.float32([1.0] * 5 + [other] * 11)
    np.testing.assert_array_equal(result[0].view(np.uint32), expected.view(np.uint32))


def test_no_load_goes_beyond_a_short_stretch() -> None:
    a, out = matrix("a", 1, 5), matrix("out", 1, 16)
    store = Store(out, (const(0), i), Read(a, (const(0), i % 3 + 2)))
    program = Program("k", (a, out), Loop(i, const(16), store, LoopKind.VECTORIZED))
    text = kernel_text(program).text
    assert "llvm.masked.load" in text
    assert "load <16 x float>" not in text


@pytest.mark.parametrize("shift", [-3, -1, 0, 3, 20])
@pytest.mark.parametrize("checked", [False, True])
@pytest.mark.parametrize("step", [2, 3, 4])
def test_close_lanes_under_a_known_mask_are_permuted(shift: int, checked: bool, step: int) -> None:
    """Every second, third or fourth element, and zeros where that is out of bounds: nothing there is touched."""
    a, out = matrix("a", 1, 24), matrix("out", 1, 16)
    at = i * step + shift
    inside = (at >= 0) & (at < 24)
    value = select(inside, Read(a, (const(0), at)), const(0.0, f32))
    program = Program("k", (a, out), Loop(i, const(16), Store(out, (const(0), i), value), LoopKind.VECTORIZED))
    values = np.random.default_rng(0).standard_normal((1, 24)).astype(np.float32)
    (result,) = run_native(program, {"a": values}, checked=checked)
    places = step * np.arange(16) + shift
    known = (places >= 0) & (places < 24)
    np.testing.assert_array_equal(result[0], np.where(known, values[0, places.clip(0, 23)], np.float32(0)))
    if not checked:
        assert "gather" not in kernel_text(program).text


@pytest.mark.parametrize("step", [2, -2, 3, -3, 4])
@pytest.mark.parametrize("checked", [False, True])
@pytest.mark.parametrize("dtype", [f32, boolean])
def test_close_lanes_under_a_mask_known_at_run_time_are_permuted(step: int, checked: bool, dtype: DType) -> None:
    a, out = Buffer("a", dtype, (const(24),), GLOBAL), Buffer("out", dtype, (const(9), const(16)), GLOBAL)
    at = i * step + k * 7 - 20
    value = select((at >= 0) & (at < 24), Read(a, (at,)), const(dtype.numpy.type(0).item(), dtype))
    lanes = Loop(i, const(16), Store(out, (k, i), value), LoopKind.VECTORIZED)
    program = Program("k", (a, out), Loop(k, const(9), lanes))
    values = (np.random.default_rng(0).standard_normal(24) + 0.5).astype(dtype.numpy)
    (result,) = run_native(program, {"a": values}, checked=checked)
    places = step * np.arange(16) + 7 * np.arange(9)[:, None] - 20
    known = (places >= 0) & (places < 24)
    np.testing.assert_array_equal(result, np.where(known, values[places.clip(0, 23)], dtype.numpy.type(0)))
    if not checked:
        assert "gather" not in kernel_text(program).text
