"""A template for contractions: matrix products and direct convolutions, in whatever layout their program has.

The compiler's own space chooses the register tile and one of three orders of the loops around it. Here, tiles are
gathered into blocks for the caches as well, the loops over blocks and those over the tiles of a block are in any order,
and the loops of the reduction are split, ordered and written out. There are millions of schedules, some far slower than
the model's choice: a space for learned cost models.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod

from tilewright.base.errors import ScheduleError
from tilewright.kernels.contraction import Contraction
from tilewright.kernels.nests import Tiles, fits, pack_panel
from tilewright.kernels.schedules import driver, extent_of, finish_tiles, iterations, privatized, ref
from tilewright.kernels.space import all_of
from tilewright.schedule.schedule import Schedule
from tilewright.schedule.tree import LoopRef, block_at
from tilewright.symbolic.domain import IterKind
from tilewright.tune.knobs import Knob, Sizes
from tilewright.tune.orders import Interval
from tilewright.tune.template import Config, Template

STEPS = (1, 2, 4, 8, 16)
"""Iterations of the inner part of a reduction's loop."""
TAPS = 11
"""A loop of a reduction with so many iterations at most is that of a window's taps, and not split."""
MOST_TILES = 16
"""Of a block, along an axis."""
MOST_WRITTEN_OUT = 192
"""Vector operations in the innermost body: more take seconds to compile, and a processor no longer keeps them."""
ORDERED = 3
"""The innermost so many loops of a group are put in any order, and the innermost so many of the reduction written out
at most."""
TILE, OUTER, INNER, REDUCTION, WRITTEN_OUT, PACK, PREFETCH = (
    "tile",
    "outer order",
    "inner order",
    "reduction order",
    "written out",
    "pack",
    "prefetch",
)
"""Names of knobs."""


@dataclass(frozen=True, slots=True)
class AxisLoop:
    """An axis of the contraction: its position and name, the loop that drives it, and how often that runs."""

    position: int
    name: str
    loop: LoopRef
    extent: int

    @property
    def is_split(self) -> bool:
        """Whether the loop, of a reduction, is split into steps."""
        return self.extent > TAPS

    @property
    def steps(self) -> str:
        """The name of the knob for the iterations of the inner part."""
        return f"{self.name} steps"

    @property
    def block(self) -> str:
        """The name of the knob for the tiles of a block."""
        return f"{self.name} block"


def axis_loops(s: Schedule, nest: Tiles, kind: IterKind) -> list[AxisLoop]:
    """Those of a kind, while each axis has a loop of its own."""
    place = block_at(s.program, nest.anchor)
    axes = [(at, axis.name, driver(place.stmt, at)) for at, axis in enumerate(place.stmt.axes) if axis.kind is kind]
    extents = {ref(loop): iterations(loop) for loop in place.loops}
    return [AxisLoop(at, name, loop, extents[loop]) for at, name, loop in axes]


def tile_counts(axis: AxisLoop, nest: Tiles) -> tuple[int, ...]:
    """How many tiles a block may have along an axis, if they were the smallest: knobs must not depend on the tile."""
    most = axis.extent // (nest.registers.lanes if axis.position == nest.roles.vector else 1)
    return tuple(1 << power for power in range(min(max(most, 1), MOST_TILES).bit_length()))


