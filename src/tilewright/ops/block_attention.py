"""Attention block by block, as loops: no score is written to memory.

Each block of keys gives a tile of scores, which is multiplied with its values at once, while the maximum and the sum of
each row run along; what was summed before is rescaled when the maximum grows (Milakov and Gimelshein, "Online
normalizer calculation for softmax", 2018; Dao et al., "FlashAttention", 2022).
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import reduce
from math import inf
from operator import add
from typing import TypeAlias

from tilewright.base.dtypes import f32
from tilewright.base.errors import BadProgram
from tilewright.loops.extern import alloc, extern, for_range, if_then, seq, store
from tilewright.loops.ir import Buffer, LoopKind, Stmt
from tilewright.ops.build import Index, for_each
from tilewright.ops.operator import FusionKind, operator
from tilewright.ops.shapes import broadcast, simplified
from tilewright.ops.softmax import weight_up_to_one
from tilewright.symbolic.expr import (
    ONE,
    ZERO,
    Const,
    Expr,
    binary,
    const,
    equal,
    maximum,
    minimum,
    select,
    unary,
)
from tilewright.symbolic.operations import BinaryOp, UnaryOp
from tilewright.tensor.ir import Tensor


@operator("BlockAttention", FusionKind.OPAQUE)
def block_attention(
    q: Tensor,
    keys: Tensor,
    v: Tensor,
    mask: Tensor | None = None,
    empty: Tensor | None = None,
    *,
    scale: float = 1.0,
    is_guarded: bool = False,
    group: int = 1,
    are_rows: bool = False,
    width: int = 128,
    rows: int = 6,
    lanes: int = 16,
    columns: int = 64,
    tiles: int = 8,
) -> Tensor:
    """``Attention`` of keys in panels (``KeyPanels``), block by block. If they ``are_rows``, ``[..., n, d]``, each
    worker copies them into panels of ``width``, one at a time: a cache of keys is not written again.

    A tile in registers has ``rows`` queries and ``columns`` keys or values, of ``lanes`` in a register; a worker takes
    ``tiles`` of them through all keys. Panels have whole tiles of columns. Queries are those of a ``group`` of heads,
    one head after the other: ``mask`` and ``empty`` may have the rows of one head.
    """
    inner = 2 if are_rows else 3
    if {q.dtype, keys.dtype, v.dtype} != {f32} or min(q.ndim, v.ndim) < 2 or keys.ndim < inner:
        raise BadProgram(f"BlockAttention of {q}, {keys} and {v}: matrices of f32 are needed")
    depth, values = (_known(extent, q) for extent in (q.shape[-1], v.shape[-1]))
    width = width if are_rows else _known(keys.shape[-1], q)
    leading = broadcast(q.shape[:-2], keys.shape[:-inner], v.shape[:-2])
    optional = [x for x in (mask, empty) if x is not None]
    queries = q.shape[-2]

    def body(inputs: tuple[Buffer, ...], results: tuple[Buffer, ...]) -> Stmt:
        def of_tiles(height: int) -> Stmt:
            size = _Sizes(height, lanes, columns, tiles, width, depth, values)
            added, unseen = inputs[3] if mask is not None else None, inputs[-1] if empty is not None else None
            buffers = (inputs[0], inputs[1], inputs[2], added, unseen, results[0])
            blocks = _Blocks(*buffers, size, scale, is_guarded, group, are_rows)
            work = simplified((queries + (height * tiles - 1)) // (height * tiles))
            return for_each((*leading, work), blocks.of, LoopKind.PARALLEL)

        if isinstance(queries, Const):
            return of_tiles(min(rows, int(queries.value)) or 1)
        few = -(-group // -(-group // rows))
        return if_then(queries < max(rows, group + 1), of_tiles(few), of_tiles(rows))

    (made,) = extern(
        [(*leading, queries, v.shape[-1])], [q, keys, v, *optional], body, dtype=[f32], name="block_attention"
    )
    return made


def _known(extent: Expr, q: Tensor) -> int:
    if not isinstance(extent, Const):
        raise BadProgram(f"BlockAttention of {q}: {extent} is known at run time only")
    return int(extent.value)


@dataclass(frozen=True, slots=True)
class _Sizes:
    """Of tiles, and of the matrices' known dimensions."""

    rows: int
    lanes: int
    columns: int
    tiles: int
    width: int
    depth: int
    values: int


