"""What ``annotate.finish`` does to the loops of all candidates of a pattern at once: kinds of loops, by their extents.

The rules are those of ``annotate``, over arrays: which loops become lanes, are written out, or run in parallel.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from tilewright.base.errors import Unsupported
from tilewright.loops.ir import Block, Loop, LoopKind, Store
from tilewright.schedule.tree import BlockRef, all_blocks, loops_of
from tilewright.sketch.annotate import EPILOGUE, Decided, own_loops, reducing_loops, register_lanes
from tilewright.sketch.rule import Draft
from tilewright.sketch.rules.rfactor import MOST_LANES
from tilewright.symbolic.domain import IterKind
from tilewright.symbolic.expr import Const, Read, Var
from tilewright.symbolic.traversal import free_vars, walk

Ints: TypeAlias = NDArray[np.int64]
KINDS = (LoopKind.SERIAL, LoopKind.PARALLEL, LoopKind.VECTORIZED, LoopKind.UNROLLED)
"""The kinds of loops, by their numbers in arrays."""
SERIAL, PARALLEL, VECTORIZED, UNROLLED = range(4)


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
    ``outer``. So are all of them if one of ``after`` runs once: ``annotate`` then takes that for the last spatial loop.
    ``unrolled`` may be written out, innermost first, as long as they are no more than ``most`` vector operations.
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

    @property
    def parts(self) -> dict[str, str]:
        """The loops that are split, and those over their parts."""
        lanes = {self.lanes: self.outer} if self.lanes is not None and self.outer is not None else dict[str, str]()
        return lanes if self.rows is None else {**lanes, self.rows.loop: self.rows.outer}


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
            _spread(spread, kinds, decided(spread.count))
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
            operations = -(-last // self.lanes)
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


def _spread(spread: Spread, kinds: dict[str, Ints], count: Ints) -> None:
    is_open = np.ones_like(count, np.bool_)
    for place, around in enumerate(spread.loops):
        if around.ends:
            return
        is_open &= (place < count) & (kinds[around.loop] == SERIAL)
        kinds[around.loop] = np.where(is_open, PARALLEL, kinds[around.loop])
        if around.stops:
            return


@dataclass(frozen=True, slots=True)
class Finished:
    """The extents and the kinds of all loops, (candidates,), by the names of loops; tails by that of their block."""

    extents: Mapping[str, Ints]
    kinds: Mapping[str, Ints]
    tails: Mapping[str, Tail]


def finishing(draft: Draft, decided: Decided) -> Finishing:
    """What ``annotate.finish`` would do now. Raises ``Unsupported`` where the order of loops depends on extents."""
    s = draft.schedule
    program = s.program
    blocks = all_blocks(program.body)
    tails = {
        block.name: _tile_tail(draft, block.name, decided)
        if block.name in draft.tiles
        else _plain_tail(draft, block.name, decided)
        for block in blocks
    }
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


def _tile_tail(draft: Draft, name: str, decided: Decided) -> Tail:
    tile = draft.tiles[name]
    order = tuple(loop.var.name for loop in loops_of(draft.schedule.program, BlockRef(name)))
    inner = [loop for loop in tile.levels[-1] if loop != tile.vector]
    unrolled = tuple(loop.name for loop in (*tile.levels[-3], *tile.levels[-2], *inner))
    return Tail(name, order, tile.vector.name, None, (), 1, unrolled, decided.unrolled[name])


def _plain_tail(draft: Draft, name: str, decided: Decided) -> Tail:
    s = draft.schedule
    if _is_crossed(draft.block(name)):
        raise Unsupported(f"{name} may be made of squares that are transposed")
    own = [loop.var.name for loop in own_loops(s, name)]
    outside = [loop.var.name for loop in loops_of(s.program, BlockRef(name)) if loop.var.name not in own]
    reducing = [loop.var.name for loop in reducing_loops(s, name) if loop.var.name in own]
    spatial = [loop for loop in own if loop not in reducing]
    most = decided.unrolled.get(name, EPILOGUE)
    if not spatial:
        return Tail(name, (*outside, *own), None, None, (), 1, tuple(own), most)
    *outer, last = spatial
    part = f"{last}.outer"
    after = tuple(reducing) if own[-1] != last else ()
    if own not in ([*outer, last, *reducing], [*outer, *reducing, last]):
        raise Unsupported(f"the order of the loops around {name} depends on how long they are")
    vectors = decided.vectors.get(name, 1)
    if name in decided.partial:
        vectors = MOST_LANES // register_lanes(s.program, draft.target)
    count = decided.rows.get(name, 1)
    if not outer or not count > 1:
        order = (*outside, *outer, part, *reducing, last)
        return Tail(name, order, last, part, after, vectors, (*outer, part, *reducing), most)
    if not all(isinstance(loop.extent, Const) for loop in reducing_loops(s, name)):
        raise Unsupported(f"which loops of {name} are beside each other depends on how long they are")
    *outer, row = outer
    rows = Rows(row, f"{row}.outer", count)
    around = (*outer, rows.outer, part, *reducing)
    return Tail(name, (*outside, *around, row, last), last, part, after, vectors, around, most, rows=rows)


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
    found: list[Around] = []
    for name in tail.order:
        loop = loops[wholes.get(name, name)]
        inside = all_blocks(loop.body)
        ends = inside[-1].name != tail.block or any(loop in reducing_loops(s, block.name) for block in inside)
        found.append(Around(name, ends, len(inside) > 1 and not isinstance(loop.body, Loop)))
    return tuple(found)
