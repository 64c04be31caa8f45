"""What matrix units compute: products of whole tiles, many rows by many columns, summed over a whole reduction.

Such a unit keeps the tile in registers of its own while a function runs the loops of the reduction: so each shape of a
product is an intrinsic. ``TileProduct`` describes one; its name says all of that, since traces and texts of programs
are read by processes that never saw it::

    tdpbf16ps_s32_32_r384_2_a0_2m2p3_b2_1_3

    spatial 32 x 32, reduced 384 x 2:  c[x0, x1] = sum(a[x0, x2 * 2 + x3] * b[x2, x1, x3])

``_open`` at the end: these are the most rows, and a call says how many there are. ``_ahead``: it also asks for what
lies behind ``b``, which the next one of its kind reads.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from tilewright.base.dtypes import DType

Terms: TypeAlias = tuple[tuple[int, int], ...]
"""An index: axes, and what each is multiplied by."""


@dataclass(frozen=True, slots=True)
class TileUnit:
    """A matrix unit for operands of two types. ``name``: that of its instruction; ``feature``: what has it."""

    name: str
    left: DType
    right: DType
    wide: DType
    """Of the sums."""
    group: int
    """The products that one accumulator adds up at a time, neighbours in both operands."""
    feature: str
    rows: int
    """Of a tile register."""
    columns: int
    """Sums in a row of it."""
    steps: int
    """Groups that an instruction adds up."""
    code: Callable[["TileProduct"], str]
    """LLVM IR of the function on memory."""
    fits: Callable[[int, int], bool]
    """Whether the sums of so many rows by so many column tiles, and operands, have registers."""


@dataclass(frozen=True, slots=True)
class TileProduct:
    """``c[spatial] = sum(a[left] * b[right], reduced)``; axes are numbered, first the spatial ones.

    One spatial axis of several elements is read by ``a``: the rows; the last one by ``b`` along its last dimension but
    one: the columns. Another one may be read by ``b``: panels of columns. All others have one element. Of the reduced
    ones, the last is a group, and neighbours along it and along the steps are neighbours in ``a``; rows of that
    may overlap.
    """

    unit: TileUnit
    spatial: tuple[int, ...]
    reduced: tuple[int, ...]
    left: tuple[Terms, ...]
    right: tuple[Terms, ...]
    asks_ahead: bool = False
    """Whether memory behind ``b`` is asked for: as much as a block of columns reads, for the next block."""
    is_open: bool = False
    """Whether the rows are the most that there may be, and how many there are is known at run time only."""

    @property
    def name(self) -> str:
        """The name of the intrinsic."""
        sizes = (_listed("s", self.spatial), _listed("r", self.reduced))
        ending = (*(("open",) if self.is_open else ()), *(("ahead",) if self.asks_ahead else ()))
        return "_".join((self.unit.name, *sizes, _indices("a", self.left), _indices("b", self.right), *ending))

    @property
    def extents(self) -> tuple[int, ...]:
        """Of all axes."""
        return (*self.spatial, *self.reduced)

    def shape_of(self, indices: Sequence[Terms]) -> tuple[int, ...]:
        """The shape of the region that an operand with these ``indices`` reads."""
        return tuple(1 + sum((self.extents[axis] - 1) * factor for axis, factor in terms) for terms in indices)

    @property
    def columns(self) -> int:
        """The axis of the columns."""
        return len(self.spatial) - 1

    @property
    def rows(self) -> int:
        """The axis of the rows."""
        return self._several(self.left)[0]

    @property
    def panels(self) -> int | None:
        """The axis of the panels, if there are several."""
        return next((axis for axis in self._several(self.right) if axis != self.columns), None)

    @property
    def steps(self) -> int:
        """The axis of the steps."""
        return self.right[-3][0][0]

    @property
    def group(self) -> int:
        """The axis of the groups."""
        return len(self.extents) - 1

    def _several(self, indices: Sequence[Terms]) -> list[int]:
        """The spatial axes of several elements that an operand depends on."""
        used = {axis for terms in indices for axis, _ in terms}
        return [axis for axis, extent in enumerate(self.spatial) if axis in used and extent > 1]

    @property
    def is_valid(self) -> bool:
        """Whether there is code for it."""
        unit, last, group = self.unit, self.columns, self.group
        if len(self.spatial) < 2 or len(self.reduced) < 2 or not self.left or len(self.right) < 3:
            return False
        if len(self.right[-3]) != 1 or not last < self.steps < group or self.extents[group] != unit.group:
            return False
        rows, others = self._several(self.left), [axis for axis in self._several(self.right) if axis != last]
        several = [axis for axis, extent in enumerate(self.spatial) if extent > 1]
        along = {axis for terms in (*self.left[:-1], self.left[-1][:-2], *self.right[:-3]) for axis, _ in terms}
        return (
            (self.right[-3:] == (((self.steps, 1),), ((last, 1),), ((group, 1),)))
            and self.left[-1][-2:] == ((self.steps, unit.group), (group, 1))
            and not along & {self.steps, group, last}
            and len(rows) == 1
            and len(others) <= 1
            and {*rows, *others, last} == {*several, last}
            and self.spatial[last] % unit.columns == 0
            and self.column_tiles > 0
            and not (self.asks_ahead and self.panel_tiles != self.column_tiles)
            and (not self.is_open or self._may_be_open)
        )

    @property
    def _may_be_open(self) -> bool:
        """Whether the most rows are whole blocks, and rows of ``a`` are those of one of its dimensions."""
        own = [terms for terms in self.left if any(axis == self.rows for axis, _ in terms)]
        return own == [((self.rows, 1),)] and self.spatial[self.rows] % self.most_rows == 0

    @property
    def panel_tiles(self) -> int:
        """The tiles of a panel side by side."""
        return self.spatial[self.columns] // self.unit.columns

    @property
    def _all_tiles(self) -> int:
        return self.panel_tiles * (1 if self.panels is None else self.spatial[self.panels])

    @property
    def column_tiles(self) -> int:
        """The tiles side by side whose sums are in registers at the same time, with the fewest loads for a product:
        whole panels, if there are several. 0 if there is no room for them."""
        rows, every = -(-self.spatial[self.rows] // self.unit.rows), self._all_tiles
        whole = 1 if self.panels is None else self.panel_tiles
        fitting = [n for n in range(every, 0, -whole) if every % n == 0 and self.unit.fits(1, n)]
        return min(fitting, key=lambda n: 1 / min(rows, self._most_tiles(n)) + 1 / n, default=0)

    @property
    def column_blocks(self) -> int:
        """How many blocks of so many tiles come one after the other."""
        return self._all_tiles // self.column_tiles

    def _most_tiles(self, columns: int) -> int:
        """The tiles one above the other that fit beside so many."""
        return max(tiles for tiles in range(1, self.unit.rows) if self.unit.fits(tiles, columns))

    @property
    def most_rows(self) -> int:
        """The rows of a block, whose sums are in registers at the same time, at most."""
        return self.unit.rows * self._most_tiles(self.column_tiles)

    @property
    def row_blocks(self) -> tuple[tuple[int, tuple[int, ...]], ...]:
        """How many blocks of rows come one after the other, and the heights of the tiles of each, whose sums are in
        registers at the same time: as few as possible, and equal ones, or a last one that is lower."""
        rows, most = self.spatial[self.rows], self.most_rows
        count = -(-rows // most)
        if rows % count == 0:
            return ((count, self.tiles_of(rows // count)),)
        return ((rows // most, self.tiles_of(most)), (1, self.tiles_of(rows % most)))

    def of_rows(self, rows: int) -> "TileProduct":
        """What a call with so many rows computes, if how many is known at run time only."""
        spatial = tuple(rows if axis == self.rows else extent for axis, extent in enumerate(self.spatial))
        return replace(self, spatial=spatial, is_open=False)

    def tiles_of(self, rows: int) -> tuple[int, ...]:
        """The heights of tiles one above the other."""
        most = self.unit.rows
        return (*(most for _ in range((rows - 1) // most)), (rows - 1) % most + 1)

    @property
    def at_once(self) -> int:
        """The steps of an instruction: as many as are a part of all."""
        return steps_at_once(self.extents[self.steps], self.unit)


def steps_at_once(steps: int, unit: TileUnit) -> int:
    """The steps of an instruction of ``unit``, of so many: as many as are a part of all."""
    return next(count for count in range(min(unit.steps, steps), 0, -1) if steps % count == 0)


# Names ---------------------------------------------------------------------------------------------------------------

_NAME = re.compile(
    r"(?P<unit>[a-z0-9]+)_s(?P<s>[0-9_]+)_r(?P<r>[0-9_]+)_a(?P<a>[0-9mpz_]+)_b(?P<b>[0-9mpz]+(_[0-9mpz]+)*)(?P<open>_open)?(?P<ahead>_ahead)?"
)
_NONE = "z"
"""An index that is 0."""


def named(name: str, units: Iterable[TileUnit]) -> TileProduct | None:
    """The product of one of the ``units`` that has this ``name``, if it is one."""
    found = _NAME.fullmatch(name)
    unit = None if found is None else next((unit for unit in units if unit.name == found["unit"]), None)
    if found is None or unit is None:
        return None
    try:
        spatial, reduced = (tuple(map(int, found[kind].split("_"))) for kind in "sr")
        left, right = (tuple(map(_terms, found[operand].split("_"))) for operand in "ab")
    except ValueError:
        return None
    product = TileProduct(unit, spatial, reduced, left, right, found["ahead"] is not None, found["open"] is not None)
    return product if product.is_valid else None


def _listed(kind: str, extents: Sequence[int]) -> str:
    return kind + "_".join(map(str, extents))


def _indices(operand: str, indices: Sequence[Terms]) -> str:
    return operand + "_".join(map(_index, indices))


def _index(terms: Terms) -> str:
    return "p".join(str(axis) if factor == 1 else f"{axis}m{factor}" for axis, factor in terms) or _NONE


def _terms(text: str) -> Terms:
    parts = (part.partition("m") for part in text.split("p")) if text != _NONE else ()
    return tuple((int(axis), int(factor or 1)) for axis, _, factor in parts)
