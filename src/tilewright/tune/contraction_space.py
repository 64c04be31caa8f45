"""The larger search space of a contraction (``kernels.tile_blocks``), with estimates of the analytic model."""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product

import numpy as np

from tilewright.cost.model import best, estimate
from tilewright.kernels import tile_blocks
from tilewright.kernels.nests import Nests, Tiles, may_copy
from tilewright.kernels.panel_rows import Pack
from tilewright.kernels.tile_blocks import TileBlocks
from tilewright.kernels.tiling import Order, outer_order
from tilewright.loops.program import Program
from tilewright.schedule.prefetch import CACHES
from tilewright.schedule.schedule import Schedule
from tilewright.space.config import Config
from tilewright.space.knobs import Knob, Value
from tilewright.space.population import IntArray, Population
from tilewright.space.space import Digits, Floats, Mask, Space
from tilewright.target.target import Target

MOST_WRITTEN_OUT = 192
"""Maximum vector operations in the innermost body: more take seconds to compile, and exceed a processor's instruction
cache."""
UNKNOWN = 1.05
"""The relative penalty for each decision outside of the analytic model that differs from the compiler's."""
_PARTS = ("lanes", "rows", "panels")
_KNOWN = (tile_blocks.TILE, tile_blocks.PACK, tile_blocks.PREFETCH)


def contraction_space(naive: Program, target: Target, opened: Schedule, nests: Nests, nest: Tiles) -> Space:
    """The space of a naive program whose last nest is a contraction; ``opened``: the schedule in which its ``nests``
    were found.

    Its producers are scheduled as by the compiler: in ``opened``, or after it if it changes what they compute.
    """
    choices = best(nests, target)
    values = [dict(zip((k.name for k in n.knobs), c, strict=True)) for n, c in zip(nests.nests, choices, strict=True)]
    blocks = TileBlocks.of(opened, nest)

    def schedule_producers(s: Schedule) -> None:
        for before, decided in zip(nests.nests[:-1], values[:-1], strict=True):
            before.schedule(s, decided)

    def generate(s: Schedule, config: Config) -> None:
        blocks.generate(s, config)
        schedule_producers(s)

    if not nest.changes_operands:
        schedule_producers(opened)
    knobs, known = blocks.knobs, OfContraction.of(blocks, blocks.knobs, values[-1], target)
    return Space(naive, target, opened, generate if nest.changes_operands else blocks.generate, knobs, known)


