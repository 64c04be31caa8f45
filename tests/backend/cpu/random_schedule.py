"""Random schedules: chains of primitives, each proposed at a random place where it has a chance.

A proposal looks at the program, chooses, and calls the method of ``Schedule``; what that refuses is a rejected step. A
chain wishes for one primitive, which it tries again and again, so that rare ones are accepted often enough.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from random import Random
from typing import TypeVar

from tilewright.base.dtypes import i8, i32, u8
from tilewright.base.errors import ScheduleError
from tilewright.loops.ir import Alloc, Block, Loop, LoopKind
from tilewright.loops.memory import GLOBAL, LOCAL
from tilewright.loops.visit import perfect_nest, walk
from tilewright.schedule.intrinsics import IntrinsicSet, TensorIntrinsic, decl_tensor_intrin
from tilewright.schedule.schedule import Schedule
from tilewright.schedule.trace import Primitive
from tilewright.schedule.tree import (
    BlockRef,
    LoopRef,
    all_blocks,
    block_at,
    buffers_read,
    buffers_written,
    consumers,
    depends_on,
)
from tilewright.symbolic.domain import IterKind
from tilewright.symbolic.expr import Extent, Var, maximum
from tilewright.tensor import build as te

T = TypeVar("T")


class NothingToPropose(Exception):
    """The program has no place for the primitive."""


@dataclass(frozen=True)
class Chain:
    """What became of a random chain."""

    schedule: Schedule
    accepted: tuple[Primitive, ...]


def random_chain(random: Random, schedule: Schedule, wish: Primitive, steps: int) -> Chain:
    """Try primitives on ``schedule`` until ``steps`` are accepted (or too many were not); ``wish`` among them."""
    accepted: list[Primitive] = []
    wished = 0
    for _ in range(4 * steps):
        if len(accepted) >= steps and wished:
            break
        eager = 0.4 if accepted else 0.8
        primitive = wish if not wished and random.random() < eager else _drawn(random, len(accepted) / steps)
        trial = schedule.copy()
        try:
            PROPOSALS[primitive](random, trial)
        except (NothingToPropose, ScheduleError):
            continue
        made = trial.trace.steps[len(schedule.trace.steps) :]
        schedule = trial
        accepted.extend(step.primitive for step in made)
        wished += any(step.primitive is wish for step in made)
    return Chain(schedule, tuple(accepted))


def _drawn(random: Random, progress: float) -> Primitive:
    """Kinds of loops come late: most primitives want serial loops."""
    pool = _SHAPING if random.random() > progress * 0.8 else _KINDS
    names, weights = zip(*pool.items(), strict=True)
    return random.choices(names, weights)[0]


# Choosing ------------------------------------------------------------------------------------------------------------


def _one(random: Random, options: Sequence[T]) -> T:
    if not options:
        raise NothingToPropose
    return random.choice(options)


def _blocks(schedule: Schedule) -> tuple[Block, ...]:
    return all_blocks(schedule.program.body)


def _loops(schedule: Schedule, *kinds: LoopKind) -> list[Loop]:
    wanted = kinds or (LoopKind.SERIAL,)
    return [s for s in walk(schedule.program.body) if isinstance(s, Loop) and s.kind in wanted]


def _loop(random: Random, schedule: Schedule) -> LoopRef:
    return LoopRef(_one(random, _loops(schedule)).var.name)


def _around(schedule: Schedule, block: Block) -> list[Loop]:
    return list(block_at(schedule.program, BlockRef(block.name)).loops)


def _reducing(schedule: Schedule, block: Block) -> list[Loop]:
    """The loops that drive reduction axes of ``block``."""
    bindings = [b for a, b in zip(block.axes, block.bindings, strict=True) if a.kind is IterKind.REDUCE]
    return [loop for loop in _around(schedule, block) if any(depends_on(b, [loop.var]) for b in bindings)]


def _intermediate(schedule: Schedule) -> set[str]:
    return {s.buffer.name for s in walk(schedule.program.body) if isinstance(s, Alloc)}


# Loops ---------------------------------------------------------------------------------------------------------------


def _split(random: Random, schedule: Schedule) -> None:
    factor = random.randint(1, 7)
    shape = random.choice(([None, factor], [None, factor], [factor, None], [None, 2, 3], [2, None, 2]))
    schedule.split(_loop(random, schedule), shape)


def _tile(random: Random, schedule: Schedule) -> None:
    nests = [nest for loop in _loops(schedule) if len(nest := perfect_nest(loop)) >= 2]
    chosen = _one(random, nests)[:2]
    schedule.tile([LoopRef(loop.var.name) for loop in chosen], [random.randint(2, 5) for _ in chosen])


def _fuse(random: Random, schedule: Schedule) -> None:
    nests = [nest for loop in _loops(schedule) if len(nest := perfect_nest(loop)) >= 2]
    chosen = _one(random, nests)[: random.choice((2, 2, 3))]
    schedule.fuse(*(LoopRef(loop.var.name) for loop in chosen))


def _reorder(random: Random, schedule: Schedule) -> None:
    nests = [nest for loop in _loops(schedule) if len(nest := perfect_nest(loop)) >= 2]
    chosen = list(_one(random, nests))
    random.shuffle(chosen)
    schedule.reorder(*(LoopRef(loop.var.name) for loop in chosen[: random.randint(2, 4)]))


def _serial(random: Random, schedule: Schedule) -> None:
    loops = _loops(schedule, LoopKind.PARALLEL, LoopKind.VECTORIZED, LoopKind.UNROLLED)
    schedule.serial(LoopRef(_one(random, loops).var.name))


def _unroll(random: Random, schedule: Schedule) -> None:
    schedule.unroll(_loop(random, schedule))


def _vectorize(random: Random, schedule: Schedule) -> None:
    innermost = [loop for loop in _loops(schedule) if isinstance(loop.body, Block)]
    schedule.vectorize(LoopRef(_one(random, innermost if random.random() < 0.7 else _loops(schedule)).var.name))


def _parallel(random: Random, schedule: Schedule) -> None:
    schedule.parallel(_loop(random, schedule))


def _bind_factors(random: Random, schedule: Schedule) -> None:
    """A split by a symbol, a step in between, and the symbol's value."""
    symbol = f"factor{len(schedule.trace.steps)}"
    outer, inner = schedule.split(_loop(random, schedule), [None, Extent(symbol)])
    if random.random() < 0.5:
        schedule.reorder(inner, outer)
    schedule.bind_factors(**{symbol: random.randint(1, 5)})


