"""Primitives of devices: blocks, threads, virtual threads, memories of blocks, double buffers, barriers."""

from dataclasses import replace

import pytest

from tests.backend.cpu.support import run_native
from tests.loops.workloads import matmul
from tests.schedule.movement import assert_same, refused, small_integers
from tilewright.backend.reference import run_reference
from tilewright.base.errors import BadProgram
from tilewright.loops.dissolve import dissolve
from tilewright.loops.interpreter import interpret
from tilewright.loops.ir import Barrier, Block, Loop, LoopKind
from tilewright.loops.launch import launches
from tilewright.loops.lower import lower
from tilewright.loops.memory import GLOBAL, LOCAL, SHARED, Memory, Sharing
from tilewright.loops.parser import parse_program
from tilewright.loops.program import Program
from tilewright.loops.verify import verify
from tilewright.loops.visit import walk
from tilewright.schedule.replay import replay
from tilewright.schedule.schedule import Schedule
from tilewright.schedule.trace import Trace
from tilewright.symbolic.expr import Extent
from tilewright.tensor import build as te


def line(count: int) -> Program:
    a = te.placeholder((count,), name="A")
    return lower(te.compute((count,), lambda i: a[i] + 1.0, name="B"))


def smooth(count: int) -> Program:
    """Each element of a result reads three of an intermediate."""
    a = te.placeholder((count + 2,), name="A")
    p = te.compute((count + 2,), lambda i: a[i] * 2.0, name="P")
    return lower(te.compute((count,), lambda i: p[i] + p[i + 1] + p[i + 2], name="B"))


def assert_runs(before: Program, after: Program) -> None:
    """The same as before in the interpreter, and on the reference back end, without a finding."""
    assert_same(before, after)
    feeds = small_integers(before, {})
    outputs, report = run_reference(after, feeds)
    report.check()
    for name, wanted in interpret(before, feeds).items():
        assert (outputs[name] == wanted).all()


def barriers(program: Program) -> int:
    return sum(isinstance(node, Barrier) for node in walk(program.body))


def neighbours(count: int = 16, tile: int = 8) -> Schedule:
    """Threads fetch a tile together, and each reads its neighbours' elements."""
    s = Schedule(smooth(count))
    outer, inner = s.split("i_1" if "i_1" in str(s.program) else "i", (None, tile))
    s.bind(outer, "blockIdx.x")
    s.set_scope("P", SHARED)
    (fetch,) = s.compute_at("P", outer)
    s.bind(fetch, "threadIdx.x")
    s.bind(inner, "threadIdx.x")
    return s


def test_a_launch_can_be_read_off() -> None:
    s = neighbours()
    s.place_barriers()
    (launch,) = launches(s.program)
    assert [str(size) for size in (*launch.grid, *launch.threads)] == ["2", "1", "1", "10", "1", "1"]
    assert [(memory.name, str(size)) for memory, size in launch.memory] == [("shared", "64")]
    assert launch.nest.kind is LoopKind.BLOCK_X
    assert not launches(smooth(8))


def test_a_launch_over_run_time_extents() -> None:
    s = Schedule(lower(matmul(Extent("m"), Extent("n"), 4)))
    s.bind("i", "blockIdx.x")
    s.bind("j", "threadIdx.x")
    (launch,) = launches(s.program)
    assert (str(launch.grid[0]), str(launch.threads[0])) == ("m", "n")
    feeds = small_integers(s.program, {"m": 3, "n": 5})
    outputs, report = run_reference(s.program, feeds)
    report.check()
    assert (outputs["C"] == feeds["A"] @ feeds["B"]).all()


def test_neighbours_wait() -> None:
    s = neighbours()
    s.place_barriers()
    assert barriers(s.program) == 1
    assert_runs(smooth(16), s.program)
    assert parse_program(str(s.program)) == s.program
    assert replay(Trace.from_json(s.trace.to_json()), smooth(16)).program == s.program
    s.place_barriers()
    assert barriers(s.program) == 1


