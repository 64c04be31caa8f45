"""Tiles of a contraction that a matrix unit computes: many rows, over the whole reduction at once.

The sums are stored to private memory, where the consumers of the tile find them; or where the result belongs, if there
are none. Otherwise these are the tiles of ``nests.Tiles``, in the same orders; but a tile divides the rows and columns,
since the unit has no masks. Rows that nothing divides are one tile; of rows whose number is known at run time only, the
last tile has what is left.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from tilewright.kernels.contraction import Contraction
from tilewright.kernels.nests import PANELS, VECTORS, Nest, Registers, Tiles
from tilewright.kernels.schedules import driving_loop, extent_of
from tilewright.kernels.tile_descriptions import Terms, TileProduct, TileUnit
from tilewright.kernels.tile_facts import TileFacts
from tilewright.kernels.tile_products import declared_tiles, tile_unit
from tilewright.kernels.tiling import Order, axes_of, finish_tiles, outer_order, privatized
from tilewright.loops.ir import Block, Store
from tilewright.schedule.schedule import Schedule
from tilewright.schedule.tree import BlockRef, LoopRef, block_at, consumers
from tilewright.space.knobs import Knob
from tilewright.space.population import BoolArray, Population
from tilewright.symbolic.domain import IterKind
from tilewright.symbolic.expr import Binary, Const, Expr, Read, Var
from tilewright.symbolic.linear import polynomial
from tilewright.symbolic.operations import BinaryOp
from tilewright.symbolic.traversal import reads_in
from tilewright.target.target import Target

MOST_ROWS = 512
"""Rows of a tile that is taken as a whole because nothing of at least a register's height divides them."""
MOST_PART = 256
"""Rows of a tile that is one of several: those that registers have no room for come one block after the other."""
MOST_SUMS = 12288
"""Sums of a tile: consumers read them from the first cache."""


@dataclass(frozen=True, slots=True)
class Pattern:
    """A contraction, as a product of tiles of any size: the indices of both operands by the axes of the block."""

    unit: TileUnit
    spatial: tuple[int, ...]
    """The positions of the axes, in the order of their numbers in both operands; then come those of the reduction."""
    reduced: tuple[int, ...]
    """The extents of the reduction."""
    left: tuple[Terms, ...]
    """A factor of 0: of an axis that is divided, as filters are by groups; a tile has one place along it."""
    right: tuple[Terms, ...]
    width: int
    """The columns of a panel in memory; 0 if it has all."""

    def product(
        self, sizes: Mapping[int | None, int], *, asks_ahead: bool = False, is_open: bool = False
    ) -> TileProduct | None:
        """The product of tiles of these ``sizes`` by axis, 1 where there is none; None if the unit has not it.

        ``is_open``: these are the most rows that there may be.
        """
        return _product(self, tuple(sizes.get(axis, 1) for axis in self.spatial), asks_ahead, is_open)

    def of_extents(self, extents: Sequence[int], *, asks_ahead: bool, is_open: bool) -> TileProduct | None:
        """The same, by the extents of the spatial axes."""
        divided = {axis for terms in (*self.left, *self.right) for axis, factor in terms if factor == 0}
        if any(axis >= len(extents) or extents[axis] > 1 for axis in divided):
            return None
        first = next((place for place, extent in enumerate(extents) if extent > 1), 0)

        def kept(indices: tuple[Terms, ...]) -> tuple[Terms, ...]:
            several = (axis for axis, extent in enumerate(extents) if extent > 1)
            used = {*several, *range(len(extents), len(extents) + len(self.reduced))}
            made = [tuple((axis - first, factor) for axis, factor in terms if axis in used) for terms in indices]
            leading = next((place for place, terms in enumerate(made) if terms), len(made))
            return tuple(made[leading:])

        operands = kept(self.left), kept(self.right)
        made = TileProduct(self.unit, tuple(extents[first:]), self.reduced, *operands, asks_ahead, is_open)
        return made if made.is_valid else None


@lru_cache(4096)
def _product(pattern: Pattern, extents: tuple[int, ...], asks_ahead: bool, is_open: bool) -> TileProduct | None:
    return pattern.of_extents(extents, asks_ahead=asks_ahead, is_open=is_open)


