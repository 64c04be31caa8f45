from collections.abc import Callable

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.schedule import movement
from tests.schedule.movement import assert_same, refused
from tilewright.base.errors import ScheduleError
from tilewright.loops.lower import lower
from tilewright.loops.memory import GLOBAL, LOCAL
from tilewright.schedule.schedule import Schedule
from tilewright.symbolic.expr import Extent
from tilewright.tensor import build as te
from tilewright.tensor.scan import scan


def tiled_matmul(n: int, m: int, depth: int, rows: int, columns: int) -> Schedule:
    """The register-tiled matrix product: a local tile of ``rows x columns``, B packed in panels of ``columns``."""
    s = movement.matmul(n, m, depth)
    copy = s.cache_write("C", "C", LOCAL)
    i, j, k = s.get_loops(s.get_block("C"))
    io, ii = s.split(i, (None, rows))
    jo, ji = s.split(j, (None, columns))
    s.reorder(io, jo, k, ii, ji)
    s.reverse_compute_at(copy, jo)
    packed = s.cache_read("C", "B", GLOBAL)
    s.transform_layout(packed, "B_global", f"k, j -> j // {columns}, k, j % {columns}")
    s.parallel(io)
    s.unroll(ii)
    s.vectorize(ji)
    return s


def test_register_tiled_matmul(golden: Callable[[str, str], None]) -> None:
    s = tiled_matmul(1024, 1024, 1024, 12, 32)
    golden("schedule/register_tiled_matmul", str(s.program))


@settings(max_examples=25, deadline=None)
@given(st.integers(5, 13), st.integers(5, 13), st.integers(1, 5), st.integers(1, 5), st.integers(1, 5))
def test_register_tiled_matmul_of_any_size(n: int, m: int, depth: int, rows: int, columns: int) -> None:
    assert_same(movement.matmul(n, m, depth).program, tiled_matmul(n, m, depth, rows, columns).program)


def test_epilogue_joins_the_tile(golden: Callable[[str, str], None]) -> None:
    s = movement.dense(13, 35, 3)
    before = s.program
    s.compute_inline("D")
    i, j, k = s.get_loops(s.get_block("C"))
    io, ii = s.split(i, (None, 4))
    jo, ji = s.split(j, (None, 8))
    s.reorder(io, jo, k, ii, ji)
    s.reverse_compute_at("E", jo)
    s.set_scope("C", LOCAL)
    assert_same(before, s.program)
    golden("schedule/reverse_compute_at_epilogue", str(s.program))


def test_epilogue_moves_deeper_in_steps() -> None:
    s = movement.dense(9, 11, 3)
    before = s.program
    i, j, k = s.get_loops(s.get_block("C"))
    io, ii = s.split(i, (None, 4))
    jo, ji = s.split(j, (None, 4))
    s.reorder(io, jo, ii, ji, k)
    for loop in (io, jo, ii, ji):
        s.reverse_compute_at("D", loop)
        s.reverse_compute_at("E", loop)
        assert_same(before, s.program)


def test_fused_tiles() -> None:
    s = movement.dense(10, 12, 3)
    before = s.program
    i, j, k = s.get_loops(s.get_block("C"))
    io, ii = s.split(i, (None, 5))
    jo, ji = s.split(j, (None, 4))
    s.reorder(io, jo, k, ii, ji)
    tiles = s.fuse(io, jo)
    s.reverse_compute_at("D", tiles)
    assert "alloc C: f32[5, 4]" in str(s.program)
    assert_same(before, s.program)


def test_reduction_of_a_row_that_is_complete() -> None:
    x = te.placeholder((6, 5), name="X")
    t = te.compute((6, 5), lambda i, j: x[i, j] * 2.0, name="T")
    k = te.reduce_axis((0, 5), name="k")
    s = Schedule(lower(te.compute((6,), lambda i: te.sum(t[i, k], axis=k), name="Y"), "rows"))
    before = s.program
    i, j = s.get_loops(s.get_block("T"))
    for loop in (i, j):
        s.reverse_compute_at("Y", loop)
        assert_same(before, s.program)


def test_refuses_a_loop_that_still_reduces() -> None:
    s = movement.dense(4, 4, 4)
    k = s.get_loops(s.get_block("C"))[2]
    with refused(s, "`C` is not complete at the end of an iteration", "`vk`"):
        s.reverse_compute_at("D", k)


def test_refuses_parallel_loops_that_would_reduce() -> None:
    x = te.placeholder((6, 5), name="X")
    t = te.compute((6, 5), lambda i, j: x[i, j] * 2.0, name="T")
    k = te.reduce_axis((0, 6), name="k")
    s = Schedule(lower(te.compute((5,), lambda j: te.sum(t[k, j], axis=k), name="Y"), "columns"))
    s.parallel(s.get_loops(s.get_block("T"))[0])
    with refused(s, "a loop around it is not serial"):
        s.reverse_compute_at("Y", s.get_loops(s.get_block("T"))[0])


def test_refuses_what_an_iteration_does_not_make_alone() -> None:
    s = movement.stencil(8)
    with refused(s, "which one iteration does not make alone"):
        s.reverse_compute_at("Y", s.get_loops(s.get_block("T"))[0])


