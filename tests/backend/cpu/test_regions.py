"""Functions of parallel regions are remembered, and apart from their kernels: each is that of its own kernel."""

from collections.abc import Iterator
from itertools import permutations

import numpy as np
import pytest

from tilewright.backend.api import Emission
from tilewright.backend.cpu.image import build_one, kernel_text
from tilewright.backend.cpu.statements import region_text
from tilewright.base.dtypes import f32
from tilewright.loops.ir import (
    Alloc,
    Annotations,
    Buffer,
    Call,
    Callee,
    Loop,
    LoopKind,
    Region,
    Seq,
    Stmt,
    Store,
)
from tilewright.loops.memory import GLOBAL, LOCAL, Memory
from tilewright.loops.program import Dim, Intrinsic, Program
from tilewright.measure.build import Builder, start
from tilewright.measure.job import Job
from tilewright.symbolic.expr import Extent, Read, Var, const
from tilewright.target.target import Target

i, j, k, p, q = map(Var, "ijkpq")
n = Extent("n")
ROWS, COLUMNS = 6, 40


def matrix(name: str, scope: Memory = GLOBAL) -> Buffer:
    return Buffer(name, f32, (const(ROWS), const(COLUMNS)), scope)


def rows(store: Store, kind: LoopKind = LoopKind.PARALLEL, row: Var = i, column: Var = j) -> Stmt:
    return Loop(row, const(ROWS), Loop(column, const(COLUMNS), store), kind)


A, MID, OUT = matrix("a"), matrix("mid"), matrix("out")


def two_regions(addend: float, factor: float, name: str = "k") -> Program:
    """The middle is ``a + addend``, the result that times ``factor``."""
    first = rows(Store(MID, (i, j), Read(A, (i, j)) + const(addend, f32)))
    second = rows(Store(OUT, (p, q), Read(MID, (p, q)) * const(factor, f32)), row=p, column=q)
    return Program(name, (A, OUT), Alloc(MID, Seq((first, second))))


def with_private_middle() -> Program:
    mid = matrix("mid", LOCAL)
    first = rows(Store(OUT, (i, j), Read(A, (i, j)) + 1.0))
    return Program("k", (A, OUT), Alloc(mid, Seq((rows(Store(mid, (i, j), const(0.0, f32)), LoopKind.SERIAL), first))))


def read_again(annotations: Annotations = (), outputs: int = 1) -> Program:
    """A row is read by its lanes, and its first element by all of them, twice."""

    def lanes(to: Buffer) -> Stmt:
        store = Store(to, (i, j), Read(A, (i, j)) + Read(A, (i, const(0))))
        return Loop(j, const(COLUMNS), store, LoopKind.VECTORIZED)

    body = Loop(i, const(ROWS), Seq((lanes(OUT), Loop(k, const(2), lanes(MID)))), LoopKind.PARALLEL)
    return Program("k", (A, OUT), Alloc(MID, body), outputs=outputs, annotations=annotations)


def in_a_loop(kind: LoopKind, times: int) -> Program:
    """The region's place in the loop around it is a literal, or in a slot."""
    store = Store(OUT, (i, j), k.astype(f32) + Read(A, (i, j)))
    return Program("k", (A, OUT), Loop(k, const(times), rows(store), kind))


def with_own_rows(bound: int) -> Program:
    """Each worker has a row whose length is known at run time."""
    a, out = (Buffer(name, f32, (const(ROWS), n)) for name in ("a", "out"))
    own = Buffer("own", f32, (n,))
    fill = Loop(j, n, Store(own, (j,), Read(a, (i, j))))
    empty = Loop(k, n, Store(out, (i, k), Read(own, (k,))))
    return Program(
        "k", (a, out), Loop(i, const(ROWS), Alloc(own, Seq((fill, empty))), LoopKind.PARALLEL), (Dim(n, bound),)
    )


def variants() -> list[Program]:
    return [
        two_regions(1, 3),
        two_regions(1, 3, "other"),
        two_regions(2, 3),
        two_regions(2, 5),
        two_regions(0.0, 3),
        two_regions(-0.0, 3),
        read_again(),
        read_again((("prefetch.a", 256),)),
        read_again(outputs=2),
        with_private_middle(),
        in_a_loop(LoopKind.UNROLLED, 2),
        in_a_loop(LoopKind.UNROLLED, 3),
        in_a_loop(LoopKind.SERIAL, 3),
        with_own_rows(64),
        with_own_rows(1 << 20),
    ]


