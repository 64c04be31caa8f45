"""Annotation for blocks and threads: what all sketches leave open (Zheng et al., OSDI 2020, section 4.2).

The tiles of the first levels are blocks, virtual threads and threads. What all threads of a block fetch is spread over
them, as are the places that a consumer computes on a tile. Every other nest is a launch of its own. Levels are bound
from the last axis on, as long as a block may have so many threads; loops of other axes run one after the other.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from tilewright.kernels.schedules import extent_of, ref
from tilewright.loops.ir import Loop
from tilewright.loops.memory import GLOBAL, LOCAL, SHARED
from tilewright.loops.visit import allocations, walk
from tilewright.schedule.schedule import Schedule
from tilewright.schedule.tree import BlockRef, LoopRef, all_blocks, block_at
from tilewright.sketch.analysis import is_reduction
from tilewright.sketch.annotate import own_loops, reducing_loops
from tilewright.sketch.rule import Draft, Tile

UNROLLED = (0, 16, 64, 512, 1024)
"""Operations that may be written out."""


@dataclass(frozen=True, slots=True)
class _Decided:
    """The answers, by block."""

    threads: dict[str, int]
    unrolled: dict[str, int]


def annotate_threads(draft: Draft) -> None:
    """Ask ``draft.config``, and finish ``draft.schedule``. Raises ``ScheduleError`` if answers do not go together."""
    decided = _ask(draft)
    _keep_in_threads(draft.schedule)
    bound = {name: _bound(draft, name) for name in draft.names() if name in draft.tiles and name not in draft.written}
    for name in draft.names():
        if name in draft.followers:
            _follow(draft, name, bound[draft.followers[name]])
        elif name in draft.fetched:
            _fetch(draft.schedule, name, bound[draft.fetched[name]].shape)
        elif name in bound:
            _bind_tile(draft, name, bound[name], decided.unrolled[name])
        elif name in draft.written:
            _launch(draft.schedule, list(draft.tiles[name].levels[0]), decided.threads[name])
        elif name in draft.shared:
            _share(draft, name, draft.shared[name])
        elif name not in draft.fixed:
            _launch_plain(draft.schedule, name, decided, draft.structure.warp)
    draft.schedule.place_barriers()


def _ask(draft: Draft) -> _Decided:
    threads: dict[str, int] = {}
    unrolled: dict[str, int] = {}
    most, warp = draft.structure.threads, draft.structure.warp
    for block in all_blocks(draft.schedule.program.body):
        name = block.name
        is_inside = name in draft.fetched or name in draft.followers or name in draft.fixed
        if name in draft.tiles and name not in draft.written:
            unrolled[name] = draft.config.choice(f"{name}.unroll", UNROLLED)
        elif not is_inside and name not in draft.shared:
            sizes = [warp << n for n in range((most // warp).bit_length())]
            threads[name] = draft.config.choice(f"{name}.threads", sizes)
            if is_reduction(block):
                unrolled[name] = draft.config.choice(f"{name}.unroll", UNROLLED)
    return _Decided(threads, unrolled)


def _keep_in_threads(s: Schedule) -> None:
    """What is allocated in a loop, and not for all threads of a block, is spread over the threads."""
    inside = [alloc for loop in walk(s.program.body) if isinstance(loop, Loop) for alloc in allocations(loop.body)[0]]
    for alloc in inside:
        if alloc.buffer.memory is GLOBAL:
            s.set_scope(alloc.buffer.name, LOCAL)


# --- tiles -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Bound:
    """The axes of a tile whose loops are threads, and virtual threads; extents of the levels by axis."""

    threads: frozenset[int]
    virtual: frozenset[int]
    sizes: tuple[tuple[int, int, int], ...]
    """For each spatial axis: virtual threads, threads, and what each of them computes."""

    @property
    def shape(self) -> tuple[int, ...]:
        """The threads of a block along z, y and x, as ``_bind`` binds their loops."""
        real = [self.sizes[axis][1] for axis in sorted(self.threads) if self.sizes[axis][1] > 1]
        return (prod(real[:-2]), *real[-2:]) if len(real) > 3 else tuple(real)


def _bound(draft: Draft, name: str) -> _Bound:
    s, tile, structure = draft.schedule, draft.tiles[name], draft.structure
    _, virtual, threads, *rest = _spatial(draft, tile)
    rows = [[extent_of(s, loop) for loop in level] for level in (virtual, threads)]
    inner = [prod(extent_of(s, level[axis]) for level in rest) for axis in range(len(threads))]
    sizes = tuple(zip(*rows, inner, strict=True))
    return _Bound(_within(rows[1], structure.threads), _within(rows[0], structure.virtual_threads), sizes)


def _spatial(draft: Draft, tile: Tile) -> list[tuple[LoopRef, ...]]:
    return [level for letter, level in zip(draft.structure.levels, tile.levels, strict=True) if letter == "S"]


def _within(sizes: Sequence[int], most: int) -> frozenset[int]:
    """As many of the last axes as have ``most`` points together."""
    count, taken = 1, set[int]()
    for axis in reversed(range(len(sizes))):
        if count * sizes[axis] > most:
            break
        count *= sizes[axis]
        taken.add(axis)
    return frozenset(taken)


def _bind_tile(draft: Draft, name: str, bound: _Bound, unrolled: int) -> None:
    s, tile = draft.schedule, draft.tiles[name]
    blocks, virtual, threads, *_ = _spatial(draft, tile)
    axis_of_blocks, axis_of_virtual, axis_of_threads = draft.structure.bound
    s.reorder(
        *(loop for loop in blocks if extent_of(s, loop) == 1), *(loop for loop in blocks if extent_of(s, loop) > 1)
    )
    _bind(s, blocks, axis_of_blocks)
    for loop in (loop for axis, loop in enumerate(virtual) if axis in bound.virtual):
        s.bind(loop, axis_of_virtual)
    _bind(s, [loop for axis, loop in enumerate(threads) if axis in bound.threads], axis_of_threads)
    operations = 1
    for loop in reversed([loop for level in tile.levels[4:] for loop in level]):
        operations *= extent_of(s, loop)
        if operations > unrolled:
            break
        s.unroll(loop)


def _bind(s: Schedule, loops: Sequence[LoopRef], axis: str) -> None:
    """The last of ``loops``, which are side by side, are ``axis`` along x and y; those before them, fused, along z.

    What is fused takes long to prove apart: so as little as possible is.
    """
    real = [loop for loop in loops if extent_of(s, loop) > 1] or list(loops[-1:])
    if len(real) > 3:
        s.reorder(*(loop for loop in loops if loop not in real), *real)
        real = [s.fuse(*real[:-2]), *real[-2:]]
    for loop, letter in zip(reversed(real), "xyz", strict=False):
        s.bind(loop, f"{axis}.{letter}")


def _follow(draft: Draft, name: str, bound: _Bound) -> None:
    """Each thread computes, of what the tile's consumer computes, the places of its own part of the tile."""
    s = draft.schedule
    loops = zip(own_loops(s, name), bound.sizes, strict=True)
    parts = [s.split(ref(loop), (None, virtual * inner)) for loop, (virtual, _, inner) in loops]
    own = [threads for axis, (threads, _) in enumerate(parts) if axis in bound.threads]
    serial = [threads for axis, (threads, _) in enumerate(parts) if axis not in bound.threads]
    s.reorder(*serial, *own, *(inner for _, inner in parts))
    _bind(s, own, "threadIdx")


