"""The larger search space of contractions: matrix products and direct convolutions, in any layout.

The compiler's own space chooses the register tile and one of three orders of the loops around it. Here, tiles are
gathered into blocks for the caches as well, the loops over blocks and those over the tiles of a block are in any order,
and the loops of the reduction are split, ordered and written out. There are millions of schedules, some far slower than
the analytic choice: a space for learned cost models.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import cast

from tilewright.kernels.contraction import Tile
from tilewright.kernels.nests import Tiles, fits
from tilewright.kernels.panel_rows import Pack
from tilewright.kernels.schedules import driver, extent_of
from tilewright.kernels.tiling import Plan, axes_of
from tilewright.schedule.schedule import Schedule
from tilewright.schedule.tree import block_at
from tilewright.space.config import Config
from tilewright.space.knobs import Knob, Permutation, Sizes, Value
from tilewright.space.orders import Interval
from tilewright.space.population import all_of
from tilewright.symbolic.domain import IterKind

STEPS = (1, 2, 4, 8, 16)
"""Iterations of the inner part of a reduction's loop.

This and the following numbers bound a space; what is chosen in it, the model or measurements decide."""
TAPS = 11
"""A reduction loop of at most this many iterations counts as the taps of a window, and is not split."""
MOST_TILES = 16
"""Maximum number of tiles of a block along an axis."""
ORDERED = 3
"""Number of innermost loops of a group that may be permuted, and maximum number of innermost reduction loops that may
be unrolled."""
TILE, OUTER, INNER, REDUCTION, WRITTEN_OUT, PACK, PREFETCH, SLICES = (
    "tile",
    "outer order",
    "inner order",
    "reduction order",
    "written out",
    "pack",
    "prefetch",
    "slices",
)
"""Names of knobs."""


@dataclass(frozen=True, slots=True)
class Axis:
    """An axis of the contraction: its position, name and number of iterations."""

    position: int
    name: str
    extent: int

    @property
    def is_split(self) -> bool:
        """Whether the loop of a reduction is split into steps."""
        return self.extent > TAPS

    @property
    def steps(self) -> str:
        """The name of the knob for the iterations of the inner part."""
        return f"{self.name} steps"

    @property
    def block(self) -> str:
        """The name of the knob for the tiles of a block."""
        return f"{self.name} block"


@dataclass(frozen=True, slots=True)
class TileBlocks:
    """The open decisions of one contraction, ``nest``."""

    nest: Tiles
    spatial: tuple[Axis, ...]
    reduced: tuple[Axis, ...]
    knobs: tuple[Knob[Value], ...] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "knobs", self._knobs())

    @staticmethod
    def of(s: Schedule, nest: Tiles) -> "TileBlocks":
        """The decisions of ``nest``, while each of its axes has its own loop."""
        block = block_at(s.program, nest.anchor).stmt
        extents = [extent_of(s, driver(block, position)) for position in range(len(block.axes))]
        axes = [Axis(p, axis.name, extent) for p, (axis, extent) in enumerate(zip(block.axes, extents, strict=True))]
        kinds = IterKind.SPATIAL, IterKind.REDUCE
        spatial, reduced = (tuple(axes[place] for place in axes_of(block, kind)) for kind in kinds)
        return TileBlocks(nest, spatial, reduced)

    @property
    def blocked(self) -> tuple[Axis, ...]:
        """The axes along which there may be blocks of several tiles."""
        return tuple(axis for axis in self.spatial if len(self._tile_counts(axis)) > 1)

    @property
    def over(self) -> tuple[Axis, ...]:
        """The axes that are reduced in more than one step."""
        return tuple(axis for axis in self.reduced if axis.extent > 1)

    def _knobs(self) -> tuple[Knob[Value], ...]:
        """Collect all decisions; those on the tile first."""
        blocked, over = self.blocked, self.over
        split = [axis for axis in self.reduced if axis.is_split]
        loops = len(self.reduced) + len(split)
        return (
            self._tile_knob(),
            Knob(PACK, self.nest.values(PACK)),
            *(Knob(axis.block, self._tile_counts(axis)) for axis in blocked),
            Knob(OUTER, _orders(blocked)),
            Knob(INNER, _orders(blocked)),
            *(Knob(axis.steps, STEPS) for axis in split),
            Knob(REDUCTION, _orders(over)),
            Knob(WRITTEN_OUT, tuple(range(min(loops, ORDERED) + 1))),
            Knob(PREFETCH, self.nest.values(PREFETCH)),
            Knob(SLICES, self.nest.values(SLICES)),
        )

    def generate(self, s: Schedule, config: Config) -> None:
        """Schedule the contraction by the decisions of ``config`` (``Generator``)."""
        decided = {knob.name: config.decide(knob) for knob in self.knobs}

        def number(name: str) -> int:
            return cast(int, decided[name])

        self.nest.go(s, self._plan(decided), Pack(number(PACK)), number(PREFETCH))

    def _plan(self, decided: Mapping[str, Value]) -> Plan:
        blocked, over = self.blocked, self.over

        def ordered(axes: Sequence[Axis], name: str) -> list[Axis]:
            return [axes[place] for place in cast(Permutation, decided[name])]

        around = [*(axis for axis in self.spatial if axis not in blocked), *ordered(blocked, OUTER)]
        reduction = [*(axis for axis in self.reduced if axis not in over), *ordered(over, REDUCTION)]
        return Plan(
            Tile(*cast(Sizes, decided[TILE])),
            tuple(axis.position for axis in around),
            tuple(axis.position for axis in reduction),
            {axis.position: cast(int, decided[axis.block]) for axis in ordered(blocked, INNER)},
            {axis.position: cast(int, decided[axis.steps]) for axis in self.reduced if axis.is_split},
            cast(int, decided[WRITTEN_OUT]),
            slices=cast(int, decided[SLICES]),
        )

    def _tile_knob(self) -> Knob[Sizes]:
        """Lanes, rows and panels that fit in the registers together."""
        shapes = all_of([knob for knob in self.nest.knobs if knob.name in ("lanes", "rows", "panels")])
        fitting = shapes.where(fits(shapes, self.nest.registers))
        return Knob(TILE, tuple(fitting[position] for position in range(len(fitting))))

    def _tile_counts(self, axis: Axis) -> tuple[int, ...]:
        """Possible numbers of tiles of a block along ``axis`` for the smallest tiles: knobs must not depend on the
        tile."""
        most = axis.extent // (self.nest.registers.lanes if axis.position == self.nest.roles.vector else 1)
        return tuple(1 << power for power in range(min(max(most, 1), MOST_TILES).bit_length()))


def _orders(axes: Sequence[Axis]) -> tuple[Permutation, ...]:
    """Every order of the last few of ``axes``."""
    return Interval(max(0, len(axes) - ORDERED), len(axes)).positions(len(axes))
