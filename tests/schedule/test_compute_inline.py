from collections.abc import Callable
from contextlib import suppress

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.schedule import movement
from tests.schedule.movement import assert_same, refused
from tilewright.base.dtypes import i64
from tilewright.base.errors import ScheduleError
from tilewright.loops.ir import Store
from tilewright.loops.lower import lower
from tilewright.schedule.schedule import Schedule
from tilewright.schedule.tree import all_blocks
from tilewright.symbolic.expr import equal
from tilewright.symbolic.sharing import DEEPEST, size_of
from tilewright.tensor import build as te
from tilewright.tensor.functions import exp


def test_producer_dissolves_into_all_reads(golden: Callable[[str, str], None]) -> None:
    s = movement.stencil(7)
    before = s.program
    s.compute_inline("T")
    assert_same(before, s.program)
    golden("schedule/compute_inline", f"{before}\n{s.program}")


def test_padding_dissolves_into_a_convolution() -> None:
    s = movement.convolution(channels=2, filters=3, size=5, kernel=3, stride=2, border=1)
    before = s.program
    s.compute_inline("P")
    assert "alloc P" not in str(s.program)
    assert_same(before, s.program)


def test_consumer_dissolves_into_its_producer(golden: Callable[[str, str], None]) -> None:
    s = movement.chain(6)
    before = s.program
    s.split("i", (None, 4))
    s.reverse_compute_inline("Y")
    assert_same(before, s.program)
    golden("schedule/reverse_compute_inline", f"{before}\n{s.program}")


def test_transposing_consumer() -> None:
    x = te.placeholder((3, 4), name="X")
    t = te.compute((3, 4), lambda i, j: x[i, j] + 1.0, name="T")
    s = Schedule(lower(te.compute((4, 3), lambda a, b: t[b, a] * 2.0, name="Y"), "transposed"))
    before = s.program
    s.reverse_compute_inline("Y")
    assert "Y[vj, vi] = (X[vi, vj] + f32(1.0)) * f32(2.0)" in str(s.program)
    assert_same(before, s.program)


def test_a_reduction_that_nothing_reads_just_goes() -> None:
    x = te.placeholder((3, 4), i64, name="X")
    k = te.reduce_axis((0, 4), name="k")
    total = te.compute((3,), lambda i: te.sum(x[i, k], axis=k), name="T")
    again = te.compute((3,), lambda i: total[i] + 1, name="A")
    s = Schedule(lower(te.compute((3,), lambda i: equal(again[i], total[i] + 1), name="Y"), "equal"))
    before = s.program
    with refused(s, "`T` is a reduction"):
        s.compute_inline("T")
    s.compute_inline("A")
    s.compute_inline("T")
    assert [block.name for block in all_blocks(s.program.body)] == ["Y"]
    assert "alloc" not in str(s.program)
    assert_same(before, s.program)


def test_inline_refusals() -> None:
    s = movement.dense(4, 5, 6)
    with refused(s, "`C` is a reduction or recurrence (axis vk)"):
        s.compute_inline("C")
    with refused(s, "`E` is an output, and must be stored"):
        s.compute_inline("E")
    s.transform_layout("D", "D", "i, j -> j // 2, i, j % 2")
    with refused(s, "does not store at its own axes, but at [vj_1 // 2, vi_1, vj_1 % 2]"):
        s.compute_inline("D")
    s = movement.argmax(3, 4)
    with refused(s, "`M` is a reduction"):
        s.compute_inline("M")


def test_reverse_inline_refusals() -> None:
    s = movement.dense(4, 5, 6)
    with refused(s, "`C` is a reduction; use cache_write and reverse_compute_at"):
        s.reverse_compute_inline("D")
    with refused(s, "`C` is a reduction or recurrence"):
        s.reverse_compute_inline("C")
    s = movement.chain(6, shift=2)
    with refused(s, "`Y` reads `T` at [vj + 2], not just at its own axes"):
        s.reverse_compute_inline("Y")
    s = movement.stencil(6)
    with refused(s, "`Y` reads `T` at several places"):
        s.reverse_compute_inline("Y")
    with refused(s, "`T` reads no intermediate buffer"):
        s.reverse_compute_inline("T")


