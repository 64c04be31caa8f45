"""The schedules that the template for contractions makes of one program, as a tuner searches them."""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product

import numpy as np
from numpy.typing import NDArray

from tilewright.base.errors import ScheduleError
from tilewright.cost.analytic import open_space
from tilewright.cost.model import best, estimate
from tilewright.kernels.contraction import Contraction
from tilewright.kernels.nests import Tiles
from tilewright.kernels.schedules import Order, outer_order
from tilewright.kernels.space import Population
from tilewright.loops.program import Program
from tilewright.schedule.prefetch import CACHES
from tilewright.schedule.schedule import Schedule
from tilewright.symbolic.domain import IterKind
from tilewright.target.target import Target
from tilewright.tune import contractions
from tilewright.tune.contractions import AxisLoop, axis_loops, contraction, tile_counts
from tilewright.tune.knobs import Knob, Value
from tilewright.tune.space import Digits, Floats, Mask
from tilewright.tune.template import TemplateSpace

UNKNOWN = 1.05
"""By how much each decision that the analytic model knows nothing of makes a candidate less promising, if it is another
one than the compiler's."""
_PARTS = ("lanes", "rows", "panels")
_KNOWN = (contractions.TILE, contractions.PACK, contractions.PREFETCH)
IntArray = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class ContractionSpace:
    """All candidates of ``naive`` (``Tunable``)."""

    naive: Program
    target: Target
    template: TemplateSpace
    nest: Tiles
    spatial: tuple[AxisLoop, ...]
    """Those axes of whose tiles there may be blocks."""
    reduced: tuple[AxisLoop, ...]
    numbers: Mapping[str, IntArray]
    """What each knob may be set to, by its name: (values, numbers)."""
    cycles: Floats
    """What the analytic model thinks of each tile, with and without a copy, and of asking ahead into each cache or into
    none: (tiles, 2, 3)."""
    compilers: Digits
    """The candidate that does what the compiler does where nothing was measured."""

    @staticmethod
    def of(naive: Program, target: Target) -> "ContractionSpace":
        """The space of a naive program. Raises ``ScheduleError`` if it is no contraction."""
        opened = Schedule(naive)
        space = open_space(opened, target)
        choices = best(space, target).choices
        values = [
            dict(zip((k.name for k in n.knobs), c, strict=True)) for n, c in zip(space.nests, choices, strict=True)
        ]
        nest = space.nests[-1] if space.nests else None
        if not isinstance(nest, Tiles) or not isinstance(nest.roles, Contraction):
            raise ScheduleError(f"{naive.name} is no sum of products; the template for contractions has no use for it")
        for before, decided in zip(space.nests[:-1], values[:-1], strict=True):
            before.schedule(opened, decided)
        template = TemplateSpace.of(contraction(nest, nest.roles), opened)
        spatial = tuple(a for a in axis_loops(opened, nest, IterKind.SPATIAL) if len(tile_counts(a, nest)) > 1)
        reduced = tuple(axis_loops(opened, nest, IterKind.REDUCE))
        numbers = {knob.name: _numbers(knob.values) for knob in template.knobs}
        cycles = _cycles(nest, values[-1], numbers[contractions.TILE], target)
        axes = tuple(axis.position for axis in spatial)
        compilers = [knob.values.index(_compilers(knob, nest, values[-1], axes)) for knob in template.knobs]
        return ContractionSpace(
            naive, target, template, nest, spatial, reduced, numbers, cycles, np.array(compilers, np.int64)
        )

    @property
    def radices(self) -> tuple[int, ...]:
        """How many values each knob has."""
        return self.template.radices

    def allowed(self, digits: Digits) -> Mask:
        """Which candidates do not write out too much; a copy is not a stream, and blocks have no tiles beyond the last.

        So no two of them are scheduled alike.
        """
        tiles = self._numbers(contractions.TILE, digits)
        vectors = tiles.prod(axis=1) // self.nest.registers.lanes * self._written_out(digits)
        copied, ahead = (self._numbers(name, digits)[:, 0] for name in (contractions.PACK, contractions.PREFETCH))
        is_either = np.equal(copied * ahead, 0)
        return np.less_equal(vectors, contractions.MOST_WRITTEN_OUT) & is_either & self._filled(digits)

    def schedule(self, digits: Digits) -> Schedule:
        """The scheduled program of one candidate. Raises ``ScheduleError`` if it is not allowed."""
        return self.template.schedule(digits)

    def analytic(self) -> Digits:
        """The candidate that does what the compiler does where nothing was measured."""
        return self.compilers

    def estimates(self, digits: Digits) -> Floats:
        """Cycles by the analytic model, which knows tiles, and a charge for whatever else differs from its choice."""
        names = list(self.numbers)
        tile = digits[:, names.index(contractions.TILE)]
        copied, cache = (self._numbers(name, digits)[:, 0] for name in (contractions.PACK, contractions.PREFETCH))
        known = np.array([name in _KNOWN for name in names])
        unknown = ((digits != self.compilers) & ~known).sum(axis=1)
        return self.cycles[tile, copied, cache] * UNKNOWN**unknown

    def features(self, digits: Digits) -> Floats:
        """The numbers of the knobs, as logarithms."""
        return np.log2(1.0 + self.template.features(digits))

    def _numbers(self, name: str, digits: Digits) -> IntArray:
        """What a knob is set to: (candidates, numbers)."""
        return self.numbers[name][digits[:, list(self.numbers).index(name)]]

    def _filled(self, digits: Digits) -> Mask:
        """Which candidates have no larger blocks than there are tiles for."""
        tiles, roles = self._numbers(contractions.TILE, digits), self.nest.roles
        sizes = dict(zip((roles.vector, roles.rows, roles.panels), tiles.T, strict=True))
        filled = np.ones(len(digits), np.bool_)
        for axis in self.spatial:
            count = self._numbers(axis.block, digits)[:, 0]
            filled &= (count // 2) * sizes.get(axis.position, 1) < axis.extent
        return filled

    def _written_out(self, digits: Digits) -> IntArray:
        """How many steps of the reduction are written out."""
        over = [axis for axis in self.reduced if axis.extent > 1]
        inner = [self._numbers(axis.steps, digits)[:, 0] for axis in self.reduced if axis.is_split]
        steps = {axis.name: self._numbers(axis.steps, digits)[:, 0] for axis in over if axis.is_split}
        counts = np.ones((len(digits), len(over)), np.int64)
        for place, axis in enumerate(over):
            counts[:, place] = -(-axis.extent // steps.get(axis.name, np.int64(1)))
        order = self._numbers(contractions.REDUCTION, digits)
        once = np.ones((len(digits), len(self.reduced) - len(over)), np.int64)
        extents = np.concatenate(
            [once, np.take_along_axis(counts, order, axis=1), *(c[:, None] for c in inner)], axis=1
        )
        products = np.cumprod(np.concatenate([np.ones_like(extents[:, :1]), extents[:, ::-1]], axis=1), axis=1)
        return products[np.arange(len(digits)), self._numbers(contractions.WRITTEN_OUT, digits)[:, 0]]


def _compilers(knob: Knob[Value], nest: Tiles, chosen: Mapping[str, int], spatial: tuple[int, ...]) -> Value:
    """The compiler's decision: one tile is a block, and the reduction is as it is written.

    ``chosen``: what the analytic model chooses for ``nest``, by the names of its knobs; ``spatial``: the axes of whose
    tiles there may be blocks.
    """
    if knob.name == contractions.TILE:
        return tuple(chosen[part] for part in _PARTS)
    if knob.name in chosen:
        return chosen[knob.name]
    if knob.name == contractions.OUTER:
        wanted = outer_order(spatial, nest.roles, Order(chosen["order"]))
        order = tuple(spatial.index(position) for position in wanted)
        return order if order in knob.values else knob.values[0]
    return knob.values[0]


def _numbers(values: tuple[Value, ...]) -> IntArray:
    """Those of each value of a knob: (values, numbers)."""
    return np.array([value if isinstance(value, tuple) else (value,) for value in values], np.int64)


def _cycles(nest: Tiles, chosen: Mapping[str, int], tiles: IntArray, target: Target) -> Floats:
    """Of each tile, (lanes, rows, panels), without and with a copy, and with nothing asked ahead or into each cache."""
    names = tuple(knob.name for knob in nest.knobs)
    of_tiles = dict(zip(_PARTS, tiles.T, strict=True))
    caches = (0, *CACHES)
    cycles = np.empty((len(tiles), 2, len(caches)))
    for copied, cache in product(range(2), caches):
        values = {**chosen, **of_tiles, contractions.PACK: copied, contractions.PREFETCH: cache}
        columns = [np.broadcast_to(np.int64(values[name]), len(tiles)) for name in names]
        cycles[:, copied, cache] = estimate(nest, Population(names, np.stack(columns, axis=1)), target)
    return cycles