def test_bind_refuses() -> None:
    s = Schedule(lower(matmul(4, 4, 4)))
    with refused(s, "there is no axis 'threadIdx.w' to bind to; there are: blockIdx.x"):
        s.bind("i", "threadIdx.w")
    with refused(s, "drives its reduction axis `vk`", "> "):
        s.bind("k", "threadIdx.x")
    s.bind("i", "threadIdx.x")
    with refused(s, "`j` is inside of another loop over threadIdx.x", "> "):
        s.bind("j", "threadIdx.x")
    with refused(s, "`j` is not directly inside of the other loops over blocks"):
        s.bind("j", "blockIdx.x")
    with refused(s, "`j` is parallel inside of a launch"):
        s.parallel("j")
    s.serial("i")
    s.vectorize("i")
    with refused(s, "inside of the vectorized loop `i`"):
        s.bind("j", "threadIdx.x")


def test_other_primitives_keep_launches_whole() -> None:
    """What would put a nest between two loops over blocks is refused, too."""
    a = te.placeholder((4, 4), name="A")
    p = te.compute((4, 4), lambda i, j: a[i, j] * 2.0, name="P")
    s = Schedule(lower(te.compute((4, 4), lambda i, j: p[i, j] + p[i, 3 - j], name="B")))
    outer, inner = (loop.name for loop in s.get_loops("B"))
    s.bind(outer, "blockIdx.y")
    s.bind(inner, "blockIdx.x")
    with refused(s, f"`{inner}` is not directly inside"):
        s.compute_at("P", outer)


def test_memories_of_blocks_stay_outside_of_threads() -> None:
    s = Schedule(smooth(16))
    outer, _ = s.split(s.get_loops("B")[0], (None, 8))
    s.compute_at("P", outer)
    with refused(s, "P, in global, is allocated in a launch"):
        s.bind(outer, "blockIdx.x")
    s.set_scope("P", SHARED)
    with refused(s, "P, in shared, is allocated inside of", "all threads of a block share it"):
        s.bind(outer, "threadIdx.x")


def test_place_barriers_refuses_what_no_block_has() -> None:
    s = Schedule(line(8))
    s.bind("i", "blockIdx.x")
    s.cache_read("B", "A", SHARED)
    with refused(s, "A_shared, in shared, is allocated outside of all blocks"):
        s.place_barriers()
    s = Schedule(smooth(16))
    outer, _ = s.split(s.get_loops("B")[0], (None, 8))
    s.bind(outer, "blockIdx.x")
    s.set_scope("P", Memory("small", 32, Sharing.BLOCK, alignment=8))
    s.compute_at("P", outer)
    with refused(s, "a block allocates 40 bytes in small, which has 32"):
        s.place_barriers()


def test_threads_keep_to_their_own_elements() -> None:
    """Accumulators in registers: whoever copies them out must be who has them."""
    for turned in (False, True):
        s = Schedule(lower(matmul(4, 4, 4)))
        copy = s.cache_write("C", "C", LOCAL)
        fetch = s.reverse_compute_at(copy, s.split("i", (1, None))[0])
        s.bind("i_0", "blockIdx.x")
        s.bind("i_1", "threadIdx.y")
        s.bind("j", "threadIdx.x")
        for loop, axis in zip(fetch, ("xy" if turned else "yx"), strict=True):
            s.bind(loop, f"threadIdx.{axis}")
        if turned:
            with refused(s, "may use elements of `C_local` that are other threads' in `C`", "> "):
                s.place_barriers()
        else:
            s.place_barriers()
            assert_runs(lower(matmul(4, 4, 4)), s.program)


