"""Sizes of tiles: what they take of the memories, about how many cycles they need, and which ones to take.

A block's index of an operand is a sum of loops, so a tile of sizes ``n`` touches ``1 + sum of factor * (n - 1)``
positions of a dimension: all estimates follow from the loop program.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod

from tilewright.backend.vta.compiler.elementwise import chain_of
from tilewright.backend.vta.compiler.places import shared
from tilewright.backend.vta.config import ACCUMULATOR_BITS, Config, Scratchpad
from tilewright.backend.vta.cycles import Timing
from tilewright.backend.vta.schedules.roles import Roles, parameters_read, roles_of
from tilewright.base.errors import BadProgram, Unsupported
from tilewright.loops.ir import Block, Store
from tilewright.loops.program import Program
from tilewright.loops.visit import allocations
from tilewright.symbolic.bounds import Bounds
from tilewright.symbolic.domain import IterKind
from tilewright.symbolic.expr import Const, Read, Var
from tilewright.symbolic.simplify import linear_form
from tilewright.symbolic.traversal import reads_in

THREADS = (2, 1)
"""Numbers of virtual threads that are chosen from: more would only make tiles smaller."""
_BEGINNINGS, _ENDINGS = 4, 8
"""What is loaded before the first product is one of so many parts (``compiler.beginning``); so is what is stored last
(``compiler.ending``)."""
_CUT = 3
"""Kernels of as many micro-ops as that of a stage, at both ends: each micro-op is loaded in a cycle."""
_COPY = 3
"""Passes over a tile of accumulators to copy another one: its reset, and an addition of two operands."""


@dataclass(frozen=True, slots=True)
class Tiles:
    """A tile of the result has ``sizes`` tiles of acc along its dimensions; a stage has ``depth`` of what is summed."""

    sizes: tuple[int, ...]
    depth: int = 1
    threads: int = 2
    """Virtual threads: tiles that are computed by turns, each in its own part of the memories."""


@dataclass(frozen=True, slots=True)
class Shape:
    """What a program computes, in tiles: extents, and the positions of operands that its blocks access."""

    extents: tuple[int, ...]
    depth: int
    window: int
    """Micro-ops for each accumulator and step of ``depth``: positions of a filter."""
    operations: int
    """Other passes over a tile of accumulators: its reset, and operations of ALU."""
    spare: int
    """Tiles of accumulators that ALU needs in passing, beside each one of the result."""
    factors: tuple["Access", ...]
    fetched: tuple["Access", ...]
    """What is loaded to acc."""


@dataclass(frozen=True, slots=True)
class Access:
    """An operand: for each of its dimensions, what axes of the result (and, after them, depth) add to the index."""

    pad: Scratchpad
    dimensions: tuple[tuple[tuple[int, int], ...], ...]
    constants: tuple[int, ...]
    """What axes that are never cut add to the extents."""

    def tiles(self, sizes: Sequence[int], depth: int) -> int:
        """Tiles that a tile of the result, or a stage, reads."""
        along = (*sizes, depth)
        return prod(
            1 + extra + sum(factor * (along[axis] - 1) for axis, factor in factors)
            for factors, extra in zip(self.dimensions, self.constants, strict=True)
        )


def shape_of(program: Program, config: Config) -> Shape:
    """The shape of a program's computation. Raises ``Unsupported`` for what the accelerator can't compute."""
    roles = roles_of(program)
    extents = tuple(_extent(axis.extent) for axis in roles.last.axes if axis.kind is IterKind.SPATIAL)[:-2]
    reduced = [] if roles.anchor is None else [a for a in roles.anchor.axes if a.kind is IterKind.REDUCE]
    summed = [_extent(axis.extent) for axis in (reduced[:-1] if roles.factors is not None else reduced)]
    is_product, spare = roles.factors is not None, _spare(roles, program, config)
    return Shape(
        extents,
        depth=summed[0] if is_product else 1,
        window=prod(summed[1:]) if is_product else 0,
        operations=1 + _operations(roles, config) + _COPY * spare + (0 if is_product else 2 * prod(summed)),
        spare=spare,
        factors=_factors(roles) if is_product else (),
        fetched=tuple(_fetched(roles, program)),
    )


def _operations(roles: Roles, config: Config) -> int:
    """Passes over accumulators by the blocks after the anchor; those of two operands take twice as long."""
    stores = [block.body for block in _computing(roles) if block is not roles.anchor and isinstance(block.body, Store)]
    chains = [chain_of(store.value, config) for store in stores]
    return sum(1 if isinstance(one.operand, int) else 2 for chain in chains for one in chain.operations)


def _spare(roles: Roles, program: Program, config: Config) -> int:
    """How many of the blocks that compute on acc do so beside their operand, and not in its place."""
    allocs, body = allocations(program.body)
    together = shared([*program.params, *(alloc.buffer for alloc in allocs)], body, config)
    written = {block.writes[0].buffer.name for block in _computing(roles)}
    return max(len(written - together.keys()) - 1, 0)


def _computing(roles: Roles) -> tuple[Block, ...]:
    """The blocks that compute on acc: the last one, too, unless it only copies."""
    return roles.computing if roles.is_copy else (*roles.computing, roles.last)


def _factors(roles: Roles) -> tuple[Access, Access]:
    assert roles.anchor is not None
    assert roles.factors is not None
    inp, wgt = roles.factors
    return _access(inp, roles.anchor, Scratchpad.INP), _access(wgt, roles.anchor, Scratchpad.WGT)


def _fetched(roles: Roles, program: Program) -> Iterator[Access]:
    """What computing blocks read of parameters, or of copies that are not the anchor's factors."""
    factors = () if roles.factors is None else tuple(factor.source for factor in roles.factors)
    copied = {block.writes[0].buffer for block in roles.fetching}
    for block in _computing(roles):
        for read in (read for read in _reads(block) if read.source not in factors):
            if read.source in copied or read.source in parameters_read(block, program):
                pad = Scratchpad.ACC8 if read.dtype.bits < ACCUMULATOR_BITS else Scratchpad.ACC
                yield _access(read, block, pad)


