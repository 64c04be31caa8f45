"""Estimates the tiles of a block from their sizes alone, without scheduling them.

A sketch tiles a block in the levels of ``sketch.structure.CORES``. What its loops are, which of them are lanes, and
which are written out, follows from its decisions (``sketch.finishing``), so the statement in them is made of that of
the naive program, and rated by ``features.cycles``: in a hundredth of the time that a schedule takes.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import TypeAlias

from tilewright.base.errors import Unsupported
from tilewright.loops.ir import LoopKind
from tilewright.loops.program import Program
from tilewright.schedule.tree import BlockRef, block_at
from tilewright.sketch.packing import NOT
from tilewright.sketch.structure import CORES
from tilewright.space.knobs import Value
from tilewright.symbolic.domain import IterKind
from tilewright.symbolic.expr import Expr, Var
from tilewright.symbolic.linear import LinearForm
from tilewright.target.target import Target
from tilewright.tune.features.cycles import Whole, statement_cycles
from tilewright.tune.features.operations import Mode
from tilewright.tune.features.sites import Access, LoopAround, Site, sites

Decisions: TypeAlias = Mapping[str, Value]
"""By the names of knobs."""
Parts: TypeAlias = Mapping[Expr, Sequence[tuple[LoopAround, int]]]
"""The loops that the loop of each variable is split into, with their steps."""


@dataclass(frozen=True, slots=True)
class Untiled:
    """A block of a naive program. ``axes``: names, the variables of their loops, and whether they are summed over."""

    name: str
    site: Site
    axes: tuple[tuple[str, Var, bool], ...]
    whole: Whole
    target: Target

    def cycles(self, decisions: Decisions) -> float:
        """Of the block in tiles, by the decisions of a sketch.

        Raises ``Unsupported`` if an index is no sum of axes, or if the sketch does not tile the block so.
        """
        parts: dict[Expr, Sequence[tuple[LoopAround, int]]] = {
            var: self._parts(axis, var, is_summed, decisions) for axis, var, is_summed in self.axes
        }
        loops = tuple(loop for loop in self._loops(parts, decisions) if loop.extent > 1)
        summed = {loop.var for _, var, is_summed in self.axes if is_summed for loop, _ in parts[var]}
        reducing = frozenset(loop.var for loop in loops if loop.var in summed)
        accesses = tuple(self._moved(access, parts, loops, decisions) for access in self.site.accesses)
        spatial = frozenset(loop.var for loop in loops) - reducing
        made = replace(self.site, loops=loops, accesses=accesses, spatial=spatial, reducing=reducing)
        return statement_cycles(made, self.whole, self.target)

    def _parts(self, axis: str, var: Var, is_summed: bool, decisions: Decisions) -> list[tuple[LoopAround, int]]:
        sizes = decisions.get(f"{self.name}.{axis}")
        numbers = [size for size in sizes if isinstance(size, int)] if isinstance(sizes, tuple) else []
        if len(numbers) != CORES.levels.count("R" if is_summed else "S"):
            raise Unsupported(f"{self.name} is not tiled along {axis} in the usual levels")
        loops = [LoopAround(0, Var(f"{var.name}_{part}"), size, LoopKind.SERIAL) for part, size in enumerate(numbers)]
        return [(loop, prod(numbers[part + 1 :])) for part, loop in enumerate(loops)]

    def _loops(self, parts: Parts, decisions: Decisions) -> list[LoopAround]:
        """All loops, outermost first: the last one is lanes, and those around it are written out while they are few."""
        levels: list[list[LoopAround]] = [[] for _ in CORES.levels]
        for _, var, is_summed in self.axes:
            places = [place for place, letter in enumerate(CORES.levels) if (letter == "R") is is_summed]
            for place, (loop, _) in zip(places, parts[var], strict=True):
                levels[place].append(loop)
        *inner, last = levels[-1]
        around = [*levels[-3], *levels[-2], *inner]
        most, written_out = decisions.get(f"{self.name}.unroll"), len(around)
        operations = -(-last.extent // self.target.lanes(8 * self.site.buffer.dtype.itemsize))
        while written_out and isinstance(most, int) and operations * around[written_out - 1].extent <= most:
            written_out -= 1
            operations *= around[written_out].extent
        unrolled = [replace(loop, kind=LoopKind.UNROLLED) for loop in around[written_out:]]
        outer = [loop for level in levels[:-3] for loop in level]
        numbered = [*outer, *around[:written_out], *unrolled, replace(last, kind=LoopKind.VECTORIZED)]
        return [replace(loop, number=number) for number, loop in enumerate(numbered)]

    def _moved(self, access: Access, parts: Parts, loops: Sequence[LoopAround], decisions: Decisions) -> Access:
        """``access`` over the loops of tiles; of a copy whose last dimension moves along the lanes, if it is packed."""
        points = [tuple((_over(form, parts), size) for form, size in point) for point in access.points]
        order = list(range(len(access.shape)))
        if loops and decisions.get(f"{self.name}.pack.{access.buffer.name}", NOT) != NOT:
            order.sort(key=lambda place: points[0][place][0].coefficient(loops[-1].var) != 0)
        shape = tuple(access.shape[place] for place in order)
        moved = tuple(tuple(point[place] for place in order) for point in points)
        return replace(access, shape=shape, points=moved)


def _over(form: LinearForm, parts: Parts) -> LinearForm:
    terms: list[tuple[Expr, int]] = []
    for atom, factor in form.terms:
        if atom not in parts:
            raise Unsupported(f"{atom} is no axis")
        terms += [(loop.var, factor * step) for loop, step in parts[atom] if loop.extent > 1]
    return LinearForm(form.constant, tuple(terms))


def untiled(naive: Program, names: Sequence[str], target: Target) -> dict[str, Untiled]:
    """The blocks of these names, as far as each has one statement, whose loops can be looked at."""
    try:
        found = sites(naive, Mode.REPAIRED)
    except Unsupported:
        return {}
    whole, blocks = Whole.of(found), dict[str, Untiled]()
    for name in names:
        block = block_at(naive, BlockRef(name)).stmt
        own = [site for site in found if any(region.buffer == site.buffer for region in block.writes)]
        axes = tuple(
            (axis.name, binding if isinstance(binding, Var) else Var(axis.name), axis.kind is IterKind.REDUCE)
            for axis, binding in zip(block.axes, block.bindings, strict=True)
        )
        if len(own) == 1:
            blocks[name] = Untiled(name, own[0], axes, whole, target)
    return blocks
