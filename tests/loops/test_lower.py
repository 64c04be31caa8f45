import pytest

from tests.loops import workloads
from tilewright.base.dtypes import f32
from tilewright.base.errors import BadProgram
from tilewright.loops.extern import extern, for_range, store
from tilewright.loops.ir import Alloc, Block, Loop
from tilewright.loops.lower import lower
from tilewright.loops.reader import format_loops
from tilewright.loops.verify import verify
from tilewright.loops.visit import walk
from tilewright.tensor import build as te
from tilewright.tensor.scan import scan


def names(program_text: str) -> str:
    return program_text.splitlines()[0]


def test_parameters_are_in_order_of_first_use() -> None:
    a, b = te.placeholder((4,), name="a"), te.placeholder((4,), name="b")
    c = te.compute((4,), lambda i: b[i] - a[i], name="c")
    assert names(str(lower(c))) == "program main(b: f32[4], a: f32[4]) -> (c: f32[4]):"
    assert names(str(lower(c, inputs=[a, b]))) == "program main(a: f32[4], b: f32[4]) -> (c: f32[4]):"
    unused = te.placeholder((), name="u")
    assert "u: f32[]" in names(str(lower(c, "f", inputs=[a, unused, b])))
    with pytest.raises(BadProgram, match=r"b: .* is needed, but not listed"):
        lower(c, inputs=[a])


def test_unnamed_tensors_get_letters_and_illegal_names_are_mended() -> None:
    x = te.placeholder((2,), name="conv1/weight:0")
    b = te.compute((2,), lambda i: x[i] + 1.0, name="B")
    a = te.compute((2,), lambda i: b[i] + 1.0)
    c = te.compute((2,), lambda i: a[i] + 1.0)
    d = te.compute((2,), lambda i: c[i] + 1.0, name="for")
    program = lower(d)
    assert names(str(program)) == "program main(conv1_weight_0: f32[2]) -> (for_1: f32[2]):"
    assert [node.buffer.name for node in walk(program.body) if isinstance(node, Alloc)] == ["B", "A", "C"]


def test_names_are_unique() -> None:
    a = te.placeholder((2, 2), name="T")
    b = te.compute((2, 2), lambda i, vi: a[i, vi], name="T")
    c = te.compute((2, 2), lambda _, i: b[_, i], name="T")
    program = lower(c)
    verify(program)
    assert [n.name for n in walk(program.body) if isinstance(n, Block)] == ["T_1", "T_2"]
    assert [n.var.name for n in walk(program.body) if isinstance(n, Loop)] == ["i", "vi", "i_1", "i_2"]


def test_outputs_that_are_inputs_become_copies() -> None:
    a = te.placeholder((2,), name="a")
    b = te.compute((2,), lambda i: a[i] * 2.0, name="b")
    program = lower([b, a, b])
    verify(program)
    assert [param.name for param in program.results] == ["b", "a_copy", "b_copy"]


def test_unused_outputs_of_a_compute_are_allocated() -> None:
    _, value = workloads.argmax(3, 4)
    program = lower(value)
    verify(program)
    assert [n.buffer.name for n in walk(program.body) if isinstance(n, Alloc)] == ["position"]


def test_symbolic_extents_become_dims() -> None:
    program = lower(workloads.cumsum(te.var("steps"), 3), dims={"steps": 100, "other": 3})
    assert names(str(program)) == "program main[steps <= 100](X: f32[steps, 3]) -> (total: f32[steps, 3]):"


def test_what_runs_within_a_scan_stays_there() -> None:
    x, state = te.placeholder((8, 4), name="X"), te.placeholder((8, 4), name="S")
    start = te.compute((1, 4), lambda t, i: x[t, i])
    update = te.compute((8, 4), lambda t, i: state[t - 1, i] + x[t, i], name="next")
    total = scan(start, update, state, name="total")
    leak = te.compute((8, 4), lambda t, i: total[t, i] + update[t, i], name="leak")
    with pytest.raises(BadProgram, match="leak reads next, which exists within steps of total only"):
        lower(leak)
    with pytest.raises(BadProgram, match="next exists within the steps of a scan only"):
        lower([total, update])
    outside = te.compute((8, 4), lambda t, i: total[t, i] + state[t, i], name="outside")
    with pytest.raises(BadProgram, match="outside reads S, which exists within steps of total only"):
        lower(outside)


def test_an_update_that_does_not_depend_on_the_state_is_copied() -> None:
    x, state = te.placeholder((4, 2), name="X"), te.placeholder((4, 2), name="S")
    start = te.compute((2, 2), lambda t, i: x[t, i] * 2.0, name="start")
    program = lower(scan(start, x, state, name="total"))
    verify(program)
    assert "total[t_2 + 2, i1] = X[t_2 + 2, i1]" in format_loops(program)


def test_extern_buffers_and_loops_get_names_of_their_own() -> None:
    x = te.placeholder((4,), name="i")
    y = te.compute((4,), lambda i: x[i] + 1.0, name="y")
    (z,) = extern(
        [(4,)], [y, y], lambda ins, outs: for_range(4, lambda i: store(outs[0], i, ins[0][i] + ins[1][i])), [f32]
    )
    program = lower(z)
    verify(program)
    assert format_loops(program).splitlines()[-2:] == ["for i_1 in range(4):", "  A[i_1] = y[i_1] + y[i_1]"]
    with pytest.raises(BadProgram, match="1 shapes and 2 dtypes"):
        extern([(4,)], [x], lambda ins, outs: store(outs[0], 0, 0.0), [f32, f32])