def contraction(nest: Tiles, roles: Contraction) -> Template:
    """The template for a schedule in which nothing but ``nest``, that of the contraction, is left to be scheduled.

    It raises ``ScheduleError`` if too much would be written out, for a panel that is both copied and asked for, and for
    blocks that are larger than all that there is.
    """

    tiles = _tile_knob(nest)

    def template(s: Schedule, config: Config) -> None:
        lanes, rows, panels = config.decide(tiles)
        is_copied = config.choice(PACK, nest.values(PACK))
        if is_copied:
            pack_panel(s, nest.anchor, roles.panel, lanes)
        epilogue = privatized(s, nest.anchor)
        reduced = axis_loops(s, nest, IterKind.REDUCE)
        # Rows before panels: a broadcast is then used up at once, and only the panels' few vectors stay in registers.
        tile = {roles.rows: rows, roles.panels: panels, roles.vector: lanes}
        around, within, inside = _tiled(s, config, nest, tile)
        steps = _steps(s, config, reduced)
        s.reorder(*around, *within, *steps, *inside)
        written_out = steps[len(steps) - config.choice(WRITTEN_OUT, range(min(len(steps), ORDERED) + 1)) :]
        vectors = rows * panels * lanes // nest.registers.lanes * prod(extent_of(s, loop) for loop in written_out)
        if vectors > MOST_WRITTEN_OUT:
            raise ScheduleError(f"{vectors} vector operations would be written out; the most is {MOST_WRITTEN_OUT}")
        for loop in (*written_out, *inside[:-1]):
            s.unroll(loop)
        s.vectorize(inside[-1])
        outermost = finish_tiles(s, nest.anchor, epilogue, [*around, *within], lanes)[: len(around)]
        for loop in outermost if nest.parallel else ():
            if extent_of(s, loop) > 1:
                s.parallel(loop)
        if cache := config.choice(PREFETCH, nest.values(PREFETCH)):
            if is_copied:
                raise ScheduleError("a panel that is copied is no stream to be asked for ahead")
            s.prefetch(roles.panel, nest.stream_ahead, cache)

    return template


def _tile_knob(nest: Tiles) -> Knob[Sizes]:
    """Lanes, rows and panels that fit in the registers together."""
    shapes = all_of([knob for knob in nest.knobs if knob.name in ("lanes", "rows", "panels")])
    fitting = shapes.where(fits(shapes, nest.registers))
    return Knob(TILE, tuple(fitting[position] for position in range(len(fitting))))


def _tiled(
    s: Schedule, config: Config, nest: Tiles, tile: Mapping[int | None, int]
) -> tuple[list[LoopRef], list[LoopRef], list[LoopRef]]:
    """The loops over blocks of tiles, over the tiles of a block, and over the elements of a tile."""
    once: list[LoopRef] = []
    around: list[LoopRef] = []
    within: list[LoopRef] = []
    inside: dict[int | None, LoopRef] = {}
    for axis in axis_loops(s, nest, IterKind.SPATIAL):
        counts, outer = tile_counts(axis, nest), axis.loop
        if axis.position in tile:
            outer, inside[axis.position] = s.split(outer, (None, tile[axis.position]))
        if len(counts) == 1:
            once.append(outer)
            continue
        count, tiles = config.choice(axis.block, counts), extent_of(s, outer)
        if count // 2 >= tiles:
            raise ScheduleError(
                f"a block of {count} tiles along {axis.name}, which has {tiles}, is that of {count // 2}"
            )
        over, of_block = s.split(outer, (None, min(count, tiles)))
        around.append(over)
        within.append(of_block)
    elements = [inside[position] for position in tile if position is not None]
    return [*once, *_ordered(config, OUTER, around)], _ordered(config, INNER, within), elements


def _steps(s: Schedule, config: Config, axes: Sequence[AxisLoop]) -> list[LoopRef]:
    """The loops of the reduction, outermost first. Long ones are split, and their inner parts are innermost."""
    once: list[LoopRef] = []
    over: list[LoopRef] = []
    inner: list[LoopRef] = []
    for axis in axes:
        outer = axis.loop
        if axis.is_split:
            outer, of_steps = s.split(outer, (None, config.choice(axis.steps, STEPS)))
            inner.append(of_steps)
        (over if axis.extent > 1 else once).append(outer)
    return [*once, *_ordered(config, REDUCTION, over), *inner]


def _ordered(config: Config, name: str, loops: list[LoopRef]) -> list[LoopRef]:
    """The loops in the order that is chosen."""
    return list(config.reorder(name, loops, Interval(max(0, len(loops) - ORDERED), len(loops))))