def _sample_perfect_tile(random: Random, schedule: Schedule) -> None:
    loop = _loop(random, schedule)
    schedule.split(loop, schedule.sample_perfect_tile(loop, random.choice((2, 3))))


def _sample_categorical(random: Random, schedule: Schedule) -> None:
    loop = _loop(random, schedule)
    schedule.split(loop, [None, schedule.sample_categorical((2, 3, 4), (0.5, 0.25, 0.25))])


# Blocks --------------------------------------------------------------------------------------------------------------


def _compute_at(random: Random, schedule: Schedule) -> None:
    blocks = [b for b in _blocks(schedule) if consumers(schedule.program, b)]
    block = _one(random, blocks)
    loops = _around(schedule, _one(random, consumers(schedule.program, block)))
    schedule.compute_at(BlockRef(block.name), LoopRef(_one(random, loops).var.name))


def _producers(schedule: Schedule, block: Block) -> list[Block]:
    return [b for b in all_blocks(schedule.program.body) if block in consumers(schedule.program, b)]


def _reverse_compute_at(random: Random, schedule: Schedule) -> None:
    blocks = [b for b in _blocks(schedule) if _producers(schedule, b)]
    block = _one(random, blocks)
    loops = _around(schedule, _one(random, _producers(schedule, block)))
    schedule.reverse_compute_at(BlockRef(block.name), LoopRef(_one(random, loops).var.name))


