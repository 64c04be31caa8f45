"""Which loops become lanes, are written out, or run in parallel: by how long loops are, and what was decided.

For many candidates at once: extents and kinds of loops are arrays over candidates that differ in numbers only, as those
of a pattern do. ``finish`` makes the schedule of one candidate so.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from tilewright.base.errors import Unsupported
from tilewright.loops.ir import Block, Loop, LoopKind, Store
from tilewright.schedule.schedule import Schedule
from tilewright.schedule.tree import BlockRef, all_blocks, loops_of
from tilewright.sketch.annotate import Decided, own_loops, reducing_loops, register_lanes
from tilewright.sketch.rule import Draft
from tilewright.sketch.rules.rfactor import MOST_LANES
from tilewright.symbolic.domain import IterKind
from tilewright.symbolic.expr import Const, Read, Var
from tilewright.symbolic.traversal import free_vars, walk

Ints: TypeAlias = NDArray[np.int64]
KINDS = (LoopKind.SERIAL, LoopKind.PARALLEL, LoopKind.VECTORIZED, LoopKind.UNROLLED)
"""The kinds of loops, by their numbers in arrays."""
SERIAL, PARALLEL, VECTORIZED, UNROLLED = range(4)
EPILOGUE = 64
"""Vector operations of what follows on a tile that are written out."""


@dataclass(frozen=True, slots=True)
class Rows:
    """At most ``count`` iterations of ``loop`` are written out beside each other; the others are those of ``outer``."""

    loop: str
    outer: str
    count: int


@dataclass(frozen=True, slots=True)
class Tail:
    """The loops of one block that are finished: ``order``, outermost first, of which ``lanes`` becomes lanes.

    If there is ``outer``, ``lanes`` has at most ``vectors`` registers of iterations of its own: the others are those of
    ``outer``. So are all of them if one of ``after``, whose extents are open, runs once: bindings do not tell then that
    it is over a reduction, so that it is the last spatial loop. ``unrolled`` may be written out, innermost first, as
    long as they are no more than ``most`` vector operations, ``written`` in each iteration of the lanes.
    """

    block: str
    order: tuple[str, ...]
    lanes: str | None
    outer: str | None
    after: tuple[str, ...]
    vectors: int
    unrolled: tuple[str, ...]
    most: int
    rows: Rows | None = None
    written: int = 1

    @property
    def parts(self) -> dict[str, str]:
        """The loops that are split, and those over their parts: rows first."""
        rows = {} if self.rows is None else {self.rows.loop: self.rows.outer}
        return {**rows, self.lanes: self.outer} if self.lanes is not None and self.outer is not None else rows


@dataclass(frozen=True, slots=True)
class Around:
    """A loop around a block that may run in parallel: not if it ``ends`` there; then no further one if it ``stops``."""

    loop: str
    ends: bool
    stops: bool


@dataclass(frozen=True, slots=True)
class Spread:
    """The outermost ``count`` of ``loops`` run in parallel."""

    loops: tuple[Around, ...]
    count: int

    def spread(self, kinds: dict[str, Ints], count: Ints) -> None:
        """Change ``kinds``, for each candidate's ``count``."""
        is_open = np.ones_like(count, np.bool_)
        for place, around in enumerate(self.loops):
            if around.ends:
                return
            is_open &= (place < count) & (kinds[around.loop] == SERIAL)
            kinds[around.loop] = np.where(is_open, PARALLEL, kinds[around.loop])
            if around.stops:
                return


