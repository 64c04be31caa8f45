"""The schedules that the template for contractions makes of one program, as a tuner searches them."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tilewright.base.errors import ScheduleError
from tilewright.base.target import Target
from tilewright.cost.analytic import open_space
from tilewright.cost.model import best, estimate
from tilewright.kernels.contraction import Contraction
from tilewright.kernels.nests import Tiles
from tilewright.kernels.schedules import Order, outer_order
from tilewright.kernels.space import Population
from tilewright.loops.program import Program
from tilewright.schedule.schedule import Schedule
from tilewright.symbolic.domain import IterKind
from tilewright.tune import contractions
from tilewright.tune.contractions import AxisLoop, axis_loops, contraction, tile_counts
from tilewright.tune.knobs import Value
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
    chosen: Mapping[str, int]
    """What the analytic model chooses for ``nest``, by the names of its knobs."""
    spatial: tuple[AxisLoop, ...]
    """Those axes of whose tiles there may be blocks."""
    reduced: tuple[AxisLoop, ...]

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
        for before, numbers in zip(space.nests[:-1], values[:-1], strict=True):
            before.schedule(opened, numbers)
        template = TemplateSpace.of(contraction(nest, nest.roles), opened)
        spatial = tuple(a for a in axis_loops(opened, nest, IterKind.SPATIAL) if len(tile_counts(a, nest)) > 1)
        reduced = tuple(axis_loops(opened, nest, IterKind.REDUCE))
        return ContractionSpace(naive, target, template, nest, values[-1], spatial, reduced)

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
        return np.array([values.index(self._analytic(name, values)) for name, values in self._knobs], np.int64)

    def estimates(self, digits: Digits) -> Floats:
        """Cycles by the analytic model, which knows tiles, and a charge for whatever else differs from its choice.

        It knows nothing of caches further than the first that something may be asked into.
        """
        names = tuple(knob.name for knob in self.nest.knobs)
        columns = {name: np.full(len(digits), number, np.int64) for name, number in self.chosen.items()}
        for place, name in enumerate(("lanes", "rows", "panels")):
            columns[name] = self._numbers(contractions.TILE, digits)[:, place]
        cache = self._numbers(contractions.PREFETCH, digits)[:, 0]
        columns[contractions.PACK] = self._numbers(contractions.PACK, digits)[:, 0]
        columns[contractions.PREFETCH] = np.minimum(cache, 1)
        cycles = estimate(
            self.nest, Population(names, np.stack([columns[name] for name in names], axis=1)), self.target
        )
        known = np.array([name in _KNOWN for name, _ in self._knobs])
        unknown = ((digits != self.analytic()) & ~known).sum(axis=1) + (cache > 1)
        return cycles * UNKNOWN**unknown

    def features(self, digits: Digits) -> Floats:
        """The numbers of the knobs, as logarithms."""
        return np.log2(1.0 + self.template.features(digits))

    @property
    def _knobs(self) -> list[tuple[str, tuple[Value, ...]]]:
        return [(knob.name, knob.values) for knob in self.template.knobs]

    def _numbers(self, name: str, digits: Digits) -> IntArray:
        """What a knob is set to: (candidates, numbers)."""
        names = [known for known, _ in self._knobs]
        values = [value if isinstance(value, tuple) else (value,) for value in self._knobs[names.index(name)][1]]
        return np.array(values, np.int64)[digits[:, names.index(name)]]

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

    def _analytic(self, name: str, values: tuple[Value, ...]) -> Value:
        """The compiler's decision: one tile is a block, and the reduction is as it is written."""
        if name == contractions.TILE:
            return tuple(self.chosen[part] for part in _PARTS)
        if name in self.chosen:
            return self.chosen[name]
        if name == contractions.OUTER:
            positions = [axis.position for axis in self.spatial]
            wanted = outer_order(positions, self.nest.roles, Order(self.chosen["order"]))
            order = tuple(positions.index(position) for position in wanted)
            return order if order in values else values[0]
        return values[0]