def _compute_inline(random: Random, schedule: Schedule) -> None:
    blocks = [b for b in _blocks(schedule) if consumers(schedule.program, b) and b.init is None]
    schedule.compute_inline(BlockRef(_one(random, blocks).name))


def _reverse_compute_inline(random: Random, schedule: Schedule) -> None:
    blocks = [
        block
        for block in _blocks(schedule)
        if block.init is None and any(p.init is None for p in _producers(schedule, block))
    ]
    schedule.reverse_compute_inline(BlockRef(_one(random, blocks).name))


_SCOPES = (LOCAL, GLOBAL)


def _cache_read(random: Random, schedule: Schedule) -> None:
    block = _one(random, [b for b in _blocks(schedule) if b.reads])
    buffer = _one(random, sorted(buffers_read(block), key=lambda b: b.name))
    others = [b.name for b in _blocks(schedule) if b.name != block.name and buffer in buffers_read(b)]
    readers = [block.name, *(name for name in others if random.random() < 0.5)]
    schedule.cache_read(readers, buffer.name, random.choice(_SCOPES))


def _cache_write(random: Random, schedule: Schedule) -> None:
    block = _one(random, _blocks(schedule))
    buffer = _one(random, sorted(buffers_written(block), key=lambda b: b.name))
    schedule.cache_write(BlockRef(block.name), buffer.name, random.choice(_SCOPES))


def _set_scope(random: Random, schedule: Schedule) -> None:
    schedule.set_scope(_one(random, sorted(_intermediate(schedule))), random.choice(_SCOPES))


def _rfactor(random: Random, schedule: Schedule) -> None:
    block = _one(random, [b for b in _blocks(schedule) if b.init is not None and _reducing(schedule, b)])
    rank = len(block.axes) - sum(axis.kind is IterKind.REDUCE for axis in block.axes)
    loop = random.choice(_reducing(schedule, block))
    schedule.rfactor(LoopRef(loop.var.name), random.randint(0, rank))


def _decompose_reduction(random: Random, schedule: Schedule) -> None:
    block = _one(random, [b for b in _blocks(schedule) if b.init is not None and _around(schedule, b)])
    schedule.decompose_reduction(BlockRef(block.name), LoopRef(random.choice(_around(schedule, block)).var.name))


_MAPS = {
    1: ("i -> i // 4, i % 4", "i -> i % 2, i // 2"),
    2: ("i, j -> j, i", "i, j -> j // 4, i, j % 4", "i, j -> i // 2, j // 3, i % 2, j % 3", "i, j -> i * 16 + j"),
    3: ("i, j, k -> i // 2, j, k, i % 2", "i, j, k -> k, i, j", "i, j, k -> i, j // 3, k // 2, j % 3, k % 2"),
}


def _transform_layout(random: Random, schedule: Schedule) -> None:
    """Of an intermediate buffer: there is one more after a cache_read."""
    known = _intermediate(schedule)
    pairs = [
        (block.name, buffer)
        for block in _blocks(schedule)
        for buffer in sorted(buffers_read(block) | buffers_written(block), key=lambda b: b.name)
        if buffer.name in known and len(buffer.shape) in _MAPS
    ]
    block, buffer = _one(random, pairs)
    schedule.transform_layout(BlockRef(block), buffer.name, random.choice(_MAPS[len(buffer.shape)]))


def _pad(random: Random, schedule: Schedule) -> None:
    block = _one(random, [b for b in _blocks(schedule) if b.axes])
    multiples = [random.choice((1, 2, 4)) for _ in block.axes]
    if all(m == 1 for m in multiples):
        raise NothingToPropose
    schedule.pad(BlockRef(block.name), multiples)


def _annotate(random: Random, schedule: Schedule) -> None:
    schedule.annotate(BlockRef(_one(random, _blocks(schedule)).name), random.choice("ab"), random.randint(0, 3))