@dataclass(frozen=True)
class Finishing:
    """``lanes``: elements of a register; ``kinds``: of loops that have one already."""

    lanes: int
    tails: tuple[Tail, ...]
    spreads: tuple[Spread, ...]
    kinds: Mapping[str, int] = field(default_factory=dict[str, int])

    @property
    def sizes(self) -> Iterable[int]:
        """All numbers that were decided: those of the candidate that this is of."""
        for tail in self.tails:
            yield from (tail.vectors, tail.most)
            if tail.rows is not None:
                yield tail.rows.count
        for spread in self.spreads:
            yield spread.count

    def of(self, extents: Mapping[str, Ints], decided: Callable[[int], Ints]) -> "Finished":
        """What becomes of loops of ``extents``, (candidates,); ``decided``: what numbers of ``sizes`` are."""
        lengths = dict(extents)
        one = np.ones_like(next(iter(extents.values()), np.ones(1, np.int64)))
        kinds = {loop: one * self.kinds.get(loop, SERIAL) for loop in extents}
        for tail in self.tails:
            self._finish(tail, lengths, kinds, decided)
        for spread in self.spreads:
            spread.spread(kinds, decided(spread.count))
        return Finished(lengths, kinds, {tail.block: tail for tail in self.tails})

    def _finish(
        self, tail: Tail, lengths: dict[str, Ints], kinds: dict[str, Ints], decided: Callable[[int], Ints]
    ) -> None:
        operations: Ints | int = 1
        if tail.lanes is not None:
            if tail.rows is not None:
                _put_beside(tail.rows, tail, lengths, kinds, decided(tail.rows.count))
            if tail.outer is not None:
                width, whole = self.lanes * decided(tail.vectors), lengths[tail.lanes]
                for loop in tail.after:
                    width = np.where(lengths[loop] > 1, width, 1)
                lengths[tail.outer], lengths[tail.lanes] = -(-whole // width), np.minimum(whole, width)
                kinds[tail.outer] = np.full_like(whole, SERIAL)
            last = lengths[tail.lanes]
            kinds[tail.lanes] = np.where(last > 1, VECTORIZED, kinds[tail.lanes])
            operations = -(-last // self.lanes) * tail.written
            if tail.rows is not None:
                operations = operations * lengths[tail.rows.loop]
        most, is_open = decided(tail.most), True
        for loop in reversed(tail.unrolled):
            operations = operations * lengths[loop]
            is_open = is_open & (operations <= most)
            kinds[loop] = np.where(is_open, UNROLLED, kinds[loop])


def _put_beside(rows: Rows, tail: Tail, lengths: dict[str, Ints], kinds: dict[str, Ints], count: Ints) -> None:
    """Rows, where there are lanes."""
    assert tail.lanes is not None
    for loop in (tail.lanes, *tail.after):
        count = np.where(lengths[loop] > 1, count, 1)
    whole = lengths[rows.loop]
    lengths[rows.outer], lengths[rows.loop] = -(-whole // count), np.minimum(whole, count)
    kinds[rows.outer] = np.full_like(whole, SERIAL)
    kinds[rows.loop] = np.where(count > 1, UNROLLED, kinds[rows.loop])


@dataclass(frozen=True, slots=True)
class Finished:
    """The extents and the kinds of all loops, (candidates,), by the names of loops; tails by that of their block."""

    extents: Mapping[str, Ints]
    kinds: Mapping[str, Ints]
    tails: Mapping[str, Tail]


def finishing(draft: Draft, decided: Decided) -> Finishing:
    """For all blocks. Raises ``Unsupported`` where the order of loops depends on extents."""
    s = draft.schedule
    program = s.program
    blocks = all_blocks(program.body)
    for block in blocks:
        if block.name not in draft.tiles:
            _require_one_order(s, block, decided)
    tails = {block.name: tail_of(draft, block.name, decided) for block in blocks}
    present = {block.name for block in blocks}
    spreads = tuple(
        Spread(_around(draft, tails[name]), count) for name, count in decided.parallel.items() if name in present
    )
    kinds = {
        loop.var.name: KINDS.index(loop.kind)
        for block in blocks
        for loop in loops_of(program, BlockRef(block.name))
        if loop.kind is not LoopKind.SERIAL
    }
    return Finishing(register_lanes(program, draft.target), tuple(tails.values()), spreads, kinds)


def tail_of(draft: Draft, name: str, decided: Decided) -> Tail:
    """How the loops of one block are finished, unless it is made of squares that are transposed."""
    return _tile_tail(draft, name, decided) if name in draft.tiles else _plain_tail(draft, name, decided)


def _tile_tail(draft: Draft, name: str, decided: Decided) -> Tail:
    tile = draft.tiles[name]
    order = tuple(loop.var.name for loop in loops_of(draft.schedule.program, BlockRef(name)))
    inner = [loop for loop in tile.levels[-1] if loop != tile.vector]
    unrolled = tuple(loop.name for loop in (*tile.levels[-3], *tile.levels[-2], *inner))
    lanes = tile.vector.name if tile.instruction is None else None
    return Tail(name, order, lanes, None, (), 1, unrolled, decided.unrolled[name], written=tile.written)


@dataclass(frozen=True, slots=True)
class _Loops:
    """The loops around a block: ``outside`` are others' too; of its ``own``, some drive a reduction."""

    outside: list[str]
    own: list[str]
    reducing: list[str]

    @staticmethod
    def of(s: Schedule, name: str) -> "_Loops":
        own = [loop.var.name for loop in own_loops(s, name)]
        outside = [loop.var.name for loop in loops_of(s.program, BlockRef(name)) if loop.var.name not in own]
        return _Loops(outside, own, [loop.var.name for loop in reducing_loops(s, name) if loop.var.name in own])

    @property
    def spatial(self) -> list[str]:
        return [loop for loop in self.own if loop not in self.reducing]


def _plain_tail(draft: Draft, name: str, decided: Decided) -> Tail:
    s = draft.schedule
    loops, most = _Loops.of(s, name), decided.unrolled.get(name, EPILOGUE)
    outside, reducing = loops.outside, loops.reducing
    if not loops.spatial:
        return Tail(name, (*outside, *loops.own), None, None, (), 1, tuple(loops.own), most)
    *outer, last = loops.spatial
    part = f"{last}.outer"
    open_loops = [loop.var.name for loop in own_loops(s, name) if not isinstance(loop.extent, Const)]
    after = tuple(loop for loop in reducing if loop in open_loops) if loops.own[-1] != last else ()
    vectors = decided.vectors.get(name, 1)
    if name in decided.partial:
        vectors = MOST_LANES // register_lanes(s.program, draft.target)
    count = decided.rows.get(name, 1)
    if not outer or not count > 1:
        order = (*outside, *outer, part, *reducing, last)
        return Tail(name, order, last, part, after, vectors, (*outer, part, *reducing), most)
    *outer, row = outer
    rows = Rows(row, f"{row}.outer", count)
    around = (*outer, rows.outer, part, *reducing)
    return Tail(name, (*outside, *around, row, last), last, part, after, vectors, around, most, rows=rows)


def _require_one_order(s: Schedule, block: Block, decided: Decided) -> None:
    """Raises ``Unsupported`` if the loops around ``block``, which is not tiled, may run in several orders."""
    name, loops = block.name, _Loops.of(s, block.name)
    if _is_crossed(block):
        raise Unsupported(f"{name} may be made of squares that are transposed")
    if not loops.spatial:
        return
    *outer, last = loops.spatial
    if loops.own not in ([*outer, last, *loops.reducing], [*outer, *loops.reducing, last]):
        raise Unsupported(f"the order of the loops around {name} depends on how long they are")
    has_rows = bool(outer) and decided.rows.get(name, 1) > 1
    if has_rows and not all(isinstance(loop.extent, Const) for loop in reducing_loops(s, name)):
        raise Unsupported(f"which loops of {name} are beside each other depends on how long they are")


def _is_crossed(block: Block) -> bool:
    """Whether squares of ``block`` may be transposed: its writes are contiguous along another axis than some reads.

    Whether they are depends on numbers, too (``kernels.transposes.crossed_axis``).
    """
    if not isinstance(block.body, Store) or not block.body.indices or block.init is not None:
        return False
    last = block.body.indices[-1]
    if not isinstance(last, Var) or any(axis.kind is not IterKind.SPATIAL for axis in block.axes):
        return False
    reads = [node for node in walk(block.body.value) if isinstance(node, Read) and node.indices]
    return any(last in free_vars(read) and last not in free_vars(read.indices[-1]) for read in reads)


def _around(draft: Draft, tail: Tail) -> tuple[Around, ...]:
    s = draft.schedule
    loops = {loop.var.name: loop for loop in loops_of(s.program, BlockRef(tail.block))}
    assert tail.lanes is None or tail.lanes in loops
    wholes = {outer: loop for loop, outer in tail.parts.items()}
    return tuple(around(s, tail.block, loops[wholes.get(name, name)], name) for name in tail.order)


def around(s: Schedule, block: str, loop: Loop, name: str) -> Around:
    """Whether ``loop``, or what is called ``name`` of it, may run in parallel for ``block``."""
    inside = all_blocks(loop.body)
    ends = inside[-1].name != block or any(loop in reducing_loops(s, one.name) for one in inside)
    return Around(name, ends, len(inside) > 1 and not isinstance(loop.body, Loop))