def test_what_is_remembered_is_what_would_be_written() -> None:
    alone: list[str] = []
    for program in variants():
        region_text.cache_clear()
        alone.append(kernel_text(program).text)
    assert len(set(alone)) == len(alone)
    region_text.cache_clear()
    for _ in range(2):
        assert [kernel_text(program).text for program in variants()] == alone
    assert region_text.cache_info().hits > len(alone)


def test_all_regions_but_the_last_are_apart() -> None:
    whole, split = kernel_text(two_regions(1, 3)), kernel_text(two_regions(1, 3), apart=True)
    (apart,) = split.regions
    assert whole.text.count("define") == split.text.count("define") + apart.count("define") == 3
    assert "@k.region0(" in apart
    assert "define internal void @k.region1(" in split.text
    assert kernel_text(Program("k", (A, OUT), rows(Store(OUT, (i, j), Read(A, (i, j))))), apart=True).regions == ()


def test_candidates_share_the_object_of_what_they_have_in_common() -> None:
    images = [build_one(two_regions(1, factor), Target.host(), Emission(apart=True)) for factor in (3, 5)]
    (one, *_, first), (other, *_, second) = (image.objects for image in images)
    assert first == second
    assert one != other


@pytest.mark.parametrize("order", list(permutations(range(3))))
def test_jobs_that_share_little_are_built_one_after_the_other(order: tuple[int, ...]) -> None:
    """In one builder, which remembers."""
    values = [(1, 3), (2, 3), (2, 5)]
    builder, a = Builder(1 << 30), np.random.default_rng(1).random((ROWS, COLUMNS), np.float32)
    for addend, factor in (values[place] for place in order):
        text = str(two_regions(addend, factor))
        job = Job(text, "", str(Target.host()), threads=2, scheduled=text)
        (result,) = start(builder.build(job), job, "").run({"a": a})
        np.testing.assert_array_equal(result, (a + np.float32(addend)) * np.float32(factor))


_TWICE = """define internal void @twice(ptr %x, ptr %y) {
  %v = load <4 x float>, ptr %x, align 4
  %w = fadd <4 x float> %v, %v
  store <4 x float> %w, ptr %y, align 4
  ret void
}
"""


def quarters() -> Iterator[Stmt]:
    """Rows of the middle by the intrinsic, and then rows of the result."""
    x, y = A, MID
    for _ in range(2):
        at = [Region(b, ((i, const(1)), (j * 4, const(4)))) for b in (x, y)]
        call = Call(Callee.INTRINSIC, "twice", tuple(at))
        yield Loop(i, const(ROWS), Loop(j, const(COLUMNS // 4), call), LoopKind.PARALLEL)
        x, y = MID, OUT


def test_a_region_that_calls_what_its_kernel_has_stays_with_it() -> None:
    x, y = (Buffer(name, f32, (const(4),)) for name in "xy")
    description = Program("twice", (x, y), Loop(k, const(4), Store(y, (k,), Read(x, (k,)) + Read(x, (k,)))))
    twice = Intrinsic("twice", description, _TWICE)
    program = Program("k", (A, OUT), Alloc(MID, Seq(tuple(quarters()))), intrinsics=(twice,))
    for _ in range(2):
        made = kernel_text(program, apart=True)
        assert made.regions == ()
        assert made.text.count(_TWICE) == 1


def test_no_region_of_one_iteration() -> None:
    """What runs once is a plain loop, with its arrays on the caller's stack; two loops that run twice are a region."""

    def text(extent: int) -> str:
        inner = Loop(j, const(1), Store(OUT, (i, j), Read(A, (i, j)) + 1.0), LoopKind.PARALLEL)
        program = Program("k", (A, OUT), Loop(i, const(extent), inner, LoopKind.PARALLEL))
        return kernel_text(program).text

    assert "call void @tw_parallel_for" not in text(1)
    assert "call void @tw_parallel_for" in text(2)
