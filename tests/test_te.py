import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.schedule.movement import assert_same
from tilewright import te
from tilewright.backend.cpu.image import kernel_text
from tilewright.base.errors import BadProgram, ScheduleError, UnsupportedDType
from tilewright.loops.parser import parse_program
from tilewright.loops.verify import verify
from tilewright.schedule.replay import replay
from tilewright.schedule.schedule import Schedule
from tilewright.schedule.trace import Primitive, Trace
from tilewright.symbolic.expr import Extent

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
    s[c].annotate("note", 1)
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
        (lambda: s.cache_read(a, "local", []), "a copy that nobody reads"),
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


def test_stages_have_every_primitive() -> None:
    """A primitive of ``Schedule`` is a method of ``Stage``, or of ``TeSchedule`` if it is of the whole program."""
    looking = {"get_block", "get_loops"}
    primitives = {primitive.value for primitive in Primitive} | {"apply", "copy"}
    assert {name for name in vars(Schedule) if not name.startswith("_")} - looking == primitives
    assert primitives <= vars(te.Stage).keys() | vars(te.TeSchedule).keys()


def test_the_page_lists_all_primitives() -> None:
    page = (Path(__file__).parents[1] / "docs" / "te.md").read_text().split("## Primitives")[1]
    cells = [row.split("|")[1] for row in page.splitlines() if row.startswith("|")]
    listed = {name for cell in cells for name in re.findall(r"`(?:s\.)?(\w+)", cell)}
    assert listed == {primitive.value for primitive in Primitive} | {"apply"}


def test_primitives_of_stages() -> None:
    """Those that no other test here has, each on loops that it fits."""
    _, b, c, k = literature(10)
    s = te.create_schedule(c)
    naive = s.program
    copies = s[c].pad((8, 4, 4))
    assert [stage.block.name for stage in copies] == ["A_pad", "B_pad", "C_copy"]
    s[c].decompose_reduction(k)
    assert s.buffer(copies[0]) == "A_pad"
    s.prefetch(b, 64)
    s[c].split(c.op.axis[0], s[c].sample_perfect_tile(c.op.axis[0], 2, decision=(4, 4))[1])
    vector = c.op.axis[1]
    s[c].vectorize(vector)
    s[c].serial(vector)
    s[c].annotate("note", s.sample_categorical((1, 2), decision=2))
    s[c].unannotate("note")
    packed, *_ = s[copies[0]].transform_layout("i, j -> j // 4, i, j % 4")
    s[copies[0]].unroll(packed)
    other = s.copy()
    other[c].unroll(vector)
    assert "unrolled" in str(other[c].schedule) != str(s)
    assert_same(naive, s.program)
    assert_same(naive, other.program)


def test_symbolic_factors_of_stages() -> None:
    _, _, c, _ = literature(8)
    s = te.create_schedule(c)
    naive = s.program
    s[c].split(c.op.axis[0], Extent("f"))
    s.bind_factors(f=4)
    assert_same(naive, s.program)


def test_one_copy_for_several_readers() -> None:
    a = te.placeholder((8, 6), name="A")
    b = te.compute((8, 6), lambda i, j: a[i, j] + 1.0, name="B")
    c = te.compute((6, 8), lambda i, j: a[j, i] * b[j, i], name="C")
    s = te.create_schedule([b, c])
    naive = s.program
    copied = s.cache_read(a, "local", [b, c])
    assert [str(s).count(text) for text in ("= A[", "= A_local[", "alloc A_local")] == [1, 2, 1]
    assert copied.op.axis
    assert_same(naive, s.program)
    assert replay(s.trace, naive).program == s.program
    assert replay(Trace.from_json(s.trace.to_json()), naive).program == s.program
    with pytest.raises(ScheduleError, match="does not read `B`"):
        s.cache_read(b, "local", [c, b])


def test_stages_of_a_scan() -> None:
    x, state = te.placeholder((5, 8), name="X"), te.placeholder((5, 8), name="S")
    twice = te.compute((5, 8), lambda t, i: state[t - 1, i] * 2.0, name="twice")
    update = te.compute((5, 8), lambda t, i: twice[t, i] + x[t, i], name="update")
    total = te.scan(te.compute((1, 8), lambda _, i: x[0, i], name="init"), update, state, name="total")
    s = te.create_schedule(total)
    naive = s.program
    assert s[total] == s[update]
    s[twice].vectorize(twice.op.axis[1])
    s[total].vectorize(update.op.axis[1])
    assert str(s).count("vectorized") == 2
    assert_same(naive, s.program)


def test_dtypes_by_name() -> None:
    long, short = te.placeholder((4,), "bfloat16"), te.placeholder((4,), "bf16")
    assert long.dtype == short.dtype == te.cast(1, "bfloat16").dtype
    assert te.const(1, "uint8").dtype == te.max_value("u8").dtype == te.min_value("uint8").dtype
    for wrong in (lambda: te.placeholder((4,), "flaot32"), lambda: te.cast(1, "flaot32")):
        with pytest.raises(UnsupportedDType, match="did you mean float32"):
            wrong()


@pytest.mark.parametrize("extreme", [te.argmax, te.argmin])
def test_extremes_without_an_index_say_what_they_take(extreme: Callable[..., object]) -> None:
    a, k = te.placeholder((8, 4), name="A"), te.reduce_axis((0, 4), "k")
    with pytest.raises(BadProgram, match=r"give \(index, value\), as \(k, A\[i, k\]\) over the axis k$"):
        te.compute((8,), lambda i: extreme(a[i, k], axis=k))