def pattern_of(block: Block, roles: Contraction, target: Target) -> Pattern | None:
    """``block`` as a product of tiles, if ``target`` has a matrix unit for its types, and memory has their layout."""
    spatial, reduced = (axes_of(block, kind) for kind in (IterKind.SPATIAL, IterKind.REDUCE))
    if roles.rows is None or spatial[-1] != roles.vector or not isinstance(block.body, Store):
        return None
    reads = {read.source.name: read for read in reads_in(block.body.value)}
    a, b = reads.get(roles.broadcast), reads.get(roles.panel)
    unit = None if a is None or b is None else tile_unit(target, a.dtype, b.dtype)
    extents = tuple(_number(block.axes[axis].extent) for axis in reduced)
    if a is None or b is None or unit is None or unit.wide != block.writes[0].buffer.dtype or 0 in extents:
        return None
    numbers = {block.axes[axis].var: number for number, axis in enumerate((*spatial, *reduced))}
    column = block.axes[roles.vector].var
    left, right = (_indices(read, numbers, column) for read in (a, b))
    widths = {int(i.b.value) for i in b.indices if isinstance(i, Binary) and isinstance(i.b, Const) and i.a == column}
    if left is None or right is None or len(widths) > 1:
        return None
    return Pattern(unit, spatial, extents, left, right, next(iter(widths), 0))


def _number(extent: Expr) -> int:
    """The extent; 0 if it is known only at run time."""
    return int(extent.value) if isinstance(extent, Const) else 0


def _indices(read: Read, numbers: Mapping[Var, int], column: Var) -> tuple[Terms, ...] | None:
    found = [_terms(index, numbers, column) for index in read.indices]
    return tuple(terms for terms in found if terms is not None) if None not in found else None


def _terms(index: Expr, numbers: Mapping[Var, int], column: Var) -> Terms | None:
    """``index`` as a sum of axes; the panel that a column is in does not change within a tile."""
    match index:
        case Binary(BinaryOp.FLOORDIV, Var() as place, Const()) if place == column:
            return ()
        case Binary(BinaryOp.MOD, Var() as place, Const()) if place == column:
            return ((numbers[column], 1),)
        case Binary(BinaryOp.FLOORDIV, Var() as place, Const()) if place in numbers:
            return ((numbers[place], 0),)
        case _:
            pass
    terms: list[tuple[int, int]] = []
    for monomial, factor in polynomial(index).items():
        axis = numbers.get(monomial[0]) if len(monomial) == 1 and isinstance(monomial[0], Var) else None
        if monomial and (axis is None or factor < 1):
            return None
        if axis is not None:
            terms.append((axis, factor))
    return tuple(sorted(terms))


def tile_rows(every: Expr, unit: TileUnit, *, all_rows: bool) -> tuple[int, ...]:
    """How many of ``every`` row a tile may have, without and with a last block that is lower."""
    if not isinstance(every, Const):
        return () if all_rows else tuple(range(unit.rows, MOST_PART + 1, unit.rows))
    number = int(every.value)
    rows = () if all_rows else tuple(n for n in range(2, MOST_PART + 1) if number and number % n == 0)
    if (max(rows, default=0) < unit.rows or number > MOST_PART) and 1 < number <= MOST_ROWS:
        rows = (*rows, number)
    return rows