def test_reverse_inline_refuses_a_part_a_broadcast_and_other_readers() -> None:
    x = te.placeholder((6,), name="X")
    t = te.compute((6,), lambda i: x[i] + 1.0, name="T")
    part = Schedule(lower(te.compute((4,), lambda i: t[i] * 2.0, name="Y"), "part"))
    with refused(part, "`Y` reads only a part of `T`"):
        part.reverse_compute_inline("Y")
    broadcast = Schedule(lower(te.compute((6, 3), lambda i, j: t[i] * 2.0, name="Y"), "broadcast"))
    with refused(broadcast, "`Y` reads each element of `T` for all `vj`"):
        broadcast.reverse_compute_inline("Y")
    y = te.compute((6,), lambda i: t[i] * 2.0, name="Y")
    z = te.compute((6,), lambda i: t[i] * 3.0, name="Z")
    shared = Schedule(lower([y, z], "shared"))
    with refused(shared, "`Z` reads `T` too"):
        shared.reverse_compute_inline("Y")


def test_reverse_inline_refuses_inputs_that_come_later() -> None:
    x = te.placeholder((6,), name="X")
    t = te.compute((6,), lambda i: x[i] + 1.0, name="T")
    k = te.reduce_axis((0, 6), name="k")
    total = te.compute((1,), lambda _: te.sum(x[k], axis=k), name="U")
    s = Schedule(lower(te.compute((6,), lambda i: t[i] * total[0], name="Y"), "late"))
    with refused(s, "`U` uses U between `T` and `Y`"):
        s.reverse_compute_inline("Y")


@settings(max_examples=25, deadline=None)
@given(st.data())
def test_chains_of_elementwise_operations(data: st.DataObject) -> None:
    shape = (data.draw(st.integers(0, 4)), data.draw(st.integers(1, 5)))
    x = te.placeholder(shape, name="X")
    a = te.compute(shape, lambda i, j: x[i, j] + 1.0, name="A")
    b = te.compute(shape, lambda i, j: a[i, j] * x[i, j], name="B")
    s = Schedule(lower(te.compute(shape, lambda i, j: b[i, j] - 2.0, name="Y"), "elementwise"))
    before = s.program
    for name in data.draw(st.permutations(["A", "B"])):
        s.compute_inline(name)
        assert_same(before, s.program)


def doubled(levels: int) -> Schedule:
    tensor = te.placeholder((8,), name="x")
    for level in range(levels):
        tensor = te.compute((8,), lambda i, t=tensor: t[i] + t[i], name=f"y{level}")
    return Schedule(lower([tensor]))


def test_shared_values_are_kept_where_they_would_grow() -> None:
    """Each level doubles what is written out: of 40, some stay in buffers."""
    s = doubled(40)
    before = s.program
    refusals = 0
    for block in all_blocks(before.body)[:-1]:
        try:
            s.compute_inline(block.name)
        except ScheduleError as error:
            assert "use compute_at instead" in str(error)
            refusals += 1
    assert 3 <= refusals <= 8
    assert len(str(s.program)) < 20_000
    assert_same(before, s.program)


def test_a_value_with_many_readers_is_kept_where_they_would_grow() -> None:
    """Each reads the two before, once: no value is read twice by one block."""
    tensors = [te.placeholder((8,), name="x"), te.placeholder((8,), name="z")]
    for level in range(40):
        a, b = tensors[-2:]
        tensors.append(te.compute((8,), lambda i, a=a, b=b: a[i] + b[i], name=f"y{level}"))
    s = Schedule(lower([tensors[-1]]))
    before = s.program
    for block in all_blocks(before.body)[:-1]:
        with suppress(ScheduleError):
            s.compute_inline(block.name)
    assert len(str(s.program)) < 60_000
    assert_same(before, s.program)


def test_values_do_not_nest_too_deep() -> None:
    tensor = te.placeholder((8,), name="x")
    for level in range(150):
        tensor = te.compute((8,), lambda i, t=tensor: exp(t[i]), name=f"y{level}")
    s = Schedule(lower([tensor]))
    for block in all_blocks(s.program.body)[:-1]:
        with suppress(ScheduleError):
            s.compute_inline(block.name)
    depths = [size_of(block.body.value).depth for block in all_blocks(s.program.body) if isinstance(block.body, Store)]
    assert len(depths) == 2
    assert max(depths) <= DEEPEST