def stepped(double: bool) -> Schedule:
    """A product whose factor is fetched by all threads together, a step of the reduction at a time."""
    s = Schedule(lower(matmul(8, 8, 8)))
    s.bind("i", "blockIdx.x")
    outer, _ = s.split("k", (None, 2))
    s.reorder(outer, "j")
    s.cache_read("C", "B", SHARED)
    _, columns = s.compute_at("B_shared", outer)
    s.bind("j", "threadIdx.x")
    s.bind(columns, "threadIdx.x")
    if double:
        s.double_buffer("B_shared")
    s.place_barriers()
    return s


@pytest.mark.parametrize("double", [False, True])
def test_a_double_buffer_needs_one_barrier_a_step(double: bool) -> None:
    s = stepped(double)
    assert_runs(lower(matmul(8, 8, 8)), s.program)
    assert barriers(s.program) == (1 if double else 2)
    (launch,) = launches(s.program)
    assert str(launch.memory[0][1]) == ("128" if double else "64")
    assert "B_shared_2[vk_0 % 2, v0, v1]" in str(s.program) or not double


def test_what_a_reduction_starts_with_waits_too() -> None:
    """Where blocks dissolve, it goes before the loops of the reduction, and their barriers."""
    a, b = te.placeholder((8, 4), name="A"), te.placeholder((4, 4), name="B")
    k = te.reduce_axis((0, 4), name="k")
    p = te.compute((8, 4), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="P")
    naive = lower(te.compute((8, 4), lambda i, j: p[i, 3 - j], name="C"))
    s = Schedule(naive)
    rows, columns = s.get_loops("C")
    outer, inner = s.split(rows, (2, None))
    s.bind(outer, "blockIdx.x")
    s.bind(columns, "threadIdx.x")
    s.set_scope("P", SHARED)
    _, own, step = s.compute_at("P", inner)
    s.reorder(step, own)
    s.cache_read("P", "B", SHARED)
    (fetch, *_) = s.compute_at("B_shared", step)
    s.bind(own, "threadIdx.x")
    s.bind(fetch, "threadIdx.x")
    s.place_barriers()
    assert_runs(naive, s.program)
    feeds = small_integers(naive, {})
    run_reference(replace(s.program, body=dissolve(s.program.body)), feeds)[1].check()


def test_double_buffers_without_threads() -> None:
    """On a CPU it is a pipeline; the last tile is a part of one."""
    s = Schedule(lower(matmul(5, 6, 7)))
    outer, _ = s.split("k", (None, 3))
    s.reorder(outer, "i", "j")
    s.cache_read("C", "A", GLOBAL)
    s.compute_at("A_global", outer)
    s.double_buffer("A_global")
    s.storage_align("A_global", "A_global_2", 1, 8, 5)
    assert "alloc A_global_2: f32[2, 5, 5]" in str(s.program)
    assert_same(lower(matmul(5, 6, 7)), s.program)
    feeds = small_integers(s.program, {})
    (product,) = run_native(s.program, feeds)
    assert (product == feeds["A"] @ feeds["B"]).all()
    with refused(s, "recurrence"):
        s.double_buffer("A_global")


def test_double_buffer_refuses() -> None:
    s = Schedule(lower(matmul(8, 8, 8)))
    s.cache_read("C", "A", SHARED)
    with refused(s, "not allocated anew in each iteration", "> "):
        s.double_buffer("A_shared")
    with refused(s, "it can't run ahead"):
        s.double_buffer("C")
    s = Schedule(smooth(16))
    s.compute_at("P", s.get_loops("B")[0])
    s.cache_read("P", "A", SHARED)
    s.compute_at("A_shared", s.get_loops("B")[0])
    with refused(s, "reads `A_shared`, which `A_shared` writes"):
        s.double_buffer("P")