def _prefetch(random: Random, schedule: Schedule) -> None:
    buffer = _one(random, [p.name for p in schedule.program.params])
    schedule.prefetch(buffer, random.choice((1, 64, 4096)), random.choice((1, 1, 2)))


def _unannotate(random: Random, schedule: Schedule) -> None:
    if not any(block.annotations for block in _blocks(schedule)):
        _annotate(random, schedule)
    block = _one(random, [b for b in _blocks(schedule) if b.annotations])
    schedule.unannotate(BlockRef(block.name), block.annotations[0][0])


# Intrinsics ----------------------------------------------------------------------------------------------------------


def _tensorize(random: Random, schedule: Schedule) -> None:
    """The first match, in a random order."""
    pairs = [(b, i) for b in _blocks(schedule) for i in INTRINSICS.intrinsics if _could_be(b, i)]
    for block, intrinsic in random.sample(pairs, len(pairs)):
        trial = schedule.copy()
        with suppress(ScheduleError):
            _tensorized(random, trial, block, intrinsic)
            schedule.program, schedule.trace = trial.program, trial.trace
            return
    raise NothingToPropose


def _tensorized(random: Random, schedule: Schedule, block: Block, intrinsic: TensorIntrinsic) -> None:
    """Tiles of the intrinsic's size, after padding where they do not divide."""
    sizes = _tile_sizes(block, intrinsic)
    if any(int(str(axis.extent)) % size for axis, size in zip(block.axes, sizes, strict=True)):
        schedule.pad(block.name, sizes)
    outer: list[LoopRef] = []
    inner: list[LoopRef] = []
    for binding, size in zip(block.bindings, sizes, strict=True):
        parts = schedule.split(str(binding), [None, size]) if size > 1 else (LoopRef(str(binding)),)
        outer.append(parts[0])
        inner.extend(parts[1:])
    schedule.reorder(*outer, *inner)
    reduced = [axis.kind is IterKind.REDUCE for axis in block.axes]
    if any(reduced) and random.random() < 0.5:
        schedule.decompose_reduction(block.name, outer[reduced.index(True)])
    schedule.tensorize(inner[0], intrinsic.name)


def _could_be(block: Block, intrinsic: TensorIntrinsic) -> bool:
    """Whether ``block`` is in loops of its own, has the axes that ``intrinsic`` has, and reads what it reads."""
    kinds, wanted = ([axis.kind for axis in b.axes] for b in (block, intrinsic.block))
    reads, wanted_reads = ({region.buffer.dtype for region in b.reads} for b in (block, intrinsic.block))
    plain = all(isinstance(binding, Var) for binding in block.bindings)
    return plain and reads == wanted_reads and all(kinds.count(kind) >= wanted.count(kind) for kind in IterKind)


def _tile_sizes(block: Block, intrinsic: TensorIntrinsic) -> list[int]:
    """The intrinsic's extents, matched from the right for each kind of axis; 1 for the others."""
    left = {k: [int(str(a.extent)) for a in intrinsic.block.axes if a.kind is k] for k in IterKind}
    return [left[axis.kind].pop() if left[axis.kind] else 1 for axis in reversed(block.axes)][::-1]


def _gemm() -> TensorIntrinsic:
    a, b = te.placeholder((2, 2), name="A"), te.placeholder((2, 4), name="B")
    k = te.reduce_axis((0, 2), "k")
    c = te.compute((2, 4), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), "C")
    return decl_tensor_intrin(c, "gemm", reset="gemm_zero", update="gemm_add")


_DOT_ADD = """
define internal void @dot_add(ptr %a, ptr %b, ptr %c) alwaysinline {
  %a4 = load <4 x i8>, ptr %a, align 1
  %b4 = load <4 x i8>, ptr %b, align 1
  %wide.a = zext <4 x i8> %a4 to <4 x i32>
  %wide.b = sext <4 x i8> %b4 to <4 x i32>
  %products = mul <4 x i32> %wide.a, %wide.b
  %sum = call i32 @llvm.vector.reduce.add.v4i32(<4 x i32> %products)
  %old = load i32, ptr %c
  %new = add i32 %old, %sum
  store i32 %new, ptr %c
  ret void
}
declare i32 @llvm.vector.reduce.add.v4i32(<4 x i32>)
"""