@dataclass(frozen=True, slots=True)
class _State:
    """What one worker keeps of its tiles: by tile and row, the weighted values, the maximum, and sums in lanes."""

    out: Buffer
    top: Buffer
    total: Buffer


@dataclass(frozen=True, slots=True)
class _Blocks:
    """The loops over the buffers of the operands."""

    q: Buffer
    keys: Buffer
    v: Buffer
    mask: Buffer | None
    empty: Buffer | None
    result: Buffer
    size: _Sizes
    scale: float
    is_guarded: bool
    group: int
    are_rows: bool

    def of(self, index: Index) -> Stmt:
        """All of one worker's tiles."""
        *outer, work = index
        size = self.size
        queries = self.q.shape[-2]
        panels = (self.v.shape[-2] + (size.width - 1)) // size.width if self.are_rows else self.keys.shape[-3]
        first = work * size.tiles
        tiles = minimum((queries + (size.rows - 1)) // size.rows - first, size.tiles)

        def with_state(state: _State) -> Stmt:
            def at(tile: Expr) -> "_Tile":
                return _Tile(self, tuple(outer), state, tile, (first + tile) * size.rows)

            def add_panel(panel: Expr) -> Stmt:
                return self._with_panel(
                    tuple(outer),
                    panel,
                    lambda key: for_range(tiles, lambda tile: at(tile).add_panel(panel, key), name="tile"),
                )

            return seq(
                for_range(tiles, lambda tile: at(tile).clear(), name="tile"),
                for_range(panels, add_panel, name="panel"),
                for_range(tiles, lambda tile: at(tile).finish(), name="tile"),
            )

        return self._with_state(with_state)

    def _with_panel(self, outer: Index, panel: Expr, body: "Callable[[_Key], Stmt]") -> Stmt:
        """``body`` with the elements of a panel: those in memory, or in a copy of the rows."""
        size = self.size
        if not self.are_rows:
            return body(lambda k, j: _element(self.keys, (*outer, panel, k, j)))

        def with_copy(copy: Buffer) -> Stmt:
            parts = (self._copied(copy, outer, panel, *part) for part in _parts(size.depth, size.lanes))
            return seq(*parts, body(lambda k, j: copy[k, j]))

        return alloc((size.depth, size.width), f32, with_copy, name="keys")

    def _copied(self, copy: Buffer, outer: Index, panel: Expr, start: int, count: int) -> Stmt:
        """A part of all keys of a panel, transposed in registers; keys behind the last one repeat it."""
        size, last = self.size, self.v.shape[-2] - 1

        def squares(block: Expr) -> Stmt:
            def stored(i: Expr, j: Expr) -> Stmt:
                key = minimum(panel * size.width + block * size.lanes + i, last)
                return store(copy, (j + start, block * size.lanes + i), _element(self.keys, (*outer, key, j + start)))

            return for_range(
                size.lanes,
                lambda i: for_range(count, lambda j: stored(i, j), name="j", kind=LoopKind.VECTORIZED),
                name="i",
                kind=LoopKind.UNROLLED,
            )

        return for_range(size.width // size.lanes, squares, name="block")

    def _with_state(self, body: Callable[[_State], Stmt]) -> Stmt:
        size = self.size
        own = (size.tiles, size.rows)

        def with_out(out: Buffer) -> Stmt:
            def with_top(top: Buffer) -> Stmt:
                return alloc((*own, size.lanes), f32, lambda total: body(_State(out, top, total)), name="total")

            return alloc(own, f32, with_top, name="top")

        return alloc((*own, size.values), f32, with_out, name="out")


_Key: TypeAlias = Callable[[Expr, Expr], Expr]
"""The element ``k`` of key ``j`` of a panel."""


@dataclass(frozen=True, slots=True)
class _Tile:
    """One tile of rows, from query ``first`` on."""

    blocks: _Blocks
    outer: Index
    state: _State
    tile: Expr
    first: Expr

    def clear(self) -> Stmt:
        """Before the first panel."""
        size, state = self.blocks.size, self.state

        def row(r: Expr) -> Stmt:
            return seq(
                store(state.top, (self.tile, r), -inf),
                _vector(size.lanes, lambda j: store(state.total, (self.tile, r, j), 0.0)),
                _vector(size.values, lambda j: store(state.out, (self.tile, r, j), 0.0)),
            )

        return for_range(size.rows, row, name="r")

    def add_panel(self, panel: Expr, key: _Key) -> Stmt:
        """The scores of one panel's keys, and what these add to the state."""
        size = self.blocks.size

        def with_scores(scores: Buffer) -> Stmt:
            products = (self._scores(scores, panel, key, start) for start in range(0, size.width, size.columns))
            values = (self._values(scores, panel, *part) for part in _parts(size.values, size.columns))
            return seq(*products, for_range(size.rows, lambda r: self._weigh(scores, r), name="r"), *values)

        return alloc((size.rows, size.width), f32, with_scores, name="scores")

    def _scores(self, scores: Buffer, panel: Expr, key: _Key, start: int) -> Stmt:
        """Those of a tile of keys, if there are keys."""
        size, products = self.blocks.size, self._products(scores, panel, key, start)
        if self._has_whole_panels() or not start:
            return products
        none = _box(size.rows, size.columns, lambda r, j: store(scores, (r, j + start), -inf))
        return if_then(panel * size.width + start < self._keys(), products, none)

    def _products(self, scores: Buffer, panel: Expr, key: _Key, start: int) -> Stmt:
        """The scaled and masked scores of a tile of keys."""
        blocks, size = self.blocks, self.blocks.size

        def scored(acc: Buffer, r: Expr, j: Expr) -> Stmt:
            place = panel * size.width + (j + start)
            value = acc[r, j] * const(blocks.scale, f32)
            if blocks.mask is not None:
                value = value + _element(blocks.mask, (*self.outer, self._row_of(blocks.mask, r), place))
            value = value if blocks.empty is None else select(self._is_empty(r), const(-inf, f32), value)
            put = store(scores, (r, j + start), value)
            if self._has_whole_panels():
                return put
            return if_then(place < self._keys(), put, store(scores, (r, j + start), -inf))

        def step(acc: Buffer, k: Expr, r: Expr, j: Expr) -> Expr:
            left = _element(blocks.q, (*self.outer, self._row(r), k))
            return acc[r, j] + left * key(k, j + start)

        def with_sums(acc: Buffer) -> Stmt:
            def each(body: Callable[[Expr, Expr], Stmt]) -> Stmt:
                return _box(size.rows, size.columns, body)

            return seq(
                each(lambda r, j: store(acc, (r, j), 0.0)),
                for_range(size.depth, lambda k: each(lambda r, j: store(acc, (r, j), step(acc, k, r, j))), name="k"),
                each(lambda r, j: scored(acc, r, j)),
            )

        return alloc((size.rows, size.columns), f32, with_sums, name="sums")

    def _weigh(self, scores: Buffer, r: Expr) -> Stmt:
        """One row of scores becomes weights relative to the maximum so far; the state is rescaled to that."""
        size, state, at = self.blocks.size, self.state, (self.tile, r)

        def parts(j: Expr) -> Iterator[Expr]:
            return (scores[r, j + start] for start in range(0, size.width, size.lanes))

        def with_top(top: Buffer, factor: Buffer) -> Stmt:
            def weight(j: Expr) -> Stmt:
                return store(scores, (r, j), weight_up_to_one(scores[r, j] - top[()]))

            def summed(j: Expr) -> Stmt:
                return store(state.total, (*at, j), reduce(add, parts(j), state.total[(*at, j)] * factor[()]))

            def rescaled(j: Expr) -> Stmt:
                return store(state.out, (*at, j), state.out[(*at, j)] * factor[()])

            return seq(
                store(factor, (), unary(UnaryOp.EXP, state.top[at] - top[()])),
                _vector(size.width, weight),
                _vector(size.lanes, summed),
                _vector(size.values, rescaled),
            )

        def with_highest(highest: Buffer) -> Stmt:
            def found(top: Buffer) -> Stmt:
                either = maximum(highest[(ZERO,)], state.top[at])
                # Without a finite score there is nothing to relate to: all weights are 0.
                finite = select(equal(either, const(-inf, f32)), const(0.0, f32), either)
                end = store(state.top, at, either)
                return alloc(
                    (), f32, lambda factor: seq(store(top, (), finite), with_top(top, factor), end), name="factor"
                )

            first = _vector(size.lanes, lambda j: store(highest, (j,), reduce(maximum, parts(j))))
            return seq(first, *_folded(highest, size.lanes), alloc((), f32, found, name="highest"))

        return alloc((size.lanes,), f32, with_highest, name="high")

    def _values(self, scores: Buffer, panel: Expr, start: int, count: int) -> Stmt:
        """The weighted values of a tile of columns."""
        blocks, size, out = self.blocks, self.blocks.size, self.state.out
        keys = const(size.width)
        left = keys if self._has_whole_panels() else minimum(self._keys() - panel * size.width, keys)

        def step(acc: Buffer, k: Expr, r: Expr, j: Expr) -> Expr:
            value = _element(blocks.v, (*self.outer, panel * size.width + k, j + start))
            return acc[r, j] + scores[r, k] * value

        def with_sums(acc: Buffer) -> Stmt:
            def each(body: Callable[[Expr, Expr], Stmt]) -> Stmt:
                return _box(size.rows, count, body)

            return seq(
                each(lambda r, j: store(acc, (r, j), out[self.tile, r, j + start])),
                for_range(left, lambda k: each(lambda r, j: store(acc, (r, j), step(acc, k, r, j))), name="k"),
                each(lambda r, j: store(out, (self.tile, r, j + start), acc[r, j])),
            )

        return alloc((size.rows, count), f32, with_sums, name="sums")

    def finish(self) -> Stmt:
        """After the last panel."""
        blocks, size, state = self.blocks, self.blocks.size, self.state

        def normal(value: Expr, total: Expr, r: Expr) -> Expr:
            result = binary(BinaryOp.DIV, value, total)
            if blocks.is_guarded:
                result = select(unary(UnaryOp.ISNAN, total), const(0.0, f32), result)
                result = select(equal(total, const(0.0, f32)), value, result)
            if not isinstance(self._keys(), Const):
                result = select(equal(self._keys(), ZERO), value, result)  # a sum of no products
            return result if blocks.empty is None else select(self._is_empty(r), value, result)

        def row(r: Expr) -> Stmt:
            def with_total(total: Buffer) -> Stmt:
                def put(j: Expr) -> Stmt:
                    value = normal(state.out[self.tile, r, j], total[(ZERO,)], r)
                    return store(blocks.result, (*self.outer, self.first + r, j), value)

                first = _vector(size.lanes, lambda j: store(total, (j,), state.total[self.tile, r, j]))
                return seq(first, *_folded(total, size.lanes, add), _vector(size.values, put))

            return if_then(self.first + r < blocks.q.shape[-2], alloc((size.lanes,), f32, with_total, name="sum"))

        return for_range(size.rows, row, name="r")

    def _row(self, r: Expr) -> Expr:
        """The query of row ``r``; rows behind the last one repeat it."""
        return minimum(self.first + r, self.blocks.q.shape[-2] - 1)

    def _row_of(self, buffer: Buffer, r: Expr) -> Expr:
        """The row of a mask for row ``r``: that of its query in its head."""
        return self._row(r) if self.blocks.group == 1 else self._row(r) % buffer.shape[-2]

    def _is_empty(self, r: Expr) -> Expr:
        assert self.blocks.empty is not None
        return _element(self.blocks.empty, (*self.outer, self._row_of(self.blocks.empty, r), ZERO))

    def _keys(self) -> Expr:
        return self.blocks.v.shape[-2]

    def _has_whole_panels(self) -> bool:
        keys = self._keys()
        return isinstance(keys, Const) and int(keys.value) % self.blocks.size.width == 0


def _vector(lanes: int, body: Callable[[Expr], Stmt]) -> Stmt:
    return for_range(lanes, body, name="j", kind=LoopKind.VECTORIZED)


def _box(rows: int, columns: int, body: Callable[[Expr, Expr], Stmt]) -> Stmt:
    """``body`` for each row and column, in registers."""
    return for_range(rows, lambda r: _vector(columns, lambda j: body(r, j)), name="r", kind=LoopKind.UNROLLED)


def _folded(buffer: Buffer, lanes: int, join: Callable[[Expr, Expr], Expr] = maximum) -> Iterator[Stmt]:
    """Joins all elements into the first one, half of them at a time."""
    while lanes > 1:
        lanes //= 2
        half = lanes
        yield _vector(half, lambda j, half=half: store(buffer, (j,), join(buffer[(j,)], buffer[(j + half,)])))


def _parts(extent: int, size: int) -> Iterator[tuple[int, int]]:
    """The start and the length of each part of at most ``size``."""
    return ((start, min(size, extent - start)) for start in range(0, extent, size))


def _element(buffer: Buffer, index: Index) -> Expr:
    """``buffer`` at an index of a shape that it broadcasts to."""
    places = index[len(index) - len(buffer.shape) :]
    return buffer[tuple(ZERO if extent == ONE else place for extent, place in zip(buffer.shape, places, strict=True))]
