import numpy as np
import pytest

from tests.schedule.movement import assert_same, refused
from tilewright.base.dtypes import DType, f32, i32
from tilewright.base.errors import BadProgram
from tilewright.loops.interpreter import interpret
from tilewright.loops.ir import Call, If
from tilewright.loops.lower import lower
from tilewright.loops.visit import walk
from tilewright.schedule.intrinsics import IntrinsicSet, TensorIntrinsic, decl_tensor_intrin
from tilewright.schedule.replay import replay
from tilewright.schedule.schedule import Schedule
from tilewright.symbolic.traversal import free_vars
from tilewright.tensor import build as te


def gemm(size: int = 4, dtype: DType = f32) -> TensorIntrinsic:
    w, x = te.placeholder((size, size), dtype, "w"), te.placeholder((size, size), dtype, "x")
    k = te.reduce_axis((0, size), name="k")
    y = te.compute((size, size), lambda i, j: te.sum(w[i, k] * x[k, j], axis=k), name="y")
    return decl_tensor_intrin(y, "gemm", reset="gemm_reset", update="gemm_update")


def matmul(m: int, n: int, depth: int, dtype: DType = f32, swapped: bool = False, batch: int = 0) -> Schedule:
    lead = (batch,) if batch else ()
    a, b = te.placeholder((*lead, m, depth), dtype, "A"), te.placeholder((*lead, depth, n), dtype, "B")
    k = te.reduce_axis((0, depth), name="k")

    def product(*at: te.Expr) -> te.Expr:
        *outer, i, j = at
        left, right = a[(*outer, i, k)], b[(*outer, k, j)]
        return right * left if swapped else left * right

    shape = (*lead, m, n)
    if batch:
        c = te.compute(shape, lambda h, i, j: te.sum(product(h, i, j), axis=k), name="C")
    else:
        c = te.compute(shape, lambda i, j: te.sum(product(i, j), axis=k), name="C")
    return Schedule(lower(c))


def tiled(s: Schedule, size: int = 4) -> None:
    s.tile(("i", "j", "k"), (size, size, size), names=("io", "jo", "ko", "ii", "ji", "ki"))


def called(s: Schedule) -> list[str]:
    return [stmt.callee for stmt in walk(s.program.body) if isinstance(stmt, Call)]


def test_reduction_outside() -> None:
    s = matmul(8, 12, 16)
    naive = s.program
    tiled(s)
    s.tensorize("ii", gemm())
    assert called(s) == ["gemm_reset", "gemm_update"]
    assert_same(naive, s.program)
    s.parallel("io")
    s.reorder("ko", "io")
    assert_same(naive, s.program)


def test_whole_reduction_inside() -> None:
    s = matmul(8, 12, 4)
    naive = s.program
    s.tile(("i", "j"), (4, 4))
    s.tensorize("i_1", gemm())
    assert called(s) == ["gemm"]
    assert_same(naive, s.program)


def test_leading_axes_are_points() -> None:
    s = matmul(8, 4, 8, batch=3)
    naive = s.program
    tiled(s)
    s.tensorize("ii", gemm())
    assert_same(naive, s.program)


@pytest.mark.parametrize("is_last", [True, False])
@pytest.mark.parametrize("is_inside", [True, False])
def test_reduction_axes_of_one_point_are_left_out(*, is_last: bool, is_inside: bool) -> None:
    """Such as the taps of a convolution of points; loops over them may be anywhere."""
    a, b = te.placeholder((8, 16), name="A"), te.placeholder((1, 16, 12), name="B")
    k, r = te.reduce_axis((0, 16), name="k"), te.reduce_axis((0, 1), name="r")
    axes = (k, r) if is_last else (r, k)
    s = Schedule(lower(te.compute((8, 12), lambda i, j: te.sum(a[i + r, k] * b[r, k, j], axis=axes), name="C")))
    naive = s.program
    s.tile(("i", "j", "k"), (4, 4, 4), names=("io", "jo", "ko", "ii", "ji", "ki"))
    s.reorder(*(("io", "jo", "ko", "ii", "ji", "ki", "r") if is_inside else ("r", "io", "jo", "ko", "ii", "ji", "ki")))
    s.tensorize("ii", gemm())
    assert called(s) == ["gemm_reset", "gemm_update"]
    assert_same(naive, s.program)