def _dot() -> TensorIntrinsic:
    a, b = te.placeholder((4,), u8, "A"), te.placeholder((4,), i8, "B")
    k = te.reduce_axis((0, 4), "k")
    c = te.compute((), lambda: te.sum(a[k].astype(i32) * b[k].astype(i32), axis=k), "C")
    return decl_tensor_intrin(c, "dot", reset="dot_zero", update="dot_add", implementations={"dot_add": _DOT_ADD})


def _relu() -> TensorIntrinsic:
    x = te.placeholder((4,), name="X")
    return decl_tensor_intrin(te.compute((4,), lambda i: maximum(x[i], 0.0), "Y"), "relu4")


INTRINSICS = IntrinsicSet((_gemm(), _dot(), _relu()))


PROPOSALS: dict[Primitive, Callable[[Random, Schedule], None]] = {
    Primitive.SPLIT: _split,
    Primitive.TILE: _tile,
    Primitive.FUSE: _fuse,
    Primitive.REORDER: _reorder,
    Primitive.SERIAL: _serial,
    Primitive.UNROLL: _unroll,
    Primitive.VECTORIZE: _vectorize,
    Primitive.PARALLEL: _parallel,
    Primitive.BIND_FACTORS: _bind_factors,
    Primitive.SAMPLE_PERFECT_TILE: _sample_perfect_tile,
    Primitive.SAMPLE_CATEGORICAL: _sample_categorical,
    Primitive.COMPUTE_AT: _compute_at,
    Primitive.REVERSE_COMPUTE_AT: _reverse_compute_at,
    Primitive.COMPUTE_INLINE: _compute_inline,
    Primitive.REVERSE_COMPUTE_INLINE: _reverse_compute_inline,
    Primitive.CACHE_READ: _cache_read,
    Primitive.CACHE_WRITE: _cache_write,
    Primitive.SET_SCOPE: _set_scope,
    Primitive.PREFETCH: _prefetch,
    Primitive.RFACTOR: _rfactor,
    Primitive.DECOMPOSE_REDUCTION: _decompose_reduction,
    Primitive.TRANSFORM_LAYOUT: _transform_layout,
    Primitive.PAD: _pad,
    Primitive.TENSORIZE: _tensorize,
    Primitive.ANNOTATE: _annotate,
    Primitive.UNANNOTATE: _unannotate,
}

_KINDS = {Primitive.VECTORIZE: 3, Primitive.PARALLEL: 3, Primitive.UNROLL: 3, Primitive.SERIAL: 1}

_SHAPING = {
    Primitive.SPLIT: 6,
    Primitive.TILE: 2,
    Primitive.FUSE: 3,
    Primitive.REORDER: 4,
    Primitive.COMPUTE_AT: 5,
    Primitive.REVERSE_COMPUTE_AT: 4,
    Primitive.COMPUTE_INLINE: 2,
    Primitive.REVERSE_COMPUTE_INLINE: 2,
    Primitive.CACHE_READ: 3,
    Primitive.CACHE_WRITE: 3,
    Primitive.SET_SCOPE: 2,
    Primitive.PREFETCH: 1,
    Primitive.RFACTOR: 2,
    Primitive.DECOMPOSE_REDUCTION: 2,
    Primitive.TRANSFORM_LAYOUT: 3,
    Primitive.PAD: 2,
    Primitive.TENSORIZE: 2,
    Primitive.BIND_FACTORS: 1,
    Primitive.SAMPLE_PERFECT_TILE: 1,
    Primitive.SAMPLE_CATEGORICAL: 1,
    Primitive.ANNOTATE: 1,
    Primitive.UNANNOTATE: 1,
}