@dataclass(frozen=True, slots=True)
class MatrixTiles(Nest):
    """Tiles by a matrix unit. Knobs: ``lanes``, ``rows`` and ``panels`` of the tile; ``order``: of the loops around;
    ``ahead``: whether a tile asks for the panel of the next one."""

    roles: Contraction
    facts: TileFacts
    """A step of the reduction is a word: a group of each operand."""
    registers: Registers
    """Of vectors, which consumers of a tile use."""
    pattern: Pattern
    parallel: bool
    open_rows: Expr | None
    """Their number, if it is known at run time only: the last tile may then be lower."""

    @staticmethod
    def of(tiles: Tiles, block: Block, target: Target, *, all_rows: bool) -> "MatrixTiles | None":
        """The nest of the same ``block`` as ``tiles``, if ``target`` has a matrix unit for it; ``all_rows``: of tiles
        with all of them."""
        roles = tiles.roles
        pattern = pattern_of(block, roles, target) if isinstance(roles, Contraction) else None
        if pattern is None or not isinstance(roles, Contraction) or roles.rows is None:
            return None
        unit, known = pattern.unit, {axis: _number(block.axes[axis].extent) for axis in pattern.spatial}
        width = pattern.width or known[roles.vector]
        lanes = tuple(n for v in VECTORS if (n := v * unit.columns) and width % n == 0 == known[roles.vector] % n)
        every = block.axes[roles.rows].extent
        rows = tile_rows(every, unit, all_rows=all_rows)
        panels = tuple(n for n in PANELS if roles.panels is not None and known[roles.panels] % n == 0) or (1,)
        if not lanes or not rows or not known[roles.vector]:
            return None
        open_rows = None if isinstance(every, Const) else every
        again = 0 if open_rows is None else tiles.facts.streamed_again
        groups = tiles.facts.reduction // unit.group
        facts = replace(tiles.facts, reduction=groups, slidings=(), streamed_again=again)
        ahead = Knob("ahead", (0, 1) if facts.streamed or facts.streamed_again else (0,))
        shapes = Knob("lanes", lanes), Knob("rows", rows), Knob("panels", panels)
        knobs = (*shapes, Knob("order", tiles.values("order")), ahead)
        nest = MatrixTiles(tiles.name, knobs, roles, facts, tiles.registers, pattern, tiles.parallel, open_rows)
        return nest if len(nest.population()) else None

    def of_rows(self, number: int) -> "MatrixTiles":
        """The same, with another guess of the number of rows."""
        return replace(self, facts=replace(self.facts, rows=number))

    def product(self, choice: Mapping[str, int]) -> TileProduct | None:
        """The product of a tile; ``choice`` by the knobs' names."""
        roles = self.roles
        sizes = {roles.panels: choice["panels"], roles.rows: choice["rows"], roles.vector: choice["lanes"]}
        asks_ahead = bool(choice["ahead"])
        is_panel = choice["lanes"] == (self.pattern.width or self.facts.vector)
        if asks_ahead and not is_panel:
            return None
        return self.pattern.product(sizes, asks_ahead=asks_ahead, is_open=self.open_rows is not None)

    def allowed(self, population: Population) -> BoolArray:
        """Checks that the unit has such tiles, and that its sums stay near."""
        named = (dict(zip(population.names, population[row], strict=True)) for row in range(len(population)))
        known = np.array([self.product(choice) is not None for choice in named], np.bool_)
        sums = population.column("lanes") * population.column("rows") * population.column("panels")
        return known & (sums <= MOST_SUMS)

    def schedule(self, s: Schedule, values: Mapping[str, int]) -> None:
        """See ``Nest``."""
        product, anchor, roles = self.product(values), BlockRef(self.name), self.roles
        assert product is not None, "only allowed choices are scheduled"
        block = block_at(s.program, anchor).stmt
        epilogue = privatized(s, anchor) if consumers(s.program, block) else None
        spatial, reduced = (axes_of(block, kind) for kind in (IterKind.SPATIAL, IterKind.REDUCE))
        outer = {axis: driving_loop(s, anchor, axis) for axis in spatial}
        sums = [driving_loop(s, anchor, axis) for axis in reduced]
        sizes = {roles.vector: values["lanes"], roles.rows: values["rows"], roles.panels: values["panels"]}
        within: list[LoopRef] = []
        for axis in spatial:
            if sizes.get(axis, 1) > 1:
                outer[axis], inner = s.split(outer[axis], (None, sizes[axis]))
                within.append(inner)
        order = outer_order(spatial, roles, Order(values["order"]))
        around = sorted((outer[axis] for axis in order), key=lambda loop: extent_of(s, loop) > 1)
        taps = [loop for loop in sums if extent_of(s, loop) > 1]
        s.reorder(*(loop for loop in sums if loop not in taps), *around, *within, *taps)
        finished = around
        if epilogue is not None:
            finished = finish_tiles(s, anchor, epilogue, around, values["lanes"], written_out=False)
        s.tensorize(within[0], declared_tiles(product))
        for loop in finished if self.parallel else ():
            if extent_of(s, loop) > 1:
                s.parallel(loop)
