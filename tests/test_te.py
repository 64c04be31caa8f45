from collections.abc import Callable

import numpy as np
import pytest

from tests.schedule.movement import assert_same
from tilewright import te
from tilewright.backend.cpu.image import kernel_text
from tilewright.base.errors import ScheduleError
from tilewright.loops.parser import parse_program
from tilewright.loops.verify import verify

Golden = Callable[[str, str], None]


def literature(size: int) -> tuple[te.Tensor, te.Tensor, te.Tensor, te.IterVar]:
    """The matrix product of the TVM paper (OSDI 2018, figure 5): A is read transposed."""
    a, b = te.placeholder((size, size), name="A"), te.placeholder((size, size), name="B")
    k = te.reduce_axis((0, size), name="k")
    c = te.compute((size, size), lambda y, x: te.sum(a[k, y] * b[k, x], axis=k), name="C")
    return a, b, c, k


def gemm8x8() -> te.TensorIntrinsic:
    w, x = te.placeholder((8, 8), name="w"), te.placeholder((8, 8), name="x")
    k = te.reduce_axis((0, 8), name="k")
    y = te.compute((8, 8), lambda i, j: te.sum(w[k, i] * x[k, j], axis=k), name="y")
    return te.decl_tensor_intrin(y, "gemm8x8", reset="fill_zero", update="fused_gemm8x8_add")


def tiled(size: int) -> tuple[te.TeSchedule, te.Tensor]:
    _, _, c, k = literature(size)
    s = te.create_schedule(c)
    y, x = c.op.axis
    yo, xo, yi, xi = s[c].tile(y, x, 8, 8)
    s[c].reorder(yo, xo, k, yi, xi)
    return s, c


def tensorized(size: int) -> te.TeSchedule:
    """Figure 5, last program: inputs are copied tile by tile, the product of tiles is an intrinsic."""
    a, b, c, k = literature(size)
    s = te.create_schedule(c)
    cl = s.cache_write(c, "local")
    al, bl = s.cache_read(a, "local", [cl]), s.cache_read(b, "local", [cl])
    _, xo, _, _ = s[c].tile(*c.op.axis, 8, 8)
    s[cl].compute_at(s[c], xo)
    ko, ki = s[cl].split(k, factor=8)
    yi, xi = cl.op.axis
    s[cl].reorder(ko, yi, xi, ki)
    s[al].compute_at(s[cl], ko)
    s[bl].compute_at(s[cl], ko)
    s[cl].tensorize(yi, gemm8x8())
    return s


def test_naive(golden: Golden) -> None:
    _, _, c, _ = literature(1024)
    golden("te/matmul_naive", str(te.create_schedule(c)))


def test_tiled(golden: Golden) -> None:
    s, _ = tiled(1024)
    golden("te/matmul_tiled", str(s))


def test_tensorized(golden: Golden) -> None:
    s = tensorized(1024)
    golden("te/matmul_tensorized", f"{s}\n{s.trace}\n\n{s.program}")


def test_programs_of_the_literature_are_equal() -> None:
    _, _, c, _ = literature(16)
    naive = te.create_schedule(c).program
    assert_same(naive, tiled(16)[0].program)
    assert_same(naive, tensorized(16).program)


def test_tensorize_without_copies() -> None:
    s, c = tiled(16)
    ko, ki = s[c].split(c.op.reduce_axis[0], factor=8)
    yo, xo, yi, xi = (loop for loop in s.schedule.get_loops(s[c].block) if loop not in (ko, ki))
    s[c].reorder(yo, xo, ko, yi, xi, ki)
    s[c].tensorize(yi, gemm8x8())
    assert_same(te.create_schedule(c).program, s.program)


def test_notation() -> None:
    _, _, c, k = literature(16)
    s = te.create_schedule(c)
    ko, ki = s[c].split(k, factor=4)
    assert (ko.name, ki.name) == ("ko", "ki")
    yo, yi = s[c].split(c.op.axis[0], nparts=2)
    s[c].reorder(yo, c.op.axis[1], ko, yi, ki)
    s[c].unroll(ki)
    s[c].vectorize(yi)
    s[c].parallel(s[c].fuse(yo, c.op.axis[1]))
    s[c].pragma("note", 1)
    verify(te.lower(s))
    assert_same(te.create_schedule(c).program, s.program)


