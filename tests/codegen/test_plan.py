"""The memory plan of main programs: what is alive at the same time never overlaps."""

from hypothesis import given, settings
from hypothesis import strategies as st

from tilewright.base.dtypes import f32
from tilewright.codegen.plan import plan_memory
from tilewright.loops.ir import Alloc, Buffer, Call, Callee, Region, Seq, Stmt
from tilewright.loops.program import Program
from tilewright.symbolic.expr import ZERO, const


def whole(buffer: Buffer) -> Region:
    return Region(buffer, tuple((ZERO, extent) for extent in buffer.shape))


def chain(uses: list[tuple[int, int]], sizes: list[int]) -> tuple[Program, list[Buffer]]:
    """Call number c touches the two buffers ``uses[c]``."""
    buffers = [Buffer(f"b{i}", f32, (const(size),)) for i, size in enumerate(sizes)]
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
    offsets, total = plan_memory(program)
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
    _, total = plan_memory(program)
    assert total == 2 * 4096
