"""Numbers for features, for whole populations: one array operation for all candidates at once.

Arrays have a row for each loop (or each step of an access), and a column for each candidate.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from tilewright.base.errors import BadInput
from tilewright.loops.ir import LoopKind
from tilewright.loops.program import Program
from tilewright.symbolic.evaluate import compile_exprs
from tilewright.tune.features.nest import Movement, Structure, Touch, describe
from tilewright.tune.features.walk import Factors, Floats, Function, Travel, Walk

NO_FACTORS: Factors = np.zeros((1, 0), np.int64)
"""The single candidate of a program without open factors."""
_CHUNK = 256
"""Candidates per chunk: their features are transposed within the cache."""


@dataclass(frozen=True, slots=True)
class TouchQuantities:
    """Numbers of an access, for each loop around it, outermost first: (steps, candidates)."""

    strides: Floats
    """Stride in elements between iterations; 0 in a loop of one iteration."""
    mods: Floats
    """The distance in elements after which the access returns to its start; -1 if never."""
    counts: Floats
    """Distinct elements accessed within the loop."""
    totals: Floats
    """Accesses within the loop."""
    reuses: Floats
    """Accesses per element within the loop."""
    thread_counts: Floats
    """``counts`` divided by that of the loops that one thread runs; 0 for loops that are not parallel."""
    thread_reuses: Floats


@dataclass(frozen=True, slots=True)
class Quantities:
    """Numbers of all loops, (loops, candidates), and of all accesses."""

    lengths: Floats
    topdown: Floats
    """The product of the lengths of a loop and those around it."""
    bottomup: Floats
    """The maximum number of accesses to one buffer within the loop: the product of its length and those inside."""
    touches: tuple[TouchQuantities, ...]


@dataclass(frozen=True, slots=True)
class Extractor:
    """A structure, compiled to array functions. Build it once for a sketch, and use it for all populations."""

    structure: Structure
    _lengths: Function
    _places: tuple["_Path", ...]
    _reductions: tuple["_Path | None", ...]
    """Paths of the reduction sums of inits, else None."""

    @staticmethod
    def of(program: Program) -> "Extractor":
        """The extractor of ``program``, which may have symbolic split factors. Raises ``Unsupported`` as ``describe``
        does."""
        structure = describe(program)
        symbols = structure.symbols
        places = tuple(_Path.of(structure, _places(touch)) for touch in structure.touches)
        reductions = [_reductions(touch) for touch in structure.touches]
        paths = tuple(_Path.of(structure, moves) if moves else None for moves in reductions)
        return Extractor(structure, compile_exprs([loop.extent for loop in structure.loops], symbols), places, paths)

    @property
    def symbols(self) -> tuple[str, ...]:
        """The names of the columns of ``Factors``."""
        return tuple(var.name for var in self.structure.symbols)

    def features(self, factors: Factors, width: int, of: Callable[[Quantities], Floats]) -> Floats:
        """The features of all candidates, (candidates, width); ``of`` computes those of a chunk, (width, candidates).

        Raises ``BadInput`` if ``factors`` lacks a positive number for a symbol.
        """
        self._check(factors)
        result = np.empty((len(factors), width))
        for start in range(0, len(factors), _CHUNK):
            result[start : start + _CHUNK] = of(self.quantities(factors[start : start + _CHUNK])).T
        return result

    def _check(self, factors: Factors) -> None:
        if factors.ndim != 2 or factors.shape[1] != len(self.symbols):
            needed = ", ".join(self.symbols) or "none"
            raise BadInput(f"factors have the shape (candidates, symbols), not {factors.shape}; symbols are: {needed}")
        if np.any(factors < 1):
            raise BadInput("factors are at least 1")

    def quantities(self, factors: Factors) -> Quantities:
        """The numbers of all candidates; all factors are positive."""
        lengths = np.maximum(_rows(self._lengths, factors), 0)
        touches = tuple(self._touch(position, lengths, factors) for position in range(len(self._places)))
        topdown, bottomup = _topdown(self.structure, lengths), _bottomup(self.structure, lengths, touches)
        return Quantities(lengths, topdown, bottomup, touches)

    def _touch(self, position: int, lengths: Floats, factors: Factors) -> TouchQuantities:
        steps, reduction = self.structure.touches[position].steps, self._reductions[position]
        own = lengths[[step.loop for step in steps]]
        place = self._places[position].travel(own, factors)
        counts = _inward(place.distinct)
        totals = _inward(own if reduction is None else reduction.travel(own, factors).starts)
        reuses = totals / np.maximum(counts, 1)
        bases = _thread_bases([self.structure.loops[step.loop].kind for step in steps])
        ratios = _over_base(counts, bases), _over_base(reuses, bases)
        return TouchQuantities(place.strides, place.mods, counts, totals, reuses, *ratios)


@dataclass(frozen=True, slots=True)
class _Path:
    """The change of a number along the loops around an access, compiled."""

    strides: Function
    walks: tuple[tuple[int, Walk], ...]
    """Walks for the loops in which it is not linear."""

    @staticmethod
    def of(structure: Structure, moves: Sequence[tuple[int, Movement]]) -> "_Path":
        """Loops by position, and the steps along them."""
        walks = [
            (row, Walk.along(structure.loops[loop].var, move.value, structure.symbols))
            for row, (loop, move) in enumerate(moves)
            if move.value is not None
        ]
        return _Path(compile_exprs([move.stride for _, move in moves], structure.symbols), tuple(walks))

    def travel(self, lengths: Floats, factors: Factors) -> Travel:
        """The movements of all candidates; ``lengths`` are those of the loops around."""
        result = Travel.linear(_rows(self.strides, factors), lengths)
        for row, walk in self.walks:
            result.set_row(row, walk.measure(lengths[row], factors))
        return result


def _places(touch: Touch) -> list[tuple[int, Movement]]:
    return [(step.loop, step.place) for step in touch.steps]


def _reductions(touch: Touch) -> list[tuple[int, Movement]]:
    return [(step.loop, step.reduction) for step in touch.steps if step.reduction is not None]


def _rows(function: Function, factors: Factors) -> Floats:
    """The values of a function's expressions: a row for each, a column for each candidate."""
    values = function(*factors.T)
    rows = np.empty((len(values), len(factors)))
    for row, value in zip(rows, values, strict=True):
        row[:] = value
    return rows