@dataclass(frozen=True, slots=True)
class OfContraction:
    """Prior estimates of all candidates (``Known``)."""

    blocks: TileBlocks
    numbers: Mapping[str, IntArray]
    """The numeric features of each knob's values, by its name: (values, numbers)."""
    cycles: Floats
    """Estimates of the analytic model for each tile, each kind of copy (``Pack``), and without prefetch and with
    prefetch into each cache: (tiles, 3, 3)."""
    first: Digits
    """The candidate that equals the compiler's choice without measurements."""

    @staticmethod
    def of(
        blocks: TileBlocks, knobs: tuple[Knob[Value], ...], chosen: Mapping[str, int], target: Target
    ) -> "OfContraction":
        """``chosen``: the analytic model's choice for the nest, by the names of its knobs."""
        numbers = {knob.name: _numbers(knob.values) for knob in knobs}
        first = [knob.values.index(_analytic(knob, blocks, chosen)) for knob in knobs]
        cycles = _cycles(blocks.nest, chosen, numbers[tile_blocks.TILE], target)
        return OfContraction(blocks, numbers, cycles, np.array(first, np.int64))

    def allowed(self, digits: Digits) -> Mask:
        """Which candidates do not unroll too much, copy what can be copied, and have blocks of tiles that exist.

        So almost all of them have different schedules.
        """
        tiles = self._numbers(tile_blocks.TILE, digits)
        vectors = -(-tiles.prod(axis=1) // self.blocks.nest.registers.lanes) * self._written_out(digits)
        copies = tile_blocks.PACK, tile_blocks.PREFETCH, tile_blocks.SLICES
        copied, ahead, slices = (self._numbers(name, digits)[:, 0] for name in copies)
        lanes, panels = tiles[:, _PARTS.index("lanes")], tiles[:, _PARTS.index("panels")]
        is_possible = may_copy(copied, ahead, slices, lanes, panels, self.blocks.nest.facts.vector)
        return np.less_equal(vectors, MOST_WRITTEN_OUT) & is_possible & self._filled(digits)

    def estimates(self, digits: Digits) -> Floats:
        """Cycles by the analytic model of tiles, plus a penalty for each other decision that differs from the
        compiler's."""
        names = list(self.numbers)
        tile = digits[:, names.index(tile_blocks.TILE)]
        copied, cache = (self._numbers(name, digits)[:, 0] for name in (tile_blocks.PACK, tile_blocks.PREFETCH))
        known = np.array([name in _KNOWN for name in names])
        unknown = ((digits != self.first) & ~known).sum(axis=1)
        return self.cycles[tile, copied, cache] * UNKNOWN**unknown

    def _numbers(self, name: str, digits: Digits) -> IntArray:
        """Features of the knobs' values: (candidates, numbers)."""
        return self.numbers[name][digits[:, list(self.numbers).index(name)]]

    def _filled(self, digits: Digits) -> Mask:
        """Which candidates have blocks no larger than the number of tiles."""
        tiles, roles = self._numbers(tile_blocks.TILE, digits), self.blocks.nest.roles
        sizes = dict(zip((roles.vector, roles.rows, roles.panels), tiles.T, strict=True))
        filled = np.ones(len(digits), np.bool_)
        for axis in self.blocks.blocked:
            count = self._numbers(axis.block, digits)[:, 0]
            filled &= (count // 2) * sizes.get(axis.position, 1) < axis.extent
        return filled

    def _written_out(self, digits: Digits) -> IntArray:
        """The number of unrolled steps of the reduction."""
        over, reduced = self.blocks.over, self.blocks.reduced
        inner = [self._numbers(axis.steps, digits)[:, 0] for axis in reduced if axis.is_split]
        steps = {axis.name: self._numbers(axis.steps, digits)[:, 0] for axis in over if axis.is_split}
        counts = np.ones((len(digits), len(over)), np.int64)
        for place, axis in enumerate(over):
            counts[:, place] = -(-axis.extent // steps.get(axis.name, np.int64(1)))
        order = self._numbers(tile_blocks.REDUCTION, digits)
        once = np.ones((len(digits), len(reduced) - len(over)), np.int64)
        extents = np.concatenate(
            [once, np.take_along_axis(counts, order, axis=1), *(c[:, None] for c in inner)], axis=1
        )
        products = np.cumprod(np.concatenate([np.ones_like(extents[:, :1]), extents[:, ::-1]], axis=1), axis=1)
        return products[np.arange(len(digits)), self._numbers(tile_blocks.WRITTEN_OUT, digits)[:, 0]]


def _analytic(knob: Knob[Value], blocks: TileBlocks, chosen: Mapping[str, int]) -> Value:
    """The compiler's decision: one tile is a block, and the reduction is as it is written."""
    if knob.name == tile_blocks.TILE:
        return tuple(chosen[part] for part in _PARTS)
    if knob.name in chosen:
        return chosen[knob.name]
    if chosen["unroll"] and knob.name in (decided := _written_steps(blocks)):
        return decided[knob.name] if decided[knob.name] in knob.values else knob.values[0]
    if knob.name == tile_blocks.OUTER:
        blocked = tuple(axis.position for axis in blocks.blocked)
        wanted = outer_order(blocked, blocks.nest.roles, Order(chosen["order"]))
        order = tuple(blocked.index(position) for position in wanted)
        return order if order in knob.values else knob.values[0]
    return knob.values[0]


def _written_steps(blocks: TileBlocks) -> dict[str, int]:
    """The decisions for steps of the last loop of the reduction that are written out, or all its taps, if they exist.
    Loops that are split into steps of one iteration are inside of one that is not split."""
    last, facts = blocks.over[-1], blocks.nest.facts
    if last.is_split:
        return {last.steps: facts.steps, tile_blocks.WRITTEN_OUT: 1}
    inside = sum(axis.is_split for axis in blocks.reduced)
    return {tile_blocks.WRITTEN_OUT: 1 + inside} if facts.written_taps or last.extent == facts.steps else {}


def _numbers(values: tuple[Value, ...]) -> IntArray:
    """Features of each value of a knob: (values, numbers)."""
    return np.array([value if isinstance(value, tuple) else (value,) for value in values], np.int64)


def _cycles(nest: Tiles, chosen: Mapping[str, int], tiles: IntArray, target: Target) -> Floats:
    """Estimates of tiles, (lanes, rows, panels), for each kind of copy, without prefetch and into each cache."""
    names = tuple(knob.name for knob in nest.knobs)
    of_tiles = dict(zip(_PARTS, tiles.T, strict=True))
    caches = (0, *CACHES)
    cycles = np.empty((len(tiles), len(Pack), len(caches)))
    for copied, cache in product(Pack, caches):
        values = {**chosen, **of_tiles, tile_blocks.PACK: copied.value, tile_blocks.PREFETCH: cache}
        columns = [np.broadcast_to(np.int64(values[name]), len(tiles)) for name in names]
        cycles[:, copied.value, cache] = estimate(nest, Population(names, np.stack(columns, axis=1)), target)
    return cycles
