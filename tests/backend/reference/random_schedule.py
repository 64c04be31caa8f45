"""Random schedules for a device: blocks, threads, virtual threads, copies in memories of blocks and threads.

A chain proposes primitives at random places; what is refused is left out. At the end all loops that can be are bound,
and barriers are placed; a chain of which that is refused is no schedule.
"""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from random import Random

import numpy as np

from tilewright.base.arrays import Array
from tilewright.base.dtypes import i32
from tilewright.base.errors import ScheduleError
from tilewright.loops.ir import Alloc, Loop, LoopKind
from tilewright.loops.lower import lower
from tilewright.loops.memory import LOCAL, SHARED
from tilewright.loops.program import Program
from tilewright.loops.visit import walk
from tilewright.schedule.schedule import Schedule
from tilewright.schedule.tree import BlockRef, LoopRef, all_blocks, block_at, consumers, loops_of
from tilewright.symbolic.domain import IterKind
from tilewright.symbolic.expr import maximum
from tilewright.tensor import build as te


@dataclass(frozen=True)
class Workload:
    """A program on i32 (every order of a sum gives equal bits), and the same in NumPy."""

    program: Program
    expected: Callable[..., Array]


def matmul(m: int, n: int, k: int) -> Workload:
    a, b = te.placeholder((m, k), i32, "A"), te.placeholder((k, n), i32, "B")
    kk = te.reduce_axis((0, k), name="k")
    c = te.compute((m, n), lambda i, j: te.sum(a[i, kk] * b[kk, j], axis=kk), name="C")
    return Workload(lower(c), lambda A, B: A @ B)


def matmul_relu(m: int, n: int, k: int) -> Workload:
    a, b = te.placeholder((m, k), i32, "A"), te.placeholder((k, n), i32, "B")
    kk = te.reduce_axis((0, k), name="k")
    c = te.compute((m, n), lambda i, j: te.sum(a[i, kk] * b[kk, j], axis=kk), name="C")
    d = te.compute((m, n), lambda i, j: maximum(c[i, j], 0), name="D")
    return Workload(lower(d), lambda A, B: np.maximum(A @ B, 0))


def window(m: int, n: int) -> Workload:
    a = te.placeholder((m, n + 2), i32, "A")
    p = te.compute((m, n + 2), lambda i, j: a[i, j] * 3, name="P")
    w = te.reduce_axis((0, 3), name="w")
    c = te.compute((m, n), lambda i, j: te.sum(p[i, j + w], axis=w), name="C")
    return Workload(lower(c), lambda A: 3 * (A[:, :-2] + A[:, 1:-1] + A[:, 2:]))


def transposed(m: int, n: int) -> Workload:
    a = te.placeholder((m, n), i32, "A")
    c = te.compute((n, m), lambda i, j: a[j, i] + 1, name="C")
    return Workload(lower(c), lambda A: A.T + 1)


MATMUL = matmul(8, 8, 8)
WORKLOADS = [matmul(6, 8, 4), matmul(7, 6, 5), matmul_relu(6, 6, 4), window(4, 9), transposed(6, 7)]


@dataclass
class Chain:
    """A schedule on its way."""

    random: Random
    s: Schedule

    def attempt(self, move: Callable[[], object]) -> None:
        """Do ``move`` if all of it is legal."""
        before = self.s.copy()
        try:
            move()
        except ScheduleError:
            self.s = before

    def loops(self, *kinds: LoopKind) -> list[str]:
        return [n.var.name for n in walk(self.s.program.body) if isinstance(n, Loop) and n.kind in kinds]

    def serial(self) -> str:
        return self.random.choice(self.loops(LoopKind.SERIAL) or [""])

    def block(self) -> str:
        return self.random.choice([block.name for block in all_blocks(self.s.program.body)])