def _reads(block: Block) -> tuple[Read, ...]:
    assert isinstance(block.body, Store), "what computes on acc stores one value"
    return tuple(dict.fromkeys(reads_in(block.body.value)))


def _access(read: Read, block: Block, pad: Scratchpad) -> Access:
    spatial = [axis.var for axis in block.axes if axis.kind is IterKind.SPATIAL][:-2]
    summed = [axis for axis in block.axes if axis.kind is IterKind.REDUCE]
    places: dict[Var, int] = {var: place for place, var in enumerate(spatial)}
    if summed and pad in (Scratchpad.INP, Scratchpad.WGT):
        places[summed[0].var] = len(spatial)
    known = {axis.var: _extent(axis.extent) for axis in block.axes}
    dimensions: list[tuple[tuple[int, int], ...]] = []
    constants: list[int] = []
    for index in read.indices[:-2]:
        terms = [(term, factor) for term, factor in linear_form(index, Bounds(known)).terms if isinstance(term, Var)]
        dimensions.append(tuple((places[term], factor) for term, factor in terms if term in places))
        constants.append(sum(factor * (known[term] - 1) for term, factor in terms if term not in places))
    return Access(pad, tuple(dimensions), tuple(constants))


def _extent(extent: object) -> int:
    if not isinstance(extent, Const):
        raise Unsupported(f"an extent is {extent}: the accelerator's programs have fixed ones; compile one for each")
    return int(extent.value)


# Sizes ----------------------------------------------------------------------------------------------------------------


def needed(shape: Shape, tiles: Tiles) -> dict[Scratchpad, int]:
    """Tiles of each memory that a virtual thread takes."""
    found = dict.fromkeys((Scratchpad.INP, Scratchpad.WGT), 0) | {Scratchpad.ACC: prod(tiles.sizes)}
    for access in (*shape.factors, *shape.fetched):
        found[access.pad.storage] += access.tiles(tiles.sizes, tiles.depth)
    return found


def fits(shape: Shape, tiles: Tiles, config: Config) -> bool:
    """Whether the virtual threads together have room, and what all of them need in passing."""
    passing = {Scratchpad.ACC: shape.spare * prod(tiles.sizes)}
    return all(
        count * tiles.threads + passing.get(pad, 0) <= config.depth(pad) for pad, count in needed(shape, tiles).items()
    )


def fitting(shape: Shape, config: Config, threads: int) -> Iterator[Tiles]:
    """Sizes that fit the memories; each dimension is cut into equal parts, the last one perhaps smaller."""
    for *sizes, depth in product(*map(parts, shape.extents), parts(shape.depth)):
        tiles = Tiles(tuple(sizes), depth, threads)
        if fits(shape, tiles, config):
            yield tiles