def _inward(factors: Floats) -> Floats:
    """The products of each row and all rows after it."""
    result = factors.copy()
    for row in range(len(factors) - 2, -1, -1):
        result[row] *= result[row + 1]
    return result


def _topdown(structure: Structure, lengths: Floats) -> Floats:
    result = np.empty_like(lengths)
    around: list[Floats] = []
    for position, loop in enumerate(structure.loops):
        del around[loop.level - 1 :]
        result[position] = lengths[position] * around[-1] if around else lengths[position]
        around.append(result[position])
    return result


def _bottomup(structure: Structure, lengths: Floats, touches: tuple[TouchQuantities, ...]) -> Floats:
    result = np.zeros_like(lengths)
    for touch, measured in zip(structure.touches, touches, strict=True):
        for step, total in zip(touch.steps, measured.totals, strict=True):
            np.maximum(result[step.loop], total, out=result[step.loop])
    return result


_LEVELS = {
    LoopKind.BLOCK_X: 2,
    LoopKind.BLOCK_Y: 2,
    LoopKind.BLOCK_Z: 2,
    LoopKind.THREAD_X: 1,
    LoopKind.THREAD_Y: 1,
    LoopKind.THREAD_Z: 1,
    LoopKind.PARALLEL: 1,
}
"""Thread levels of parallelism: threads are in blocks, and serial code in threads (0)."""


def _thread_bases(kinds: list[LoopKind]) -> tuple[int | None, ...]:
    """For each parallel loop, the outermost loop inside it of the next lower level."""
    levels = [_LEVELS.get(kind, 0) for kind in kinds]
    return tuple(
        next((b for b in range(a + 1, len(levels)) if levels[b - 1] == levels[a] == levels[b] + 1), None)
        for a in range(len(levels))
    )


def _over_base(values: Floats, bases: tuple[int | None, ...]) -> Floats:
    """The ratio to the value of the base; 0 without a base."""
    result = np.zeros_like(values)
    for row, base in enumerate(bases):
        if base is not None:
            result[row] = values[row] / np.maximum(values[base], 1)
    return result