def test_refuses_loops_without_a_producer() -> None:
    s = movement.dense(4, 4, 4)
    with refused(s, "nothing inside the loop makes what the block reads"):
        s.reverse_compute_at("E", s.get_loops(s.get_block("C"))[0])


def test_refuses_to_overtake_another_producer() -> None:
    x = te.placeholder((6,), name="X")
    t = te.compute((6,), lambda i: x[i] + 1.0, name="T")
    u = te.compute((6,), lambda i: x[i] * 2.0, name="U")
    s = Schedule(lower(te.compute((6,), lambda i: t[i] + u[i], name="Y"), "both"))
    with refused(s, "can't move across `U`: both use `U`"):
        s.reverse_compute_at("Y", s.get_loops(s.get_block("T"))[0])


def test_refuses_recomputed_producers() -> None:
    s = movement.dense(8, 8, 4)
    s.compute_inline("D")
    _, j = s.get_loops(s.get_block("E"))
    s.compute_at("C", j)
    inner = s.get_loops(s.get_block("C"))[-2]
    with refused(s):
        s.reverse_compute_at("E", s.get_loops(s.get_block("C"))[-1])
    s.reverse_compute_at("E", inner)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_random_epilogues(data: st.DataObject) -> None:
    sizes = [data.draw(st.integers(1, 9)) for _ in range(3)]
    s = movement.dense(*sizes)
    before = s.program
    if data.draw(st.booleans()):
        s.compute_inline("D")
    block = s.get_block("C")
    for loop in s.get_loops(block):
        if data.draw(st.booleans()):
            s.split(loop, (None, data.draw(st.integers(1, 4))))
    s.reorder(*data.draw(st.permutations(s.get_loops(block))))
    for name in ("D", "E"):
        if f"block {name}(" in str(s.program):
            loop = data.draw(st.sampled_from(s.get_loops(block)))
            try:
                s.reverse_compute_at(name, loop)
            except ScheduleError:
                continue
            assert_same(before, s.program)


def test_symbolic_tiles_are_bound_later() -> None:
    s = movement.dense(13, 35, 3)
    before = s.program
    s.compute_inline("D")
    i, j, k = s.get_loops(s.get_block("C"))
    io, ii = s.split(i, (None, Extent("f")))
    jo, ji = s.split(j, (None, Extent("g")))
    s.reorder(io, jo, k, ii, ji)
    s.reverse_compute_at("E", jo)
    assert "C[vi % f, vj % g]" in str(s.program)
    for f, g in ((4, 8), (1, 3), (13, 35)):
        bound = s.copy()
        bound.bind_factors(f=f, g=g)
        assert f"alloc C: f32[{f}, {g}]" in str(bound.program)
        assert_same(before, bound.program)


def recurrent_product() -> Schedule:
    """Steps of a product of the state with a matrix, of sums with an input, and of the next state."""
    x, u = te.placeholder((5, 12), name="X"), te.placeholder((6, 12), name="U")
    state = te.placeholder((5, 6), name="H")
    start = te.compute((1, 6), lambda _, i: x[0, i], name="start")
    k = te.reduce_axis((0, 6), name="k")
    product = te.compute((5, 12), lambda t, i: te.sum(state[t - 1, k] * u[k, i], axis=k), name="P")
    gates = te.compute((5, 12), lambda t, i: product[t, i] + x[t - 1, i], name="G")
    update = te.compute((5, 6), lambda t, i: gates[t, i] * gates[t, i + 6], name="update")
    return Schedule(lower(scan(start, update, state, name="H"), "recurrent_product"))


def test_part_of_a_step_joins_the_tiles_of_another_part() -> None:
    s = recurrent_product()
    before = s.program
    _, i, k = s.get_loops(s.get_block("P"))
    io, ii = s.split(i, (None, 4))
    s.reorder(io, k, ii)
    s.set_scope("P", LOCAL)
    s.reverse_compute_at("G", io)
    assert "alloc P: f32[1, 4] in local" in str(s.program)
    assert_same(before, s.program)


def test_the_next_state_is_whole_before_the_product_reads_it() -> None:
    s = recurrent_product()
    _, i, _ = s.get_loops(s.get_block("P"))
    with refused(s, "writes `H` for the recurrence that the loop is part of"):
        s.reverse_compute_at("H", i)


def test_what_reads_all_steps_runs_after_them() -> None:
    """One step makes one row; the first row comes from elsewhere."""
    x, state = te.placeholder((4, 3), name="X"), te.placeholder((4, 3), name="S")
    start = te.compute((1, 3), lambda _, i: x[0, i], name="start")
    update = te.compute((4, 3), lambda t, i: state[t - 1, i] + x[t, i], name="update")
    total = scan(start, update, state, name="T")
    s = Schedule(lower(te.compute((4, 3), lambda t, i: total[t, i] * 2.0, name="Y"), "doubled"))
    step, _ = s.get_loops(s.get_block("T"))
    with refused(s, "the loops around still drive its ordered axis"):
        s.reverse_compute_at("Y", step)