def parts(extent: int) -> tuple[int, ...]:
    """The sizes of equal parts of a dimension, smallest first."""
    return tuple(sorted({-(-extent // count) for count in range(1, extent + 1)}))


def estimate(shape: Shape, tiles: Tiles, config: Config, timing: Timing) -> float:
    """About how many cycles a program takes.

    With one virtual thread, modules work one after another. With more, a stage is loaded while another one multiplies,
    and one stage ahead while ALU works; what a load takes longer is waited for. A last tile that has no partner is
    loaded while nothing else works.
    """
    counts = [-(-extent // size) for extent, size in zip(shape.extents, tiles.sizes, strict=True)]
    count, stages, start = prod(counts), -(-shape.depth // tiles.depth), timing.latency + timing.issue
    load = sum(_transfer(access, tiles, config, timing) for access in shape.factors)
    fetch = sum(_transfer(one, tiles, config, timing) * _fetches(one, counts) for one in shape.fetched) / count
    store_start = tiles.sizes[0] * start
    passes = [_Passes.of(shape, kind, stages, fetch, store_start, config, timing) for kind in _kinds(shape, tiles)]
    largest, smallest = passes[0], passes[-1]
    begin = max(load / _BEGINNINGS, load - largest.multiply * (1 - 1 / _BEGINNINGS))
    begin = max(begin, tiles.threads * load - (tiles.threads - 1) * largest.multiply)
    begin = max(begin - tiles.threads * largest.reset, 0.0)  # accumulators are reset meanwhile
    end = max(smallest.store / _ENDINGS, smallest.store - smallest.multiply - smallest.compute)
    ragged = _ragged(shape, tiles, count) * start + _micro_ops(shape, tiles) * (tiles.threads + _CUT)
    if tiles.threads == 1:
        alone = sum(one.count * (stages * (load + one.multiply) + one.compute + one.store) for one in passes)
        return alone + ragged - (load - begin) - (smallest.store - end)
    together = sum(one.together(stages, load, largest.store) for one in passes)
    return together + begin + end + (count % tiles.threads) * stages * load + ragged


@dataclass(frozen=True, slots=True)
class _Kind:
    """Tiles of the result of one size: so many, of so many tiles of acc."""

    count: int
    results: int


def _kinds(shape: Shape, tiles: Tiles) -> list[_Kind]:
    """The sizes of tiles, the whole one first: those at the end of a dimension may be smaller."""
    kinds = [_Kind(1, 1)]
    for extent, size in zip(shape.extents, tiles.sizes, strict=True):
        whole, rest = divmod(extent, size)
        parts_here = [_Kind(whole, size), *([_Kind(1, rest)] if rest else [])]
        kinds = [_Kind(a.count * b.count, a.results * b.results) for a in kinds for b in parts_here]
    return kinds


@dataclass(frozen=True, slots=True)
class _Passes:
    """Cycles of the work on a tile: its reset, the products of one stage, everything else on accumulators with the
    reset, and the store."""

    count: int
    reset: float
    multiply: float
    compute: float
    store: float

    @staticmethod
    def of(
        shape: Shape, kind: _Kind, stages: int, fetch: float, store_start: int, config: Config, timing: Timing
    ) -> "_Passes":
        """Of tiles of a size."""
        overhead = timing.gemm_depth + timing.issue
        return _Passes(
            kind.count,
            kind.results + overhead,
            kind.results * shape.depth * shape.window / stages + overhead,
            shape.operations * (kind.results + overhead) + fetch,
            kind.results * config.tile_bytes(Scratchpad.OUT) / timing.bus_bytes + store_start,
        )

    def together(self, stages: int, load: float, store: float) -> float:
        """Of all of these tiles, while stages of others are loaded and their results stored."""
        waiting = (stages - 1) * max(0.0, load - self.multiply)
        waiting += max(0.0, load + store - self.multiply - self.compute)
        return self.count * (stages * self.multiply + self.compute + waiting)


def _fetches(access: Access, counts: Sequence[int]) -> int:
    """How often an operand of ALU is loaded: not again for tiles that differ only along later dimensions."""
    along = [axis for factors in access.dimensions for axis, _ in factors if counts[axis] > 1]
    return prod(counts[: max(along, default=-1) + 1])


def _micro_ops(shape: Shape, tiles: Tiles) -> float:
    """Of the products of a stage: two loops are those of an instruction."""
    loops = sorted((*tiles.sizes, tiles.depth))
    return prod(loops[:-2]) * shape.window


def _ragged(shape: Shape, tiles: Tiles, count: int) -> int:
    """STOREs of single rows: tiles at the end of a row that are narrower are no rectangles on the chip."""
    extent, size = shape.extents[-1], tiles.sizes[-1]
    return 0 if extent % size == 0 else count // -(-extent // size) * prod(tiles.sizes[:-1])


def _transfer(access: Access, tiles: Tiles, config: Config, timing: Timing) -> float:
    """Cycles to load an operand: its bytes, and the start of each rectangle."""
    loaded = access.tiles(tiles.sizes, tiles.depth) * config.tile_bytes(access.pad) / timing.bus_bytes
    is_plane = access.pad is not Scratchpad.WGT and len(access.dimensions) > 2
    outer = Access(access.pad, access.dimensions[:-2], access.constants[:-2])
    return loaded + (outer.tiles(tiles.sizes, tiles.depth) if is_plane else 1) * (timing.latency + timing.issue)


def chosen(program: Program, config: Config, timing: Timing, threads: Sequence[int] = THREADS) -> Tiles:
    """The sizes with the least estimate, for one of ``threads``. Raises ``BadProgram`` if none fits."""
    shape = shape_of(program, config)
    found = (tiles for count in threads for tiles in fitting(shape, config, count))
    best = min(found, key=lambda tiles: estimate(shape, tiles, config, timing), default=None)
    if best is None:
        raise BadProgram(f"no tile of {program.name} fits {config.name}; use one virtual thread or larger memories")
    return best