def test_storage_align() -> None:
    s = stepped(False)
    s.storage_align("B_shared", "B_shared", 0, 32, 1)
    assert "alloc B_shared: f32[2, 33] in shared" in str(s.program)
    assert_runs(lower(matmul(8, 8, 8)), s.program)
    for arguments, reason in (
        (("B_shared", 1, 32, 1), "no dimension 1 with others inside"),
        (("B_shared", 0, 32, 32), "no stride"),
        (("C", 0, 32, 1), "does not write"),
    ):
        with refused(s, reason):
            s.storage_align("B_shared", *arguments)
    with refused(s, "a parameter"):
        s.storage_align("C", "C", 0, 32, 1)
    s = Schedule(line(8))
    s.cache_read("B", "A", LOCAL)
    s.transform_layout("A_local", "A_local", "i -> i // 4, i // 2 % 2, i % 2")
    with refused(s, "no multiple of 2"):
        s.storage_align("A_local", "A_local", 0, 4, 1)


def test_virtual_threads_run_in_step() -> None:
    s = neighbours(32, 8)
    s.serial("i_0" if "for i_0 " in str(s.program) else s.get_loops("B")[0])
    outer = s.get_loops("B")[0]
    virtual, grid = s.split(outer, (2, None))
    s.reorder(grid, virtual)
    s.bind(grid, "blockIdx.x")
    s.bind(virtual, "vthread")
    plain = s.copy()
    plain.place_barriers()
    assert_runs(smooth(32), plain.program)
    s.lower_virtual_thread(virtual)
    s.place_barriers()
    assert_runs(smooth(32), s.program)
    assert "alloc P: f32[2, 10] in shared" in str(s.program)
    assert (barriers(plain.program), barriers(s.program)) == (2, 1)
    around = [loop.kind for loop in walk(s.program.body) if isinstance(loop, Loop) and isinstance(loop.body, Block)]
    assert around == [LoopKind.UNROLLED, LoopKind.UNROLLED]


def test_lower_virtual_thread_refuses() -> None:
    s = Schedule(line(8))
    with refused(s, "bind it to vthread first", "> "):
        s.lower_virtual_thread("i")


WAITING = """
program f(A: f32[8]) -> (B: f32[8]):
  for b in blockIdx.x(2):
    alloc S: f32[4] in shared
    for t in threadIdx.x(4):
      block S(vb = b: spatial 2, vt = t: spatial 4):
        reads A[vb * 4 + vt]
        writes S[vt]
        S[vt] = A[vb * 4 + vt]
    barrier
    for u in threadIdx.x(4):
      block B(vb = b: spatial 2, vu = u: spatial 4):
        reads S[3 - vu]
        writes B[vb * 4 + vu]
        B[vb * 4 + vu] = S[3 - vu]
"""


BEFORE = "  for b in blockIdx.x(2):"
AFTER = "    for u in threadIdx.x(4):"


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (f"    barrier\n{AFTER}\n", f"{AFTER}\n      barrier\n", "never reach it"),
        ("    barrier\n", "    alloc L: i64[1] in local\n    if L[0] > 0:\n      barrier\n", "may differ"),
        (BEFORE, f"  barrier\n{BEFORE}", "outside of all launches"),
        ("in shared\n", "in global\n", "in a launch, where nobody can"),
        ("threadIdx.x(4)", "blockIdx.y(4)", "not directly inside"),
        (AFTER, "    for u in threadIdx.x(b + 4):", "not known when it is launched"),
        (f"{BEFORE}\n    alloc S: f32[4] in shared", f"  alloc S: f32[4] in shared\n{BEFORE}", "outside of all blocks"),
    ],
)
def test_the_verifier_knows_launches(old: str, new: str, message: str) -> None:
    verify(parse_program(WAITING))
    assert old in WAITING
    broken = parse_program(WAITING.replace(old, new))
    with pytest.raises(BadProgram, match=message):
        verify(broken)


def test_the_interpreter_takes_a_barrier_for_what_it_is() -> None:
    """All threads have come to it when a loop over threads ends."""
    program = parse_program(WAITING)
    feeds = small_integers(program, {})
    assert (interpret(program, feeds)["B"] == feeds["A"].reshape(2, 4)[:, ::-1].reshape(-1)).all()