def test_producers() -> None:
    a = te.placeholder((8, 8), name="A")
    b = te.compute((8, 8), lambda i, j: a[i, j] + 1.0, name="B")
    c = te.compute((8, 8), lambda i, j: b[i, j] * 2.0, name="C")
    d = te.compute((8, 8), lambda i, j: c[i, j] - 3.0, name="D")
    s = te.create_schedule(d)
    naive = s.program
    s[c].compute_inline()
    s[b].compute_at(s[d], d.op.axis[0])
    s[b].set_scope("local")
    s[b].vectorize(b.op.axis[1])
    assert_same(naive, s.program)


def test_rfactor() -> None:
    a = te.placeholder((4, 24), name="A")
    k = te.reduce_axis((0, 24), name="k")
    b = te.compute((4,), lambda i: te.sum(a[i, k], axis=k), name="B")
    s = te.create_schedule(b)
    naive = s.program
    _, ki = s[b].split(k, factor=4)
    partial = s.rfactor(b, ki)
    assert len(partial.op.axis) == 2
    assert_same(naive, s.program)


def test_devices() -> None:
    """The primitives of threads, in the literature's notation; the reference back end's page has the others."""
    a = te.placeholder((8, 8), name="A")
    b = te.compute((8, 8), lambda i, j: a[j, i] * 2.0, name="B")
    s = te.create_schedule(b)
    copy = s.cache_read(a, "shared", [b])
    i, j = b.op.axis
    grid, virtual = s[b].split(i, factor=2)
    s[b].bind(grid, "blockIdx.x")
    s[b].bind(virtual, "vthread")
    copy.compute_at(s[b], virtual)
    s[b].bind(j, "threadIdx.x")
    copy.bind(copy.op.axis[0], "threadIdx.x")
    copy.storage_align(0, 4, 3)
    s[b].lower_virtual_thread(virtual)
    s.place_barriers()
    values = np.arange(64, dtype=np.float32).reshape(8, 8)
    outputs, report = te.run_on_reference(s, {"A": values})
    report.check()
    np.testing.assert_array_equal(outputs["B"], values.T * 2)
    assert "alloc A_shared: f32[2, 8, 3] in shared" in str(s)
    assert report.barriers == 4


def test_mistakes() -> None:
    a, _, c, k = literature(16)
    _, _, other, other_k = literature(8)
    s = te.create_schedule(c)
    for mistake, reason in (
        (lambda: s[a], "inputs have no stage"),
        (lambda: s[other], "not computed in this schedule"),
        (lambda: s[c].split(other_k, factor=2), "no loop of stage C"),
        (lambda: s[c].split(k), "either factor= "),
        (lambda: s[c].split(k, factor=2, nparts=2), "either factor= "),
        (lambda: s.cache_write(c, "outer space"), "no memory 'outer"),
        (lambda: s.cache_read(a, "local", []), "one reader, not 0"),
        (lambda: s[c].bind(c.op.axis[0], "threadIdx.w"), "no axis 'threadIdx.w'"),
    ):
        with pytest.raises(ScheduleError, match=reason):
            mistake()
    assert not s.trace.steps


def test_a_thousand_computes_in_a_chain() -> None:
    """Each has a buffer that is allocated around the program: passes do not recurse into these."""
    tensor = te.placeholder((8,), name="x")
    for number in range(1000):
        tensor = te.compute((8,), lambda i, t=tensor: t[i] + 1.0, name=f"y{number}")
    schedule = te.create_schedule(tensor)
    verify(schedule.program)
    text = str(schedule.program)
    assert str(parse_program(text)) == text
    assert "define hidden void @main" in kernel_text(schedule.program).text
    schedule.schedule.compute_inline("y7")
    assert "alloc y7:" not in str(schedule.program)