def scheduled(random: Random, workload: Workload) -> Schedule | None:
    """A random schedule of ``workload`` with barriers in place; None if the one that was drawn can't be finished."""
    chain = Chain(random, Schedule(workload.program))
    _tile_result(chain)
    for _ in range(random.randint(2, 7)):
        chain.attempt(lambda: random.choice(_MOVES)(chain))
    _bind_phases(chain)
    for _ in range(random.randint(0, 3)):
        chain.attempt(lambda: random.choice(_LATE)(chain))
    try:
        chain.s.place_barriers()
    except ScheduleError:
        return None
    return chain.s


def tiled(random: Random) -> Schedule:
    """``MATMUL`` in tiles: copies in a memory of blocks for each step, and accumulators that threads keep."""
    s = Schedule(MATMUL.program)
    tile, threads = random.choice(((4, 2), (4, 4), (8, 4), (8, 2)))
    step = random.choice((2, 4, 8))
    size = tile // threads
    by, bx, y, x = s.tile(("i", "j"), (tile, tile))
    ty, tx, iy, ix = s.tile((y, x), (size, size))
    ko, ki = s.split("k", (None, step))
    s.reorder(by, bx, ko, ty, tx, ki, iy, ix)
    keeps = random.random() < 0.7
    if keeps:
        copy = s.cache_write("C", "C", LOCAL)
        loops = s.reverse_compute_at(copy, bx)
        cy, cx, _, _ = s.tile(loops, (size, size))
        s.bind(cy, "threadIdx.y")
        s.bind(cx, "threadIdx.x")
    for loop, axis in ((by, "blockIdx.y"), (bx, random.choice(("blockIdx.x", "vthread")))):
        s.bind(loop, axis)
    s.bind(ty, "threadIdx.y")
    s.bind(tx, "threadIdx.x")
    for source in random.sample(("A", "B"), random.randint(1, 2)):
        fetch = s.cache_read("C", source, SHARED)
        rows, columns = s.compute_at(fetch, ko)
        _, lanes, more = s.split(s.fuse(rows, columns), (None, threads, threads))
        s.bind(lanes, "threadIdx.y")
        s.bind(more, "threadIdx.x")
        if random.random() < 0.5:
            s.storage_align(fetch, f"{source}_shared", 0, 4, 1)
        if step < 8 and random.random() < 0.6:
            s.double_buffer(fetch)
    if s.get_loops("C")[1] == bx and "vthread" in str(s.program) and random.random() < 0.7:
        s.lower_virtual_thread(bx)
    s.place_barriers()
    return s


def _tile_result(chain: Chain) -> None:
    """The loops of the last block: some over blocks outside, a reduction between, the rest inside."""
    random, s = chain.random, chain.s
    last = all_blocks(s.program.body)[-1].name
    around = loops_of(s.program, BlockRef(last))
    block = block_at(s.program, BlockRef(last)).stmt
    spatial = [loop.var.name for loop, axis in zip(around, block.axes, strict=True) if axis.kind is IterKind.SPATIAL]
    reduced = [loop.var.name for loop in around if loop.var.name not in spatial]
    outer, inner = zip(*(s.split(loop, (None, random.choice((2, 3, 4)))) for loop in spatial), strict=True)
    steps = [s.split(loop, (None, random.choice((2, 3)))) for loop in reduced]
    s.reorder(*outer, *(o for o, _ in steps), *inner, *(i for _, i in steps))
    for loop, axis in zip(outer, random.sample(("blockIdx.x", "blockIdx.y", "vthread"), 2), strict=True):
        chain.attempt(lambda loop=loop, axis=axis: s.bind(loop, axis))


def _cache_read(chain: Chain) -> None:
    """A copy in a memory of blocks, most often as soon as it is needed in some loop."""
    s, random = chain.s, chain.random
    block = block_at(s.program, BlockRef(chain.block())).stmt
    buffer = random.choice([region.buffer.name for region in block.reads])
    copy = s.cache_read(block.name, buffer, SHARED)
    inside = [loop.var.name for loop in loops_of(s.program, BlockRef(block.name))]
    random.shuffle(inside)
    for loop in inside:
        with suppress(ScheduleError):
            s.compute_at(copy, loop)
            return
    raise ScheduleError("no loop takes the copy")