def test_update_and_reset_apart() -> None:
    s = matmul(8, 12, 16)
    naive = s.program
    tiled(s)
    init = s.decompose_reduction("C", "ko")
    s.tensorize("ii", gemm())
    outer, inner = s.get_loops(init)[-2:]
    s.tensorize(outer, gemm())
    assert called(s) == ["gemm_reset", "gemm_update"]
    assert_same(naive, s.program)
    del inner


def test_elementwise() -> None:
    v = te.placeholder((8,), name="v")
    relu = decl_tensor_intrin(te.compute((8,), lambda i: te.select(v[i] > 0.0, v[i], 0.0), name="r"), "relu8")
    a = te.placeholder((3, 16), name="A")
    s = Schedule(lower(te.compute((3, 16), lambda i, j: te.select(a[i, j] > 0.0, a[i, j], 0.0), name="B")))
    naive = s.program
    s.split("j", (None, 8))
    s.tensorize("j_1", relu)
    assert_same(naive, s.program)


def test_guarded_splits_are_refused() -> None:
    s = matmul(10, 12, 16)
    tiled(s)
    with refused(s, "the block has the predicate", "split by factors that divide"):
        s.tensorize("ii", gemm())


def test_a_guard_around_tiles_stays() -> None:
    s = matmul(10, 12, 16)
    naive = s.program
    s.tile(("i", "j", "k"), (3, 4, 4), names=("io", "jo", "ko", "ii", "ji", "ki"))
    a, b = te.placeholder((4,), name="a"), te.placeholder((4, 4), name="b")
    k = te.reduce_axis((0, 4), name="k")
    row = te.compute((4,), lambda j: te.sum(a[k] * b[k, j], axis=k), name="row")
    s.tensorize("ji", decl_tensor_intrin(row, "row", reset="row_reset", update="row_update"))
    assert called(s) == ["row_reset", "row_update"]
    assert_same(naive, s.program)