def _fetch(s: Schedule, name: str, shape: Sequence[int]) -> None:
    """All threads of a block copy, side by side; what is left over is a loop of each."""
    outer = [ref(loop) for loop in own_loops(s, name)]
    threads: list[LoopRef] = []
    for letter, count in zip("xyz", reversed(shape), strict=False):
        outer, inner = _cut(s, outer, count)
        if inner:
            threads.insert(0, s.fuse(*inner) if len(inner) > 1 else inner[0])
            s.bind(threads[0], f"threadIdx.{letter}")
    if threads and outer:
        s.reorder(*threads, *outer)


def _cut(s: Schedule, loops: Sequence[LoopRef], most: int) -> tuple[list[LoopRef], list[LoopRef]]:
    """Perfectly nested ``loops`` as outer ones, and inner ones of at most ``most`` iterations together.

    Sizes divide the extents if several loops are cut: a fused loop with a tail is not known to be parallel.
    """
    outer, inner, count = list(loops), list[LoopRef](), 1
    while outer and count < most:
        loop, size = outer.pop(), extent_of(s, loops[len(outer)])
        if count * size > most:
            part = most if count == 1 and not outer else _divisor(size, most // count)
            rest, loop = s.split(loop, (None, part))
            inner.insert(0, loop)
            outer.append(rest)
            break
        inner.insert(0, loop)
        count *= size
    if len(outer) + len(inner) > 1:
        s.reorder(*outer, *inner)
    return outer, inner


def _divisor(size: int, most: int) -> int:
    return max(number for number in range(1, most + 1) if size % number == 0)


# --- launches of their own -----------------------------------------------------------------------------------------


def _launch(s: Schedule, loops: Sequence[LoopRef], threads: int) -> None:
    """Iterations of ``loops``, side by side and outermost, are spread over blocks of at most ``threads``."""
    outer, inner = _cut(s, loops, threads)
    _bind(s, outer, "blockIdx")
    _bind(s, inner, "threadIdx")


def _launch_plain(s: Schedule, name: str, decided: _Decided, warp: int) -> None:
    """A thread for each element."""
    reducing = [ref(loop) for loop in reducing_loops(s, name)]
    spatial = [ref(loop) for loop in own_loops(s, name) if ref(loop) not in reducing]
    if spatial:
        s.reorder(*spatial, *reducing)
    _launch(s, spatial, decided.threads.get(name, warp))
    operations = 1
    for loop in reversed(reducing):
        operations *= extent_of(s, loop)
        if operations > decided.unrolled.get(name, 0):
            break
        s.unroll(loop)


def _share(draft: Draft, name: str, threads: int) -> None:
    """Blocks for elements; each thread of a block adds up some of the steps, and thread 0 what all of them have."""
    s = draft.schedule
    reducing = [ref(loop) for loop in reducing_loops(s, name)]
    spatial = [ref(loop) for loop in own_loops(s, name) if ref(loop) not in reducing]
    s.reorder(*spatial, *reducing)
    block = (s.fuse(*spatial) if len(spatial) > 1 else spatial[0]) if spatial else None
    steps = s.fuse(*reducing) if len(reducing) > 1 else reducing[0]
    _, inner = s.split(steps, (None, min(threads, extent_of(s, steps))))
    partial = s.rfactor(inner, len(block_at(s.program, BlockRef(name)).stmt.writes[0].ranges))
    if block is not None:
        s.set_scope(block_at(s.program, partial).stmt.writes[0].buffer.name, SHARED)
        s.bind(block, "blockIdx.x")
    s.bind(inner, "threadIdx.x")