def _cache_write(chain: Chain) -> None:
    s, random = chain.s, chain.random
    block = chain.block()
    buffer = block_at(s.program, BlockRef(block)).stmt.writes[0].buffer.name
    copy = s.cache_write(block, buffer, random.choice((LOCAL, SHARED)))
    inside = [loop.var.name for loop in loops_of(s.program, BlockRef(block))]
    random.shuffle(inside)
    for loop in inside:
        with suppress(ScheduleError):
            s.reverse_compute_at(copy, loop)
            return
    raise ScheduleError("no loop takes the copy")


def _compute_at(chain: Chain) -> None:
    s, block = chain.s, chain.block()
    readers = consumers(s.program, block_at(s.program, BlockRef(block)).stmt)
    loops = [loop.var.name for reader in readers for loop in loops_of(s.program, BlockRef(reader.name))]
    s.compute_at(block, chain.random.choice(loops or [""]))
    s.set_scope(block_at(s.program, BlockRef(block)).stmt.writes[0].buffer.name, SHARED)


def _split(chain: Chain) -> None:
    chain.s.split(chain.serial(), (None, chain.random.choice((2, 3, 4))))


def _reorder(chain: Chain) -> None:
    loops = chain.loops(LoopKind.SERIAL)
    chain.s.reorder(*chain.random.sample(loops, min(2, len(loops))))


def _fuse(chain: Chain) -> None:
    loops = [loop.var.name for loop in loops_of(chain.s.program, BlockRef(chain.block()))]
    chain.s.fuse(*loops[-2:])


def _bind(chain: Chain) -> None:
    chain.s.bind(chain.serial(), chain.random.choice(("threadIdx.x", "threadIdx.y", "vthread", "blockIdx.z")))


def _double_buffer(chain: Chain) -> None:
    copies = [b.name for b in all_blocks(chain.s.program.body) if b.writes[0].buffer.memory == SHARED]
    chain.s.double_buffer(chain.random.choice(copies or [""]))


def _storage_align(chain: Chain) -> None:
    block = chain.block()
    buffer = block_at(chain.s.program, BlockRef(block)).stmt.writes[0].buffer.name
    chain.s.storage_align(block, buffer, 0, chain.random.choice((3, 4)), 1)


def _lower_virtual_thread(chain: Chain) -> None:
    chain.s.lower_virtual_thread(chain.random.choice(chain.loops(LoopKind.VIRTUAL_THREAD) or [""]))


_MOVES = (_cache_read, _cache_read, _cache_read, _cache_write, _compute_at, _split, _reorder, _fuse, _bind)
_LATE = (_double_buffer, _double_buffer, _storage_align, _lower_virtual_thread)


def _bind_phases(chain: Chain) -> None:
    """Inner loops become threads, as they come, along axes that are drawn for the whole schedule."""
    axes = chain.random.sample(("threadIdx.x", "threadIdx.y", "threadIdx.z"), 2)
    if not chain.loops(LoopKind.BLOCK_X, LoopKind.BLOCK_Y):
        first = next(n for n in walk(chain.s.program.body) if isinstance(n, Loop))
        chain.attempt(lambda: chain.s.bind(LoopRef(first.var.name), "blockIdx.x"))
    for block in all_blocks(chain.s.program.body):
        around = loops_of(chain.s.program, BlockRef(block.name))
        free = iter(axes)
        for loop in [loop for loop in around[1:] if loop.kind is LoopKind.SERIAL]:
            with suppress(ScheduleError, StopIteration):
                if chain.random.random() < 0.85:
                    chain.s.bind(loop.var.name, next(free))


def uses(program: Program) -> set[str]:
    """What a schedule has, of what these chains are for."""
    loops = {node.kind.value for node in walk(program.body) if isinstance(node, Loop)}
    return loops | {node.buffer.memory.name for node in walk(program.body) if isinstance(node, Alloc)}