def overlapping(within: bool) -> Schedule:
    """A product of which the next stage adds neighbours, in tiles that do not divide: some of the last ones are outside
    of it. ``within``: neighbours are columns, so a row of the last tile is in part outside."""
    a, b = te.placeholder((10, 4), f32, "A"), te.placeholder((4, 12), f32, "B")
    k = te.reduce_axis((0, 4), name="k")
    c = te.compute((10, 12), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")
    shape = (10, 11) if within else (9, 12)
    d = te.compute(shape, lambda i, j: c[i, j] + (c[i, j + 1] if within else c[i + 1, j]), name="D")
    s = Schedule(lower(d))
    outer, _ = s.split(s.get_loops("D")[1 if within else 0], (None, 4))
    s.compute_at("C", outer)
    return s


def rows(columns: int, depth: int) -> TensorIntrinsic:
    """A row of a product."""
    x, w = te.placeholder((depth,), f32, "x"), te.placeholder((depth, columns), f32, "w")
    k = te.reduce_axis((0, depth), name="k")
    y = te.compute((columns,), lambda j: te.sum(x[k] * w[k, j], axis=k), name="y")
    return decl_tensor_intrin(y, "rows", reset="rows_reset", update="rows_update")


@pytest.mark.parametrize("depth", [4, 2])
def test_a_condition_that_is_the_same_in_a_tile_stays(depth: int) -> None:
    """Rows beyond the last one are not computed, by any form of the call."""
    s = overlapping(within=False)
    naive = s.program
    j, k = s.get_loops("C")[-2:]
    outer, _ = s.split(k, (None, depth))
    s.reorder(outer, j)
    s.tensorize(j, rows(12, depth))
    assert called(s) == (["rows"] if depth == 4 else ["rows_reset", "rows_update"])
    guards = [stmt for stmt in walk(s.program.body) if isinstance(stmt, If)]
    assert len(guards) == len(called(s))
    assert_same(naive, s.program)


def padded(depth: int) -> Schedule:
    """Rows of a product with three taps over rows, of which the first and the last may be padding."""
    a, b = te.placeholder((4, depth), f32, "A"), te.placeholder((3, depth, 8), f32, "B")
    p = te.compute((6, depth), lambda i, k: te.select((i >= 1) & (i < 5), a[i - 1, k], 0.0), name="P")
    t, k = te.reduce_axis((0, 3), name="t"), te.reduce_axis((0, depth), name="k")
    return Schedule(lower(te.compute((4, 8), lambda i, j: te.sum(p[i + t, k] * b[t, k, j], axis=(t, k)), name="C")))


def test_terms_that_are_left_out_are_calls_that_are_left_out() -> None:
    s = padded(4)
    naive = s.program
    s.skip_padding("C", (1, 1, 1, 1))
    _, j, _, k = s.get_loops("C")
    s.reorder(s.get_loops("C")[2], j, k)
    s.tensorize(j, rows(8, 4))
    assert called(s) == ["rows_reset", "rows_update"]
    (guard,) = (stmt for stmt in walk(s.program.body) if isinstance(stmt, If))
    assert {var.name.removesuffix("_1") for var in free_vars(guard.condition)} == {"vi", "vt"}
    assert_same(naive, s.program)


def test_terms_that_are_left_out_within_a_tile_are_refused() -> None:
    s = padded(4)
    s.skip_padding("C", (1, 1, 1, 1))
    i, j, t, k = s.get_loops("C")
    s.reorder(j, t, i, k)
    a, b = te.placeholder((4, 4), f32, "x"), te.placeholder((4,), f32, "w")
    r = te.reduce_axis((0, 4), name="k")
    column = te.compute((4,), lambda i: te.sum(a[i, r] * b[r], axis=r), name="y")
    with refused(s, "changes within a tile"):
        s.tensorize(i, decl_tensor_intrin(column, "column", reset="reset", update="update"))


def test_a_condition_that_changes_in_a_tile_is_refused() -> None:
    s = overlapping(within=True)
    with refused(s, "the condition `vj_1_0 * 4 + vj < 12` changes within a tile"):
        s.tensorize("j", rows(5, 4))


def test_swapped_operands_name_both_expressions() -> None:
    s = matmul(8, 12, 16, swapped=True)
    tiled(s)
    with refused(s, "y[gemm.vi, gemm.vj] + w[gemm.vi, gemm.vk] * x[gemm.vk, gemm.vj]", "B[", "is not `w["):
        s.tensorize("ii", gemm())


def test_other_mismatches_are_refused() -> None:
    s = matmul(8, 12, 16)
    tiled(s, 2)
    with refused(s, "the spatial tile is 2 (vi) x 2 (vj), but gemm takes 4 (vi) x 4 (vj)"):
        s.tensorize("ii", gemm())
    t = matmul(8, 12, 16, dtype=i32)
    tiled(t)
    with refused(t, "can't be passed as"):
        t.tensorize("ii", gemm())
    u = matmul(8, 12, 16)
    with refused(u, "no intrinsic is called dot"):
        u.tensorize("i", "dot")


def test_missing_forms_are_refused() -> None:
    whole = gemm()
    only = TensorIntrinsic(whole.name, whole.description, whole.compute)
    s = matmul(8, 12, 16)
    tiled(s)
    with refused(s, "declared without the form `reset`"):
        s.tensorize("ii", only)


def test_declarations_are_checked() -> None:
    a = te.placeholder((8,), name="a")
    b = te.compute((8,), lambda i: a[i] + 1.0, name="b")
    with pytest.raises(BadProgram, match="no reduction"):
        decl_tensor_intrin(b, "inc", reset="zero")
    with pytest.raises(BadProgram, match="no form called other"):
        decl_tensor_intrin(b, "inc", implementations={"other": ""})
    with pytest.raises(BadProgram, match=r"one te\.compute"):
        decl_tensor_intrin(te.compute((8,), lambda i: b[i] + 1.0, name="c"), "twice")


def test_forms_mean_what_they_say() -> None:
    forms = gemm()
    assert forms.reset is not None
    assert forms.update is not None
    w, x = np.arange(16, dtype=np.float32).reshape(4, 4), np.eye(4, dtype=np.float32)
    y = np.ones((4, 4), np.float32)
    np.testing.assert_array_equal(interpret(forms.update.description, {"w": w, "x": x, "y": y})["y"], w + 1)
    np.testing.assert_array_equal(interpret(forms.reset.description, {"y": y})["y"], 0 * y)


def test_replay_needs_the_intrinsics() -> None:
    s = matmul(8, 12, 16)
    naive = s.program
    tiled(s)
    s.tensorize("ii", gemm())
    assert replay(s.trace, naive, intrinsics=IntrinsicSet((gemm(),))).program == s.program
