"""The memory plan of main programs: what is alive at the same time never overlaps."""

from collections.abc import Sequence

from hypothesis import given, settings
from hypothesis import strategies as st

from tilewright.backend.cpu.plan import largest, plan_memory
from tilewright.base.dtypes import f32
from tilewright.loops.ir import Alloc, Buffer, Call, Callee, Region, Seq, Stmt
from tilewright.loops.program import Dim, Program
from tilewright.symbolic.bounds import Bounds
from tilewright.symbolic.expr import ZERO, Const, Expr, Extent, const
from tilewright.symbolic.traversal import substitute


def whole(buffer: Buffer) -> Region:
    return Region(buffer, tuple((ZERO, extent) for extent in buffer.shape))


def chain(
    uses: list[tuple[int, int]], sizes: list[int], names: Sequence[str] = "abcdefghij"
) -> tuple[Program, list[Buffer]]:
    """Call number c touches the two buffers ``uses[c]``."""
    buffers = [Buffer(name, f32, (const(size),)) for name, size in zip(names, sizes, strict=False)]
    calls = tuple(Call(Callee.KERNEL, f"k{c}", (whole(buffers[a]), whole(buffers[b]))) for c, (a, b) in enumerate(uses))
    body: Stmt = Seq(calls)
    for buffer in buffers:
        body = Alloc(buffer, body)
    return Program("main", (), body, (), 0), buffers


def lifetime(index: int, uses: list[tuple[int, int]]) -> range:
    calls = [c for c, pair in enumerate(uses) if index in pair]
    return range(calls[0], calls[-1] + 1) if calls else range(0)


@settings(deadline=None, max_examples=100)
@given(st.data())
def test_live_buffers_do_not_overlap(data: st.DataObject) -> None:
    count = data.draw(st.integers(1, 6))
    sizes = data.draw(st.lists(st.integers(0, 300), min_size=count, max_size=count))
    pair = st.tuples(st.integers(0, count - 1), st.integers(0, count - 1))
    uses = data.draw(st.lists(pair, min_size=1, max_size=8))
    program, buffers = chain(uses, sizes)
    plan = plan_memory(program)
    offsets, total = plan.offsets, plan.bytes
    for i, a in enumerate(buffers):
        for j, b in enumerate(buffers[:i]):
            together = set(lifetime(i, uses)) & set(lifetime(j, uses))
            if together and sizes[i] and sizes[j]:
                first, second = sorted(((offsets[a.name], sizes[i]), (offsets[b.name], sizes[j])))
                assert first[0] + 4 * first[1] <= second[0]
    for i, buffer in enumerate(buffers):
        if lifetime(i, uses):
            assert offsets[buffer.name] % 64 == 0
            assert offsets[buffer.name] + 4 * sizes[i] <= total


def test_a_chain_needs_two_buffers() -> None:
    uses = [(i, i + 1) for i in range(9)]
    program, _ = chain(uses, [1024] * 10)
    plan = plan_memory(program)
    assert (plan.bytes, plan.slots) == (2 * 4096, {})


def test_places_do_not_depend_on_names() -> None:
    uses = [(i, (i + 1) % 5) for i in range(5)]
    places = {tuple(plan_memory(chain(uses, [64] * 5, names)[0]).offsets.values()) for names in ("abcde", "ecabd")}
    assert len(places) == 1


def test_sizes_without_a_bound_share_slots() -> None:
    """Alive at one time, in slots of their own; a slot is as large as the largest in it."""
    n = Extent("n")
    shapes = [(n, const(4)), (n, const(4)), (n, const(4)), (n * n,), (const(100),)]
    buffers = [Buffer(f"b{i}", f32, shape) for i, shape in enumerate(shapes)]
    pairs = [(0, 1), (1, 2), (2, 3), (3, 4)]
    calls = [Call(Callee.KERNEL, f"k{a}", (whole(buffers[a]), whole(buffers[b]))) for a, b in pairs]
    body: Stmt = Seq(tuple(calls))
    for buffer in buffers:
        body = Alloc(buffer, body)
    plan = plan_memory(Program("main", (), body, (Dim(n),), 0))
    assert (plan.offsets, plan.bytes) == ({"b4": 0}, 448)
    assert plan.slots == {"b0": 0, "b1": 1, "b2": 0, "b3": 1}
    for extent in (0, 1, 5, 1000):
        sizes = [substitute(size, {n: const(extent)}) for size in plan.slot_bytes]
        needed = [-(-bytes_ // 64) * 64 for bytes_ in (16 * extent, max(16 * extent, 4 * extent * extent))]
        assert sizes == [const(size) for size in needed]


def test_a_size_with_a_bound_is_planned() -> None:
    n = Extent("n")
    buffer = Buffer("b", f32, (n, const(4)))
    call = Call(Callee.KERNEL, "k", (whole(buffer),))
    plan = plan_memory(Program("main", (), Alloc(buffer, call), (Dim(n, 100),), 0))
    assert (plan.offsets, plan.bytes, plan.slots) == ({"b": 0}, 1600, {})


def test_the_largest_of_many_sizes_is_short() -> None:
    """Sizes that others reach are left out, and what is left nests little: an artifact's formulas have few levels."""
    n, m = Extent("n"), Extent("m")
    bounds = Bounds(dims={n: None, m: None})
    assert largest((n * factor for factor in range(1, 100)), bounds) == n * 99
    sizes = [n * a + m * (100 - a) for a in range(100)]
    found = largest(sizes, bounds)
    for at in ({n: 3, m: 5}, {n: 7, m: 0}, {n: 0, m: 0}):
        values = {v: const(value) for v, value in at.items()}
        numbers = [int(value.value) for size in sizes if isinstance(value := substitute(size, values), Const)]
        assert substitute(found, values) == const(max(numbers))
    assert _depth(found) < 14


def _depth(expr: Expr) -> int:
    return 1 + max(map(_depth, expr.operands()), default=0)


def test_many_buffers_are_planned() -> None:
    """Each lives at the same time as its neighbours only; two sizes in turn."""
    count = 5000
    names = [f"b{i}" for i in range(count + 1)]
    program, _ = chain([(i, i + 1) for i in range(count)], [1024 + 16 * (i % 2) for i in range(count + 1)], names)
    assert plan_memory(program).bytes == 2 * 4096 + 64
